#pragma once
// A weight in the folder of a quantized model, and its dequantization.

#include <optional>

#include "fp8lab/model_files/layout.hpp"
#include "fp8lab/model_files/model_directory.hpp"
#include "fp8lab/model_files/quantization_config.hpp"
#include "fp8lab/model_files/rewrite.hpp"

namespace fp8lab {

struct StoredTensor {
  TensorSpec spec;
  std::size_t shard = 0;
};

/// All tensors of a weight.
struct StoredWeight {
  TensorSpec codes;
  StoredTensor scale;
  std::optional<StoredTensor> tensor_scale = {};
  const Layout* layout = nullptr;
  StoredQuantization stored = {};
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t row_block = 1;  ///< rows of the tiles of scales
  std::int64_t k_block = 1;
  TensorSpec written = {};
};

/// Fills in `rows`, `k`, the tiles and the shape that is written, from the codes' and scales'
/// shapes. Throws `Error` naming the tensor for scales of a shape or type that fits no tiles.
void set_shapes(StoredWeight& weight);

/// Reads codes and scales (perhaps from another shard of `source`), multiplies, and writes.
TensorTask dequantize_task(const ModelDirectory& source, const StoredWeight& weight);

}  // namespace fp8lab

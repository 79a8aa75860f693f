#pragma once
// A weight in the folder of a quantized model, and its dequantization.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "training/model_files/layouts/family.hpp"
#include "training/model_files/model_directory.hpp"
#include "training/model_files/rewrite.hpp"
#include "training/model_files/stored_quantization.hpp"
#include "training/model_files/weight_cast.hpp"

namespace fp8lab {

struct StoredTensor {
  TensorSpec spec = {};
  std::size_t shard = 0;
};

/// All tensors of a weight.
struct StoredWeight {
  std::string module = {};
  TensorSpec codes = {};
  StoredTensor scale = {};
  std::optional<StoredTensor> tensor_scale = {};
  const StoredNames* names = nullptr;
  WeightForm form = {};    ///< that of the files
  std::int64_t batch = 1;  ///< experts of a fused weight
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t row_block = 1;  ///< rows of the tiles of scales
  std::int64_t k_block = 1;
  bool is_blocked = false;    ///< scales in the order of tensor cores (blocked_scales.hpp)
  bool is_turned = false;     ///< codes and scales lie as [experts, k, rows]
  bool turns_output = false;  ///< floats are written as [experts, k, rows]
  TensorSpec written = {};

  /// Tiles of one expert.
  [[nodiscard]] std::int64_t tile_rows() const;
  [[nodiscard]] std::int64_t tile_columns() const;
};

/// Whether elements are codes of FP8.
bool is_fp8(ElementType type);

/// Whether elements are bytes that may pack FP4 or FP6 codes, or such codes.
bool is_packed_storage(ElementType type);

/// Fills in the form, the sizes, the tiles and the shape that is written, from the shapes and types
/// of codes and scales and from what the configuration says of the module. Throws `Error` naming
/// the tensor for scales of a shape or type that fits no tiles.
void set_shapes(StoredWeight& weight, const StoredQuantization& stored);

/// The inverse scales of all tiles, row-major, expert after expert: both levels at once, in
/// binary32. `file` is the shard of the codes; the scales may be in another one of `source`.
std::vector<float> read_scales(const ModelDirectory& source, const StoredWeight& weight,
                               const SafetensorsFile& file);

/// The bytes of a tensor. `other` owns them if they are in another shard than `file`.
TensorView view_in(const ModelDirectory& source, const StoredTensor& stored,
                   const SafetensorsFile& file, std::unique_ptr<SafetensorsFile>& other);

/// Codes, one per byte, and scales of a part of a weight: rows [first, first + rows) of an expert.
struct WeightPart {
  std::int64_t expert = 0;
  std::int64_t first = 0;
  std::int64_t rows = 0;
  ScaledCodes codes = {};
};

/// Calls `take` with all parts, in order. A part has some MB, or one expert if the weight is
/// turned. `scales` are those of `read_scales`.
void for_each_part_of(const StoredWeight& weight, const std::vector<float>& scales,
                      const SafetensorsFile& file, const TensorView& tensor,
                      const std::function<void(const WeightPart&)>& take);

/// Values of a dequantized weight that are not finite, and scales that make them so.
struct NonFiniteWeight {
  std::string name = {};
  NonFiniteValues values = {};
  std::int64_t elements = 0;
  std::int64_t nan_scales = 0;
  std::int64_t infinite_scales = 0;
  std::int64_t zero_scales = 0;  ///< plain ones, and upper levels
};

/// "3 of 4096 values are NaN (1 scale is NaN)"; empty where nothing is wrong.
std::string describe(const NonFiniteWeight& weight);

/// Reads codes and scales (perhaps from another shard of `source`), multiplies, and writes.
/// `report` gets an entry for a weight with values that are not finite or scales of 0.
TensorTask dequantize_task(const ModelDirectory& source, const StoredWeight& weight,
                           std::vector<NonFiniteWeight>& report);

}  // namespace fp8lab

#pragma once
// Quantized tensors as `quantize` writes them.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab::cli {

/// The tensors of one output file, and the bytes that were made for it.
///
/// NAME                   codes; E2M1, E2M3 and E3M2 packed
/// NAME.scale             FP32, what elements were multiplied by
/// NAME.scale_inv         FP32, multiplies back; both levels where there are two
/// NAME.scale_inv_e8m0    MX: its E8M0 codes
/// NAME.scale_inv_ue4m3   NVFP4: codes of the tiles' scales
/// NAME.tensor_scale_inv  NVFP4: the tensor's, FP32 []
class QuantizedFile {
 public:
  /// Begins with tensors that stay as they are.
  explicit QuantizedFile(std::vector<NamedTensor> left) : tensors_(std::move(left)) {}

  /// `q` must live until the file is written.
  void add(const std::string& name, const QuantizedTensor& q, std::vector<std::int64_t> shape);

  [[nodiscard]] const std::vector<NamedTensor>& tensors() const { return tensors_; }

 private:
  void add_codes(const std::string& name, const QuantizedTensor& q,
                 std::vector<std::int64_t> shape);
  void add_two_levels(const std::string& name, const QuantizedTensor& q,
                      const std::vector<std::int64_t>& tiles);

  std::vector<NamedTensor> tensors_;
  std::deque<std::vector<std::byte>> packed_;
  std::deque<std::vector<float>> totals_;
};

}  // namespace fp8lab::cli

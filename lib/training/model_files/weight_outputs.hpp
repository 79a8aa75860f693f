#pragma once
// The tensors that a weight becomes in a layout.

#include <optional>
#include <string>
#include <vector>

#include "fp8lab/io/safetensors.hpp"
#include "training/model_files/layout.hpp"
#include "training/model_files/weight_cast.hpp"

namespace fp8lab {

struct WeightOutputs {
  TensorSpec codes;
  TensorSpec scale;
  std::optional<TensorSpec> tensor_scale;  ///< the upper one of two levels
  std::optional<TensorSpec> input_scale;

  [[nodiscard]] std::vector<TensorSpec> list() const;
};

/// `weight`: [rows, k], experts [experts, n, k], or gpt-oss's [experts, k, rows]. Codes of FP4 and
/// FP6 are packed bytes (U8): 2 codes in one, 4 in three (tensors/packed.hpp).
WeightOutputs outputs_of(const Layout& layout, const WeightScheme& scheme,
                         const TensorSpec& weight);

/// Writes the scales of a weight [rows, k].
void write_scales(const Layout& layout, const WeightScheme& scheme, const TensorSpec& weight,
                  const QuantizedWeight& quantized, const WeightOutputs& outputs,
                  SafetensorsWriter& out);

/// Writes one number in the type of `spec` (F32 or BF16).
void write_number(float value, const TensorSpec& spec, SafetensorsWriter& out);

/// Writes codes [first, first + their number) of a weight, given one per byte, in the form of the
/// output. `first` and the number must fill whole bytes.
void write_codes(const WeightScheme& scheme, const TensorSpec& output, std::uint64_t first,
                 std::span<const std::uint8_t> codes, SafetensorsWriter& out);

}  // namespace fp8lab

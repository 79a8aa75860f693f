#pragma once
// The description of quantized weights in config.json: writes it for the readers of each layout,
// and reads it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/model_files/layout.hpp"

namespace fp8lab {

/// Throws `Error` as `with_quantization`. Call it first, so that errors of a model are reported
/// before errors of a request.
void require_quantizable(const std::string& config, const std::string& where);

/// The text of a config.json with `quantization_config`. `kept`: modules that stay as they are.
/// `where` starts every message. Throws `Error` for text that is not a JSON object, a model that
/// is quantized already, and one whose matrices lie as [in, out] (GPT-2's Conv1D).
std::string with_quantization(const std::string& config, const std::string& where,
                              const Layout& layout, const WeightScheme& scheme,
                              const std::vector<std::string>& kept);

/// hf_quant_config.json, which readers of ModelOpt's layout want beside config.json. Its producer
/// is "modelopt", since they refuse others.
std::string modelopt_config(const WeightScheme& scheme, const std::vector<std::string>& kept);

/// The quantization in the config.json of a model.
struct StoredQuantization {
  LayoutFamily family = LayoutFamily::fp8;
  FormatId format = FormatId::e4m3fn;
  ScaleKind scales = ScaleKind::plain;
  std::int64_t row_block = 128;  ///< of scales that are neither the tensor's nor a row's
  std::int64_t k_block = 128;
};

/// Unset where the text has no `quantization_config`. Throws `Error` for one of another method or
/// of other numbers than `layouts()` have.
std::optional<StoredQuantization> read_quantization(const std::string& config,
                                                    const std::string& where);

/// The text of a config.json without `quantization_config`.
std::string without_quantization(const std::string& config, const std::string& where);

/// The type that the model computes in (`dtype`, or `torch_dtype` as older files have it).
std::optional<ElementType> model_type(const std::string& config, const std::string& where);

}  // namespace fp8lab

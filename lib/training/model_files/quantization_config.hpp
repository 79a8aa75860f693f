#pragma once
// The description of quantized weights in config.json, written for the readers of each layout.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "training/model_files/layout.hpp"

namespace fp8lab {

/// Throws `Error` as `with_quantization`. Call it first, so that errors of a model are reported
/// before errors of a request.
void require_quantizable(const std::string& config, const std::string& where);

/// The text of a config.json with `quantization_config`. `kept`: modules that stay as they are.
/// `where` starts every message. Throws `Error` for text that is not a JSON object, a model that
/// is quantized already, and one whose matrices lie as [in, out] (GPT-2's Conv1D).
std::string with_quantization(const std::string& config, const std::string& where,
                              const Layout& layout, const ModelSchemes& schemes,
                              const std::vector<std::string>& kept);

/// The text of the second file that readers of a layout want beside config.json
/// (`LayoutFamily::own_file`), such as ModelOpt's hf_quant_config.json.
std::string own_config(const Layout& layout, const ModelSchemes& schemes,
                       const std::vector<std::string>& kept);

/// The text of a config.json without `quantization_config`, at its top and inside.
std::string without_quantization(const std::string& config, const std::string& where);

/// The type that the model computes in: `dtype`, or `torch_dtype` as older files have it, at the
/// top or in the nested configuration of a multimodal model.
std::optional<ElementType> model_type(const std::string& config, const std::string& where);

/// A number at the top of a config.json or in the part of its language model; unset for none.
std::optional<std::int64_t> model_number(const std::string& config, const std::string& where,
                                         const char* key);

/// The module of the matrix that gives words, as loaders build it for the `model_type` of a
/// config.json: `lm_head` except for a few. A tied one is in no file.
std::string head_of_model(const std::string& config, const std::string& where);

}  // namespace fp8lab

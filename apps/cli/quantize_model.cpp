#include "quantize_model.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "model_progress.hpp"
#include "say.hpp"
#include "training/model_files/quantize_model.hpp"

namespace fp8lab::cli {
namespace {

/// {reason: how many tensors}: a model has hundreds that stay for the same one.
std::map<std::string, std::size_t> count_reasons(const QuantizedModel& model) {
  std::map<std::string, std::size_t> counts;
  for (const KeptTensor& kept : model.kept) ++counts[kept.reason];
  return counts;
}

std::string_view numbers_of(const WeightScheme& scheme) {
  if (scheme.scales == ScaleKind::two_level) return "NVFP4";
  const bool mx = scheme.scales == ScaleKind::e8m0;
  if (scheme.format == FormatId::e4m3fn) return mx ? "MXFP8" : "E4M3";
  return scheme.format == FormatId::e2m1 ? "MXFP4" : "MXFP6";
}

void warn(const QuantizedModel& model) {
  for (const std::string& weight : model.nan_weights)
    say(stderr, "warning: NaN codes in {}\n", weight);
  if (!model.unused_samples.empty())
    say(stderr, "samples of {} modules that are not converted were not used ({})\n",
        model.unused_samples.size(), model.unused_samples.front());
}

void print(const QuantizedModel& model, const QuantizeModelRequest& request) {
  say("{} of {} tensors became {} (recipe {}, layout {}, rule {})\n", model.converted.size(),
      model.converted.size() + model.kept.size(), numbers_of(model.scheme), request.recipe,
      request.layout, request.rule);
  for (const ModuleScheme& other : model.others)
    say("  {} of them {} (recipe {}, {})\n", other.modules.size(), numbers_of(other.scheme),
        other.recipe, other.pattern);
  if (model.scheme.input == InputScheme::stays)
    say("  inputs are not cast{}\n", model.scheme.scales == ScaleKind::two_level
                                         ? " (--calibration would give them a scale)"
                                         : "");
  if (!model.kv_scales.empty())
    say("  {} of the KV cache ({})\n", counted(model.kv_scales.size(), "scale tensor"),
        request.kv_cache);
  for (const auto& [reason, count] : count_reasons(model)) say("  {} stayed: {}\n", count, reason);
  print_summary(model.files);
}

void print_json(const QuantizedModel& model, const QuantizeModelRequest& request) {
  nlohmann::ordered_json converted = nlohmann::ordered_json::array();
  for (const TensorSpec& tensor : model.converted)
    converted.push_back({{"name", tensor.name}, {"shape", tensor.shape}});
  nlohmann::ordered_json kept = nlohmann::ordered_json::array();
  for (const KeptTensor& item : model.kept)
    kept.push_back({{"name", item.tensor.name},
                    {"dtype", to_string(item.tensor.type)},
                    {"shape", item.tensor.shape},
                    {"reason", item.reason}});
  nlohmann::ordered_json others = nlohmann::ordered_json::array();
  for (const ModuleScheme& other : model.others)
    others.push_back({{"pattern", other.pattern},
                      {"recipe", other.recipe},
                      {"numbers", numbers_of(other.scheme)},
                      {"inputs", to_string(other.scheme.input)},
                      {"modules", other.modules}});
  const nlohmann::ordered_json report{{"recipe", request.recipe},
                                      {"layout", request.layout},
                                      {"rule", request.rule},
                                      {"numbers", numbers_of(model.scheme)},
                                      {"inputs", to_string(model.scheme.input)},
                                      {"other_recipes", others},
                                      {"converted", converted},
                                      {"kept", kept},
                                      {"nan_weights", model.nan_weights},
                                      {"kv_scales", model.kv_scales},
                                      {"files", to_json(model.files)}};
  fmt::print("{}\n", json_text(report, 2));
}

}  // namespace

bool names_model(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) || path.ends_with(".safetensors.index.json");
}

int quantize_model(const QuantizeModelRequest& request) {
  const ModelDirectory source(request.input);
  QuantizeModelOptions options{.preset = request.recipe,
                               .layout = request.layout,
                               .rule = request.rule,
                               .calibration = {},
                               .ignore = request.ignore,
                               .only = request.only,
                               .recipe_for = request.recipe_for,
                               .kv_cache = request.kv_cache};
  options.calibration.assign(request.calibration.begin(), request.calibration.end());
  QuantizedModel model;
  {
    ModelProgress progress("quantize");
    model = fp8lab::quantize_model(source, options, request.output, progress.callback());
  }
  warn(model);
  if (request.json)
    print_json(model, request);
  else
    print(model, request);
  return kPass;
}

}  // namespace fp8lab::cli

#include "fp8lab/model_files/quantize_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/model_files/calibration.hpp"
#include "fp8lab/model_files/expert_cast.hpp"
#include "fp8lab/model_files/quantization_config.hpp"
#include "fp8lab/model_files/recipe_input.hpp"
#include "fp8lab/model_files/siblings.hpp"
#include "fp8lab/model_files/torchao_metadata.hpp"
#include "fp8lab/model_files/weight_outputs.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kModeloptConfig = "hf_quant_config.json";

/// What all weights of a run share.
struct Run {
  const Preset& preset;
  const Layout& layout;
  const LayerRule& rule;
  WeightScheme scheme;
  std::map<std::string, float> input_scales;   ///< by module
  std::map<std::string, float> shared_amaxes;  ///< of modules that share a tensor's scale
};

TensorTask experts_task(const Run& run, const TensorSpec& weight, QuantizedModel& model) {
  const WeightOutputs outputs = outputs_of(run.layout, run.scheme, weight);
  const auto work = [&run, outputs, name = weight.name, &model](const SafetensorsFile& file,
                                                                const TensorView& tensor,
                                                                SafetensorsWriter& out) {
    const std::int64_t nan = quantize_experts(
        run.scheme, run.preset.weight, tensor, outputs,
        [&](auto part) { file.file().release(part); }, out);
    if (nan > 0) model.nan_weights.push_back(fmt::format("{} ({})", name, counted(nan, "code")));
  };
  return {weight, outputs.list(), work};
}

TensorTask quantize_task(const Run& run, const TensorSpec& weight, QuantizedModel& model) {
  if (run.layout.family == LayoutFamily::gpt_oss) return experts_task(run, weight, model);
  const WeightOutputs outputs = outputs_of(run.layout, run.scheme, weight);
  const std::string module(module_of(weight.name));
  const auto work = [&run, outputs, module, weight, &model](const SafetensorsFile& file,
                                                            const TensorView& tensor,
                                                            SafetensorsWriter& out) {
    const auto take = [&](std::int64_t first, std::span<const std::uint8_t> codes) {
      write_codes(run.scheme, outputs.codes, static_cast<std::uint64_t>(first), codes, out);
    };
    const auto shared = run.shared_amaxes.find(module);
    const QuantizedWeight quantized = quantize_weight(
        run.preset.weight, tensor, take, [&](auto part) { file.file().release(part); },
        shared == run.shared_amaxes.end() ? std::nullopt : std::optional(shared->second));
    write_scales(run.layout, run.scheme, weight, quantized, outputs, out);
    if (outputs.input_scale) write_number(run.input_scales.at(module), *outputs.input_scale, out);
    if (quantized.nan_codes > 0)
      model.nan_weights.push_back(
          fmt::format("{} ({})", weight.name, counted(quantized.nan_codes, "code")));
  };
  return {weight, outputs.list(), work};
}

/// Refused before the work, not in it.
void require_weight(const Run& run, const TensorSpec& weight) {
  const Recipe& recipe = run.preset.weight;
  require_recipe_takes(run.preset.name, recipe, weight);
  if (run.layout.family == LayoutFamily::gpt_oss) return;  // their k was looked at
  const bool fits =
      weight.shape[0] % recipe.rows_multiple == 0 && weight.shape[1] % recipe.k_multiple == 0;
  require(fits, fmt::format("tensor '{}' under recipe {}", weight.name, run.preset.name),
          fmt::format("multiples of {} x {}", recipe.rows_multiple, recipe.k_multiple),
          shape_text(weight.shape));
}

/// Sorts all tensors into `converted` and `kept`.
void decide_all(const ModelDirectory& source, const Run& run, QuantizedModel& model) {
  for (const WeightShard& shard : source.shards())
    for (const TensorSpec& tensor : shard.tensors) {
      const LayerDecision decision = decide(run.rule, run.layout, run.scheme, tensor);
      if (decision.converts) {
        require_weight(run, tensor);
        model.converted.push_back(tensor);
      } else {
        model.kept.push_back({tensor, decision.reason});
      }
    }
  require(!model.converted.empty(), fmt::format("rule {}", run.rule.name), "weights that it takes",
          fmt::format("none among {} tensors", model.kept.size()));
}

/// Modules that a reader would otherwise take for quantized ones: matrices that stay, and a tied
/// lm_head, which no file has.
std::vector<std::string> kept_modules(const QuantizedModel& model) {
  std::vector<std::string> modules;
  bool has_head = false;
  for (const TensorSpec& tensor : model.converted)
    has_head |= module_of(tensor.name).ends_with("lm_head");
  for (const KeptTensor& kept : model.kept) {
    const std::string_view module = module_of(kept.tensor.name);
    if (module.empty() || kept.tensor.shape.size() < 2) continue;
    modules.emplace_back(module);
    has_head |= module.ends_with("lm_head");
  }
  if (!has_head) modules.emplace_back("lm_head");
  std::sort(modules.begin(), modules.end());
  return modules;
}

void calibrate(const std::vector<fs::path>& files, Run& run, QuantizedModel& model) {
  if (files.empty()) return;
  CalibrationTargets targets;
  for (const TensorSpec& tensor : model.converted)
    targets.columns[std::string(module_of(tensor.name))] = tensor.shape[1];
  for (const KeptTensor& kept : model.kept)
    if (!module_of(kept.tensor.name).empty())
      targets.kept.insert(std::string(module_of(kept.tensor.name)));
  targets.kept.insert("lm_head");
  targets.as_multipliers =
      run.scheme.scales == ScaleKind::two_level && stores_multiplier(run.layout);
  InputScales inputs = calibrate_inputs(run.preset, files, targets);
  run.input_scales = std::move(inputs.scales);
  if (shares_tensor_scale(run.layout, run.scheme))
    join_input_scales(run.input_scales, targets.as_multipliers);
  model.unused_samples.assign(inputs.unused.begin(), inputs.unused.end());
}

ModelRewrite plan(const ModelDirectory& source, const Run& run, QuantizedModel& model) {
  ModelRewrite rewrite;
  std::map<std::string, std::string> metadata;
  if (run.layout.family == LayoutFamily::torchao) metadata = torchao_metadata(run.scheme, model);
  for (std::size_t s = 0; s < source.shards().size(); ++s) {
    const WeightShard& shard = source.shards()[s];
    ShardTask task{s, metadata, {}};
    task.metadata.insert(shard.metadata.begin(), shard.metadata.end());
    for (const TensorSpec& tensor : shard.tensors) {
      const bool converts = decide(run.rule, run.layout, run.scheme, tensor).converts;
      task.tasks.push_back(converts ? quantize_task(run, tensor, model) : copy_task(tensor));
    }
    rewrite.shards.push_back(std::move(task));
  }
  return rewrite;
}

std::string scales_text(const std::map<std::string, float>& scales) {
  std::string text;
  for (const auto& [module, scale] : scales) text += fmt::format("{} {:a}\n", module, scale);
  return text;
}

}  // namespace

QuantizedModel quantize_model(const ModelDirectory& source, const QuantizeModelOptions& options,
                              const fs::path& target,
                              const std::function<void(const RewriteProgress&)>& progress) {
  const Preset& preset = find_preset(options.preset);
  const Layout& layout = find_layout(options.layout);
  Run run{preset,
          layout,
          find_layer_rule(options.rule),
          make_scheme(layout, preset, !options.calibration.empty()),
          {},
          {}};
  const fs::path config_path = source.folder() / kConfig;
  const std::string config = read_file(config_path);
  require_quantizable(config, config_path.string());
  QuantizedModel model;
  model.scheme = run.scheme;
  decide_all(source, run, model);
  const std::vector<std::string> kept = kept_modules(model);
  const std::string written =
      with_quantization(config, config_path.string(), layout, run.scheme, kept);
  require_free_target(target);
  calibrate(options.calibration, run, model);
  if (shares_tensor_scale(layout, run.scheme))
    run.shared_amaxes = shared_amaxes(source, preset.weight, model);
  ModelRewrite rewrite = plan(source, run, model);
  rewrite.texts[kConfig] = written;
  rewrite.dropped = {kModeloptConfig};
  if (layout.family == LayoutFamily::modelopt)
    rewrite.texts[kModeloptConfig] = modelopt_config(run.scheme, kept);
  rewrite.settings = {{"command", "quantize"},
                      {"recipe", options.preset},
                      {"layout", options.layout},
                      {"rule", options.rule},
                      {"input scales", crc32_text(scales_text(run.input_scales))}};
  model.files = rewrite_model(source, rewrite, target, progress);
  return model;
}

}  // namespace fp8lab

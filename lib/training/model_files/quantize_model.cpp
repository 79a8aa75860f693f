#include "training/model_files/quantize_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/files.hpp"
#include "training/model_files/calibration.hpp"
#include "training/model_files/expert_cast.hpp"
#include "training/model_files/kv_cache.hpp"
#include "training/model_files/layouts/family.hpp"
#include "training/model_files/module_choice.hpp"
#include "training/model_files/quantization_config.hpp"
#include "training/model_files/recipe_input.hpp"
#include "training/model_files/siblings.hpp"
#include "training/model_files/weight_outputs.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

/// How some modules are cast.
struct ModuleCast {
  const Preset& preset;
  WeightScheme scheme;
  std::optional<NamePattern> pattern = {};          ///< unset: all modules that no other one has
  std::map<std::string, float> shared_amaxes = {};  ///< of modules that share a tensor's scale
};

/// What all weights of a run share.
struct Run {
  const Layout& layout;
  ModuleChoice choice;
  std::vector<ModuleCast> casts;                   ///< the last one is that of all other modules
  std::map<std::string, float> input_scales = {};  ///< by module
  std::map<std::string, KvScale> kv_scales = {};   ///< by the weight that they stand beside

  [[nodiscard]] const ModuleCast& cast_of(std::string_view module) const {
    const auto found = std::find_if(casts.begin(), casts.end(), [&](const ModuleCast& cast) {
      return !cast.pattern || cast.pattern->matches(module);
    });
    return *found;
  }
};

/// The module of a weight; fused experts stand for themselves.
std::string_view module_or_parameter(const TensorSpec& weight) {
  const std::string_view module = module_of(weight.name);
  return module.empty() ? std::string_view(weight.name) : module;
}

TensorTask experts_task(const Run& run, const TensorSpec& weight, QuantizedModel& model) {
  const ModuleCast& cast = run.cast_of(module_or_parameter(weight));
  const WeightOutputs outputs = outputs_of(run.layout, cast.scheme, weight);
  const auto work = [&run, &cast, outputs, name = weight.name, &model](const SafetensorsFile& file,
                                                                       const TensorView& tensor,
                                                                       SafetensorsWriter& out) {
    const auto release = [&](auto part) { file.file().release(part); };
    const bool turns = run.layout.fuses_experts;
    const std::int64_t nan =
        turns ? quantize_experts(cast.scheme, cast.preset.weight, tensor, outputs, release, out)
              : quantize_fused(cast.scheme, cast.preset.weight, tensor, outputs, release, out);
    if (nan > 0) model.nan_weights.push_back(fmt::format("{} ({})", name, counted(nan, "code")));
  };
  return {weight, outputs.list(), work};
}

TensorTask quantize_task(const Run& run, const TensorSpec& weight, QuantizedModel& model) {
  if (weight.shape.size() == 3) return experts_task(run, weight, model);
  const std::string module(module_of(weight.name));
  const ModuleCast& cast = run.cast_of(module);
  const WeightOutputs outputs = outputs_of(run.layout, cast.scheme, weight);
  const auto work = [&run, &cast, outputs, module, weight, &model](const SafetensorsFile& file,
                                                                   const TensorView& tensor,
                                                                   SafetensorsWriter& out) {
    const auto take = [&](std::int64_t first, std::span<const std::uint8_t> codes) {
      write_codes(cast.scheme, outputs.codes, static_cast<std::uint64_t>(first), codes, out);
    };
    const auto shared = cast.shared_amaxes.find(module);
    const QuantizedWeight quantized = quantize_weight(
        cast.preset.weight, tensor, take, [&](auto part) { file.file().release(part); },
        shared == cast.shared_amaxes.end() ? std::nullopt : std::optional(shared->second));
    write_scales(run.layout, cast.scheme, weight, quantized, outputs, out);
    if (outputs.input_scale) write_number(run.input_scales.at(module), *outputs.input_scale, out);
    if (quantized.nan_codes > 0)
      model.nan_weights.push_back(
          fmt::format("{} ({})", weight.name, counted(quantized.nan_codes, "code")));
  };
  return {weight, outputs.list(), work};
}

/// Refused before the work, not in it.
void require_weight(const Run& run, const ModuleCast& cast, const TensorSpec& weight) {
  const Recipe& recipe = cast.preset.weight;
  require_recipe_takes(cast.preset.name, recipe, weight);
  if (run.layout.fuses_experts) return;  // their k was looked at
  const std::size_t rows = weight.shape.size() - 2;
  const bool fits = weight.shape[rows] % recipe.rows_multiple == 0 &&
                    weight.shape[rows + 1] % recipe.k_multiple == 0;
  require(fits, fmt::format("tensor '{}' under recipe {}", weight.name, cast.preset.name),
          fmt::format("multiples of {} x {}", recipe.rows_multiple, recipe.k_multiple),
          shape_text(weight.shape));
}

/// Sorts all tensors into `converted` and `kept`.
void decide_all(const ModelDirectory& source, const Run& run, QuantizedModel& model) {
  for (const WeightShard& shard : source.shards())
    for (const TensorSpec& tensor : shard.tensors) {
      const std::string reason = run.choice.reason_to_keep(tensor);
      const ModuleCast& cast = run.cast_of(module_or_parameter(tensor));
      const LayerDecision decision =
          reason.empty() ? decide(run.choice.rule(), run.layout, cast.scheme, tensor)
                         : LayerDecision{false, reason};
      if (decision.converts) {
        require_weight(run, cast, tensor);
        model.converted.push_back(tensor);
      } else {
        model.kept.push_back({tensor, decision.reason});
      }
    }
  require(!model.converted.empty(), fmt::format("rule {}", run.choice.rule().name),
          "weights that it takes", fmt::format("none among {} tensors", model.kept.size()));
}

/// Modules that a reader would otherwise take for quantized ones: matrices that stay, and a tied
/// `head`, which no file has.
std::vector<std::string> kept_modules(const QuantizedModel& model, const std::string& head) {
  std::vector<std::string> modules;
  bool has_head = false;
  for (const TensorSpec& tensor : model.converted)
    has_head |= module_of(tensor.name).ends_with(head);
  for (const KeptTensor& kept : model.kept) {
    const std::string_view module = module_of(kept.tensor.name);
    if (module.empty() || kept.tensor.shape.size() < 2) continue;
    modules.emplace_back(module);
    has_head |= module.ends_with(head);
  }
  if (!has_head) modules.emplace_back(head);
  std::sort(modules.begin(), modules.end());
  return modules;
}

/// Scales of the inputs of the modules of one cast.
void calibrate(const std::vector<fs::path>& files, const ModuleCast& cast, Run& run,
               QuantizedModel& model, std::set<std::string>& unused) {
  if (cast.scheme.input != InputScheme::calibrated) return;
  CalibrationTargets targets;
  for (const TensorSpec& tensor : model.converted) {
    const std::string module(module_of(tensor.name));
    if (&run.cast_of(module) == &cast)
      targets.columns[module] = tensor.shape[1];
    else
      targets.kept.insert(module);
  }
  if (targets.columns.empty()) return;
  for (const KeptTensor& kept : model.kept)
    if (!module_of(kept.tensor.name).empty())
      targets.kept.insert(std::string(module_of(kept.tensor.name)));
  targets.kept.insert("lm_head");
  targets.has_outputs = !run.kv_scales.empty();
  targets.as_multipliers =
      cast.scheme.scales == ScaleKind::two_level && run.layout.stores_multiplier;
  InputScales inputs = calibrate_inputs(cast.preset, files, targets);
  if (shares_tensor_scale(run.layout, cast.scheme))
    join_input_scales(inputs.scales, targets.as_multipliers);
  run.input_scales.merge(inputs.scales);
  unused.insert(inputs.unused.begin(), inputs.unused.end());
}

void calibrate_all(const std::vector<fs::path>& files, Run& run, QuantizedModel& model) {
  std::set<std::string> unused;
  for (const ModuleCast& cast : run.casts) calibrate(files, cast, run, model, unused);
  for (const std::string& module : unused)
    if (!run.input_scales.contains(module)) model.unused_samples.push_back(module);
}

/// The amaxes that weights of a cast share, if its layout has servers that join them.
void share_amaxes(const ModelDirectory& source, const QuantizedModel& model, Run& run) {
  for (ModuleCast& cast : run.casts) {
    if (!shares_tensor_scale(run.layout, cast.scheme)) continue;
    QuantizedModel own;
    for (const TensorSpec& weight : model.converted)
      if (&run.cast_of(module_or_parameter(weight)) == &cast) own.converted.push_back(weight);
    cast.shared_amaxes = shared_amaxes(source, cast.preset.weight, own);
  }
}

/// `PATTERN=RECIPE`.
ModuleCast parse_recipe_for(const std::string& text, const Layout& layout, bool calibrated) {
  const std::size_t at = text.rfind('=');
  require(at != std::string::npos && at > 0 && at + 1 < text.size(), argument("recipe-for"),
          "PATTERN=RECIPE", fmt::format("'{}'", text));
  require(layout.mixes_schemes, argument("recipe-for"),
          "a layout that gives modules schemes of their own (compressed-tensors, modelopt, "
          "deepseek-v4)",
          layout.name);
  const Preset& preset = find_preset(text.substr(at + 1));
  return {preset, make_scheme_of_part(layout, preset, calibrated),
          NamePattern(text.substr(0, at), PatternKind::compressed_tensors, argument("recipe-for"))};
}

std::vector<ModuleCast> make_casts(const Layout& layout, const QuantizeModelOptions& options) {
  std::vector<ModuleCast> casts;
  const bool calibrated = !options.calibration.empty();
  for (const std::string& text : options.recipe_for)
    casts.push_back(parse_recipe_for(text, layout, calibrated));
  const Preset& preset = find_preset(options.preset);
  const bool alone = casts.empty() && options.kv_cache == "none";
  casts.push_back({preset, alone ? make_scheme(layout, preset, calibrated)
                                 : make_scheme_of_part(layout, preset, calibrated)});
  const bool uses = std::any_of(casts.begin(), casts.end(), [](const ModuleCast& cast) {
    return cast.scheme.input == InputScheme::calibrated;
  });
  require(uses || !calibrated || options.kv_cache != "none", argument("calibration"),
          "a recipe whose input scale is calibrated", "a file");
  return casts;
}

/// The modules of the last cast.
std::vector<std::string> rest_of(const Run& run, const QuantizedModel& model) {
  std::vector<std::string> modules;
  for (const TensorSpec& weight : model.converted)
    if (!run.cast_of(module_or_parameter(weight)).pattern)
      modules.emplace_back(module_or_parameter(weight));
  return modules;
}

/// The schemes beside the last one, with the modules that have them.
std::vector<ModuleScheme> other_schemes(const Run& run, const QuantizedModel& model) {
  std::vector<ModuleScheme> others;
  for (const ModuleCast& cast : run.casts) {
    if (!cast.pattern) continue;
    ModuleScheme one{cast.pattern->text(), std::string(cast.preset.name), cast.scheme};
    for (const TensorSpec& weight : model.converted)
      if (&run.cast_of(module_or_parameter(weight)) == &cast)
        one.modules.emplace_back(module_or_parameter(weight));
    require(!one.modules.empty(), argument("recipe-for"),
            "a pattern that matches a module that is converted",
            fmt::format("'{}', which matches none", one.pattern));
    others.push_back(std::move(one));
  }
  return others;
}

/// A tensor of scales behind the outputs of a task.
TensorTask with_scale(TensorTask task, const KvScale& scale) {
  task.outputs.push_back(scale.spec);
  task.work = [work = std::move(task.work), scale](
                  const SafetensorsFile& file, const TensorView& tensor, SafetensorsWriter& out) {
    work(file, tensor, out);
    out.write(scale.spec.name, 0, std::as_bytes(std::span(scale.values)));
  };
  return task;
}

ModelRewrite plan(const ModelDirectory& source, const Run& run, QuantizedModel& model) {
  ModelRewrite rewrite;
  const std::map<std::string, std::string> metadata = run.layout.family->metadata(model);
  std::set<std::string> converted;
  for (const TensorSpec& weight : model.converted) converted.insert(weight.name);
  for (std::size_t s = 0; s < source.shards().size(); ++s) {
    const WeightShard& shard = source.shards()[s];
    ShardTask task{s, metadata, {}};
    task.metadata.insert(shard.metadata.begin(), shard.metadata.end());
    for (const TensorSpec& tensor : shard.tensors) {
      const bool converts = converted.contains(tensor.name);
      task.tasks.push_back(converts ? quantize_task(run, tensor, model) : copy_task(tensor));
      const auto scale = run.kv_scales.find(tensor.name);
      if (scale == run.kv_scales.end()) continue;
      task.tasks.back() = with_scale(std::move(task.tasks.back()), scale->second);
      model.kv_scales.push_back(scale->second.spec.name);
    }
    rewrite.shards.push_back(std::move(task));
  }
  return rewrite;
}

std::string scales_text(const Run& run) {
  std::string text;
  for (const auto& [module, scale] : run.input_scales)
    text += fmt::format("{} {:a}\n", module, scale);
  for (const auto& [weight, scale] : run.kv_scales)
    for (const float value : scale.values) text += fmt::format("{} {:a}\n", scale.spec.name, value);
  return text;
}

/// The layouts of models that a file describes, for messages.
std::string layouts_of(const std::string& config_file) {
  std::vector<std::string_view> names;
  for (const Layout& layout : layouts())
    if (layout.family->config_file() == config_file) names.push_back(layout.name);
  return fmt::format("a layout of models that are described by {} ({})", config_file,
                     fmt::join(names, ", "));
}

}  // namespace

QuantizedModel quantize_model(const ModelDirectory& source, const QuantizeModelOptions& options,
                              const fs::path& target,
                              const std::function<void(const RewriteProgress&)>& progress) {
  const Layout& layout = find_layout(options.layout);
  Run run{layout, ModuleChoice(options.rule, options.ignore, options.only),
          make_casts(layout, options)};
  const fs::path config_path = source.config();
  require(config_path.filename() == layout.family->config_file(), argument("layout"),
          layouts_of(config_path.filename().string()), layout.name);
  const std::string config = read_file(config_path);
  require_quantizable(config, config_path.string());
  run.choice.require_matches(source.shards());
  QuantizedModel model;
  model.scheme = run.casts.back().scheme;
  decide_all(source, run, model);
  model.others = other_schemes(run, model);
  const std::vector<std::string> kept =
      kept_modules(model, head_of_model(config, config_path.string()));
  ModelSchemes schemes{model.scheme, model.others, rest_of(run, model)};
  schemes.kv_cache = find_kv_scales(options.kv_cache);
  const std::string written =
      with_quantization(config, config_path.string(), layout, schemes, kept);
  require_free_target(target);
  const std::int64_t heads =
      model_number(config, config_path.string(), "num_key_value_heads").value_or(0);
  run.kv_scales = calibrate_kv_cache(source, layout, schemes.kv_cache, heads, options.calibration);
  calibrate_all(options.calibration, run, model);
  share_amaxes(source, model, run);
  ModelRewrite rewrite = plan(source, run, model);
  rewrite.texts[config_path.filename().string()] = written;
  rewrite.dropped = own_files();
  if (!layout.family->own_file().empty())
    rewrite.texts[std::string(layout.family->own_file())] = own_config(layout, schemes, kept);
  rewrite.settings = {{"command", "quantize"},
                      {"recipe", options.preset},
                      {"layout", options.layout},
                      {"rule", options.rule},
                      {"ignore", fmt::format("{}", fmt::join(options.ignore, " "))},
                      {"recipes", fmt::format("{}", fmt::join(options.recipe_for, " "))},
                      {"only", fmt::format("{}", fmt::join(options.only, " "))},
                      {"input scales", crc32_text(scales_text(run))}};
  model.files = rewrite_model(source, rewrite, target, progress);
  return model;
}

}  // namespace fp8lab

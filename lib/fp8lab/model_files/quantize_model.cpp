#include "fp8lab/model_files/quantize_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/model_files/calibration.hpp"
#include "fp8lab/model_files/quantization_config.hpp"
#include "fp8lab/model_files/recipe_input.hpp"
#include "fp8lab/model_files/weight_cast.hpp"

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
  std::map<std::string, float> input_scales;  ///< by module
};

/// FP32 scales as the layout stores them: recipes of BF16 systems have BF16 scales.
void write_scales(std::span<const float> scales, ElementType type, const std::string& name,
                  SafetensorsWriter& out) {
  if (type == ElementType::f32) return out.write(name, 0, std::as_bytes(scales));
  std::vector<std::uint16_t> codes(scales.size());
  encode(scales, std::span(codes), {.format = *format_of(type), .policy = kMlDtypes});
  out.write(name, 0, std::as_bytes(std::span(codes)));
}

std::string in_module(std::string_view module, std::string_view name) {
  return fmt::format("{}.{}", module, name);
}

std::vector<TensorSpec> outputs_of(const Run& run, const TensorSpec& weight) {
  const std::string_view module = module_of(weight.name);
  std::vector<TensorSpec> outputs{
      {in_module(module, run.layout.codes), ElementType::e4m3fn, weight.shape},
      {in_module(module, run.layout.scale), run.scheme.scale_type,
       scale_shape(run.layout, run.scheme, weight.shape[0], weight.shape[1])}};
  if (run.scheme.input == InputScheme::calibrated) {
    const bool listed = run.layout.family == LayoutFamily::compressed_tensors;
    outputs.push_back({in_module(module, run.layout.input_scale), run.scheme.scale_type,
                       listed ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{}});
  }
  return outputs;
}

TensorTask quantize_task(const Run& run, const TensorSpec& weight, QuantizedModel& model) {
  const std::vector<TensorSpec> outputs = outputs_of(run, weight);
  const auto found = run.input_scales.find(std::string(module_of(weight.name)));
  std::optional<float> input_scale;
  if (found != run.input_scales.end()) input_scale = found->second;
  const auto work = [recipe = run.preset.weight, outputs, input_scale, name = weight.name, &model](
                        const SafetensorsFile& file, const TensorView& tensor,
                        SafetensorsWriter& out) {
    const auto take = [&](std::int64_t first, std::span<const std::uint8_t> codes) {
      out.write(outputs[0].name, static_cast<std::uint64_t>(first), std::as_bytes(codes));
    };
    const QuantizedWeight quantized =
        quantize_weight(recipe, tensor, take, [&](auto part) { file.file().release(part); });
    write_scales(quantized.inverse_scales, outputs[1].type, outputs[1].name, out);
    if (input_scale) write_scales({&*input_scale, 1}, outputs[2].type, outputs[2].name, out);
    if (quantized.nan_codes > 0)
      model.nan_weights.push_back(fmt::format("{} ({} codes)", name, quantized.nan_codes));
  };
  return {weight, outputs, work};
}

/// Refused before the work, not in it.
void require_weight(const Run& run, const TensorSpec& weight) {
  const Recipe& recipe = run.preset.weight;
  require_recipe_takes(run.preset.name, recipe, weight);
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
  InputScales inputs = calibrate_inputs(run.preset, files, targets);
  run.input_scales = std::move(inputs.scales);
  model.unused_samples.assign(inputs.unused.begin(), inputs.unused.end());
}

std::string_view torch_name(ElementType type) {
  if (type == ElementType::bf16) return "bfloat16";
  return type == ElementType::f16 ? "float16" : "float32";
}

/// How torchao's reader makes its tensor class of a weight's codes and scale.
std::string torchao_weight(const WeightScheme& scheme, const TensorSpec& weight) {
  using Json = nlohmann::ordered_json;
  const bool by_row = scheme.tiles == WeightTiles::row;
  const Json granularity{{"_type", by_row ? "PerRow" : "PerTensor"},
                         {"_data", by_row ? Json{{"dim", -1}} : Json::object()}};
  const Json product{
      {"_type", "Float8MMConfig"},
      {"_data", {{"emulate", false}, {"use_fast_accum", true}, {"pad_inner_dim", false}}}};
  const Json kernel{{"_type", "KernelPreference"}, {"_data", "AUTO"}};
  const Json input{{"_type", "QuantizeTensorToFloat8Kwargs"},
                   {"_data",
                    {{"float8_dtype", {{"_type", "torch.dtype"}, {"_data", "float8_e4m3fn"}}},
                     {"granularity", granularity},
                     {"mm_config", product},
                     {"hp_value_lb", nullptr},
                     {"hp_value_ub", nullptr},
                     {"kernel_preference", kernel}}}};
  const Json data{{"block_size", Json::array({by_row ? 1 : weight.shape[0], weight.shape[1]})},
                  {"mm_config", product},
                  {"act_quant_kwargs", input},
                  {"kernel_preference", kernel},
                  {"dtype", {{"_type", "torch.dtype"}, {"_data", torch_name(weight.type)}}}};
  return Json{{"_type", "Float8Tensor"},
              {"_data", data},
              {"_tensor_data_names", Json::array({"qdata", "scale"})}}
      .dump();
}

/// torchao's reader merges the metadata of all shards, in which the last list of names stays: every
/// shard has them all.
std::map<std::string, std::string> torchao_metadata(const Run& run, const QuantizedModel& model) {
  std::map<std::string, std::string> metadata;
  nlohmann::json names = nlohmann::json::array();
  for (const TensorSpec& weight : model.converted) {
    metadata[weight.name] = torchao_weight(run.scheme, weight);
    names.push_back(weight.name);
  }
  for (const KeptTensor& kept : model.kept) {
    metadata[kept.tensor.name] = R"({"_type": "Tensor"})";
    names.push_back(kept.tensor.name);
  }
  metadata["tensor_names"] = names.dump();
  return metadata;
}

ModelRewrite plan(const ModelDirectory& source, const Run& run, QuantizedModel& model) {
  ModelRewrite rewrite;
  std::map<std::string, std::string> metadata;
  if (run.layout.family == LayoutFamily::torchao) metadata = torchao_metadata(run, model);
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
          {}};
  const fs::path config_path = source.folder() / kConfig;
  const std::string config = read_file(config_path);
  require_quantizable(config, config_path.string());
  QuantizedModel model;
  decide_all(source, run, model);
  const std::vector<std::string> kept = kept_modules(model);
  const std::string written =
      with_quantization(config, config_path.string(), layout, run.scheme, kept);
  calibrate(options.calibration, run, model);
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

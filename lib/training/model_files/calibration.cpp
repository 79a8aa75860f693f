#include "training/model_files/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <compare>
#include <memory>
#include <optional>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/scaling/two_level.hpp"
#include "training/model_files/amax_trace.hpp"
#include "training/model_files/kv_cache.hpp"
#include "training/model_files/recipe_input.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

/// `name` without `ending`; as it is where it has another one.
std::string without(std::string_view name, std::string_view ending) {
  return std::string(name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : name);
}

struct SampleName {
  std::string module;  ///< empty: none of the model
  std::int64_t batch = 0;
};

bool is_known(const CalibrationTargets& targets, const std::string& module) {
  return targets.columns.contains(module) || targets.kept.contains(module);
}

/// Numbers are parts of modules too (`experts.0`): what names a module wins.
SampleName parse_name(const CalibrationTargets& targets, std::string_view name) {
  for (const std::string& module : {std::string(name), without(name, ".input")})
    if (is_known(targets, module)) return {module, 0};
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  std::int64_t batch = 0;
  const std::string_view digits = name.substr(dot + 1);
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), batch);
  if (error != std::errc() || end != digits.end()) return {};
  const std::string module = without(name.substr(0, dot), ".input");
  return is_known(targets, module) ? SampleName{module, batch} : SampleName{};
}

struct Sample {
  std::size_t file = 0;
  std::int64_t batch = 0;
  std::string name;
  std::optional<float> amax = {};  ///< of a trace, which has no tensor

  // clang-tidy 14 takes the zero that comparisons of orderings are written with for a pointer.
  friend auto operator<=>(const Sample&, const Sample&) = default;  // NOLINT(modernize-use-nullptr)
};

/// The scale of one module, batch after batch.
class Observer {
 public:
  explicit Observer(const Recipe& recipe)
      : by_amax_(recipe.rule == ScaleRule::modelopt),
        rule_(recipe.rule),
        max_finite_(static_cast<float>(format(recipe.format).max_finite())),
        quantizer_(calibrated(recipe)) {}

  void observe(std::span<const float> values, std::int64_t k) {
    const auto rows = static_cast<std::int64_t>(values.size()) / std::max<std::int64_t>(1, k);
    quantizer_.observe({values, rows, k});
    largest_ = std::max(largest_, amax(values, false));
  }

  void observe_amax(float amax) {
    quantizer_.observe({{&amax, 1}, 1, 1});
    largest_ = std::max(largest_, amax);
  }

  [[nodiscard]] float scale(bool as_multiplier) {
    const FloatEnvironment environment;
    if (is_two_level(rule_)) {
      const TensorScale tensor = tensor_scale(rule_, largest_);
      return as_multiplier ? tensor.scale : tensor.inverse_scale;
    }
    if (by_amax_) return largest_ / max_finite_;
    const float zero = 0.0F;
    return quantizer_.quantize({{&zero, 1}, 1, 1}, false, 1).inverse_scales[0];
  }

 private:
  /// NVFP4's own scale is the current tensor's; in a file it is that of all samples.
  static Recipe calibrated(Recipe recipe) {
    if (!is_two_level(recipe.rule)) return recipe;
    recipe.source = ScaleSource::calibration;
    recipe.rows_multiple = 1;
    recipe.k_multiple = 1;
    return recipe;
  }

  bool by_amax_;
  ScaleRule rule_;
  float max_finite_;
  float largest_ = 0.0F;
  Quantizer quantizer_;
};

void require_sample(const Preset& preset, const fs::path& file, const NamedTensor& item,
                    std::int64_t k) {
  const TensorView& tensor = item.tensor;
  const std::string argument = fmt::format("{}: '{}'", file.string(), item.name);
  require(is_float_of_32_bits_or_fewer(tensor.type), argument, "f32, f16 or bf16 elements",
          to_string(tensor.type));
  require(!tensor.shape.empty() && tensor.shape.back() == k && tensor.size() > 0, argument,
          fmt::format("inputs [..., {}]", k), shape_text(tensor.shape));
  require_recipe_takes(preset.name, preset.activation, {item.name, tensor.type, tensor.shape});
}

/// Null for a trace.
using Files = std::vector<std::unique_ptr<SafetensorsFile>>;
using Samples = std::map<std::string, std::vector<Sample>>;

bool is_trace(const fs::path& path) { return path.extension() != ".safetensors"; }

void add_trace(const CalibrationTargets& targets, const Preset& preset, const fs::path& path,
               std::size_t file, Samples& samples) {
  for (const TracedAmax& traced : read_amax_trace(path)) {
    const SampleName name = parse_name(targets, traced.module);
    const std::string where = fmt::format("{}:{}", path.string(), traced.line);
    require(!name.module.empty(), where, "MODULE or MODULE.input, of a module of the model",
            fmt::format("'{}'", traced.module));
    require(!takes_bf16(preset.activation.rule) || rounded_to_bf16(traced.amax) == traced.amax,
            where, fmt::format("a BF16 number under recipe {}", preset.name),
            fmt::format("{}", traced.amax));
    samples[name.module].push_back({file, traced.line, traced.module, traced.amax});
  }
}

/// {module: its samples in order}
Samples sort_samples(const std::vector<fs::path>& paths, const Files& files, const Preset& preset,
                     const CalibrationTargets& targets) {
  Samples samples;
  for (std::size_t f = 0; f < files.size(); ++f) {
    if (!files[f]) {
      add_trace(targets, preset, paths[f], f, samples);
      continue;
    }
    for (const NamedTensor& item : files[f]->tensors()) {
      if (targets.has_outputs && is_kv_sample(item.name)) continue;
      const SampleName name = parse_name(targets, item.name);
      require(!name.module.empty(), fmt::format("{}: '{}'", paths[f].string(), item.name),
              "MODULE, MODULE.input or MODULE.input.NUMBER of a module of the model",
              "another name");
      samples[name.module].push_back({f, name.batch, item.name});
    }
  }
  for (auto& [module, list] : samples) std::sort(list.begin(), list.end());
  return samples;
}

/// One batch of inputs [..., k].
void observe(const Preset& preset, const fs::path& path, const SafetensorsFile& file,
             const std::string& name, std::int64_t k, Observer& observer) {
  const TensorView& tensor = file.find(name);
  require_sample(preset, path, {name, tensor}, k);
  try {
    observer.observe(to_float(tensor), k);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: '{}': {}", path.string(), name, error.what()));
  }
  file.file().release(tensor.bytes);
}

}  // namespace

InputScales calibrate_inputs(const Preset& preset, const std::vector<fs::path>& paths,
                             const CalibrationTargets& targets) {
  Files files;
  for (const fs::path& path : paths)
    files.push_back(is_trace(path) ? nullptr : std::make_unique<SafetensorsFile>(path));
  InputScales result;
  const auto samples = sort_samples(paths, files, preset, targets);
  for (const auto& [module, k] : targets.columns) {
    const auto found = samples.find(module);
    require(found != samples.end(), argument("calibration"),
            fmt::format("a sample of {}.input", module), "none");
    Observer observer(preset.activation);
    for (const Sample& sample : found->second) {
      if (sample.amax)
        observer.observe_amax(*sample.amax);
      else
        observe(preset, paths[sample.file], *files[sample.file], sample.name, k, observer);
    }
    const float scale = observer.scale(targets.as_multipliers);
    require(std::isfinite(scale) && scale > 0.0F, fmt::format("samples of {}", module),
            "inputs that give a scale above 0", fmt::format("{}", scale));
    result.scales[module] = scale;
  }
  for (const auto& [module, list] : samples)
    if (targets.kept.contains(module)) result.unused.insert(module);
  return result;
}

}  // namespace fp8lab

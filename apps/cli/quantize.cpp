#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "command.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/io/npy.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/scaling/nvfp4_training.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/scaling/statistics.hpp"
#include "json_number.hpp"
#include "non_finite.hpp"
#include "quantize_model.hpp"
#include "quantized_file.hpp"
#include "say.hpp"
#include "training/model_files/layout.hpp"

namespace fp8lab::cli {
namespace {

struct QuantizeArguments {
  std::string input;
  std::string recipe;
  std::string output;
  std::vector<std::string> tensors;
  std::string role = "activation";
  std::string product;
  std::string dtype;
  std::vector<std::string> history;
  std::string layout;
  std::string rule;
  std::vector<std::string> calibration;
  std::vector<std::string> ignore;
  std::vector<std::string> only;
  std::vector<std::string> recipe_for;
  std::string kv_cache = "none";
  std::optional<std::uint64_t> stochastic;
  bool hadamard = false;
  bool transpose = false;
  bool json = false;
};

/// A tensor read from a file, as the matrix that a product sees: the last
/// dimension is k, all others are rows.
struct LoadedTensor {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<float> values;
  std::vector<std::int64_t> shape;

  [[nodiscard]] FloatMatrix matrix() const {
    const std::int64_t k = shape.empty() ? 1 : shape.back();
    const auto size = static_cast<std::int64_t>(values.size());
    const std::int64_t rows =
        size > 0 ? size / k
                 : element_count({shape.data(), shape.empty() ? 0 : shape.size() - 1}, "shape");
    return {values, rows, k};
  }
};

/// Elements that binary32 does not hold would be rounded here and once more by the cast.
LoadedTensor load_exact(const std::string& name, const TensorView& view) {
  using enum ElementType;
  const bool exact = view.type != f64 && view.type != u32 && view.type != u64 && view.type != i32 &&
                     view.type != i64;
  require(
      exact, "tensor " + name,
      "elements that FP32 holds exactly (another type would be rounded twice: convert it first)",
      to_string(view.type));
  return {name, view.type, to_float(view), view.shape};
}

/// A file's tensors: those that are quantized, and those that stay.
struct Input {
  std::unique_ptr<NpyFile> npy;
  std::unique_ptr<SafetensorsFile> safetensors;
  std::vector<NamedTensor> chosen;
  std::vector<NamedTensor> left;
  std::vector<std::string> reasons;  ///< of `left`
};

LayerDecision decide_on(const NamedTensor& item, const QuantizeArguments& options) {
  const TensorSpec spec{item.name, item.tensor.type, item.tensor.shape};
  return options.rule.empty() ? decide_by_shape(spec) : decide(find_layer_rule(options.rule), spec);
}

std::string describe_left(const Input& input) {
  constexpr std::size_t kMost = 5;
  std::string text = "none";
  for (std::size_t i = 0; i < std::min(kMost, input.left.size()); ++i)
    text += fmt::format("{} {}: {}", i == 0 ? ":" : ";", input.left[i].name, input.reasons[i]);
  return text;
}

void choose(const QuantizeArguments& options, Input& input) {
  for (const std::string& name : options.tensors)
    input.chosen.push_back({name, input.safetensors->find(name)});
  if (!options.tensors.empty()) return;
  for (const NamedTensor& item : input.safetensors->tensors()) {
    const LayerDecision decision = decide_on(item, options);
    (decision.converts ? input.chosen : input.left).push_back(item);
    if (!decision.converts) input.reasons.push_back(decision.reason);
  }
  require(!input.chosen.empty() || input.left.empty(), "IN",
          "a tensor that is quantized (--tensor selects any tensor, --rule another set)",
          describe_left(input));
}

Input open_input(const std::string& path, const QuantizeArguments& options) {
  const std::filesystem::path file(path);
  Input input;
  if (file.extension() == ".npy") {
    require(options.tensors.empty(), "--tensor", "a .safetensors file", path);
    require(options.rule.empty(), "--rule", "a .safetensors file or a model's folder", path);
    std::optional<ElementType> dtype;
    if (!options.dtype.empty()) dtype = find_element_type(options.dtype);
    input.npy = std::make_unique<NpyFile>(file, dtype);
    input.chosen.push_back({file.stem().string(), input.npy->tensor()});
    return input;
  }
  require(file.extension() == ".safetensors", "IN", "a .npy or .safetensors file", path);
  require(options.dtype.empty(), "--dtype", "a .npy file", path);
  input.safetensors = std::make_unique<SafetensorsFile>(file);
  choose(options, input);
  return input;
}

/// Of the tensor, its codes and its scales: a tile of zeros may give NaN, by the recipe's rule.
NonFiniteReport non_finite_of(const LoadedTensor& tensor, const QuantizedTensor& q) {
  return {{tensor.name, count_non_finite(std::span(tensor.values))},
          {tensor.name + "'s codes", count_non_finite(q.format, std::as_bytes(std::span(q.codes)))},
          {tensor.name + "'s scales", count_non_finite(std::span(q.scales))},
          {tensor.name + "'s inverse scales", count_non_finite(std::span(q.inverse_scales))}};
}

nlohmann::json json_of(const LoadedTensor& tensor, const QuantizedTensor& q,
                       const QuantizationStatistics& s, const NonFiniteReport& non_finite) {
  const auto figure = [&](double value) {
    return s.count == 0 ? nlohmann::json() : json_number(value);
  };
  return {{"tensor", tensor.name},
          {"non_finite_counts", to_json(non_finite)},
          {"shape", tensor.shape},
          {"format", format(q.format).name},
          {"tile", {q.row_block, q.k_block}},
          {"scales", q.scales.size()},
          {"elements", s.count},
          {"underflow_percent", figure(s.underflow_percent)},
          {"overflow_percent", figure(s.overflow_percent)},
          {"saturated_percent", figure(s.saturated_percent)},
          {"nan_percent", figure(s.nan_percent)},
          {"sqnr_db", figure(s.sqnr_db)},
          {"relative_l2", figure(s.relative_l2)},
          {"scale_min", figure(s.scale_min)},
          {"scale_max", figure(s.scale_max)},
          {"tile_range_mean_bits", figure(s.tile_range_mean)},
          {"tile_range_max_bits", figure(s.tile_range_max)},
          {"scale_overhead_percent", figure(s.scale_overhead_percent)}};
}

void print(const LoadedTensor& tensor, const QuantizedTensor& q, const QuantizationStatistics& s) {
  say("{} {}: {}, {} for tiles of {} x {}\n", tensor.name, shape_text(tensor.shape),
      format(q.format).name, counted(q.scales.size(), "scale"), q.row_block, q.k_block);
  if (s.count == 0) {
    fmt::print("  no elements\n");
    return;
  }
  say("  underflow {:.4g} %  overflow {:.4g} %  saturated {:.4g} %  NaN {:.4g} %\n",
      s.underflow_percent, s.overflow_percent, s.saturated_percent, s.nan_percent);
  say("  SQNR {:.2f} dB  relative L2 {:.4g}  scale {:.6g} to {:.6g}\n", s.sqnr_db, s.relative_l2,
      s.scale_min, s.scale_max);
  say("  range within a tile {:.1f} bits (mean) {:.1f} (max)  scales add {:.3g} %\n",
      s.tile_range_mean, s.tile_range_max, s.scale_overhead_percent);
}

/// Systems that compute in the type of the tensor have other bits for another type.
void require_type(const Recipe& recipe, const std::string& name, const LoadedTensor& tensor) {
  if (computes_in_fp32_input(recipe.rule)) {
    const bool narrow = tensor.type == ElementType::bf16 || tensor.type == ElementType::f16;
    require(!narrow, "recipe",
            fmt::format(
                "{}-bf16 for BF16 (there is none for FP16): {} computes in the tensor's type, FP32",
                name, name),
            fmt::format("{} elements", to_string(tensor.type)));
  }
  if (!takes_bf16(recipe.rule)) return;
  for (const float x : tensor.values)
    if (!std::isnan(x) && rounded_to_bf16(x) != x)
      throw Error("recipe", "BF16 elements for " + name, fmt::format("{}", x));
}

/// One tensor by the recipe, after its own past. Throws `Error` that names the tensor.
QuantizedTensor quantize(const Recipe& recipe, const QuantizeArguments& options,
                         const std::vector<Input>& past, const LoadedTensor& tensor, std::size_t i,
                         bool alone) try {
  Quantizer quantizer(recipe);
  require_type(recipe, options.recipe, tensor);
  for (const Input& step : past) {
    const LoadedTensor earlier = load_exact(step.chosen[i].name, step.chosen[i].tensor);
    require_type(recipe, options.recipe, earlier);
    quantizer.observe(earlier.matrix());
  }
  if (options.stochastic)
    return quantize_stochastic(recipe, tensor.matrix(),
                               RandomStream(*options.stochastic, tensor.name));
  return quantizer.quantize(tensor.matrix(), options.transpose);
} catch (const Error& error) {
  throw Error(fmt::format("tensor {} {}: {}{}", tensor.name, shape_text(tensor.shape), error.what(),
                          alone ? "" : " (--tensor selects tensors)"));
}

std::vector<Input> open_past(const Recipe& recipe, const QuantizeArguments& options,
                             std::size_t tensors) {
  const bool has_past = recipe.source != ScaleSource::current;
  require(has_past || options.history.empty(), "--history", "a delayed, windowed or static recipe",
          options.recipe);
  std::vector<Input> past;
  for (const std::string& file : options.history) {
    past.push_back(open_input(file, options));
    require(past.back().chosen.size() == tensors, "--history",
            fmt::format("{} tensors, as IN", tensors),
            fmt::format("{}", past.back().chosen.size()));
  }
  return past;
}

void write_output(const QuantizeArguments& options, const Input& input,
                  const std::vector<QuantizedTensor>& results) {
  QuantizedFile out(input.left);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const NamedTensor& item = input.chosen[i];
    const QuantizedTensor& q = results[i];
    out.add(item.name, q, item.tensor.shape);
    if (q.transposed) out.add(item.name + ".transposed", *q.transposed, {q.k, q.rows});
  }
  std::map<std::string, std::string> metadata{{"fp8lab.recipe", options.recipe},
                                              {"fp8lab.role", options.role}};
  if (!options.product.empty()) metadata["fp8lab.product"] = options.product;
  if (options.hadamard) metadata["fp8lab.hadamard"] = "16";
  if (options.stochastic) metadata["fp8lab.stochastic"] = fmt::format("{}", *options.stochastic);
  if (input.safetensors)
    metadata.insert(input.safetensors->metadata().begin(), input.safetensors->metadata().end());
  write_safetensors(options.output, out.tensors(), metadata);
}

/// On stderr too where stdout is for machines.
nlohmann::json tell_left(const QuantizeArguments& options, const Input& input) {
  nlohmann::json left = nlohmann::json::array();
  for (std::size_t i = 0; i < input.left.size(); ++i) {
    left.push_back({{"tensor", input.left[i].name}, {"reason", input.reasons[i]}});
    say(options.json ? stderr : stdout, "{} {} stays: {}\n", input.left[i].name,
        shape_text(input.left[i].tensor.shape), input.reasons[i]);
  }
  return left;
}

/// What TransformerEngine does to gradients and to operands of wgrad in NVFP4 alone.
void require_nvfp4_options(const Recipe& recipe, const QuantizeArguments& options) {
  const bool asked = options.stochastic.has_value() || options.hadamard;
  require(!asked || is_two_level(recipe.rule), options.hadamard ? "--hadamard" : "--stochastic",
          "a recipe of NVFP4 (te-nvfp4)", options.recipe);
  require(!options.stochastic || !options.transpose, "--transpose",
          "no --stochastic, whose draws are for one copy only", "both");
}

int quantize_file(const QuantizeArguments& options) {
  require(options.calibration.empty(), "--calibration", "a model's folder and --layout",
          options.input + " (--history is for files)");
  const std::string_view given = !options.ignore.empty()       ? "--ignore"
                                 : !options.only.empty()       ? "--only"
                                 : !options.recipe_for.empty() ? "--recipe-for"
                                                               : "--kv-cache";
  require(options.ignore.empty() && options.only.empty() && options.recipe_for.empty() &&
              options.kv_cache == "none",
          given, "a model's folder and --layout", options.input + " (--tensor is for files)");
  const Preset& preset = find_preset(options.recipe);
  const TensorRole role = find_tensor_role(options.role);
  const Recipe& recipe = options.product.empty()
                             ? preset.recipe(role)
                             : preset.recipe(role, find_linear_product(options.product));
  require_nvfp4_options(recipe, options);
  if (!options.output.empty()) require_writable_file(options.output);
  const Input input = open_input(options.input, options);
  const std::vector<Input> past = open_past(recipe, options, input.chosen.size());
  std::vector<QuantizedTensor> results;
  nlohmann::json report = nlohmann::json::array();
  for (std::size_t i = 0; i < input.chosen.size(); ++i) {
    LoadedTensor tensor = load_exact(input.chosen[i].name, input.chosen[i].tensor);
    if (options.hadamard) tensor.values = random_hadamard(tensor.matrix());
    QuantizedTensor q = quantize(recipe, options, past, tensor, i, input.chosen.size() == 1);
    const QuantizationStatistics statistics = quantization_statistics(tensor.matrix(), q);
    const NonFiniteReport non_finite = non_finite_of(tensor, q);
    warn_of_non_finite(non_finite);
    if (options.json)
      report.push_back(json_of(tensor, q, statistics, non_finite));
    else
      print(tensor, q, statistics);
    if (!options.output.empty()) results.push_back(std::move(q));
    if (input.safetensors) input.safetensors->file().release(input.chosen[i].tensor.bytes);
  }
  const nlohmann::json left = tell_left(options, input);
  if (!options.output.empty()) write_output(options, input, results);
  if (options.json)
    fmt::print("{}\n", json_text(nlohmann::json{{"recipe", options.recipe},
                                                {"role", options.role},
                                                {"tensors", report},
                                                {"left", left}},
                                 2));
  return kPass;
}

/// Options of files that say nothing of a model's folder.
void refuse_file_options(const QuantizeArguments& options) {
  const auto unless = [](bool absent, std::string_view option) {
    require(absent, option, "a .npy or .safetensors file", "a model's folder");
  };
  unless(options.tensors.empty(), "--tensor");
  unless(options.role == QuantizeArguments().role, "--role");
  unless(options.product.empty(), "--product");
  unless(options.dtype.empty(), "--dtype");
  unless(options.history.empty(), "--history");
  unless(!options.transpose, "--transpose");
  unless(!options.stochastic, "--stochastic");
  unless(!options.hadamard, "--hadamard");
}

int run(const QuantizeArguments& options) {
  if (!names_model(options.input)) {
    require(options.layout.empty(), "--layout", "a model's folder or its index", options.input);
    return quantize_file(options);
  }
  refuse_file_options(options);
  require(!options.layout.empty(), "--layout", "the layout that the loading system reads", "none");
  require(!options.rule.empty(), "--rule", "which weights become FP8", "none");
  require(!options.output.empty(), "--output", "a new or empty folder", "none");
  return quantize_model({options.input, options.output, options.recipe, options.layout,
                         options.rule, options.calibration, options.ignore, options.only,
                         options.recipe_for, options.kv_cache, options.json});
}

std::string recipe_help() {
  std::string text = "recipe (`fp8lab list recipes` names the systems):";
  for (const Preset& preset : presets()) text += " " + std::string(preset.name);
  return text;
}

std::string layout_help() {
  std::string text = "for a model: layout of scales and config.json:";
  for (const Layout& layout : layouts()) text += " " + std::string(layout.name);
  return text;
}

/// Options that choose modules beside the rule.
void add_patterns(Command& command, std::vector<std::string>& ignore,
                  std::vector<std::string>& only) {
  command.add_option("--ignore", ignore,
                     "for a model: modules that stay as they are, by name or re:PATTERN");
  command.add_option("--only", only, "for a model: convert no other modules than these");
}

std::string rule_help() {
  std::string text = "which weights become FP8 (default for a file: all matrices):";
  for (const LayerRule& rule : layer_rules()) text += " " + std::string(rule.name);
  return text;
}

}  // namespace

void add_quantize(Command& app, Action& action) {
  auto options = std::make_shared<QuantizeArguments>();
  Command* command = app.add_subcommand(
      "quantize", "Quantize tensors under a system's recipe, with statistics of the error");
  command->add_option("IN", options->input, ".npy or .safetensors file, or a model's folder")
      ->required();
  command->add_option("--recipe", options->recipe, recipe_help())->required();
  command->add_option(
      "-o,--output", options->output,
      ".safetensors file for NAME (codes; FP4 and FP6 packed), NAME.scale, NAME.scale_inv (NVFP4: "
      "also the two levels, NAME.scale_inv_ue4m3 and NAME.tensor_scale_inv) and unconverted "
      "tensors; for a model: a new or empty folder");
  command->add_option("--layout", options->layout, layout_help());
  command->add_option("--rule", options->rule, rule_help());
  command->add_option("--calibration", options->calibration,
                      "for a model: .safetensors files with inputs named MODULE.input, or traces "
                      "with lines MODULE,AMAX, for recipes with a calibrated input scale");
  add_patterns(*command, options->ignore, options->only);
  command->add_option("--recipe-for", options->recipe_for,
                      "for a model: PATTERN=RECIPE, another recipe for modules by name or "
                      "re:PATTERN (compressed-tensors, modelopt, deepseek-v4)");
  command
      ->add_option("--kv-cache", options->kv_cache,
                   "for a model: tensor or head, FP8 scales of K and V for the cache, from samples "
                   "MODULE.output of k_proj and v_proj in --calibration (compressed-tensors, "
                   "modelopt)")
      ->capture_default_str();
  command->add_option("--tensor", options->tensors, "tensors to quantize (default: by --rule)");
  command->add_option("--role", options->role, "activation, weight or gradient")
      ->capture_default_str();
  command->add_option("--product", options->product,
                      "fprop, dgrad or wgrad, for recipes that cast an operand in two ways; IN is "
                      "the operand as this product reads it");
  command->add_option("--dtype", options->dtype, "format of a .npy's |u1, <u2 or <V2 elements");
  command->add_option("--history", options->history,
                      "earlier steps or calibration batches, for recipes with an amax history");
  command->add_option("--stochastic", options->stochastic,
                      "seed of stochastic rounding of NVFP4 elements, as TransformerEngine rounds "
                      "gradients (draw r * k + c of the stream named like the tensor)");
  command->add_flag(
      "--hadamard", options->hadamard,
      "NVFP4: first apply TransformerEngine's random Hadamard transform to each run of 16 elements "
      "of a row, as for operands of wgrad (IN as this product reads it)");
  command->add_flag("--transpose", options->transpose,
                    "also write NAME.transposed, as Hopper needs it");
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli

// From the options of `train` to the values of the library.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/linear/layer_rule.hpp"
#include "train_options.hpp"
#include "training/optim/presets.hpp"
#include "training/train/systems.hpp"

namespace fp8lab::cli {
namespace {

using train::LinearRecipe;

/// Every recipe of an operand; `is_gradient` says of which role it is.
void for_operands(LinearRecipe& r, const std::function<void(Recipe&, bool is_gradient)>& change) {
  for (Recipe* one : {&r.activation, &r.weight}) change(*one, false);
  change(r.gradient, true);
  for (std::optional<Recipe>* one : {&r.weight_for_dgrad, &r.activation_for_wgrad})
    if (*one) change(**one, false);
  if (r.gradient_for_wgrad) change(*r.gradient_for_wgrad, true);
}

bool has_fp8(const LinearRecipe& r) { return r.forward.arithmetic == train::Arithmetic::fp8; }

void require_fp8(const TrainOptions& o, const LinearRecipe& r, const char* option, bool given) {
  require(!given || has_fp8(r), option, "a recipe with FP8 products",
          fmt::format("--recipe {}", o.recipe));
}

void set_format(LinearRecipe& r, const std::string& name) {
  const bool hybrid = name == "hybrid";
  const FormatId forward = hybrid ? FormatId::e4m3fn : find_format(name).id;
  require(hybrid || forward == FormatId::e4m3fn || forward == FormatId::e5m2, "--format",
          "e4m3fn, e5m2 or hybrid", "'" + name + "'");
  for_operands(r, [&](Recipe& recipe, bool is_gradient) {
    const bool fp8 = recipe.format == FormatId::e4m3fn || recipe.format == FormatId::e5m2;
    require(fp8, "--format", "a recipe of FP8 formats", std::string(format(recipe.format).name));
    recipe.format = hybrid && is_gradient ? FormatId::e5m2 : forward;
  });
}

void set_delayed(LinearRecipe& r, const TrainOptions& o) {
  bool any = false;
  for_operands(r, [&](Recipe& recipe, bool) {
    if (recipe.source != ScaleSource::delayed) return;
    any = true;
    if (o.history) recipe.delayed.history = *o.history;
    if (o.margin) recipe.delayed.margin = *o.margin;
    if (!o.amax_algorithm.empty()) recipe.delayed.algorithm = find_amax_algorithm(o.amax_algorithm);
  });
  require(any, "--history, --margin, --amax-algorithm",
          "a recipe with delayed scales, such as te-delayed", fmt::format("--recipe {}", o.recipe));
}

/// The recipes of single products, whose names are errors of their own options.
train::ProductRecipes product_recipes(const TrainOptions& o) {
  const std::vector<std::string> known = train::linear_recipe_names();
  const auto checked = [&](const char* option, const std::string& name) {
    require(name.empty() || std::ranges::find(known, name) != known.end(), option,
            "fp32, bf16 or one of `fp8lab list recipes`", "'" + name + "'");
    return name;
  };
  return {checked("--fprop", o.fprop), checked("--dgrad", o.dgrad), checked("--wgrad", o.wgrad)};
}

LinearRecipe block_recipe(const TrainOptions& o, const train::TrainingSystem* system) {
  LinearRecipe r = system != nullptr ? system->blocks : train::find_linear_recipe(o.recipe);
  require_fp8(o, r, "--format", !o.format.empty());
  require_fp8(o, r, "--clip-before-cast", o.clip_before_cast.has_value());
  require_fp8(o, r, "--rule", !o.rule.empty());
  require_fp8(o, r, "--keep", !o.keep.empty());
  if (!o.format.empty()) set_format(r, o.format);
  if (o.history || o.margin || !o.amax_algorithm.empty()) set_delayed(r, o);
  if (o.clip_before_cast) {
    require(std::isfinite(*o.clip_before_cast) && *o.clip_before_cast > 0.0, "--clip-before-cast",
            "a finite number above 0", fmt::format("{:g}", *o.clip_before_cast));
    r.gradient_clip = *o.clip_before_cast;
  }
  return train::with_products(std::move(r), product_recipes(o));
}

/// Layers whose arithmetic is not that of their place: by `--rule`, then by `--keep`.
void set_layers(train::ModelRecipe& recipe, const TrainOptions& o) {
  if (o.rule.empty() && o.keep.empty()) return;
  const std::vector<train::LinearLayer> layers = train::linear_layers(o.shape);
  if (!o.rule.empty()) {
    const LayerRule& rule = find_layer_rule(o.rule);
    for (const train::LinearLayer& layer : layers) {
      // Rules know the head by the name that checkpoints give it.
      const std::string name = (layer.name == "head" ? "lm_head" : layer.name) + ".weight";
      const std::array<std::int64_t, 2> shape{layer.outputs, layer.inputs};
      const bool converts = decide(rule, name, shape).converts;
      recipe.layers[layer.name] = converts ? recipe.blocks : train::bf16_recipe();
    }
  }
  for (const std::string& part : o.keep) {
    bool any = false;
    for (const train::LinearLayer& layer : layers)
      if (!part.empty() && layer.name.find(part) != std::string::npos) {
        recipe.layers[layer.name] = train::bf16_recipe();
        any = true;
      }
    std::string names;
    for (const train::LinearLayer& layer : layers)
      names += (names.empty() ? "" : ", ") + layer.name;
    require(any, "--keep", "part of one of " + names, "'" + part + "'");
  }
}

/// The accumulators of `--model`: at most one for FP8 products, and one for BF16 products.
void set_accumulators(train::ModelRecipe& recipe, const TrainOptions& o) {
  if (o.model.empty()) return;
  require(recipe.blocks.name != "fp32", "--model", "a recipe with FP8 or BF16 products",
          fmt::format("--recipe {}", o.recipe));
  const ModelBook book = load_models(o.models);
  std::vector<std::string> names;
  for (const std::string& text : o.model) names.push_back(book.resolve(text));
  require(names.size() == 1 ||
              (names.size() == 2 && train::is_for_bf16(names[0]) != train::is_for_bf16(names[1])),
          "--model", "one accumulator, or a second one of BF16 inputs",
          fmt::format("{}", fmt::join(o.model, " and ")));
  std::vector<LinearRecipe*> all{&recipe.blocks, &recipe.head};
  for (auto& [layer, one] : recipe.layers) all.push_back(&one);
  for (const std::string& name : names) train::move_to_hardware(all, name);
}

StateFormat find_state(const char* option, const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  require(parts.size() <= 3, option, "FORMAT[:SCALING[:RULE]]", "'" + text + "'");
  StateFormat state{.format = find_format(parts[0]).id};
  if (parts.size() > 1) {
    constexpr std::array<std::string_view, 4> kScalings{"none", "tensor", "group", "expanded"};
    state.scaling = find_enumerator<StateScaling>(kScalings, option, parts[1]);
  }
  if (parts.size() > 2) {
    constexpr std::array<std::string_view, 2> kRules{"ms_amp", "te"};
    require(state.scaling == StateScaling::tensor || state.scaling == StateScaling::group, option,
            "tensor or group scaling before a rule", "'" + text + "'");
    state.rule = find_name(kRules, option, parts[2]) == 0 ? ScaleRule::ms_amp : ScaleRule::te;
  }
  return state;
}

AdamWOptions optimizer_options(const TrainOptions& o, const train::TrainingSystem* system) {
  AdamWOptions options = system != nullptr ? system->optimizer : AdamWOptions{};
  if (!o.optimizer.empty()) options = find_optimizer_preset(o.optimizer).options;
  if (!o.master.empty()) options.master = find_state("--master", o.master);
  if (!o.first_moment.empty()) options.m = find_state("--first-moment", o.first_moment);
  if (!o.second_moment.empty()) options.v = find_state("--second-moment", o.second_moment);
  if (!o.stored_gradient.empty())
    options.gradient = find_state("--stored-gradient", o.stored_gradient);
  require(std::isfinite(o.weight_decay) && o.weight_decay >= 0.0, "--weight-decay",
          "a finite number >= 0", fmt::format("{:g}", o.weight_decay));
  options.weight_decay = o.weight_decay;
  options.threads = o.threads;
  return options;
}

}  // namespace

train::TrainerOptions trainer_options(const TrainOptions& o) {
  const train::TrainingSystem* system = train::training_system(o.recipe);
  train::TrainerOptions t;
  t.model = o.shape;
  t.recipe.blocks = block_recipe(o, system);
  if (o.recipe == "fp32") t.recipe.head = t.recipe.blocks;
  t.recipe.outliers = {o.outlier_channels, o.outlier_log2};
  set_layers(t.recipe, o);
  set_accumulators(t.recipe, o);
  t.schedule = o.schedule;
  t.sequences = o.sequences;
  t.optimizer = optimizer_options(o, system);
  t.length = o.shape.length;
  t.clip_norm = o.clip_norm;
  t.loss_scale = o.loss_scale;
  t.seed = o.seed;
  return t;
}

std::optional<train::ParallelOptions> parallel_options(const TrainOptions& o) {
  const train::TrainingSystem* system = train::training_system(o.recipe);
  train::ParallelOptions p;
  if (system != nullptr) p = {system->reduction, system->whole_tensor_zero};
  p.reduction.ranks = o.ranks;
  p.whole_tensor_zero = p.whole_tensor_zero || o.zero;
  require(!o.zero || o.ranks > 1, "--zero", "--ranks above 1", fmt::format("{}", o.ranks));
  require(o.topology.empty() || o.ranks > 1, "--topology", "--ranks above 1",
          fmt::format("{}", o.ranks));
  if (!o.topology.empty()) p.reduction.topology = find_topology(o.topology);
  if (!o.wire.empty()) {
    p.reduction.wire = find_wire_format(o.wire);
    p.reduction.scaling = p.reduction.wire.bytes == 1 ? train::GradientScaling::automatic
                                                      : train::GradientScaling::none;
  } else if (system == nullptr) {
    p.reduction.wire = find_wire_format("f32");
  }
  if (!o.scaling.empty()) {
    require(p.reduction.wire.bytes == 1, "--gradient-scaling", "an FP8 wire",
            p.reduction.wire.name);
    p.reduction.scaling = train::find_gradient_scaling(o.scaling, "--gradient-scaling");
  }
  if (system == nullptr && o.ranks == 1 && o.wire.empty()) return {};
  return p;
}

train::MonitorOptions monitor_options(const TrainOptions& o) {
  train::MonitorOptions m = train::find_monitor_options(o.monitor, "--monitor");
  m.underflow_percent = o.warn_underflow.value_or(m.underflow_percent);
  m.overflow_percent = o.warn_overflow.value_or(m.overflow_percent);
  m.amax_jump = o.warn_amax_jump.value_or(m.amax_jump);
  m.amax_limit = o.warn_amax.value_or(m.amax_limit);
  m.zero_percent = o.warn_zeros.value_or(m.zero_percent);
  return m;
}

std::optional<train::GradientScaleRule> gradient_scale_rule(const TrainOptions& o) {
  if (!o.raise_gradient_scale) return std::nullopt;
  const char* option = "--raise-gradient-scale";
  require(!parallel_options(o), option, "one rank without a wire",
          fmt::format("--recipe {} --ranks {}", o.recipe, o.ranks));
  require(!o.guard && o.kill_switch.empty() && o.checkpoint.empty(), option,
          "no --guard, --kill-switch or --checkpoint, which do not hold the scale",
          o.guard                ? "--guard"
          : o.checkpoint.empty() ? "--kill-switch"
                                 : "--checkpoint");
  train::GradientScaleOptions options;
  options.zero_percent = *o.raise_gradient_scale;
  return train::GradientScaleRule(options, o.loss_scale);
}

std::optional<train::ShadowOptions> shadow_options(const TrainOptions& o) {
  const bool tuned = o.kill_amax_ratio || o.kill_moment_ratio || o.kill_loss_gap || o.kill_window ||
                     o.kill_patience || o.kill_snapshots;
  require(
      !tuned || !o.kill_switch.empty(), "--kill-switch",
      "an action beside --kill-amax-ratio, --kill-moment-ratio, --kill-loss-gap, --kill-window, "
      "--kill-patience and --kill-snapshots",
      "none");
  if (o.kill_switch.empty()) return std::nullopt;
  require(!parallel_options(o), "--kill-switch", "one rank without a wire",
          fmt::format("--recipe {} --ranks {}", o.recipe, o.ranks));
  require(!o.guard, "--kill-switch", "no --guard, whose rollbacks its shadow does not follow",
          fmt::format("--guard {}", o.guard.value_or(0)));
  require(o.checkpoint.empty(), "--kill-switch", "no --checkpoint, which does not hold its shadow",
          fmt::format("--checkpoint {}", o.checkpoint));
  train::ShadowOptions s;
  s.action = find_kill_action(o.kill_switch, "--kill-switch");
  KillThresholds& t = s.thresholds;
  t.amax_ratio = o.kill_amax_ratio.value_or(t.amax_ratio);
  t.moment_ratio = o.kill_moment_ratio.value_or(t.moment_ratio);
  t.loss_gap = o.kill_loss_gap.value_or(t.loss_gap);
  const auto require_ratio = [](const char* option, double ratio) {
    require(std::isfinite(ratio) && ratio > 1.0, option, "a finite number above 1",
            fmt::format("{:g}", ratio));
  };
  require_ratio("--kill-amax-ratio", t.amax_ratio);
  require_ratio("--kill-moment-ratio", t.moment_ratio);
  require(std::isfinite(t.loss_gap) && t.loss_gap >= 0.0, "--kill-loss-gap", "a finite number >= 0",
          fmt::format("{:g}", t.loss_gap));
  t.window = o.kill_window.value_or(t.window);
  t.patience = o.kill_patience.value_or(t.patience);
  s.snapshot_every = o.kill_snapshots.value_or(s.snapshot_every);
  return s;
}

train::DivergenceOptions divergence_options(const TrainOptions& o) {
  train::DivergenceOptions d;
  if (o.stop_when) d.rise = *o.stop_when;
  if (o.shape.vocabulary > 1) d.uniform_loss = std::log(static_cast<double>(o.shape.vocabulary));
  return d;
}

}  // namespace fp8lab::cli

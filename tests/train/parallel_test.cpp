// Ranks, systems as wholes, ZeRO with whole tensors, and when a run counts as diverged.

#include "training/train/parallel_trainer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/linear/products.hpp"
#include "train/same_bits.hpp"
#include "training/optim/presets.hpp"
#include "training/train/divergence.hpp"
#include "training/train/systems.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

std::shared_ptr<const DataSource> language() { return synthetic_language({.vocabulary = 64}, 1); }

TrainerOptions small_options(const LinearRecipe& recipe) {
  TrainerOptions options;
  options.model = TransformerShape{
      .vocabulary = 64, .length = 16, .width = 32, .layers = 1, .heads = 2, .hidden = 32};
  options.recipe.blocks = recipe;
  options.sequences = 2;
  options.length = 16;
  options.schedule = {.peak = 3e-3, .warmup = 2, .steps = 10};
  return options;
}

std::vector<float> weights_of(Trainer& trainer) {
  std::vector<float> all;
  for (const auto* p : trainer.model().parameters())
    all.insert(all.end(), p->value.begin(), p->value.end());
  return all;
}

struct System {
  TrainerOptions trainer;
  ParallelOptions parallel;
};

System fp8_lm(int ranks, bool zero) {
  const TrainingSystem& system = find_training_system("fp8-lm", "system");
  System all{small_options(system.blocks), {system.reduction, zero}};
  all.trainer.optimizer = system.optimizer;
  all.parallel.reduction.ranks = ranks;
  return all;
}

/// Losses and weights of some steps.
std::vector<float> run(const System& system, int steps, int threads = 1) {
  ParallelTrainer trainer(in_process_fabric(), system.trainer, language(), system.parallel);
  std::vector<float> seen;
  for (int i = 0; i < steps; ++i)
    seen.push_back(
        static_cast<float>(trainer.step({.threads = threads, .on_cast = {}}, i % 2 == 1).loss));
  const std::vector<float> weights = weights_of(trainer.first());
  seen.insert(seen.end(), weights.begin(), weights.end());
  return seen;
}

}  // namespace

TEST_CASE("ZeRO with whole tensors changes memory and not one bit of a run", "[train][long]") {
  const std::vector<float> without = run(fp8_lm(3, false), 5);
  CHECK(same_bits(run(fp8_lm(3, true), 5), without));
  CHECK(same_bits(run(fp8_lm(3, true), 5, 2), without));

  const auto memory = [](bool zero) {
    const System s = fp8_lm(3, zero);
    return ParallelTrainer(in_process_fabric(), s.trainer, language(), s.parallel).memory();
  };
  // FP8-LM's states: 2 (master) + 1 (m) + 2 (v) bytes, and a scale of 4 for each of them.
  const System s = fp8_lm(3, false);
  const ParallelTrainer trainer(in_process_fabric(), s.trainer, language(), s.parallel);
  Trainer single(s.trainer, language());
  const auto tensors = static_cast<std::int64_t>(single.model().parameters().size());
  const std::int64_t whole = 5 * trainer.parameter_count() + 12 * tensors;
  CHECK(memory(false).largest == whole);
  CHECK(memory(false).total == 3 * whole);
  CHECK(memory(true).total == whole);
  CHECK(memory(true).largest < whole / 2);
  CHECK(memory(true).smallest > whole / 5);
}

TEST_CASE("more ranks than tensors: those without states still take part", "[train]") {
  const System all = fp8_lm(20, true);
  CHECK(same_bits(run(all, 2), run(fp8_lm(20, false), 2)));
}

TEST_CASE("ranks of binary32 wires take the mean of their gradients", "[train]") {
  System two{small_options(fp32_recipe()), {}};
  two.trainer.recipe.head = two.trainer.recipe.blocks;
  two.parallel.reduction.ranks = 2;
  two.parallel.reduction.wire = find_wire_format("f32");
  ParallelTrainer trainer(in_process_fabric(), two.trainer, language(), two.parallel);
  const StepRecord record = trainer.step({}, false);

  // The same by hand: two trainers, batches 0 and 1, the mean of two is exact but for one rounding.
  Trainer first(two.trainer, language());
  Trainer second(two.trainer, language());
  const double a = first.compute_gradients(0, {});
  const double b = second.compute_gradients(1, {});
  CHECK(std::abs(record.loss - (a + b) / 2) < 1e-6);
  for (std::size_t t = 0; t < first.model().parameters().size(); ++t) {
    std::vector<float>& g = first.model().parameters()[t]->gradient;
    const std::vector<float>& h = second.model().parameters()[t]->gradient;
    for (std::size_t i = 0; i < g.size(); ++i) g[i] = (g[i] + h[i]) * 0.5F;
  }
  first.apply_gradients(a);
  CHECK(same_bits(weights_of(trainer.first()), weights_of(first)));
}

TEST_CASE("an FP8 wire rounds gradients, even of one rank, and says how much", "[train]") {
  const System s = fp8_lm(1, false);
  ParallelTrainer trainer(in_process_fabric(), s.trainer, language(), s.parallel);
  trainer.step({}, true);
  // Uniformly rounded E4M3: relative errors up to 2^-4.
  CHECK(trainer.reducer().sqnr_db() > 25.0);
  CHECK(trainer.reducer().sqnr_db() < 40.0);
  CHECK(trainer.reducer().saturated_percent() > 0.0);  // the largest element of each tensor
}

TEST_CASE("what saturated and what was lost is counted over all tensors", "[train]") {
  constexpr std::size_t kElements = 64;
  const ReductionOptions options{
      .ranks = 1, .wire = find_wire_format("e4m3fn"), .scaling = GradientScaling::automatic};
  // All elements are the largest; one is; half are lost.
  std::array<std::vector<float>, 3> tensors;
  tensors.fill(std::vector<float>(kElements, 1.0F));
  for (std::size_t i = 1; i < kElements; ++i) {
    tensors[1][i] = 0.5F;
    tensors[2][i] = i % 2 == 0 ? 1e-9F : 0.25F;
  }
  const auto reduce = [&](const std::vector<std::size_t>& which) {
    GradientReducer reducer(in_process_fabric(), options, tensors.size());
    for (const std::size_t tensor : which) {
      std::vector<float> values = tensors[tensor];
      reducer.reduce(tensor, kElements, {std::span<float>(values)}, true);
    }
    return std::pair{reducer.saturated_percent(), reducer.underflow_percent()};
  };
  double saturated = 0.0;
  double lost = 0.0;
  for (const std::size_t tensor : {0U, 1U, 2U}) {
    const auto [one, other] = reduce({tensor});
    saturated += one / 3.0;
    lost += other / 3.0;
  }
  for (const std::vector<std::size_t>& order :
       {std::vector<std::size_t>{0, 1, 2}, std::vector<std::size_t>{2, 0, 1}}) {
    const auto [all, all_lost] = reduce(order);
    CHECK(std::abs(all - saturated) < 1e-9);
    CHECK(std::abs(all_lost - lost) < 1e-9);
  }
  CHECK(saturated > 30.0);
  CHECK(lost > 10.0);
}

TEST_CASE("reductions refuse a scaling that does not fit the wire", "[train]") {
  ReductionOptions options;
  options.ranks = 2;
  options.wire = find_wire_format("e4m3fn");
  CHECK_THROWS_WITH(GradientReducer(in_process_fabric(), options, 1),
                    contains("scaling: expected pre, post, auto or shipped for an FP8 wire"));
  options.wire = find_wire_format("bf16");
  options.scaling = GradientScaling::automatic;
  CHECK_THROWS_WITH(GradientReducer(in_process_fabric(), options, 1),
                    contains("none for a wider wire"));
  CHECK_THROWS_WITH(find_gradient_scaling("none", "x"), contains("x: expected pre, post"));
}

TEST_CASE("products of a recipe run under others, each operand cast for its product", "[train]") {
  const LinearRecipe own = find_linear_recipe("deepseek-v3");
  const LinearRecipe forward_only = with_products(own, {{}, "bf16", "bf16"});
  CHECK(forward_only.forward.arithmetic == Arithmetic::fp8);
  CHECK(forward_only.dgrad.arithmetic == Arithmetic::bf16);
  CHECK(forward_only.wgrad.arithmetic == Arithmetic::bf16);
  CHECK(forward_only.activation.k_block == own.activation.k_block);
  const LinearRecipe te = find_linear_recipe("te-current");
  const LinearRecipe mixed = with_products(own, {"te-current", {}, {}});
  CHECK(mixed.forward.promotion_interval == te.forward.promotion_interval);
  CHECK(mixed.weight.k_block == te.weight.k_block);
  // The backward products keep the operands of their recipe.
  CHECK(mixed.weight_for_dgrad.value().k_block == own.weight.k_block);
  CHECK(mixed.activation_for_wgrad.value().k_block == own.activation.k_block);
  CHECK_FALSE(mixed.gradient_for_wgrad.has_value());
  const LinearRecipe dgrad = with_products(te, {{}, "deepseek-v3", {}});
  CHECK(dgrad.gradient.format == own.gradient.format);
  CHECK(dgrad.gradient_for_wgrad.value().format == te.gradient.format);
  CHECK(dgrad.weight_for_dgrad.value().k_block == own.weight.k_block);
  CHECK(dgrad.weight.k_block == te.weight.k_block);
  const LinearRecipe wgrad = with_products(te, {{}, {}, "deepseek-v3"});
  CHECK(wgrad.gradient.format == te.gradient.format);
  CHECK(wgrad.gradient_for_wgrad.value().format == own.gradient.format);
  CHECK(wgrad.activation_for_wgrad.value().k_block == own.activation.k_block);
  CHECK_FALSE(wgrad.weight_for_dgrad.has_value());
  CHECK_FALSE(with_products(te, {}).weight_for_dgrad.has_value());
  CHECK_THROWS_WITH(with_products(te, {"nothing", {}, {}}), contains("'nothing'"));
}

TEST_CASE("systems differ from fp8-lm in the part that their name says", "[train]") {
  const TrainingSystem& whole = find_training_system("fp8-lm", "system");
  std::set<std::string> seen;
  for (const TrainingSystem& s : training_systems()) {
    INFO(s.name);
    CHECK(seen.insert(std::string(s.name)).second);
    if (s.name == "fp8-lm" || s.name == "bf16-fp32" || s.name == "fp32") continue;
    const bool products = is_fp8(s.blocks.forward) != is_fp8(whole.blocks.forward);
    const bool states = s.optimizer.master != whole.optimizer.master ||
                        s.optimizer.m != whole.optimizer.m || s.optimizer.v != whole.optimizer.v;
    const bool wires = s.reduction.wire.name != whole.reduction.wire.name ||
                       s.reduction.scaling != whole.reduction.scaling;
    CHECK(int{products} + int{states} + int{wires} == 1);
  }
  CHECK(seen.size() == 11);
  CHECK_THROWS_WITH(find_training_system("fp8", "--x"), contains("--x: expected one of bf16-fp32"));
}

TEST_CASE("systems compute, store and send as their table says", "[train]") {
  struct Row {
    std::string_view name;
    std::string_view blocks;
    std::string_view optimizer;  ///< the preset of the states
    std::string_view wire;
    GradientScaling scaling;
    bool whole_tensors;
  };
  using enum GradientScaling;
  const std::vector<Row> rows{
      {"bf16-fp32", "bf16", "fp32", "f32", none, false},
      {"fp32", "fp32", "fp32", "f32", none, false},
      {"fp8-lm", "ms-amp", "fp8-lm", "e4m3fn", automatic, true},
      {"fp8-lm-bf16-products", "bf16", "fp8-lm", "e4m3fn", automatic, true},
      {"fp8-lm-fp32-states", "ms-amp", "fp32", "e4m3fn", automatic, true},
      {"fp8-lm-fp32-gradients", "ms-amp", "fp8-lm", "f32", none, true},
      {"fp8-lm-pre-scaling", "ms-amp", "fp8-lm", "e4m3fn", pre, true},
      {"fp8-lm-post-scaling", "ms-amp", "fp8-lm", "e4m3fn", post, true},
      {"fp8-lm-fp8-v", "ms-amp", "fp8-lm-fp8-v", "e4m3fn", automatic, true},
      {"fp8-lm-fp8-master", "ms-amp", "fp8-lm-fp8-master", "e4m3fn", automatic, true},
      {"fp8-lm-unscaled-states", "ms-amp", "fp8-lm-unscaled", "e4m3fn", automatic, true}};
  const auto systems = training_systems();
  REQUIRE(systems.size() == rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TrainingSystem& s = systems[i];
    INFO(rows[i].name);
    CHECK(s.name == rows[i].name);
    CHECK(training_system(rows[i].name) == &s);
    CHECK(s.blocks.name == rows[i].blocks);
    const AdamWOptions& states = find_optimizer_preset(rows[i].optimizer).options;
    CHECK(s.optimizer.master == states.master);
    CHECK(s.optimizer.m == states.m);
    CHECK(s.optimizer.v == states.v);
    CHECK(s.optimizer.gradient == StateFormat{});  // as the wires leave them
    CHECK(s.reduction.wire.name == rows[i].wire);
    CHECK(s.reduction.scaling == rows[i].scaling);
    CHECK(s.reduction.ranks == 1);
    CHECK(s.reduction.topology == Topology::ring);
    CHECK(s.whole_tensor_zero == rows[i].whole_tensors);
  }
  CHECK(training_system("fp8") == nullptr);
}

TEST_CASE("a trainer that holds some states has no checkpoint file of its own", "[train]") {
  Trainer trainer(small_options(fp32_recipe()), language());
  std::vector<bool> kept(trainer.model().parameters().size(), true);
  CHECK_THROWS_WITH(trainer.keep_states({true}), contains("kept: expected one of each of"));
  kept.back() = false;
  trainer.keep_states(kept);
  CHECK_THROWS_WITH(trainer.save("none"), contains("a trainer that holds all states"));
  const std::vector<float> head = trainer.model().parameters().back()->value;
  trainer.step({});
  CHECK(same_bits(trainer.model().parameters().back()->value, head));  // not ours to change
  CHECK_THROWS_WITH(trainer.keep_states(kept), contains("before the first step"));
}

TEST_CASE("recipes of single layers stand in place of the model's", "[train]") {
  const auto losses = [](const TrainerOptions& options) {
    Trainer trainer(options, language());
    std::vector<float> all;
    for (int i = 0; i < 3; ++i) all.push_back(static_cast<float>(trainer.step({}).loss));
    return all;
  };
  const TrainerOptions bf16 = small_options(bf16_recipe());
  TrainerOptions each = small_options(find_linear_recipe("te-current"));
  CHECK(losses(each) != losses(bf16));
  std::vector<std::string> names;
  for (const LinearLayer& layer : linear_layers(std::get<TransformerShape>(each.model))) {
    names.push_back(layer.name);
    if (layer.name != "head") each.recipe.layers[layer.name] = bf16_recipe();
  }
  CHECK(names == std::vector<std::string>{"block0.qkv", "block0.projection", "block0.up",
                                          "block0.down", "head"});
  CHECK(same_bits(losses(each), losses(bf16)));
  CHECK(describe(each) != describe(small_options(find_linear_recipe("te-current"))));

  // The layers' shapes are those of the weights.
  Trainer trainer(bf16, language());
  for (const LinearLayer& layer : linear_layers(std::get<TransformerShape>(bf16.model))) {
    const auto parameters = trainer.model().parameters();
    const auto found = std::find_if(parameters.begin(), parameters.end(), [&](const auto* p) {
      return p->name == layer.name + ".weight";
    });
    REQUIRE(found != parameters.end());
    CHECK((*found)->shape == std::vector<std::int64_t>{layer.outputs, layer.inputs});
  }
  each.recipe.layers["block1.qkv"] = bf16_recipe();
  CHECK_THROWS_WITH(Trainer(each, language()), contains("layers: expected names of linear layers"));
}

TEST_CASE("a limit before the cast takes outliers from output gradients alone", "[train]") {
  LinearRecipe recipe = find_linear_recipe("te-current");
  const auto product = [&](double limit, float outlier) {
    recipe.gradient_clip = limit;
    LinearProducts<float> products("layer", recipe, {});
    Matrix<float> x(32, 32);
    Matrix<float> w(32, 32);
    Matrix<float> dy(32, 32);
    const RandomStream random(1, "limit");
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      x.values[i] = static_cast<float>(random.normal(3 * i));
      w.values[i] = static_cast<float>(random.normal(3 * i + 1));
      dy.values[i] = static_cast<float>(random.normal(3 * i + 2));
    }
    dy.values[5] = outlier;
    Matrix<float> y(32, 32);
    Matrix<float> dx(32, 32);
    Matrix<float> dw(32, 32);
    products.forward(x, w, y, {});
    products.backward(dy, w, dx, dw, {});
    dx.values.insert(dx.values.end(), dw.values.begin(), dw.values.end());
    return dx.values;
  };
  CHECK(same_bits(product(100.0, 0.5F), product(0.0, 0.5F)));  // nothing is beyond it
  // Of 1024 values one of 10^6 makes the root mean square 31250: 2 of them are 62500.
  CHECK(same_bits(product(2.0, 1e6F), product(0.0, 62500.0F)));
  CHECK(product(2.0, 1e6F) != product(0.0, 1e6F));
  recipe.gradient_clip = -1.0;
  CHECK_THROWS_WITH(LinearProducts<float>("x", recipe, {}), contains("gradient_clip"));
  LinearRecipe plain = bf16_recipe();
  plain.gradient_clip = 1.0;
  CHECK_THROWS_WITH(LinearProducts<float>("x", plain, {}), contains("without a cast"));
}

TEST_CASE("a run has diverged where its mean loss is above its lowest or a guess", "[train]") {
  const DivergenceOptions options{.window = 4, .rise = 1.0, .uniform_loss = 4.0};
  DivergenceWatch watch(options);
  for (const double loss : {4.0, 3.0, 2.0, 1.0}) watch.observe(loss);
  CHECK(watch.rise() == 0.0);
  watch.observe(4.0);  // the mean of 3, 2, 1, 4 is that of the four before
  CHECK(watch.rise() == 0.0);
  watch.observe(7.0);  // 2, 1, 4, 7: 3.5 against 2.5
  CHECK(watch.rise() == 1.0);
  CHECK_FALSE(watch.diverged());
  watch.observe(1.5);  // 1, 4, 7, 1.5: 3.375
  CHECK(watch.rise() == 0.875);
  watch.observe(7.0);
  CHECK(watch.diverged());
  watch.observe(std::numeric_limits<double>::quiet_NaN());
  CHECK(watch.diverged());
  CHECK(std::isinf(watch.rise()));

  DivergenceWatch at_once(options);  // above what knowing nothing gives, from the first step
  at_once.observe(5.5);
  CHECK(at_once.rise() == 1.5);
  CHECK(at_once.diverged());
  CHECK_THROWS_AS(DivergenceWatch({.window = 0}), Error);
  CHECK_THROWS_AS(DivergenceWatch({.rise = 0.0}), Error);
}

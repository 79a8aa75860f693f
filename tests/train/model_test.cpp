#include <fmt/format.h>

#include <cmath>

#include "catch.hpp"
#include "train/gradient_check.hpp"
#include "train/same_bits.hpp"
#include "training/train/mlp.hpp"
#include "training/train/transformer.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

Batch random_batch(std::int64_t vocabulary, std::int64_t sequences, std::int64_t length) {
  const RandomStream random(3, "batch");
  Batch batch{sequences, length, {}, {}};
  const auto tokens = static_cast<std::uint64_t>(sequences * length);
  for (std::uint64_t i = 0; i < 2 * tokens; ++i) {
    const auto token =
        static_cast<std::int32_t>(random.below(i, static_cast<std::uint64_t>(vocabulary)));
    (i < tokens ? batch.inputs : batch.targets).push_back(token);
  }
  return batch;
}

TransformerShape small_shape(NormKind norm, ActivationKind activation) {
  return {.vocabulary = 7,
          .length = 4,
          .width = 6,
          .layers = 2,
          .heads = 2,
          .hidden = 5,
          .norm = norm,
          .activation = activation};
}

ModelRecipe all(const LinearRecipe& recipe) { return {recipe, recipe, {}}; }

/// Every parameter of a whole model against differences.
void check_model(Model<double>& model, const Batch& batch) {
  const PassContext context{};
  const auto loss = [&] { return model.loss(batch, context); };
  (void)loss();
  model.backward(1.0, context);
  for (Parameter<double>* p : model.parameters()) {
    const std::vector<double> analytic = p->gradient;
    check_gradient(p->name, loss, p->value, analytic);
  }
}

/// The gradients of an FP32 model against those of its FP64 shadow, as relative L2.
void check_shadow(Model<float>& model, Model<double>& shadow, const Batch& batch) {
  const PassContext context{};
  const double loss = model.loss(batch, context);
  CHECK(std::abs(loss - shadow.loss(batch, context)) < 1e-5);
  model.backward(1.0F, context);
  shadow.backward(1.0, context);
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const Parameter<float>& got = *model.parameters()[i];
    const Parameter<double>& expected = *shadow.parameters()[i];
    double error = 0.0;
    double norm = 0.0;
    for (std::size_t j = 0; j < got.gradient.size(); ++j) {
      error += std::pow(static_cast<double>(got.gradient[j]) - expected.gradient[j], 2.0);
      norm += std::pow(expected.gradient[j], 2.0);
    }
    INFO(got.name);
    CHECK(std::sqrt(error / norm) < 1e-4);
  }
}

}  // namespace

TEST_CASE("transformer: every gradient is that of differences", "[train]") {
  const NormKind norm = GENERATE(NormKind::layer, NormKind::rms);
  const ActivationKind activation = GENERATE(ActivationKind::gelu, ActivationKind::swiglu);
  Transformer<double> model(small_shape(norm, activation), all(fp32_recipe()), 1);
  check_model(model, random_batch(7, 3, 4));
}

TEST_CASE("transformer: a batch of another length is refused, with both lengths", "[train]") {
  const TransformerShape shape = small_shape(NormKind::layer, ActivationKind::gelu);
  Transformer<double> model(shape, all(fp32_recipe()), 1);
  for (const std::int64_t length : {shape.length - 1, shape.length + 1})
    CHECK_THROWS_WITH(model.loss(random_batch(7, 1, length), {}),
                      fmt::format("batch.length: expected {}, got {}", shape.length, length));
}

TEST_CASE("mlp: every gradient is that of differences", "[train]") {
  Mlp<double> model({.vocabulary = 7, .context = 3, .embedding = 4, .hidden = 6, .layers = 2},
                    all(fp32_recipe()), 1);
  check_model(model, random_batch(7, 2, 5));
}

TEST_CASE("mlp: the loss depends on every token that a context holds", "[train]") {
  // One sequence of three tokens: a position sees itself and what is before it, and zeros before
  // that.
  Mlp<double> model({.vocabulary = 9, .context = 2, .embedding = 4, .hidden = 6, .layers = 1},
                    all(fp32_recipe()), 1);
  const auto loss = [&](std::vector<std::int32_t> inputs) {
    const auto length = static_cast<std::int64_t>(inputs.size());
    return model.loss({1, length, std::move(inputs), {3, 4, 5}}, {});
  };
  const double right = loss({1, 2, 6});
  CHECK(right == loss({1, 2, 6}));
  for (std::int32_t other = 0; other < 9; ++other) {
    CAPTURE(other);
    if (other != 1) CHECK(loss({other, 2, 6}) != right);
    if (other != 2) CHECK(loss({1, other, 6}) != right);
    if (other != 6) CHECK(loss({1, 2, other}) != right);
  }
  // Of one token alone: nothing but the token itself can make the difference.
  const auto one = [&](std::int32_t token) { return model.loss({1, 1, {token}, {3}}, {}); };
  for (std::int32_t other = 0; other < 9; ++other) {
    CAPTURE(other);
    if (other != 5) CHECK(one(other) != one(5));
  }
}

TEST_CASE("models of sizes that make no sense are refused", "[train]") {
  const auto with = [](auto change) {
    TransformerShape shape{
        .vocabulary = 2, .length = 1, .width = 2, .layers = 1, .heads = 1, .hidden = 1};
    change(shape);
    const Transformer<float> model(shape, all(fp32_recipe()), 1);
  };
  CHECK_NOTHROW(with([](TransformerShape&) {}));
  CHECK_THROWS_WITH(with([](TransformerShape& s) { s.vocabulary = 1; }),
                    contains("vocabulary: expected 2 to"));
  CHECK_THROWS_WITH(with([](TransformerShape& s) { s.length = 0; }),
                    contains("length: expected 1"));
  CHECK_THROWS_WITH(with([](TransformerShape& s) { s.width = 0; }), contains("width: expected 1"));
  CHECK_THROWS_WITH(with([](TransformerShape& s) { s.layers = 0; }),
                    contains("layers: expected 1"));
  CHECK_THROWS_WITH(with([](TransformerShape& s) { s.heads = 0; }), contains("heads: expected 1"));
}

TEST_CASE("models in FP32 follow their FP64 shadows", "[train]") {
  const TransformerShape shape{
      .vocabulary = 50, .length = 16, .width = 32, .layers = 2, .heads = 4, .hidden = 48};
  Transformer<float> transformer(shape, all(fp32_recipe()), 2);
  Transformer<double> transformer_shadow(shape, all(fp32_recipe()), 2);
  // The shadow starts from weights that binary32 cannot hold: within its rounding.
  check_shadow(transformer, transformer_shadow, random_batch(50, 3, 16));
  const MlpShape small{.vocabulary = 50, .context = 3, .embedding = 8, .hidden = 32, .layers = 2};
  Mlp<float> mlp(small, all(fp32_recipe()), 2);
  Mlp<double> mlp_shadow(small, all(fp32_recipe()), 2);
  check_shadow(mlp, mlp_shadow, random_batch(50, 3, 16));
}

TEST_CASE("models give the same bits for any thread count", "[train]") {
  const std::string recipe = GENERATE("fp32", "bf16", "te-current", "deepgemm", "te-mxfp8");
  const TransformerShape shape{
      .vocabulary = 64, .length = 32, .width = 128, .layers = 1, .heads = 4, .hidden = 128};
  const Batch batch = random_batch(64, 4, 32);
  Transformer<float> one(shape, {find_linear_recipe(recipe), bf16_recipe(), {}}, 4);
  Transformer<float> two(shape, {find_linear_recipe(recipe), bf16_recipe(), {}}, 4);
  const PassContext serial{};
  const PassContext parallel{.threads = 2, .on_cast = {}};
  INFO(recipe);
  CHECK(one.loss(batch, serial) == two.loss(batch, parallel));
  one.backward(1.0F, serial);
  two.backward(1.0F, parallel);
  for (std::size_t i = 0; i < one.parameters().size(); ++i) {
    INFO(one.parameters()[i]->name);
    CHECK(same_bits(one.parameters()[i]->gradient, two.parameters()[i]->gradient));
  }
}

TEST_CASE("outlier channels change nothing but what the casts see", "[train]") {
  const TransformerShape shape{
      .vocabulary = 64, .length = 32, .width = 64, .layers = 1, .heads = 4, .hidden = 64};
  const Batch batch = random_batch(64, 2, 32);
  const auto gradients = [&](const LinearRecipe& recipe, OutlierChannels outliers) {
    Transformer<float> model(shape, {recipe, bf16_recipe(), outliers}, 4);
    (void)model.loss(batch, {});
    model.backward(1.0F, {});
    std::vector<float> all_gradients;
    for (Parameter<float>* p : model.parameters())
      all_gradients.insert(all_gradients.end(), p->gradient.begin(), p->gradient.end());
    return all_gradients;
  };
  const OutlierChannels outliers{3, 8};
  for (const std::string name : {"fp32", "bf16"}) {
    INFO(name);
    CHECK(same_bits(gradients(find_linear_recipe(name), {}),
                    gradients(find_linear_recipe(name), outliers)));
  }
  const LinearRecipe per_tensor = find_linear_recipe("te-current");
  CHECK(!same_bits(gradients(per_tensor, {}), gradients(per_tensor, outliers)));
}

TEST_CASE("DeepSeek-V3's first cast has no floor: the first token's query makes NaN", "[train]") {
  // Causal attention gives the first token one weight, 1: its score has no gradient.
  const TransformerShape shape{
      .vocabulary = 64, .length = 32, .width = 128, .layers = 1, .heads = 4, .hidden = 128};
  const auto finite = [&](std::string_view recipe) {
    Transformer<float> model(shape, {find_linear_recipe(recipe), bf16_recipe(), {}}, 4);
    (void)model.loss(random_batch(64, 4, 32), {});
    model.backward(1.0F, {});
    for (Parameter<float>* p : model.parameters())
      for (const float g : p->gradient)
        if (!std::isfinite(g)) return false;
    return true;
  };
  CHECK(!finite("deepseek-v3-first"));
  CHECK(finite("deepseek-v3"));  // today's: amax clamped at 1e-4
  CHECK(finite("deepgemm"));     // the same tiles with amax clamped at 1e-4
}

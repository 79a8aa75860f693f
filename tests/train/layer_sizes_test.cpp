// Every layer of a model by its name and sizes, which are all unlike: first, middle and last ones.

#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "training/train/mlp.hpp"
#include "training/train/transformer.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

/// Name, rows, columns (0: none) and standard deviation of each parameter; 0: the value is known.
using Sizes = std::vector<std::tuple<std::string, std::int64_t, std::int64_t, double>>;
using Layers = std::vector<std::tuple<std::string, std::int64_t, std::int64_t>>;

template <typename Shape>
Layers layers_of(const Shape& shape) {
  Layers all;
  for (const LinearLayer& layer : linear_layers(shape))
    all.emplace_back(layer.name, layer.outputs, layer.inputs);
  return all;
}

/// What a model begins with: each weight is its deviation times the draws under its own name.
template <typename T>
void check_parameters(Model<T>& model, const Sizes& expected, std::uint64_t seed) {
  const std::vector<train::Parameter<T>*> parameters = model.parameters();
  REQUIRE(parameters.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [name, rows, columns, sigma] = expected[i];
    const train::Parameter<T>& p = *parameters[i];
    INFO("parameter " << i << ": " << p.name);
    CHECK(p.name == name);
    CHECK(p.shape == (columns == 0 ? std::vector{rows} : std::vector{rows, columns}));
    std::size_t wrong = 0;
    const RandomStream draws(seed, name);
    for (std::size_t j = 0; j < p.value.size(); ++j) {
      const double known = name.ends_with(".gain") ? 1.0 : 0.0;
      wrong +=
          p.value[j] == static_cast<T>(sigma == 0.0 ? known : sigma * draws.normal(j)) ? 0U : 1U;
    }
    CHECK(wrong == 0);
  }
}

double root(double x) { return 1.0 / std::sqrt(x); }

}  // namespace

TEST_CASE("mlp: every layer reads what the one before it writes", "[train]") {
  const ModelRecipe recipe{fp32_recipe(), fp32_recipe(), {}};
  for (const std::int64_t layers : {1, 2, 4}) {
    INFO(layers << " layers");
    const MlpShape shape{
        .vocabulary = 11, .context = 3, .embedding = 5, .hidden = 7, .layers = layers};
    Layers expected;
    Sizes sizes{{"embedding.tokens", 11, 5, 0.1}};
    for (std::int64_t i = 0; i < layers; ++i) {
      const std::string name = "layer" + std::to_string(i);
      const std::int64_t inputs = i == 0 ? 15 : 7;
      expected.emplace_back(name, 7, inputs);
      sizes.emplace_back(name + ".weight", 7, inputs, root(static_cast<double>(inputs)));
    }
    expected.emplace_back("head", 11, 7);
    sizes.emplace_back("head.weight", 11, 7, 0.02);
    CHECK(layers_of(shape) == expected);
    Mlp<float> narrow(shape, recipe, 23);
    check_parameters(narrow, sizes, 23);
    Mlp<double> wide(shape, recipe, 24);
    check_parameters(wide, sizes, 24);
  }
}

TEST_CASE("transformer: every layer by its place in its block", "[train]") {
  const ModelRecipe recipe{fp32_recipe(), fp32_recipe(), {}};
  for (const ActivationKind activation : {ActivationKind::gelu, ActivationKind::swiglu})
    for (const NormKind norm : {NormKind::layer, NormKind::rms}) {
      const TransformerShape shape{.vocabulary = 11,
                                   .length = 5,
                                   .width = 6,
                                   .layers = 3,
                                   .heads = 2,
                                   .hidden = 7,
                                   .norm = norm,
                                   .activation = activation};
      const std::int64_t up = activation == ActivationKind::swiglu ? 14 : 7;
      const bool biased = norm == NormKind::layer;
      Layers expected;
      Sizes sizes{{"embedding.tokens", 11, 6, 0.1}, {"embedding.positions", 5, 6, 0.1}};
      const auto add_norm = [&](const std::string& name) {
        sizes.emplace_back(name + ".gain", 6, 0, 0.0);
        if (biased) sizes.emplace_back(name + ".bias", 6, 0, 0.0);
      };
      const double residual = 1.0 / std::sqrt(2.0 * 3.0);
      for (int i = 0; i < 3; ++i) {
        const std::string block = "block" + std::to_string(i);
        add_norm(block + ".attention_norm");
        add_norm(block + ".feed_forward_norm");
        for (const auto& [name, outputs, inputs, factor] :
             {std::tuple{".qkv", std::int64_t{18}, std::int64_t{6}, 1.0},
              {".projection", 6, 6, residual},
              {".up", up, 6, 1.0},
              {".down", 6, 7, residual}}) {
          expected.emplace_back(block + name, outputs, inputs);
          sizes.emplace_back(block + name + ".weight", outputs, inputs,
                             factor / std::sqrt(static_cast<double>(inputs)));
        }
      }
      expected.emplace_back("head", 11, 6);
      add_norm("norm");
      sizes.emplace_back("head.weight", 11, 6, 0.02);
      INFO("up has " << up << " outputs, biases: " << biased);
      CHECK(layers_of(shape) == expected);
      Transformer<float> model(shape, recipe, 25);
      check_parameters(model, sizes, 25);
    }
}

TEST_CASE("mlp: outlier channels are those of each layer's own inputs", "[train]") {
  // One of two channels is large: of 15 inputs of the first layer, of 7 of the others.
  const MlpShape shape{.vocabulary = 11, .context = 3, .embedding = 5, .hidden = 7, .layers = 3};
  LinearRecipe cast = find_linear_recipe("te-current");
  Mlp<float> plain(shape, {cast, fp32_recipe(), {}}, 3);
  Mlp<float> spread(shape, {cast, fp32_recipe(), {2, 5}}, 3);
  Batch batch{2, 4, {}, {}};
  for (std::int32_t i = 0; i < 8; ++i) {
    batch.inputs.push_back(i * 3 % 11);
    batch.targets.push_back((i * 5 + 2) % 11);
  }
  struct Seen {
    std::string name;
    std::int64_t rows;
    std::int64_t columns;
    std::vector<float> values;
  };
  const auto casts_of = [&](Mlp<float>& model) {
    std::vector<Seen> all;
    PassContext context;
    context.on_cast = [&](std::string_view name, const FloatMatrix& x, const QuantizedTensor&) {
      all.push_back({std::string(name), x.rows, x.k, {x.values.begin(), x.values.end()}});
    };
    (void)model.loss(batch, context);
    return all;
  };
  const std::vector<Seen> without = casts_of(plain);
  const std::vector<Seen> with = casts_of(spread);
  REQUIRE(with.size() == 6);
  REQUIRE(without.size() == 6);
  for (std::size_t i = 0; i < with.size(); ++i) {
    const bool is_weight = i % 2 == 1;
    const std::int64_t inputs = i < 2 ? 15 : 7;
    INFO(with[i].name);
    CHECK(with[i].name ==
          "layer" + std::to_string(i / 2) + (is_weight ? ".weight" : ".activation"));
    REQUIRE(with[i].columns == inputs);
    CHECK(with[i].rows == (is_weight ? 7 : 8));
    if (!is_weight && i > 1) continue;  // they follow a cast
    std::size_t wrong = 0;
    for (std::size_t j = 0; j < with[i].values.size(); ++j) {
      const auto column = static_cast<std::int64_t>(j) % inputs;
      const bool is_large = column == 0 || column == inputs / 2;
      const float factor = !is_large ? 1.0F : is_weight ? 0x1p-5F : 0x1p5F;
      wrong += with[i].values[j] == without[i].values[j] * factor ? 0U : 1U;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("transformer: outlier channels are those of the layers behind a norm", "[train]") {
  const TransformerShape shape{
      .vocabulary = 11, .length = 4, .width = 6, .layers = 2, .heads = 2, .hidden = 10};
  const LinearRecipe cast = find_linear_recipe("te-current");
  const Batch batch{1, 4, {1, 2, 3, 4}, {5, 6, 7, 8}};
  const auto weights_of = [&](const OutlierChannels& outliers) {
    Transformer<float> model(shape, {cast, cast, outliers}, 3);
    std::vector<std::pair<std::string, std::vector<float>>> all;
    PassContext context;
    context.on_cast = [&](std::string_view name, const FloatMatrix& x, const QuantizedTensor&) {
      if (name.ends_with(".weight"))
        all.emplace_back(name, std::vector<float>(x.values.begin(), x.values.end()));
    };
    (void)model.loss(batch, context);
    return all;
  };
  const auto without = weights_of({});
  const auto with = weights_of({1, 3});
  std::vector<std::string> names;
  for (std::size_t i = 0; i < with.size(); ++i) {
    const std::string& name = with[i].first;
    names.push_back(name);
    const bool follows_norm = name.ends_with(".qkv.weight") || name.ends_with(".up.weight");
    std::vector<float> expected = without[i].second;
    for (std::size_t j = 0; follows_norm && j < expected.size(); j += 6) expected[j] *= 0.125F;
    INFO(name);
    CHECK(with[i].second == expected);
  }
  CHECK(names == std::vector<std::string>{"block0.qkv.weight", "block0.projection.weight",
                                          "block0.up.weight", "block0.down.weight",
                                          "block1.qkv.weight", "block1.projection.weight",
                                          "block1.up.weight", "block1.down.weight", "head.weight"});
}

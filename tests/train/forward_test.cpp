// The losses of both models against their definitions, written down once more over plain vectors:
// what is wrong forward and backward alike, differences do not show.

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "training/train/mlp.hpp"
#include "training/train/transformer.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

using Vector = std::vector<double>;
using Weights = std::map<std::string, Vector>;

/// Draws anew for every parameter, gains and biases too.
template <typename T>
Weights randomized(Model<T>& model) {
  Weights weights;
  for (Parameter<T>* p : model.parameters()) {
    const RandomStream draws(31, p->name);
    for (std::size_t i = 0; i < p->value.size(); ++i)
      p->value[i] = static_cast<T>(0.4 * draws.normal(i) + (p->name.ends_with("gain") ? 1.0 : 0.0));
    weights[p->name] = Vector(p->value.begin(), p->value.end());
  }
  return weights;
}

Batch drawn_batch(std::int64_t vocabulary, std::int64_t sequences, std::int64_t length) {
  const RandomStream draws(5, "forward");
  Batch batch{sequences, length, {}, {}};
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(sequences * length); ++i) {
    const auto bound = static_cast<std::uint64_t>(vocabulary);
    batch.inputs.push_back(static_cast<std::int32_t>(draws.below(2 * i, bound)));
    batch.targets.push_back(static_cast<std::int32_t>(draws.below(2 * i + 1, bound)));
  }
  return batch;
}

Vector times(const Vector& weight, const Vector& x) {
  Vector y(weight.size() / x.size());
  for (std::size_t i = 0; i < y.size(); ++i)
    for (std::size_t j = 0; j < x.size(); ++j) y[i] += weight[i * x.size() + j] * x[j];
  return y;
}

Vector row_of(const Vector& matrix, std::size_t row, std::size_t columns) {
  const auto begin = matrix.begin() + static_cast<std::ptrdiff_t>(row * columns);
  return {begin, begin + static_cast<std::ptrdiff_t>(columns)};
}

double loss_of(const Vector& logits, std::int32_t target) {
  double sum = 0.0;
  for (const double x : logits) sum += std::exp(x);
  return std::log(sum) - logits[static_cast<std::size_t>(target)];
}

double gelu_of(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }

Vector normalized(const Vector& x, const Weights& weights, const std::string& name, bool rms) {
  const auto n = static_cast<double>(x.size());
  double mean = 0.0;
  double squares = 0.0;
  for (const double one : x) mean += rms ? 0.0 : one / n;
  for (const double one : x) squares += (one - mean) * (one - mean) / n;
  Vector y;
  for (std::size_t i = 0; i < x.size(); ++i)
    y.push_back((x[i] - mean) / std::sqrt(squares + 1e-5) * weights.at(name + ".gain")[i] +
                (rms ? 0.0 : weights.at(name + ".bias")[i]));
  return y;
}

}  // namespace

TEST_CASE("mlp: the loss is that of its definition", "[train]") {
  for (const std::int64_t context : {1, 2, 3, 5})
    for (const std::int64_t layers : {1, 2, 3}) {
      const MlpShape shape{
          .vocabulary = 7, .context = context, .embedding = 4, .hidden = 6, .layers = layers};
      Mlp<double> model(shape, {fp32_recipe(), fp32_recipe(), {}}, 1);
      const Weights weights = randomized(model);
      const Batch batch = drawn_batch(7, 3, 4);
      double expected = 0.0;
      for (std::size_t s = 0; s < 3; ++s)
        for (std::size_t t = 0; t < 4; ++t) {
          // The oldest token first; token 0 stands in front of a sequence.
          Vector x;
          for (std::int64_t i = 0; i < context; ++i) {
            const std::int64_t at = static_cast<std::int64_t>(t) - (context - 1) + i;
            const std::int32_t token =
                at < 0 ? 0 : batch.inputs[s * 4 + static_cast<std::size_t>(at)];
            const Vector one =
                row_of(weights.at("embedding.tokens"), static_cast<std::size_t>(token), 4);
            x.insert(x.end(), one.begin(), one.end());
          }
          for (std::int64_t layer = 0; layer < layers; ++layer) {
            x = times(weights.at("layer" + std::to_string(layer) + ".weight"), x);
            for (double& one : x) one = gelu_of(one);
          }
          expected += loss_of(times(weights.at("head.weight"), x), batch.targets[s * 4 + t]) / 12.0;
        }
      INFO("context " << context << ", " << layers << " layers");
      CHECK(std::abs(model.loss(batch, {}) - expected) < 1e-12 * expected);
    }
}

TEST_CASE("transformer: the loss is that of its definition", "[train]") {
  for (const NormKind norm : {NormKind::layer, NormKind::rms})
    for (const ActivationKind activation : {ActivationKind::gelu, ActivationKind::swiglu})
      for (const std::size_t heads : {1U, 2U, 3U}) {
        const TransformerShape shape{.vocabulary = 7,
                                     .length = 5,
                                     .width = 6,
                                     .layers = 2,
                                     .heads = static_cast<std::int64_t>(heads),
                                     .hidden = 4,
                                     .norm = norm,
                                     .activation = activation};
        Transformer<double> model(shape, {fp32_recipe(), fp32_recipe(), {}}, 1);
        const Weights weights = randomized(model);
        const Batch batch = drawn_batch(7, 2, 5);
        const bool rms = norm == NormKind::rms;
        double expected = 0.0;
        for (std::size_t s = 0; s < 2; ++s) {
          std::vector<Vector> x;
          for (std::size_t t = 0; t < 5; ++t) {
            x.push_back(row_of(weights.at("embedding.tokens"),
                               static_cast<std::size_t>(batch.inputs[s * 5 + t]), 6));
            for (std::size_t c = 0; c < 6; ++c)
              x.back()[c] += weights.at("embedding.positions")[t * 6 + c];
          }
          for (int layer = 0; layer < 2; ++layer) {
            const std::string block = "block" + std::to_string(layer);
            std::vector<Vector> qkv;
            for (const Vector& one : x)
              qkv.push_back(times(weights.at(block + ".qkv.weight"),
                                  normalized(one, weights, block + ".attention_norm", rms)));
            const std::size_t d = 6 / heads;
            for (std::size_t t = 0; t < 5; ++t) {
              Vector attended(6);
              for (std::size_t h = 0; h < heads; ++h) {
                Vector p;
                double total = 0.0;
                for (std::size_t j = 0; j <= t; ++j) {
                  double score = 0.0;
                  for (std::size_t c = 0; c < d; ++c)
                    score += qkv[t][h * d + c] * qkv[j][6 + h * d + c];
                  p.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
                  total += p.back();
                }
                for (std::size_t j = 0; j <= t; ++j)
                  for (std::size_t c = 0; c < d; ++c)
                    attended[h * d + c] += p[j] / total * qkv[j][12 + h * d + c];
              }
              const Vector out = times(weights.at(block + ".projection.weight"), attended);
              for (std::size_t c = 0; c < 6; ++c) x[t][c] += out[c];
            }
            for (Vector& one : x) {
              const Vector up = times(weights.at(block + ".up.weight"),
                                      normalized(one, weights, block + ".feed_forward_norm", rms));
              Vector hidden(4);
              for (std::size_t i = 0; i < 4; ++i)
                hidden[i] = activation == ActivationKind::gelu
                                ? gelu_of(up[i])
                                : up[i] / (1.0 + std::exp(-up[i])) * up[4 + i];
              const Vector down = times(weights.at(block + ".down.weight"), hidden);
              for (std::size_t c = 0; c < 6; ++c) one[c] += down[c];
            }
          }
          for (std::size_t t = 0; t < 5; ++t)
            expected +=
                loss_of(times(weights.at("head.weight"), normalized(x[t], weights, "norm", rms)),
                        batch.targets[s * 5 + t]) /
                10.0;
        }
        INFO(heads << " heads, RMSNorm " << rms);
        CHECK(std::abs(model.loss(batch, {}) - expected) < 1e-12 * expected);
      }
}

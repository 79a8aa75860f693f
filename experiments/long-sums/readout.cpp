#include "long-sums/readout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "common/tensors.hpp"
#include "fp8lab/linear/linear.hpp"
#include "training/optim/adamw.hpp"

namespace fp8lab::experiments {
namespace {

using train::Matrix;

/// Features and targets of any batch.
class Source {
 public:
  Source(const ReadoutSettings& settings, const ReadoutTask& task, std::uint64_t seed)
      : settings_(settings),
        task_(task),
        seed_(seed),
        mixing_(normal({seed, "long-sums/mixing"},
                       static_cast<std::size_t>(settings.inputs * task.features),
                       1.0 / std::sqrt(static_cast<double>(settings.inputs)))),
        teacher_(normal({seed, "long-sums/teacher"},
                        static_cast<std::size_t>(settings.inputs * task.outputs()),
                        1.0 / std::sqrt(static_cast<double>(settings.inputs)))) {}

  /// x [batch, features], t [batch, outputs].
  void draw(std::int64_t step, Matrix<float>& x, Matrix<float>& t) const {
    const std::vector<float> u = normal({seed_, fmt::format("long-sums/batch {}", step)},
                                        static_cast<std::size_t>(x.rows * settings_.inputs), 1.0);
    for (std::int64_t row = 0; row < x.rows; ++row) {
      const float* in = u.data() + row * settings_.inputs;
      mix(in, mixing_.data(), static_cast<float>(settings_.bias), x.row(row), x.columns);
      std::for_each(x.row(row), x.row(row) + x.columns, [](float& v) { v = std::max(v, 0.0F); });
      mix(in, teacher_.data(), static_cast<float>(task_.offset), t.row(row), t.columns);
    }
  }

 private:
  /// out = first + in . weights [inputs, count].
  void mix(const float* in, const float* weights, float first, float* out,
           std::int64_t count) const {
    std::fill(out, out + count, first);
    for (std::int64_t d = 0; d < settings_.inputs; ++d)
      for (std::int64_t i = 0; i < count; ++i) out[i] += weights[d * count + i] * in[d];
  }

  ReadoutSettings settings_;
  ReadoutTask task_;
  std::uint64_t seed_;
  std::vector<float> mixing_;   ///< [inputs, features]
  std::vector<float> teacher_;  ///< [inputs, outputs]
};

/// The mean squared error, and its gradient.
double squared_error(const Matrix<float>& y, const Matrix<float>& t, Matrix<float>& dy) {
  double loss = 0.0;
  for (std::size_t i = 0; i < y.values.size(); ++i) {
    const float error = y.values[i] - t.values[i];
    loss += static_cast<double>(error) * error;
    dy.values[i] = 2.0F * error / static_cast<float>(y.rows);
  }
  return loss / static_cast<double>(y.rows);
}

/// The cross entropy against the largest of each row of t, and its gradient.
double cross_entropy(const Matrix<float>& y, const Matrix<float>& t, Matrix<float>& dy) {
  double loss = 0.0;
  for (std::int64_t row = 0; row < y.rows; ++row) {
    const float* logits = y.row(row);
    const auto label = std::max_element(t.row(row), t.row(row) + t.columns) - t.row(row);
    const float most = *std::max_element(logits, logits + y.columns);
    double sum = 0.0;
    for (std::int64_t o = 0; o < y.columns; ++o) sum += std::exp(logits[o] - most);
    loss += std::log(sum) + most - logits[label];
    for (std::int64_t o = 0; o < y.columns; ++o) {
      const double p = std::exp(logits[o] - most) / sum;
      dy.row(row)[o] =
          static_cast<float>((p - (o == label ? 1.0 : 0.0)) / static_cast<double>(y.rows));
    }
  }
  return loss / static_cast<double>(y.rows);
}

}  // namespace

std::vector<double> train_readout(const ReadoutSettings& settings, const ReadoutTask& task,
                                  const train::LinearRecipe& recipe, std::uint64_t seed,
                                  const Backend& backend) {
  const Source source(settings, task, seed);
  train::Linear<float> layer("readout", task.features, task.outputs(), recipe);
  std::vector<float>& weights = layer.weight().value;
  weights = normal({seed, "long-sums/weights"}, weights.size(),
                   0.1 / std::sqrt(static_cast<double>(task.features)));
  AdamWOptions options;
  options.weight_decay = 0.0;
  options.threads = 1;
  const Parameter parameter{"readout", {task.outputs(), task.features}, weights};
  AdamW optimizer(options, {&parameter, 1});
  const train::PassContext context{.threads = 1, .on_cast = {}, .backend = backend};
  Matrix<float> x(settings.batch, task.features);
  Matrix<float> t(settings.batch, task.outputs());
  Matrix<float> dy(settings.batch, task.outputs());
  std::vector<double> losses;
  for (std::int64_t step = 0; step < settings.schedule.steps; ++step) {
    source.draw(step, x, t);
    const Matrix<float> y = layer.forward(x, context);
    losses.push_back(task.classes > 0 ? cross_entropy(y, t, dy) : squared_error(y, t, dy));
    layer.backward(dy, context);
    const std::array<std::span<const float>, 1> gradients{layer.weight().gradient};
    optimizer.step(gradients, settings.schedule.at(step) / static_cast<double>(task.features));
    optimizer.copy_weights(0, weights);
  }
  return losses;
}

}  // namespace fp8lab::experiments

#include "adam-states/trajectory.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fp8lab::experiments {
namespace {

constexpr std::int64_t kFirstSteps = 10;  // bias correction makes the first updates large for all

AdamW make_optimizer(const AdamWOptions& options, const std::vector<float>& x) {
  const std::vector<Parameter> parameters{{"x", {static_cast<std::int64_t>(x.size())}, x}};
  return AdamW(options, parameters);
}

void take_step(AdamW& optimizer, const std::vector<float>& g, double lr) {
  const std::vector<std::span<const float>> gradients{g};
  optimizer.step(gradients, lr);
}

}  // namespace

Quadratic::Quadratic(const RandomStream& random, const Problem& problem)
    : random_(random), problem_(problem) {
  const RandomStream curvature(random.seed(), "adam-states/curvature");
  for (std::size_t i = 0; i < problem.elements; ++i)
    curvature_.push_back(std::pow(10.0, -problem.decades * curvature.uniform(i)));
}

std::vector<float> Quadratic::start() const {
  return std::vector<float>(problem_.elements, static_cast<float>(problem_.start));
}

void Quadratic::gradient(std::int64_t step, const std::vector<float>& x,
                         std::vector<float>& g) const {
  const std::uint64_t first = static_cast<std::uint64_t>(step) * problem_.elements;
  g.resize(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    g[i] = static_cast<float>(
        curvature_[i] * (static_cast<double>(x[i]) + problem_.noise * random_.normal(first + i)));
}

double mean_square(const std::vector<float>& x) {
  double sum = 0.0;
  for (const float value : x) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum / static_cast<double>(x.size());
}

Trajectory run_trajectory(const Quadratic& problem, const AdamWOptions& options, double lr,
                          std::int64_t steps) {
  std::vector<float> x = problem.start();
  std::vector<float> before(x.size());
  std::vector<float> g;
  AdamW optimizer = make_optimizer(options, x);
  Trajectory result;
  for (std::int64_t step = 0; step < steps; ++step) {
    optimizer.copy_weights(0, before);
    problem.gradient(step, before, g);
    take_step(optimizer, g, lr);
    optimizer.copy_weights(0, x);
    const double loss = mean_square(x);
    result.loss.push_back(std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity());
    if (step < kFirstSteps) continue;
    for (std::size_t i = 0; i < x.size(); ++i)
      result.largest_update =
          std::max(result.largest_update,
                   std::abs(static_cast<double>(x[i]) - static_cast<double>(before[i])) / lr);
  }
  std::vector<float> v(x.size());
  optimizer.copy_v(0, v);
  result.zero_v_percent = 100.0 * static_cast<double>(std::count(v.begin(), v.end(), 0.0F)) /
                          static_cast<double>(v.size());
  return result;
}

double v_ratio(const RandomStream& random, const AdamWOptions& options, std::size_t elements,
               std::int64_t steps) {
  AdamWOptions exact = options;
  exact.v = {};
  const std::vector<float> zeros(elements);
  AdamW stored = make_optimizer(options, zeros);
  AdamW reference = make_optimizer(exact, zeros);
  std::vector<float> g(elements);
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < elements; ++i)
      g[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(step) * elements + i));
    take_step(stored, g, 0.0);
    take_step(reference, g, 0.0);
  }
  std::vector<float> v(elements);
  std::vector<float> expected(elements);
  stored.copy_v(0, v);
  reference.copy_v(0, expected);
  double sum = 0.0;
  double expected_sum = 0.0;
  for (std::size_t i = 0; i < elements; ++i) {
    sum += static_cast<double>(v[i]);
    expected_sum += static_cast<double>(expected[i]);
  }
  return sum / expected_sum;
}

}  // namespace fp8lab::experiments

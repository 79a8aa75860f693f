#include "int8-vs-fp8/grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/tensors.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/metrics/sum.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab::experiments {

double Grid::value(int code) const {
  const int field = code >> mantissa_bits();
  const int fraction = code & ((1 << mantissa_bits()) - 1);
  const int significand = field == 0 ? fraction : fraction + (1 << mantissa_bits());
  return std::ldexp(significand, std::max(field, 1) - 1 - mantissa_bits());
}

double Grid::nearest(double x) const {
  const double magnitude = std::abs(x);
  if (magnitude >= max()) return std::copysign(max(), x);
  const int binade = magnitude < 1.0 || exponent_bits == 0 ? 0 : std::ilogb(magnitude);
  const double unit = std::ldexp(1.0, binade - mantissa_bits());
  return std::copysign(std::min(std::nearbyint(magnitude / unit) * unit, max()), x);
}

Grid find_grid(const std::string& name) {
  const std::vector<Grid> grids{{"INT8", 0},           {"2E5M", 2}, {"3E4M", 3},
                                {"4E3M", 4},           {"5E2M", 5}, {"E4M3 (OCP)", 4, 126},
                                {"E5M2 (OCP)", 5, 123}};
  std::string known;
  for (const Grid& grid : grids) {
    if (grid.name == name) return grid;
    known += (known.empty() ? "" : ", ") + grid.name;
  }
  throw Error("formats", "one of " + known, "'" + name + "'");
}

GridLoss loss_at(const Grid& grid, std::span<const float> x, double clip) {
  const auto largest = static_cast<double>(amax(x, false));
  require(largest > 0.0 && std::isfinite(largest), "x", "a finite amax above 0",
          fmt::format("{}", largest));
  const double scale = grid.max() / (clip * largest);
  PairwiseSum error;
  PairwiseSum signal;
  for (const float value : x) {
    const auto exact = static_cast<double>(value);
    const double difference = grid.nearest(exact * scale) / scale - exact;
    error.add(difference * difference);
    signal.add(exact * exact);
  }
  const auto count = static_cast<double>(x.size());
  return {clip, error.total() / count, 10.0 * std::log10(signal.total() / error.total())};
}

GridLoss best_loss(const Grid& grid, std::span<const float> x, int per_octave, int octaves) {
  GridLoss best = loss_at(grid, x, 1.0);
  for (int step = 1; step <= per_octave * octaves; ++step) {
    const GridLoss loss = loss_at(grid, x, std::exp2(-static_cast<double>(step) / per_octave));
    if (loss.mse < best.mse) best = loss;
  }
  return best;
}

std::vector<float> normal_with_outliers(std::uint64_t seed, std::size_t count,
                                        std::size_t outliers) {
  const RandomStream random(seed, "int8-vs-fp8/outliers");
  std::vector<float> x = normal({seed, "int8-vs-fp8/normal"}, count, 0.5);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t i = 0; i < outliers; ++i) {
    std::swap(order[i], order[i + random.below(i, count - i)]);
    x[order[i]] *= 20.0F;
  }
  return x;
}

}  // namespace fp8lab::experiments

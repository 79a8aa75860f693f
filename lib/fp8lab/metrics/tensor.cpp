#include "fp8lab/metrics/tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/metrics/sum.hpp"

namespace fp8lab {
namespace {

double percent(std::size_t part, std::size_t count) {
  return count == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(count);
}

/// The largest magnitude that rounds to max finite or below, to nearest even on an unbounded grid.
double overflow_limit(const Format& f) {
  const double last = f.max_finite();
  const double step = last - decode(f, f.max_finite_code() - 1);
  const double middle = last + step / 2.0;
  const bool last_is_even = (f.max_finite_code() & 1) == 0;
  return last_is_even ? middle : std::nextafter(middle, 0.0);
}

}  // namespace

double TensorStatistics::zero_share() const {
  const FloatEnvironment environment;
  return count == 0 ? 0.0 : static_cast<double>(zeros) / static_cast<double>(count);
}

TensorStatistics tensor_statistics(std::span<const float> x) {
  const FloatEnvironment environment;
  TensorStatistics s;
  s.count = x.size();
  PairwiseSum squares;
  for (const float element : x) {
    if (!std::isfinite(element)) {
      ++s.non_finite;
      continue;
    }
    const double magnitude = std::abs(static_cast<double>(element));
    squares.add(magnitude * magnitude);
    if (magnitude == 0.0) {
      ++s.zeros;
      continue;
    }
    s.amax = std::max(s.amax, magnitude);
    s.min_nonzero = s.min_nonzero == 0.0 ? magnitude : std::min(s.min_nonzero, magnitude);
  }
  if (s.amax > 0.0) s.decades = std::log10(s.amax / s.min_nonzero);
  if (s.count > s.non_finite)
    s.rms = std::sqrt(squares.total() / static_cast<double>(s.count - s.non_finite));
  return s;
}

std::vector<double> magnitude_quantiles(std::span<const float> x,
                                        std::span<const double> probabilities) {
  const FloatEnvironment environment;
  std::vector<double> magnitudes;
  for (const float element : x)
    if (std::isfinite(element)) magnitudes.push_back(std::abs(static_cast<double>(element)));
  std::sort(magnitudes.begin(), magnitudes.end());
  std::vector<double> quantiles;
  for (const double p : probabilities) {
    require(p >= 0.0 && p <= 1.0, "probabilities", "0 to 1", fmt::format("{}", p));
    if (magnitudes.empty()) {
      quantiles.push_back(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    const double position = p * static_cast<double>(magnitudes.size() - 1);
    const auto below = static_cast<std::size_t>(position);
    const std::size_t above = std::min(below + 1, magnitudes.size() - 1);
    quantiles.push_back(magnitudes[below] + (position - static_cast<double>(below)) *
                                                (magnitudes[above] - magnitudes[below]));
  }
  return quantiles;
}

QuantizationLoss quantization_loss(std::span<const float> x, std::span<const std::uint8_t> codes,
                                   const Format& f, std::span<const float> scales,
                                   std::size_t tile) {
  const FloatEnvironment environment;
  require(f.storage_bits == 8, "format", "an 8-bit format", f.name);
  require(codes.size() == x.size(), "codes", fmt::format("{} codes, one for each x", x.size()),
          fmt::format("{}", codes.size()));
  if (tile == 0) tile = std::max<std::size_t>(x.size(), 1);
  const std::size_t tiles = (x.size() + tile - 1) / tile;
  require(scales.size() == tiles, "scales",
          fmt::format("ceil({} / {}) = {} scales", x.size(), tile, tiles),
          fmt::format("{}", scales.size()));

  const double max_finite = f.max_finite();
  const double overflow_from = overflow_limit(f);
  std::size_t underflowed = 0;
  std::size_t overflowed = 0;
  std::size_t saturated = 0;
  std::size_t nan = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    // The FP64 product of two binary32 numbers is exact.
    const double scaled = static_cast<double>(x[i]) * static_cast<double>(scales[i / tile]);
    const double q = std::abs(decode(f, codes[i]));
    underflowed += x[i] != 0.0F && q == 0.0 ? 1 : 0;
    overflowed += std::abs(scaled) > overflow_from ? 1 : 0;
    saturated += q == max_finite ? 1 : 0;
    nan += std::isnan(q) ? 1 : 0;
  }
  QuantizationLoss loss;
  loss.count = x.size();
  loss.underflow_percent = percent(underflowed, x.size());
  loss.overflow_percent = percent(overflowed, x.size());
  loss.saturated_percent = percent(saturated, x.size());
  loss.nan_percent = percent(nan, x.size());
  return loss;
}

}  // namespace fp8lab

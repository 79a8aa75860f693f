#include "seed-listings/repeats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab::experiments {

Quantiles quantiles_of(std::vector<double> values) {
  require(!values.empty(), "values", "at least 1", "0");
  std::sort(values.begin(), values.end());
  const auto at = [&](double quantile) {
    const double position = quantile * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(position);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return std::lerp(values[below], values[above], position - static_cast<double>(below));
  };
  return {at(0.05), at(0.5), at(0.95)};
}

std::string median_text(std::vector<double> values) {
  const double median = quantiles_of(values).median;
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  const double reach = (2.58 + 1.28) * std::sqrt(n) / 2.0;
  const auto at = [&](double rank) {
    return values[static_cast<std::size_t>(std::clamp(rank, 0.0, n - 1.0))];
  };
  return fmt::format("{:.3g} [{:.3g}, {:.3g}]", median, at(std::floor(n / 2.0 - reach)),
                     at(std::ceil(n / 2.0 + reach)));
}

DotRepeats repeat_dots(std::uint64_t seed, std::int64_t repeats, int threads) {
  require(repeats > 0, "repeats", "a positive number", fmt::format("{}", repeats));
  const RandomStream stream(seed, "seed-listings/numpy");
  DotRepeats result;
  result.as_written.resize(static_cast<std::size_t>(repeats));
  result.corrected.resize(static_cast<std::size_t>(repeats));
#pragma omp parallel for schedule(dynamic) num_threads(team_size(threads))
  for (std::int64_t i = 0; i < repeats; ++i) {
    const ListingDraws draws = listing_draws(stream, static_cast<std::uint64_t>(i));
    result.as_written[static_cast<std::size_t>(i)] = dot_as_written(draws);
    result.corrected[static_cast<std::size_t>(i)] = dot_corrected(draws);
  }
  return result;
}

double share_promoted_nearer(std::span<const ListingDot> dots) {
  const auto nearer = std::count_if(dots.begin(), dots.end(), [](const ListingDot& d) {
    return std::abs(d.promoted - d.exact) < std::abs(d.naive - d.exact);
  });
  return static_cast<double>(nearer) / static_cast<double>(dots.size());
}

std::vector<TorchListing> repeat_torch(std::uint64_t seed, std::int64_t repeats, float outlier,
                                       int threads) {
  require(repeats > 0, "repeats", "a positive number", fmt::format("{}", repeats));
  const double largest = format(FormatId::bf16).max_finite();
  require(std::abs(outlier) <= largest, "outlier", fmt::format("a BF16 number, |x| <= {}", largest),
          fmt::format("{}", outlier));
  const RandomStream stream(seed, "seed-listings/torch");
  std::vector<TorchListing> result(static_cast<std::size_t>(repeats));
#pragma omp parallel for schedule(dynamic) num_threads(team_size(threads))
  for (std::int64_t i = 0; i < repeats; ++i)
    result[static_cast<std::size_t>(i)] =
        run_torch_listing(stream, static_cast<std::uint64_t>(i), outlier);
  return result;
}

}  // namespace fp8lab::experiments

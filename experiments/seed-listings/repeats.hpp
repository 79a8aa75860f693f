#pragma once
// The listings many times over, since one draw proves nothing: order statistics
// of every figure that they print.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "seed-listings/numpy_listing.hpp"
#include "seed-listings/torch_listing.hpp"

namespace fp8lab::experiments {

/// Order statistics, by linear interpolation between the sorted values.
struct Quantiles {
  double low = 0.0;  ///< 5th percentile
  double median = 0.0;
  double high = 0.0;  ///< 95th percentile
};
Quantiles quantiles_of(std::vector<double> values);

/// `3.89 [3.5, 4.3]`: the median, and order statistics that hold, with a confidence of 99 %, 90 %
/// of the medians of as many other draws (a tolerance interval): ranks n / 2 -+ (2.58 + 1.28)
/// sqrt(n) / 2. The median of these draws has 2.58 deviations of its own, those of others 1.28.
std::string median_text(std::vector<double> values);

/// Part 3 of the NumPy listing on draws of our own.
struct DotRepeats {
  std::vector<ListingDot> as_written;
  std::vector<ListingDot> corrected;
};
DotRepeats repeat_dots(std::uint64_t seed, std::int64_t repeats, int threads);

/// Share of repeats in which the promoted sum is strictly nearer to the exact one.
double share_promoted_nearer(std::span<const ListingDot> dots);

/// Throws `Error` for an outlier that is no finite BF16 number.
std::vector<TorchListing> repeat_torch(std::uint64_t seed, std::int64_t repeats, float outlier,
                                       int threads);

}  // namespace fp8lab::experiments

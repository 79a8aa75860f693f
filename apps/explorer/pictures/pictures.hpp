#pragma once
// What the explorer's pictures show, as JSON. Every number comes from the library; the page
// only draws. Errors are `fp8lab::Error`, as everywhere.

#include <cstdint>
#include <string>
#include <string_view>

#include "fp8lab/formats/format.hpp"

namespace fp8lab::explorer {

/// What the page offers: formats with their limits and (up to eight bits) all their positive
/// values, cast profiles, recipes that look at the current tensor, and accumulators of
/// eight-bit products.
std::string describe();

/// What binary32 `x` becomes in each value format under the cast profile called `profile`: code,
/// value, relative error |value - x| / |x|, and what happened on the way.
std::string cast_table(float x, std::string_view profile);

/// Relative error of the cast from `low` to `high` in about `points` steps, equal on the logarithm:
/// in the middle of each step the largest error of 33 numbers, both ends included.
std::string error_curve(FormatId format, std::string_view profile, float low, float high,
                        int points);

/// A row of N(0, sigma^2) elements, one of which is the outlier.
struct OutlierQuestion {
  std::string_view recipe = "te-current";
  FormatId format = FormatId::e4m3fn;
  int elements = 512;
  double sigma = 0.4;
  double outlier = 1000.0;
  int position = 200;
  int tile = 128;      ///< elements that share a scale; 0: all
  bool flush = false;  ///< subnormals become zero
  std::uint32_t seed = 1;
};

/// The elements, what a quantization leaves of them, and its error figures; for the tile of the
/// question, and the figures alone for one scale for all.
std::string outlier(const OutlierQuestion& question);

/// 4 x 4 dot products of length k on operands that are quantized with one scale a matrix.
struct AccumulationQuestion {
  std::string_view model = "sm90.wgmma.e4m3";
  std::string_view distribution = "uniform";  ///< uniform, normal, correlated or ones
  int k = 4096;
  int promotion_interval = 128;  ///< 0: none
  std::uint32_t seed = 1;
};

/// The running sum of the first dot product, exact, without promotion and with it, and the
/// relative L2 error of all of them after 32, 64, 128 ... k terms. The exact sum is that of the
/// same codes: the error is the accumulator's alone.
std::string accumulation(const AccumulationQuestion& question);

}  // namespace fp8lab::explorer

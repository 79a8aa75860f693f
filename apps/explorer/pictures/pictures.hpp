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

/// 4 x 4 dot products of length k, on operands that are quantized with one scale a matrix or are
/// the codes next to the drawn numbers.
struct AccumulationQuestion {
  std::string_view model = "sm90.wgmma.e4m3";
  std::string_view distribution = "uniform";  ///< uniform, normal, correlated or ones
  int k = 4096;
  int promotion_interval = 128;  ///< 0: none
  bool scaled = true;            ///< to the format's largest number; else with a scale of 1
  std::uint32_t seed = 1;
};

/// The running sum of the first dot product, exact, without promotion and with it, and the
/// relative L2 error of all of them after 32, 64, 128 ... k terms. The exact sum is that of the
/// same codes: the error is the accumulator's alone. Also the scales of both operands, and after
/// how many terms the first sum without promotion is not finite any more (0: it always is) and
/// has its last value, in terms that the records can tell apart.
std::string accumulation(const AccumulationQuestion& question);

/// A short dot product of the user's own numbers.
struct StepQuestion {
  std::string_view model = "sm90.wgmma.e4m3";  ///< any instruction or definition
  std::string_view a = "1 2";                  ///< 1 to 32 finite numbers, blanks or commas between
  std::string_view b = "1 1";                  ///< as many
  double c = 0.0;                              ///< finite; enters as binary32
};

/// What the unit does with them, step by step: every term exactly, in binary digits; where the unit
/// aligns, how many of them it keeps; the sum of what it keeps and the unit's result. Numbers
/// become codes of the model's formats first (nearest even, saturating). Throws `Error`.
std::string step(const StepQuestion& question);

/// FP8-LM's factor mu beside a gradient whose size changes from step to step.
struct AutoScalingQuestion {
  std::string_view format = "e4m3fn";
  double threshold = 1e-5;  ///< share of elements at the largest number that halves mu
  int steps_to_double = 1000;
  int clean_steps = 0;  ///< clean steps before mu grows
  std::string_view growth = "exponential";
  /// "drift" (down to a quarter, back up, a spike of 8 every 500 steps), "steady", or amaxes of
  /// each step, blanks or commas between.
  std::string_view trace = "drift";
  int steps = 3000;  ///< of "drift" and "steady"
  std::uint32_t seed = 1;
};

/// mu, the share of elements at the format's largest number and of those that became zero, for each
/// step: 100 000 elements, cubes of normal numbers. Times the first step's scale
/// (max finite / amax), the size of the step and mu they are cast (nearest even, saturating).
/// Throws `Error`.
std::string auto_scaling(const AutoScalingQuestion& question);

}  // namespace fp8lab::explorer

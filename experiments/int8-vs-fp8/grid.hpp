#pragma once
// Eight-bit grids with any split of exponent and mantissa, INT8 among them, and
// what a tensor loses on one. Claim S1 takes its figures here.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fp8lab::experiments {

/// A sign and 7 bits: fields of `exponent_bits` and 7 - `exponent_bits` bits, with
/// subnormals, no special values and the smallest normal number 1. Without exponent
/// bits all numbers are subnormal: symmetric INT8 in units of 1/128.
struct Grid {
  std::string name;
  int exponent_bits = 0;
  int last_code = 127;  ///< the largest magnitude's: 126 in OCP's E4M3, 123 in its E5M2

  [[nodiscard]] int mantissa_bits() const { return 7 - exponent_bits; }
  [[nodiscard]] double value(int code) const;  ///< of magnitude code 0 to `last_code`
  [[nodiscard]] double max() const { return value(last_code); }
  /// The number nearest to x, ties to even; magnitudes above `max()` saturate. FP64.
  [[nodiscard]] double nearest(double x) const;
};

/// INT8, the four floating-point splits of Qualcomm's study, and OCP's two formats.
/// Throws `Error` for another name.
Grid find_grid(const std::string& name);

struct GridLoss {
  double clip = 1.0;  ///< the largest representable magnitude over the amax
  double mse = 0.0;   ///< mean squared error of x
  double sqnr_db = 0.0;
};

/// The loss with one scale a tensor, grid.max() / (clip * amax), in FP64. Needs a
/// tensor with a finite amax above 0.
GridLoss loss_at(const Grid& grid, std::span<const float> x, double clip);

/// The loss at the clip with the least error: 1 and `per_octave` steps an octave below,
/// down to 2^-`octaves`.
GridLoss best_loss(const Grid& grid, std::span<const float> x, int per_octave, int octaves);

/// N(0, 0.5^2) of `count` elements, `outliers` of which, at random places, are multiplied by
/// 20: the tensor of the FP8 guide. At most `count` outliers.
std::vector<float> normal_with_outliers(std::uint64_t seed, std::size_t count,
                                        std::size_t outliers);

}  // namespace fp8lab::experiments

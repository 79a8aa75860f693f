#pragma once
// The NumPy listing of the naive-FP8 tutorial, once as it is written and once corrected. "As
// written" is a line-by-line transcription in double arithmetic, on the draws
// that NumPy's default_rng(0) gives, and prints the listing's own figures.

#include <span>
#include <vector>

#include "fp8lab/core/random.hpp"

namespace fp8lab::experiments {

/// The random numbers of one run: x [128] ~ N(0, 0.5) before its outlier is
/// set, a and b [1024] ~ N(0, 1).
struct ListingDraws {
  std::vector<double> x;
  std::vector<double> a;
  std::vector<double> b;
};

/// The draws of `numpy.random.default_rng(0)`, stored (check_draws.py).
ListingDraws numpy_draws();
/// Draws of our own with the same distributions, number `repeat` of `stream`.
ListingDraws listing_draws(const RandomStream& stream, std::uint64_t repeat);

/// The listing's positive normal grid, 2^-6 .. 240, ascending.
std::vector<double> listing_grid();
/// The listing's `to_e4m3`: clips at 448, rounds to `listing_grid()` with ties
/// down; a non-zero magnitude below 2^-6 becomes 2^-6, only zero stays zero.
double listing_to_e4m3(double x);
/// The listing's `round_to_bits`: `bits` fraction bits, ties to even, any exponent.
double listing_round_to_bits(double v, int bits);

/// Parts 1 and 2 of the listing: the tensor with one outlier, cast and cast back.
struct ListingCast {
  double scale = 0.0;             ///< as printed: amax / 448, multiplies back
  int crushed = 0;                ///< non-zero values that became zero
  double relative_l2 = 0.0;       ///< over all 128 values
  double bulk_relative_l2 = 0.0;  ///< over the 127 values that are not the outlier
};
struct ListingCasts {
  ListingCast per_tensor;
  ListingCast per_tile;  ///< tiles of 16; `scale` is the outlier's tile's
};
ListingCasts cast_as_written(const ListingDraws& draws);
/// The same with E4M3: 448 reached, nearest even, subnormals.
ListingCasts cast_corrected(const ListingDraws& draws);

/// Part 3: one dot product of K = 1024, and how each stage moved it. Signed
/// errors; exact + input + product + accumulation = naive, and likewise promoted.
struct ListingDot {
  double exact = 0.0;  ///< FP64 sum of the unquantized products
  double naive = 0.0;
  double promoted = 0.0;  ///< every 128 terms
  double input_error = 0.0;
  double product_error = 0.0;
  double naive_accumulation_error = 0.0;
  double promoted_accumulation_error = 0.0;

  [[nodiscard]] double naive_percent_off() const;
  [[nodiscard]] double promoted_percent_off() const;
};
/// Toy quantizer, products rounded to 3 bits, sums to 14, promotion into 23.
ListingDot dot_as_written(const ListingDraws& draws);
/// E4M3 inputs, exact products, sm90.wgmma.e4m3, promotion into FP32.
ListingDot dot_corrected(const ListingDraws& draws);

}  // namespace fp8lab::experiments

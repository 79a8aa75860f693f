#include "seed-listings/numpy_listing.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/cast/cast.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t kTensor = 128;
constexpr std::size_t kTile = 16;
constexpr std::size_t kOutlierAt = 63;
constexpr float kOutlier = 250.0F;
constexpr std::size_t kLength = 1024;
constexpr std::size_t kPromotion = 128;
constexpr float kMax = 448.0F;

constexpr double kNumpyDraws[] = {
#include "seed-listings/draws.inc"
};
static_assert(std::size(kNumpyDraws) == kTensor + 2 * kLength);

double e4m3(double x) {
  return round_trip(format(FormatId::e4m3fn), kNvidiaSatfinite, static_cast<float>(x));
}

std::vector<float> tensor_of(const ListingDraws& draws) {
  std::vector<float> x(draws.x.begin(), draws.x.end());
  x[kOutlierAt] = kOutlier;
  return x;
}

/// The listing keeps x and the scale in binary32, the grid and the result in binary64.
ListingCast cast_in_tiles(std::span<const float> x, std::size_t tile, double (*quantize)(double)) {
  ListingCast result;
  double error = 0.0;
  double bulk_error = 0.0;
  double norm = 0.0;
  double bulk_norm = 0.0;
  for (std::size_t begin = 0; begin < x.size(); begin += tile) {
    float amax = 0.0F;
    for (std::size_t i = begin; i < begin + tile; ++i) amax = std::max(amax, std::abs(x[i]));
    const float scale = amax / kMax;
    if (kOutlierAt - begin < tile) result.scale = scale;
    for (std::size_t i = begin; i < begin + tile; ++i) {
      const double back = quantize(x[i] / scale) * scale;
      const double difference = back - x[i];
      if (back == 0.0 && std::abs(x[i]) > 1e-6F) ++result.crushed;
      error += difference * difference;
      norm += static_cast<double>(x[i]) * x[i];
      if (i == kOutlierAt) continue;
      bulk_error += difference * difference;
      bulk_norm += static_cast<double>(x[i]) * x[i];
    }
  }
  result.relative_l2 = std::sqrt(error / norm);
  result.bulk_relative_l2 = std::sqrt(bulk_error / bulk_norm);
  return result;
}

ListingCasts casts(const ListingDraws& draws, double (*quantize)(double)) {
  const std::vector<float> x = tensor_of(draws);
  return {cast_in_tiles(x, kTensor, quantize), cast_in_tiles(x, kTile, quantize)};
}

double percent_off(double value, double exact) {
  return 100.0 * std::abs(value - exact) / std::abs(exact);
}

/// The two exact sums that bound the input error.
ListingDot exact_sums(const ListingDraws& draws, double (*quantize)(double)) {
  ListingDot dot;
  double quantized = 0.0;
  for (std::size_t k = 0; k < kLength; ++k) {
    dot.exact += draws.a[k] * draws.b[k];
    quantized += quantize(draws.a[k]) * quantize(draws.b[k]);
  }
  dot.input_error = quantized - dot.exact;
  return dot;
}

void split(ListingDot& dot) {
  const double before = dot.exact + dot.input_error + dot.product_error;
  dot.naive_accumulation_error = dot.naive - before;
  dot.promoted_accumulation_error = dot.promoted - before;
}

std::vector<Unpacked> e4m3_operands(std::span<const double> values) {
  const Format& f = format(FormatId::e4m3fn);
  std::vector<Unpacked> operands;
  operands.reserve(values.size());
  for (const double v : values)
    operands.push_back(unpack(f, encode(f, kNvidiaSatfinite, static_cast<float>(v))));
  return operands;
}

}  // namespace

ListingDraws numpy_draws() {
  const auto at = [](std::size_t i) { return std::begin(kNumpyDraws) + i; };
  return {{at(0), at(kTensor)},
          {at(kTensor), at(kTensor + kLength)},
          {at(kTensor + kLength), at(kTensor + 2 * kLength)}};
}

ListingDraws listing_draws(const RandomStream& stream, std::uint64_t repeat) {
  std::uint64_t next = repeat * (kTensor + 2 * kLength);
  const auto draw = [&](std::size_t count, double sigma) {
    std::vector<double> values(count);
    for (double& v : values) v = sigma * stream.normal(next++);
    return values;
  };
  ListingDraws draws;
  draws.x = draw(kTensor, 0.5);
  draws.a = draw(kLength, 1.0);
  draws.b = draw(kLength, 1.0);
  return draws;
}

std::vector<double> listing_grid() {
  std::vector<double> grid;
  for (int e = 1; e < 15; ++e)
    for (int m = 0; m < 8; ++m) grid.push_back(std::ldexp(1.0 + m / 8.0, e - 7));
  return grid;
}

double listing_to_e4m3(double x) {
  static const std::vector<double> kGrid = listing_grid();
  if (x == 0.0) return 0.0;
  double a = std::clamp(std::abs(x), 0.0, static_cast<double>(kMax));
  if (a < kGrid.front()) a = 0.0;
  const auto found = std::lower_bound(kGrid.begin(), kGrid.end(), a) - kGrid.begin();
  const auto at = static_cast<std::size_t>(
      std::clamp<std::ptrdiff_t>(found, 1, static_cast<std::ptrdiff_t>(kGrid.size()) - 1));
  const double low = kGrid[at - 1];
  const double high = kGrid[at];
  return std::copysign(high - a < a - low ? high : low, x);
}

double listing_round_to_bits(double v, int bits) {
  if (v == 0.0 || !std::isfinite(v)) return v;
  const int e = std::ilogb(v);
  // nearbyint rounds ties to even, as Python's round does.
  return std::ldexp(std::nearbyint(std::ldexp(v, bits - e)), e - bits);
}

ListingCasts cast_as_written(const ListingDraws& draws) { return casts(draws, listing_to_e4m3); }
ListingCasts cast_corrected(const ListingDraws& draws) { return casts(draws, e4m3); }

double ListingDot::naive_percent_off() const { return percent_off(naive, exact); }
double ListingDot::promoted_percent_off() const { return percent_off(promoted, exact); }

ListingDot dot_as_written(const ListingDraws& draws) {
  ListingDot dot = exact_sums(draws, listing_to_e4m3);
  double partial = 0.0;
  double rounded_products = 0.0;
  for (std::size_t k = 0; k < kLength; ++k) {
    const double p =
        listing_round_to_bits(listing_to_e4m3(draws.a[k]) * listing_to_e4m3(draws.b[k]), 3);
    rounded_products += p;
    dot.naive = listing_round_to_bits(dot.naive + p, 14);
    partial = listing_round_to_bits(partial + p, 14);
    if ((k + 1) % kPromotion == 0) {
      dot.promoted = listing_round_to_bits(dot.promoted + partial, 23);
      partial = 0.0;
    }
  }
  dot.product_error = rounded_products - (dot.exact + dot.input_error);
  split(dot);
  return dot;
}

ListingDot dot_corrected(const ListingDraws& draws) {
  ListingDot dot = exact_sums(draws, e4m3);
  const AccumulatorModel& model = find_instruction_model("sm90.wgmma.e4m3").accumulator;
  const std::vector<Unpacked> a = e4m3_operands(draws.a);
  const std::vector<Unpacked> b = e4m3_operands(draws.b);
  dot.naive = dot_product(model, a, b);
  float promoted = 0.0F;
  for (std::size_t k = 0; k < kLength; k += kPromotion)
    promoted += dot_product(model, std::span(a).subspan(k, kPromotion),
                            std::span(b).subspan(k, kPromotion));
  dot.promoted = promoted;
  split(dot);
  return dot;
}

}  // namespace fp8lab::experiments

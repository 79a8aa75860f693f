#include "seed-listings/torch_listing.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fp8lab/cast/cast.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t kRows = 64;
constexpr std::size_t kColumns = 1024;
constexpr std::size_t kTile = 128;
constexpr std::size_t kOutlierAt = 511;
constexpr float kMax = 448.0F;
constexpr float kSmallestScale = 1e-12F;

float to_bf16(float x) {
  return static_cast<float>(round_trip(format(FormatId::bf16), kNvidiaNosat, x));
}

/// randn in BF16, then times 0.3 in BF16: two roundings, as the listing's types give.
std::vector<float> activations(const RandomStream& stream, std::uint64_t repeat, float outlier) {
  std::vector<float> x(kRows * kColumns);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = to_bf16(to_bf16(static_cast<float>(stream.normal(repeat * x.size() + i))) * 0.3F);
  x[kOutlierAt] = to_bf16(outlier);
  return x;
}

struct Errors {
  double all = 0.0;
  double bulk = 0.0;
};

Errors round_trip_errors(const std::vector<float>& x, std::size_t tile) {
  const Format& e4m3 = format(FormatId::e4m3fn);
  double error = 0.0;
  double norm = 0.0;
  double outlier_error = 0.0;
  for (std::size_t begin = 0; begin < x.size(); begin += tile) {
    float amax = 0.0F;
    for (std::size_t i = begin; i < begin + tile; ++i) amax = std::max(amax, std::abs(x[i]));
    const float scale = std::max(amax / kMax, kSmallestScale);
    for (std::size_t i = begin; i < begin + tile; ++i) {
      const auto q = static_cast<float>(round_trip(e4m3, kNvidiaSatfinite, x[i] / scale));
      const double difference = static_cast<double>(q * scale) - x[i];
      error += difference * difference;
      norm += static_cast<double>(x[i]) * x[i];
      if (i == kOutlierAt) outlier_error = difference * difference;
    }
  }
  const double outlier_norm = static_cast<double>(x[kOutlierAt]) * x[kOutlierAt];
  return {std::sqrt(error / norm), std::sqrt((error - outlier_error) / (norm - outlier_norm))};
}

}  // namespace

TorchListing run_torch_listing(const RandomStream& stream, std::uint64_t repeat, float outlier) {
  const std::vector<float> x = activations(stream, repeat, outlier);
  const Errors tile = round_trip_errors(x, kTile);
  const Errors tensor = round_trip_errors(x, x.size());
  return {tile.all, tensor.all, tile.bulk, tensor.bulk};
}

}  // namespace fp8lab::experiments

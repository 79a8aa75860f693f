#include "common/tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments {
namespace {

// A magnitude and its sign come from different draws of one element.
constexpr std::uint64_t kDraws = 2;

template <typename Draw>
std::vector<float> generate(std::size_t count, Draw draw) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(draw(i));
  return x;
}

double with_sign(const RandomStream& random, std::uint64_t index, double magnitude) {
  return (random.bits64(kDraws * index) & 1) != 0 ? -magnitude : magnitude;
}

/// A stream of its own for a second kind of draw, so that no counter is used twice.
RandomStream substream(const RandomStream& random, std::uint64_t which) {
  return {random.bits64(which), 0x7375627374726561u + which};
}

}  // namespace

std::vector<float> uniform(const RandomStream& random, std::size_t count, double low, double high) {
  return generate(count, [&](std::size_t i) { return low + (high - low) * random.uniform(i); });
}

std::vector<float> normal(const RandomStream& random, std::size_t count, double sigma) {
  return generate(count, [&](std::size_t i) { return sigma * random.normal(i); });
}

std::vector<float> student_t(const RandomStream& random, std::size_t count, int degrees_of_freedom,
                             double sigma) {
  return generate(count,
                  [&](std::size_t i) { return sigma * random.student_t(i, degrees_of_freedom); });
}

std::vector<float> log_uniform(const RandomStream& random, std::size_t count, double decades) {
  return generate(count, [&](std::size_t i) {
    return with_sign(random, i, std::pow(10.0, -decades * random.uniform(kDraws * i + 1)));
  });
}

std::vector<float> log_normal(const RandomStream& random, std::size_t count, double decades) {
  return log_normal_rows(random, 1, count, decades, 0.0);
}

std::vector<float> log_normal_rows(const RandomStream& random, std::size_t rows,
                                   std::size_t columns, double decades, double row_share) {
  require(row_share >= 0.0 && row_share <= 1.0, "row_share", "0 to 1",
          fmt::format("{}", row_share));
  const RandomStream by_row = substream(random, 0);
  const RandomStream by_element = substream(random, 1);
  const double sigma = decades / 6.0;
  const double row_sigma = sigma * std::sqrt(row_share);
  const double element_sigma = sigma * std::sqrt(1.0 - row_share);
  return generate(rows * columns, [&](std::size_t i) {
    const double exponent =
        row_sigma * by_row.normal(i / columns) + element_sigma * by_element.normal(i);
    return with_sign(random, i, std::pow(10.0, exponent));
  });
}

std::vector<float> outlier_channels(const RandomStream& random, const OutlierChannels& shape) {
  require(shape.outlier_channels <= shape.channels, "outlier_channels",
          fmt::format("at most {} channels", shape.channels),
          fmt::format("{}", shape.outlier_channels));
  const RandomStream choice = substream(random, 0);
  const RandomStream outlier = substream(random, 1);
  const RandomStream presence = substream(random, 2);
  std::vector<float> x = normal(random, shape.rows * shape.channels, shape.sigma);
  for (std::size_t o = 0; o < shape.outlier_channels; ++o) {
    // One channel in each of equal sections: distinct, and no rejection needed.
    const std::size_t begin = o * shape.channels / shape.outlier_channels;
    const std::size_t end = (o + 1) * shape.channels / shape.outlier_channels;
    const std::size_t channel = begin + choice.below(2 * o, end - begin);
    const double mean = with_sign(choice, 2 * o + 1, shape.magnitude);
    for (std::size_t row = 0; row < shape.rows; ++row) {
      const std::size_t draw = o * shape.rows + row;
      if (presence.uniform(draw) >= shape.presence) continue;
      x[row * shape.channels + channel] =
          static_cast<float>(mean * (1.0 + shape.spread * outlier.normal(draw)));
    }
  }
  return x;
}

void normalize_amax(std::vector<float>& x) {
  double amax = 0.0;
  for (const float v : x) amax = std::max(amax, std::abs(static_cast<double>(v)));
  if (amax == 0.0) return;
  for (float& v : x) v = static_cast<float>(static_cast<double>(v) / amax);
}

std::vector<float> transposed(const std::vector<float>& x, std::size_t rows, std::size_t columns) {
  std::vector<float> t(x.size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) t[c * rows + r] = x[r * columns + c];
  return t;
}

}  // namespace fp8lab::experiments

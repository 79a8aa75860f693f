#include "fp8lab/core/random.hpp"

#include <Random123/philox.h>

#include <cmath>
#include <numbers>

#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {

std::array<std::uint32_t, 4> RandomStream::block(std::uint64_t index) const {
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  const r123::Philox4x32::ctr_type counter{{low(index), high(index), low(stream_), high(stream_)}};
  const r123::Philox4x32::key_type key{{low(seed_), high(seed_)}};
  const auto words = r123::Philox4x32()(counter, key);
  return {words[0], words[1], words[2], words[3]};
}

std::uint64_t RandomStream::bits64(std::uint64_t index) const {
  const auto words = block(index / 2);
  const std::size_t at = (index % 2) * 2;
  return (std::uint64_t{words[at + 1]} << 32) | words[at];
}

double RandomStream::uniform(std::uint64_t index) const {
  return static_cast<double>(bits64(index) >> 11) * 0x1p-53;
}

std::uint64_t RandomStream::below(std::uint64_t index, std::uint64_t bound) const {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((Wide{bits64(index)} * bound) >> 64);
}

double RandomStream::normal(std::uint64_t index) const {
  const FloatEnvironment environment;
  const std::uint64_t pair = index / 2;
  const double radius_draw = (static_cast<double>(bits64(2 * pair) >> 11) + 1.0) * 0x1p-53;
  const double angle = 2.0 * std::numbers::pi * uniform(2 * pair + 1);
  const double radius = std::sqrt(-2.0 * std::log(radius_draw));
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

double RandomStream::student_t(std::uint64_t index, int degrees_of_freedom) const {
  const FloatEnvironment environment;
  const RandomStream chi(seed_, stream_ ^ 0x9e3779b97f4a7c15u);
  double sum = 0.0;
  for (int i = 0; i < degrees_of_freedom; ++i) {
    const double z = chi.normal(index * static_cast<std::uint64_t>(degrees_of_freedom) +
                                static_cast<std::uint64_t>(i));
    sum += z * z;
  }
  return normal(index) / std::sqrt(sum / degrees_of_freedom);
}

}  // namespace fp8lab

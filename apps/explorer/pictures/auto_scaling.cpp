#include "fp8lab/scaling/auto_scaling.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "pictures/json.hpp"
#include "pictures/numbers.hpp"
#include "pictures/pictures.hpp"

namespace fp8lab::explorer {
namespace {

constexpr std::size_t kElements = 100000;  // one of them is the threshold of the paper
constexpr std::size_t kMostSteps = 5000;

/// Magnitudes of a gradient, smallest first: cubes of normal numbers, which have heavy tails and
/// need no function of the C library but those of the draw.
std::vector<float> magnitudes(std::uint32_t seed) {
  const RandomStream random(seed, "explorer/auto_scaling");
  std::vector<float> x(kElements);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double draw = random.normal(i);
    x[i] = static_cast<float>(std::abs(draw * draw * draw));
  }
  std::sort(x.begin(), x.end());
  return x;
}

/// Sizes of the gradient, step by step, in units of the first one's.
std::vector<double> sizes(const AutoScalingQuestion& q) {
  std::vector<double> result;
  if (q.trace != "drift" && q.trace != "steady") {
    for (const double amax : numbers_of("trace", q.trace, kMostSteps)) {
      require(amax > 0.0, fmt::format("trace, number {}", result.size() + 1), "a number above 0",
              fmt::format("{}", amax));
      result.push_back(amax);
    }
    const double first = result.front();
    for (double& size : result) size /= first;
    return result;
  }
  require(q.steps >= 1 && q.steps <= static_cast<int>(kMostSteps), "steps",
          fmt::format("1 .. {}", kMostSteps), fmt::format("{}", q.steps));
  for (int step = 0; step < q.steps; ++step) {
    const double at = static_cast<double>(step) / q.steps;
    const double drift = 0.25 + 0.75 * std::abs(2.0 * at - 1.0);
    const bool spike = step % 500 >= 495;
    result.push_back(q.trace == "steady" ? 1.0 : drift * (spike ? 8.0 : 1.0));
  }
  return result;
}

/// The smallest positive binary32 number for which `holds`, which stays true above it.
template <typename Holds>
float smallest(const Holds& holds) {
  std::uint32_t below = 0;
  std::uint32_t above = 0x7f800000;
  while (above - below > 1) {
    const std::uint32_t middle = below + (above - below) / 2;
    (holds(std::bit_cast<float>(middle)) ? above : below) = middle;
  }
  return std::bit_cast<float>(above);
}

}  // namespace

std::string auto_scaling(const AutoScalingQuestion& q) {
  const Format& f = find_format(q.format);
  require(f.has_sign && f.code_bits() <= 8, "format", "a value format of at most 8 bits", f.name);
  const CastPolicy& policy = find_cast_profile("nvidia_satfinite").policy;
  AutoScaler scaler({.threshold = q.threshold,
                     .steps_to_double = q.steps_to_double,
                     .clean_steps = q.clean_steps,
                     .growth = find_growth_law(q.growth)});
  const std::vector<double> size = sizes(q);
  const std::vector<float> x = magnitudes(q.seed);
  // Casts are monotone: what two thresholds separate needs no cast of its own.
  const float at_max =
      smallest([&](float v) { return cast(f, policy, v).code >= f.max_finite_code(); });
  const float alive = smallest([&](float v) { return cast(f, policy, v).code != 0; });
  const double scale = f.max_finite() / static_cast<double>(x.back());
  const auto below = [&](double factor, float edge) {
    const auto end = std::partition_point(x.begin(), x.end(), [&](float v) {
      return static_cast<float>(static_cast<double>(v) * factor) < edge;
    });
    return end - x.begin();
  };
  const auto share = [](std::ptrdiff_t count) {
    return static_cast<double>(count) / static_cast<double>(kElements);
  };
  const auto all = static_cast<std::ptrdiff_t>(kElements);
  std::vector<double> mu;
  std::vector<double> saturated;
  std::vector<double> zero;
  int halvings = 0;
  for (const double s : size) {
    const double factor = scale * s * scaler.mu();
    mu.push_back(scaler.mu());
    saturated.push_back(share(all - below(factor, at_max)));
    zero.push_back(share(below(factor, alive)));
    scaler.update(saturated.back());
    if (scaler.mu() < mu.back()) ++halvings;
  }
  return JsonObject()
      .text("format", f.name)
      .number("elements", static_cast<double>(kElements))
      .number("steps", static_cast<double>(size.size()))
      .number("halvings", halvings)
      .number("last_mu", scaler.mu())
      .raw("size", json(size))
      .raw("mu", json(mu))
      .raw("saturated", json(saturated))
      .raw("zero", json(zero))
      .str();
}

}  // namespace fp8lab::explorer

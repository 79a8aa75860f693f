#include "fp8lab/scaling/nvfp4_training.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/scaling/two_level.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kSide = kHadamardSigns.size();

void transform_run(std::span<const float> x, std::span<float> y) {
  for (std::size_t j = 0; j < kSide; ++j) {
    float sum = 0.0F;
    for (std::size_t i = 0; i < kSide; ++i) {
      const bool minus = (kHadamardSigns[i] < 0) != (std::popcount(i & j) % 2 == 1);
      sum += minus ? -x[i] : x[i];
    }
    y[j] = rounded_to_bf16(0.25F * sum);
  }
}

}  // namespace

std::vector<float> random_hadamard(const FloatMatrix& x) {
  const FloatEnvironment environment;
  require(x.rows >= 0 && x.k >= 0 && static_cast<std::int64_t>(x.values.size()) == x.rows * x.k,
          "x", fmt::format("[{}, {}] values", x.rows, x.k), fmt::format("{}", x.values.size()));
  require(x.k % static_cast<std::int64_t>(kSide) == 0, "x", "k divisible by 16",
          fmt::format("{}", x.k));
  for (const float value : x.values)
    require(std::isnan(value) || rounded_to_bf16(value) == value, "x", "BF16 numbers",
            fmt::format("{}", value));
  std::vector<float> result(x.values.size());
  for (std::size_t at = 0; at < result.size(); at += kSide)
    transform_run(x.values.subspan(at, kSide), std::span(result).subspan(at, kSide));
  return result;
}

QuantizedTensor quantize_stochastic(const Recipe& recipe, const FloatMatrix& x,
                                    const RandomStream& draws, int threads) {
  require(is_two_level(recipe.rule), "recipe", "one with two levels of scales (NVFP4)",
          to_string(recipe.rule));
  require(traits(recipe.rule).four_over_six == FourOverSix::none, "recipe",
          "one without 4over6, which rounds to nearest", to_string(recipe.rule));
  QuantizedTensor q = quantize(recipe, x, false, threads);
  scaling_detail::encode_two_level(recipe, x, {{}, draws}, q,
                                   {current_target(), team_size(threads)});
  return q;
}

}  // namespace fp8lab

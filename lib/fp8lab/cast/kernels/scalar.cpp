// The scalar target: the reference of cast.hpp, element by element. What it
// returns is the definition of what every other target returns.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/kernels/kernels.hpp"

namespace fp8lab::cast_kernels {
namespace {

void count(const CastResult& result, float x, const Format& f, EncodeStatistics& statistics) {
  if (!std::isnan(x)) statistics.amax = std::max(statistics.amax, std::fabs(x));
  statistics.overflowed += result.overflowed ? 1 : 0;
  // The product with the scale may itself be zero, which the cast cannot see.
  const bool zero = !f.is_scale_only() && !result.nan && (result.code & f.magnitude_mask()) == 0;
  statistics.underflowed += zero && x != 0.0f && !std::isnan(x) ? 1 : 0;
  statistics.nan += result.nan ? 1 : 0;
}

template <typename Code>
EncodeStatistics encode_all(const EncodeTask& task) {
  const EncodePlan& plan = *task.plan;
  const bool stochastic = plan.policy.rounding == RoundingMode::stochastic;
  auto* out = static_cast<Code*>(task.out);
  EncodeStatistics statistics;
  for (std::size_t i = 0; i < task.count; ++i) {
    const float x = task.in[i];
    const std::uint32_t random = stochastic ? task.random->bits32(task.first_draw + i) : 0;
    const CastResult result = cast(*plan.format, plan.policy, x * task.scale, random);
    out[i] = static_cast<Code>(result.code);
    if (task.statistics != GatherStatistics::none) count(result, x, *plan.format, statistics);
  }
  return statistics;
}

EncodeStatistics encode_task(const EncodeTask& task) {
  EncodeStatistics statistics = task.plan->format->code_bits() <= 8
                                    ? encode_all<std::uint8_t>(task)
                                    : encode_all<std::uint16_t>(task);
  if (task.statistics == GatherStatistics::amax) statistics = {.amax = statistics.amax};
  return statistics;
}

std::uint8_t encode_scaled(const EncodePlan& plan, float x, float factor, bool divide) {
  const float scaled = divide ? x / factor : x * factor;
  const float canonical = std::isnan(scaled) ? std::numeric_limits<float>::quiet_NaN() : scaled;
  return static_cast<std::uint8_t>(encode(*plan.format, plan.policy, canonical));
}

void encode_tiles(const TileTask& task) {
  for (std::size_t i = 0; i < task.count; ++i)
    task.out[i] = encode_scaled(*task.plan, task.in[i], task.factors[i / task.block], task.divide);
}

void encode_crossed(const CrossTask& task) {
  const std::size_t tiles = (task.columns + task.block - 1) / task.block;
  for (std::size_t r = 0; r < task.rows; ++r)
    for (std::size_t c = 0; c < task.columns; ++c) {
      const float x = task.in[r * task.stride + c];
      const float row_factor = task.row_factors[r * tiles + c / task.block];
      task.row_codes[r * task.row_stride + c] =
          encode_scaled(*task.plan, x, row_factor, task.divide);
      task.column_codes[r * task.column_stride + c] =
          encode_scaled(*task.plan, x, task.column_factors[c], task.divide);
    }
}

void decode_task(const DecodeTask& task) {
  const std::span<const float> table = decode_table(task.format->id);
  const std::size_t mask = table.size() - 1;
  for (std::size_t i = 0; i < task.count; ++i)
    task.out[i] = table[task.in[i] & mask] * task.inverse_scale;
}

void widen(FormatId input, const std::uint16_t* in, float* out, std::size_t count) {
  const std::span<const float> table = decode_table(input);
  for (std::size_t i = 0; i < count; ++i) out[i] = table[in[i]];
}

void draw(const RandomStream& random, std::uint64_t first, std::uint32_t* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = random.bits32(first + i);
}

}  // namespace

const KernelTable kScalarKernels{{encode_task, encode_tiles, encode_crossed},
                                 {encode_task, draw},
                                 {encode_task},
                                 {decode_task, widen}};

}  // namespace fp8lab::cast_kernels

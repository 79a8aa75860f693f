// The loops of every rounding mode, stochastic too, and the draws alone.

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "fp8lab/cast/kernels/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/cast/kernels/rounding_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/cast/kernels/rounding-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::cast_kernels {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_CAST_KERNELS
namespace {

/// Whole blocks of four vectors. `in` needs no alignment; `out` needs it where `stream`.
template <RoundingMode kMode, bool kPreserve, bool kScaled, bool kGather>
HWY_NOINLINE void round_blocks(const EncodeTask& task, const float* in, std::uint8_t* out,
                               std::size_t blocks, std::uint64_t counter, bool stream,
                               RoundingCounts& counts) {
  constexpr std::size_t kAhead = 128 * kLanes;
  constexpr bool kStochastic = kMode == RoundingMode::stochastic;
  const RoundingConstants c(task.plan->rounding_plan, kMode, task.scale);
  RoundingCounts sums = counts;
  Philox philox(kStochastic ? *task.random : RandomStream(0, 0), counter);
  U32 random[4] = {};
  if constexpr (kStochastic) philox.draw(random);
  for (; blocks > 0; --blocks, in += kBlock, out += kBlock) {
    if (task.stream) {
      for (std::size_t line = 0; line < kBlock; line += 16) prefetch_far(in + kAhead + line);
    }
    // The next block's draws are made between the casts of this one, which wait for nothing.
    Philox::Rounds next;
    if constexpr (kStochastic) philox.begin(next);
    const RoundedCodes low =
        rounded_pair<kMode, kPreserve, kScaled, kGather>(c, in, random[0], random[1], sums);
    if constexpr (kStochastic) {
      philox.two_rounds<0>(next);
      philox.two_rounds<1>(next);
    }
    const RoundedCodes high = rounded_pair<kMode, kPreserve, kScaled, kGather>(
        c, in + 2 * kLanes, random[2], random[3], sums);
    if constexpr (kStochastic) {
      philox.two_rounds<2>(next);
      philox.two_rounds<3>(next);
    }
    const U8 codes = rounded_bytes<kGather>(c, low, high, sums);
    if (stream)
      hn::Stream(codes, Tag<std::uint8_t>(), out);
    else
      hn::StoreU(codes, Tag<std::uint8_t>(), out);
    if constexpr (kStochastic) Philox::finish(next, random);
  }
  counts = sums;
}

/// A head through a padded copy, up to the first counter or to where stores are aligned, then
/// blocks, then a tail.
template <RoundingMode kMode, bool kPreserve, bool kScaled, bool kGather>
EncodeStatistics encode_rounded(const EncodeTask& task) {
  constexpr bool kStochastic = kMode == RoundingMode::stochastic;
  auto* const out = static_cast<std::uint8_t*>(task.out);
  RoundingCounts counts;
  // `skip` draws of the counter belong to elements before these.
  const auto part = [&](std::size_t at, std::size_t count, std::size_t skip) {
    std::array<float, kBlock> values{};
    std::array<std::uint8_t, kBlock> codes;
    std::memcpy(values.data() + skip, task.in + at, count * sizeof(float));
    round_blocks<kMode, kPreserve, kScaled, kGather>(task, values.data(), codes.data(), 1,
                                                     (task.first_draw + at) / 4, false, counts);
    std::memcpy(out + at, codes.data() + skip, count);
  };
  const std::size_t skip = kStochastic ? task.first_draw % 4 : 0;
  std::size_t head = skip == 0 ? 0 : 4 - skip;
  // Draws begin at whole counters, so a stochastic cast cannot choose where its stores begin.
  const std::size_t before_block = (0 - std::bit_cast<std::uintptr_t>(out)) % kBlock;
  const bool stream = task.stream && (!kStochastic || (FP8LAB_HAS_MASKS && before_block == head));
  if (stream) head = before_block;
  head = std::min(head, task.count);
  if (head != 0) part(0, head, skip);
  const std::size_t blocks = (task.count - head) / kBlock;
  if (blocks != 0)
    round_blocks<kMode, kPreserve, kScaled, kGather>(task, task.in + head, out + head, blocks,
                                                     (task.first_draw + head) / 4, stream, counts);
  if (stream) hwy::FlushStream();
  const std::size_t done = head + blocks * kBlock;
  if (done != task.count) part(done, task.count - done, 0);

  EncodeStatistics statistics;
  if constexpr (!kGather) return statistics;
  statistics.amax = max_lanes(hn::Sub(counts.amax, set<std::int32_t>(RoundingCounts::kNanWraps)));
  if (task.statistics != GatherStatistics::all) return statistics;
  statistics.overflowed = counts.past_last - counts.nan;
  statistics.underflowed = counts.small - sum_lanes(counts.zero);
  statistics.nan =
      counts.nan + (task.plan->rounding_plan.overflow_is_nan ? statistics.overflowed : 0);
  return statistics;
}

template <RoundingMode kMode>
EncodeStatistics encode_rounded(const EncodeTask& task) {
  const bool gather = task.statistics != GatherStatistics::none;
  if (!task.plan->rounding_plan.preserves_subnormals)
    return gather ? encode_rounded<kMode, false, true, true>(task)
                  : encode_rounded<kMode, false, true, false>(task);
  if (gather) return encode_rounded<kMode, true, true, true>(task);
  return task.scale == 1.0f ? encode_rounded<kMode, true, false, false>(task)
                            : encode_rounded<kMode, true, true, false>(task);
}

EncodeStatistics encode_task(const EncodeTask& task) {
  using enum RoundingMode;
  switch (task.plan->policy.rounding) {
    case nearest_even:
      return encode_rounded<nearest_even>(task);
    case nearest_away:
      return encode_rounded<nearest_away>(task);
    case nearest_toward_zero:
      return encode_rounded<nearest_toward_zero>(task);
    case toward_zero:
      return encode_rounded<toward_zero>(task);
    case upward:
      return encode_rounded<upward>(task);
    case downward:
      return encode_rounded<downward>(task);
    case stochastic:
    case to_odd:  // of the scalar reference alone
      break;
  }
  return encode_rounded<stochastic>(task);
}

/// Draws `first` and on to `out`.
void draw(const RandomStream& random, std::uint64_t first, std::uint32_t* out, std::size_t count) {
  constexpr std::size_t kDraws = Philox::kDraws;
  std::size_t skip = first % 4;
  Philox philox(random, first / 4);
  while (count > 0) {
    U32 words[4];
    philox.draw(words);
    alignas(64) std::array<std::uint32_t, kDraws> block;
    const std::size_t taken = std::min(kDraws - skip, count);
    std::uint32_t* to = taken == kDraws ? out : block.data();
    for (std::size_t v = 0; v < 4; ++v) hn::StoreU(words[v], Tag<std::uint32_t>(), to + v * kLanes);
    if (taken != kDraws) std::memcpy(out, block.data() + skip, taken * sizeof(std::uint32_t));
    out += taken;
    count -= taken;
    skip = 0;
  }
}

}  // namespace

const RoundingKernels* rounding_kernels() {
  static constexpr RoundingKernels kTable{encode_task, draw};
  return &kTable;
}

#else
const RoundingKernels* rounding_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::cast_kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::cast_kernels {

FP8LAB_TABLE_OF_TARGET(RoundingKernels, rounding_kernels)

}  // namespace fp8lab::cast_kernels
#endif

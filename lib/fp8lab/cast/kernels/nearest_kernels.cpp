// The loops of encoding to nearest: heads, blocks, tails and their statistics; under one scale,
// under many (one a tile or one an element), and of elements that lie in a tile of their row and in
// one of their column.

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "fp8lab/cast/kernels/kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/cast/kernels/nearest_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/cast/kernels/nearest-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::cast_kernels {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_CAST_KERNELS
namespace {

// Elements ahead: into the second-level cache, and where it pays from there into the first.
constexpr std::size_t kFarAhead = HWY_TARGET == HWY_AVX2 ? 1024 : 4096;
constexpr std::size_t kNearAhead = HWY_TARGET == HWY_AVX2 ? 0 : 512;

/// What a loop is compiled for.
template <SmallNumbers kSmallNumbersValue, bool kPlainValue, bool kScaledValue,
          GatherStatistics kStatisticsValue>
struct NearestForm {
  static constexpr SmallNumbers kSmallNumbers = kSmallNumbersValue;
  static constexpr bool kPlain = kPlainValue;
  static constexpr bool kScaled = kScaledValue;
  static constexpr GatherStatistics kStatistics = kStatisticsValue;
  static constexpr bool kBounded = false;  ///< no NaN and no overflow
};

/// Fewer than a block, through a padded copy.
template <typename Form>
void nearest_part(const EncodeTask& task, const float* in, std::uint8_t* out, std::size_t count,
                  NearestCounts& counts) {
  alignas(64) std::array<float, kBlock> padded{};
  alignas(64) std::array<std::uint8_t, kBlock> codes;
  std::memcpy(padded.data(), in, count * sizeof(float));
  const NearestConstants constants(task.plan->nearest_plan, task.scale);
  const CallFactor<Form::kScaled> factor(constants.scale);
  hn::StoreU(nearest_block<Form>(constants, factor, load_block(padded.data()), counts),
             Tag<std::uint8_t>(), codes.data());
  std::memcpy(out, codes.data(), count);
}

template <typename Form>
void nearest_all(const EncodeTask& task, NearestCounts& counts) {
  const NearestConstants constants(task.plan->nearest_plan, task.scale);
  const float* in = task.in;
  auto* out = static_cast<std::uint8_t*>(task.out);
  std::size_t left = task.count;
  if (task.stream) {
    const std::size_t head = std::min((0 - std::bit_cast<std::uintptr_t>(out)) % kBlock, left);
    if (head != 0) nearest_part<Form>(task, in, out, head, counts);
    in += head;
    out += head;
    left -= head;
    nearest_blocks<Form>(constants, in, left / kBlock, counts,
                         [&](const float* from, U8 codes) HWY_ATTR {
                           for (std::size_t line = 0; line < kBlock; line += 16) {
                             prefetch_far(from + kFarAhead + line);
                             if constexpr (kNearAhead != 0) prefetch_near(from + kNearAhead + line);
                           }
                           hn::Stream(codes, Tag<std::uint8_t>(), out + (from - in));
                         });
    hwy::FlushStream();
  } else {
    nearest_blocks<Form>(constants, in, left / kBlock, counts,
                         [&](const float* from, U8 codes) HWY_ATTR {
                           hn::StoreU(codes, Tag<std::uint8_t>(), out + (from - in));
                         });
  }
  const std::size_t part = left % kBlock;
  if (part != 0) nearest_part<Form>(task, in + left - part, out + left - part, part, counts);
}

template <SmallNumbers kSmallNumbers, bool kPlain>
void nearest_variant(const EncodeTask& task, NearestCounts& counts) {
  using enum GatherStatistics;
  switch (task.statistics) {
    case none:
      return task.scale == 1.0f
                 ? nearest_all<NearestForm<kSmallNumbers, kPlain, false, none>>(task, counts)
                 : nearest_all<NearestForm<kSmallNumbers, kPlain, true, none>>(task, counts);
    case amax:
      return nearest_all<NearestForm<kSmallNumbers, kPlain, true, amax>>(task, counts);
    case all:
      return nearest_all<NearestForm<kSmallNumbers, kPlain, true, all>>(task, counts);
  }
}

template <SmallNumbers kSmallNumbers>
void nearest_variant(const EncodeTask& task, NearestCounts& counts) {
  return task.plan->nearest_plan.plain ? nearest_variant<kSmallNumbers, true>(task, counts)
                                       : nearest_variant<kSmallNumbers, false>(task, counts);
}

EncodeStatistics encode_task(const EncodeTask& task) {
  const NearestPlan& plan = task.plan->nearest_plan;
  NearestCounts counts;
  switch (plan.small_numbers) {
    case SmallNumbers::gradual:
      nearest_variant<SmallNumbers::gradual>(task, counts);
      break;
    case SmallNumbers::flushed:
      nearest_variant<SmallNumbers::flushed>(task, counts);
      break;
    case SmallNumbers::raised:
      nearest_variant<SmallNumbers::raised>(task, counts);
      break;
  }
  EncodeStatistics statistics;
  statistics.amax = counts.largest();
  if (task.statistics != GatherStatistics::all) return statistics;
  statistics.overflowed = counts.over.total();
  statistics.underflowed = counts.small.total();
  statistics.nan = counts.nan.total() + (plan.overflow_is_nan ? statistics.overflowed : 0);
  return statistics;
}

/// Those of products whose NaN is canonical, which is positive.
HWY_INLINE NearestConstants canonical_constants(const EncodePlan& plan) {
  NearestPlan nearest = plan.nearest_plan;
  nearest.nan_sign_mask = 0;
  return {nearest, 1.0f};
}

template <typename Form, typename Factor>
void tiles_all(const TileTask& task) {
  const NearestConstants constants = canonical_constants(*task.plan);
  NearestCounts counts;
  TileCursor cursor(task.factors, (task.count + task.block - 1) / task.block, task.block,
                    task.count);
  const bool stream = task.stream && std::bit_cast<std::uintptr_t>(task.out) % 16 == 0;
  const std::size_t near = task.ahead.near;
  const std::size_t far = FP8LAB_HAS_MASKS ? task.ahead.far : 0;
  std::size_t i = 0;
  for (; i + kBlock <= task.count; i += kBlock) {
    const float* const in = task.in + i;
    for (std::size_t line = 0; line < kBlock; line += 16) prefetch_near(in + near + line);
    if (far != 0)
      for (std::size_t line = 0; line < kBlock; line += 16) prefetch_far(in + far + line);
    const U8 codes = nearest_block<Form>(constants, Factor(cursor), load_block(in), counts);
    if (stream)
      stream_parts(Tag<std::uint8_t>(), codes, task.out + i);
    else
      hn::StoreU(codes, Tag<std::uint8_t>(), task.out + i);
  }
  if (i == task.count) return;
  alignas(64) std::array<float, kBlock> padded{};
  alignas(64) std::array<std::uint8_t, kBlock> codes;
  std::memcpy(padded.data(), task.in + i, (task.count - i) * sizeof(float));
  hn::StoreU(nearest_block<Form>(constants, Factor(cursor), load_block(padded.data()), counts),
             Tag<std::uint8_t>(), codes.data());
  std::memcpy(task.out + i, codes.data(), task.count - i);
}

template <typename Form>
void tiles_form(const TileTask& task) {
  // One element under one factor is a tile: no others are read.
  if (task.block == 1 && task.count > 1)
    return task.divide ? tiles_all<Form, ElementFactors<true>>(task)
                       : tiles_all<Form, ElementFactors<false>>(task);
  return task.divide ? tiles_all<Form, TileFactor<true>>(task)
                     : tiles_all<Form, TileFactor<false>>(task);
}

template <SmallNumbers kSmallNumbers>
void tiles_variant(const TileTask& task) {
  constexpr GatherStatistics kNone = GatherStatistics::none;
  return task.plan->nearest_plan.plain
             ? tiles_form<NearestForm<kSmallNumbers, true, true, kNone>>(task)
             : tiles_form<NearestForm<kSmallNumbers, false, true, kNone>>(task);
}

void encode_tiles(const TileTask& task) {
  if (task.count == 0) return;
  switch (task.plan->nearest_plan.small_numbers) {
    case SmallNumbers::gradual:
      return tiles_variant<SmallNumbers::gradual>(task);
    case SmallNumbers::flushed:
      return tiles_variant<SmallNumbers::flushed>(task);
    case SmallNumbers::raised:
      return tiles_variant<SmallNumbers::raised>(task);
  }
}

template <bool kPlain, bool kBoundedValue>
struct CrossForm : NearestForm<SmallNumbers::gradual, kPlain, true, GatherStatistics::none> {
  static constexpr bool kBounded = kBoundedValue;
};

template <typename Form, bool kDivide>
void crossed_all(const CrossTask& task) {
  const NearestConstants constants = canonical_constants(*task.plan);
  NearestCounts counts;
  const std::size_t tiles = (task.columns + task.block - 1) / task.block;
  const bool stream = task.stream && task.row_stride % kBlock == 0 &&
                      std::bit_cast<std::uintptr_t>(task.row_codes) % kBlock == 0;
  const std::size_t columns = task.columns;  // no store can change a local
  for (std::size_t r = 0; r < task.rows; ++r) {
    const float* in = task.in + r * task.stride;
    const float* next = task.next + r * task.next_stride;
    std::uint8_t* row_codes = task.row_codes + r * task.row_stride;
    std::uint8_t* column_codes = task.column_codes + r * task.column_stride;
    TileCursor row(task.row_factors + r * tiles, tiles, task.block, columns);
    TileCursor column(task.column_factors, columns, 1, columns);
    // The line of the last element, where rows do not begin on whole lines.
    prefetch_near(next + columns - 1);
    for (std::size_t i = 0; i < columns; i += kBlock) {
      for (std::size_t line = 0; line < kBlock; line += 16) prefetch_near(next + i + line);
      const Block block = load_block(in + i);
      const U8 by_row = nearest_block<Form>(constants, TileFactor<kDivide>(row), block, counts);
      const U8 by_column =
          nearest_block<Form>(constants, ElementFactors<kDivide>(column), block, counts);
      if (stream)
        hn::Stream(by_row, Tag<std::uint8_t>(), row_codes + i);
      else
        hn::StoreU(by_row, Tag<std::uint8_t>(), row_codes + i);
      hn::StoreU(by_column, Tag<std::uint8_t>(), column_codes + i);
    }
  }
}

template <typename Form>
void crossed_form(const CrossTask& task) {
  return task.divide ? crossed_all<Form, true>(task) : crossed_all<Form, false>(task);
}

template <bool kPlain>
void crossed_form(const CrossTask& task) {
  return task.bounded ? crossed_form<CrossForm<kPlain, true>>(task)
                      : crossed_form<CrossForm<kPlain, false>>(task);
}

void encode_crossed(const CrossTask& task) {
  return task.plan->nearest_plan.plain ? crossed_form<true>(task) : crossed_form<false>(task);
}

}  // namespace

const NearestKernels* nearest_kernels() {
  static constexpr NearestKernels kTable{encode_task, encode_tiles, encode_crossed};
  return &kTable;
}

#else
const NearestKernels* nearest_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::cast_kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::cast_kernels {

FP8LAB_TABLE_OF_TARGET(NearestKernels, nearest_kernels)

}  // namespace fp8lab::cast_kernels
#endif

#include "fp8lab/scaling/code_transposer.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/scaling/transpose_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::scaling_detail {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

/// 16 bytes of a row, or of two neighbouring blocks of 16 columns.
using Bytes = hn::CappedTag<std::uint8_t, 32>;
constexpr std::size_t kRows = 16;
constexpr std::size_t kColumns = hn::MaxLanes(Bytes());

/// Interleaves each row with that half of the block further down. Four such steps turn a block.
template <typename V>
HWY_INLINE void step(const V (&from)[kRows], V (&to)[kRows]) {
  const Bytes d;
  for (std::size_t r = 0; r < kRows / 2; ++r) {
    to[2 * r] = hn::InterleaveLower(d, from[r], from[r + kRows / 2]);
    to[2 * r + 1] = hn::InterleaveUpper(d, from[r], from[r + kRows / 2]);
  }
}

HWY_INLINE void turn_block(const std::uint8_t* from, std::size_t from_stride, std::uint8_t* to,
                           std::size_t to_stride) {
  const Bytes d;
  hn::Vec<Bytes> a[kRows];
  hn::Vec<Bytes> b[kRows];
  for (std::size_t r = 0; r < kRows; ++r) a[r] = hn::LoadU(d, from + r * from_stride);
  step(a, b);
  step(b, a);
  step(a, b);
  step(b, a);
  for (std::size_t c = 0; c < kRows; ++c) {
    if constexpr (kColumns == kRows) {
      hn::StoreU(a[c], d, to + c * to_stride);
    } else {
      const hn::Half<Bytes> half;
      hn::StoreU(hn::LowerHalf(half, a[c]), half, to + c * to_stride);
      hn::StoreU(hn::UpperHalf(half, a[c]), half, to + (c + kRows) * to_stride);
    }
  }
}

void turn(const std::uint8_t* from, std::size_t from_stride, std::size_t rows, std::size_t columns,
          std::uint8_t* to, std::size_t to_stride) {
  const std::size_t whole_rows = rows / kRows * kRows;
  const std::size_t whole_columns = columns / kColumns * kColumns;
  for (std::size_t r = 0; r < whole_rows; r += kRows)
    for (std::size_t c = 0; c < whole_columns; c += kColumns)
      turn_block(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c)
      to[c * to_stride + r] = from[r * from_stride + c];
}

template <bool kStream>
void copy(const std::uint8_t* from, std::size_t from_stride, std::size_t rows, std::size_t columns,
          std::uint8_t* to, std::size_t to_stride) {
  const Bytes d;
  for (std::size_t r = 0; r < rows; ++r, from += from_stride, to += to_stride) {
    std::size_t c = 0;
    for (; c + kColumns <= columns; c += kColumns) {
      const auto bytes = hn::LoadU(d, from + c);
      kStream ? hn::Stream(bytes, d, to + c) : hn::StoreU(bytes, d, to + c);
    }
    for (; c < columns; ++c) to[c] = from[c];
  }
}

const TransposeKernels& turn_table() {
  static constexpr TransposeKernels kTable{turn, copy<false>, copy<true>};
  return kTable;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::scaling_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::scaling_detail {
namespace {

void reference_turn(const std::uint8_t* from, std::size_t from_stride, std::size_t rows,
                    std::size_t columns, std::uint8_t* to, std::size_t to_stride) {
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
}

void reference_copy(const std::uint8_t* from, std::size_t from_stride, std::size_t rows,
                    std::size_t columns, std::uint8_t* to, std::size_t to_stride) {
  for (std::size_t r = 0; r < rows; ++r)
    std::copy_n(from + r * from_stride, columns, to + r * to_stride);
}

constexpr TransposeKernels kReference{reference_turn, reference_copy, reference_copy};

}  // namespace

const TransposeKernels& transpose_kernels(Target target) {
  switch (target) {
    FP8LAB_TARGET_CASES(turn_table)
    default:
      return kReference;
  }
}

}  // namespace fp8lab::scaling_detail
#endif

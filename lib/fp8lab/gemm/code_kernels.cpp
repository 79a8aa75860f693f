#include <algorithm>

#include "fp8lab/gemm/kernels.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/code_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

/// A block of 16 bytes a row: perfect shuffles swap rows and columns.
template <typename Code>
HWY_INLINE void transpose_block(const Code* from, std::int64_t stride, Code* to,
                                std::int64_t width) {
  constexpr int kSize = 16 / sizeof(Code);
  const hn::Full128<Code> d;
  hn::Vec<decltype(d)> v[kSize];
  hn::Vec<decltype(d)> w[kSize];
  FP8LAB_UNROLL
  for (int i = 0; i < kSize; ++i) v[i] = hn::LoadU(d, from + i * stride);
  FP8LAB_UNROLL
  for (int size = 1; size < kSize; size *= 2) {
    FP8LAB_UNROLL
    for (int i = 0; i < kSize / 2; ++i) {
      w[2 * i] = hn::InterleaveLower(d, v[i], v[i + kSize / 2]);
      w[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + kSize / 2]);
    }
    FP8LAB_UNROLL
    for (int i = 0; i < kSize; ++i) v[i] = w[i];
  }
  FP8LAB_UNROLL
  for (int i = 0; i < kSize; ++i) hn::StoreU(v[i], d, to + i * width);
}

template <typename Code>
void transpose(const TransposeCodes& s) {
  constexpr auto kSize = static_cast<std::int64_t>(16 / sizeof(Code));
  const auto* from = reinterpret_cast<const Code*>(s.from);
  auto* to = reinterpret_cast<Code*>(s.to);
  if (s.rows % kSize != 0) {  // a panel narrower than a block
    for (std::int64_t t = 0; t < s.terms; ++t)
      for (std::int64_t r = 0; r < s.rows; ++r) to[t * s.width + r] = from[r * s.row_stride + t];
    return;
  }
  for (std::int64_t r = 0; r < s.rows; r += kSize)
    for (std::int64_t t = 0; t < s.terms; t += kSize)
      transpose_block(from + r * s.row_stride + t, s.row_stride, to + t * s.width + r, s.width);
}

/// Magnitudes that sort NaN above all numbers.
template <class D, typename Code = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> magnitudes(D d, const CodeLayout& layout, hn::Vec<D> codes) {
  if constexpr (sizeof(Code) == 4) codes = hn::ShiftRightSame(codes, layout.dropped_bits);
  const auto magnitude =
      hn::And(codes, hn::Set(d, static_cast<Code>((std::uint64_t{1} << layout.sign_bit) - 1)));
  const auto nan = hn::Set(d, static_cast<Code>(layout.nan_code));
  return hn::IfThenElse(hn::Eq(codes, nan), nan, magnitude);
}

/// The largest magnitudes and the smallest of those that are not zero, less 1, so that zeros wrap.
template <class D, typename Code = hn::TFromD<D>>
class MagnitudeRange {
 public:
  HWY_INLINE MagnitudeRange()
      : largest_(hn::Zero(D())), below_(hn::Set(D(), static_cast<Code>(~Code{0}))) {}
  HWY_INLINE void add(hn::Vec<D> magnitude) {
    largest_ = hn::Max(largest_, magnitude);
    below_ = hn::Min(below_, hn::Sub(magnitude, hn::Set(D(), Code{1})));
  }
  HWY_INLINE void store(Code* largest, Code* below) const {
    hn::Store(largest_, D(), largest);
    hn::Store(below_, D(), below);
  }

 private:
  hn::Vec<D> largest_;
  hn::Vec<D> below_;
};

/// Ranges of the columns [first, first + lanes).
template <class D, typename Code = hn::TFromD<D>>
HWY_INLINE void ranges_of_columns(D d, const Code* codes, std::int64_t terms, std::int64_t width,
                                  const CodeLayout& layout, CodeRange* ranges) {
  MagnitudeRange<D> range;
  for (std::int64_t t = 0; t < terms; ++t)
    range.add(magnitudes(d, layout, hn::LoadU(d, codes + t * width)));
  HWY_ALIGN Code most[HWY_MAX_BYTES / sizeof(Code)];
  HWY_ALIGN Code least[HWY_MAX_BYTES / sizeof(Code)];
  range.store(most, least);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i)
    if (most[i] != 0) ranges[i].add({most[i], std::uint32_t{least[i]} + 1});
}

/// Rows of a panel for kernels of type T are whole vectors of codes, or half ones.
template <typename T, typename Code>
using RowTag = std::conditional_t<(4 * sizeof(Code) < sizeof(T)), hn::Half<hn::ScalableTag<Code>>,
                                  hn::ScalableTag<Code>>;

template <typename T, typename Code>
void column_ranges(const unsigned char* from, std::int64_t terms, const CodeLayout& layout,
                   CodeRange* ranges) {
  const RowTag<T, Code> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto width = static_cast<std::int64_t>(hn::Lanes(Tag<T>())) * kVectors;
  const auto* codes = reinterpret_cast<const Code*>(from);
  for (std::int64_t j = 0; j < width; j += lanes)
    ranges_of_columns(d, codes + j, terms, width, layout, ranges + j);
}

template <typename Code>
CodeRange row_range(const unsigned char* from, std::int64_t count, const CodeLayout& layout) {
  const hn::ScalableTag<Code> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto* codes = reinterpret_cast<const Code*>(from);
  MagnitudeRange<decltype(d)> range;
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) range.add(magnitudes(d, layout, hn::LoadU(d, codes + i)));
  if (i < count) {
    HWY_ALIGN Code rest[HWY_MAX_BYTES / sizeof(Code)] = {};
    std::copy_n(codes + i, count - i, rest);
    range.add(magnitudes(d, layout, hn::Load(d, rest)));
  }
  HWY_ALIGN Code most[HWY_MAX_BYTES / sizeof(Code)];
  HWY_ALIGN Code least[HWY_MAX_BYTES / sizeof(Code)];
  range.store(most, least);
  Code largest = 0;
  Code below = static_cast<Code>(~Code{0});
  for (std::int64_t j = 0; j < lanes; ++j) {
    largest = std::max(largest, most[j]);
    below = std::min(below, least[j]);
  }
  return largest == 0 ? CodeRange{} : CodeRange{largest, std::uint32_t{below} + 1};
}

template <typename T, typename Code>
CodeKernels<T> code_kernels() {
  return {transpose<Code>, column_ranges<T, Code>, row_range<Code>};
}

template <typename T>
const CodeKernelsByWidth<T>* kernels_by_width() {
  static const CodeKernelsByWidth<T> kTable{code_kernels<T, std::uint8_t>(),
                                            code_kernels<T, std::uint16_t>(),
                                            code_kernels<T, std::uint32_t>()};
  return &kTable;
}
const CodeKernelsByWidth<float>* float_code_kernels() { return kernels_by_width<float>(); }
const CodeKernelsByWidth<double>* double_code_kernels() { return kernels_by_width<double>(); }

#else
const CodeKernelsByWidth<float>* float_code_kernels() { return nullptr; }
const CodeKernelsByWidth<double>* double_code_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

FP8LAB_TABLE_OF_TARGET(CodeKernelsByWidth<float>, float_code_kernels)
FP8LAB_TABLE_OF_TARGET(CodeKernelsByWidth<double>, double_code_kernels)

}  // namespace fp8lab::gemm_detail
#endif

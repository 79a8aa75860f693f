#include "fp8lab/gemm/half_codes.hpp"

#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp8lab/gemm/half_code_kernels.cpp"
#include "hwy/foreach_target.h"
//
#include "fp8lab/gemm/vector-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::gemm_detail {
namespace HWY_NAMESPACE {
#if FP8LAB_HAS_KERNELS

using Codes = hn::CappedTag<std::uint16_t, kTermsOfHalves / 2>;
using Halves = hn::Rebind<hwy::float16_t, hn::Half<Codes>>;
using HalfFloats = hn::Rebind<float, hn::Half<Codes>>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Codes()));

/// FP16 numbers times a power of two, exactly.
HWY_INLINE hn::Vec<hn::Half<Codes>> scaled(hn::Vec<hn::Half<Codes>> x, float scale) {
  const HalfFloats d;
  const hn::Half<Codes> du;
  const auto value = hn::PromoteTo(d, hn::BitCast(Halves(), x));
  return hn::BitCast(du, hn::DemoteTo(Halves(), hn::Mul(value, hn::Set(d, scale))));
}

/// Codes of a vector as FP16's.
HWY_INLINE hn::Vec<Codes> to_halves(const std::uint8_t* codes, const HalfCodeLayout& layout) {
  const Codes d;
  const hn::Half<Codes> dh;
  const auto x = hn::PromoteTo(d, hn::LoadU(hn::Rebind<std::uint8_t, Codes>(), codes));
  const auto magnitude = hn::And(x, hn::Set(d, std::uint16_t{0x7f}));
  const auto sign = hn::ShiftLeft<8>(hn::And(x, hn::Set(d, std::uint16_t{0x80})));
  auto half = hn::ShiftLeftSame(magnitude, layout.shift);
  if (layout.scale != 1.0F)
    half = hn::Combine(d, scaled(hn::UpperHalf(dh, half), layout.scale),
                       scaled(hn::LowerHalf(dh, half), layout.scale));
  const auto nan = hn::Gt(magnitude, hn::Set(d, layout.largest));
  return hn::Or(hn::IfThenElse(nan, hn::Set(d, std::uint16_t{0x7e00}), half), sign);
}

void copy_halves(const std::uint8_t* from, std::int64_t count, const HalfCodeLayout& given,
                 std::uint16_t* to) {
  const HalfCodeLayout layout = given;
  const Codes d;
  const hn::Repartition<std::uint32_t, Codes> d32;
  for (std::int64_t first = 0; first < count; first += kTermsOfHalves) {
    FP8LAB_UNROLL
    for (int i = 0; i < kTermsOfHalves; i += 2 * kLanes) {
      const auto x = hn::BitCast(d32, to_halves(from + first + i, layout));
      const auto y = hn::BitCast(d32, to_halves(from + first + i + kLanes, layout));
      // Pairs of terms belong to the halves in turn.
      hn::StoreU(hn::BitCast(d, hn::ConcatEven(d32, y, x)), d, to + first + i / 2);
      hn::StoreU(hn::BitCast(d, hn::ConcatOdd(d32, y, x)), d,
                 to + first + kTermsOfHalves / 2 + i / 2);
    }
  }
}

const HalfCodeKernels* half_code_kernels() {
  static const HalfCodeKernels kTable{copy_halves};
  return &kTable;
}

#else
const HalfCodeKernels* half_code_kernels() { return nullptr; }
#endif  // a target with kernels
}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fp8lab/core/target_cases.hpp"

namespace fp8lab::gemm_detail {

FP8LAB_TABLE_OF_TARGET(HalfCodeKernels, half_code_kernels)

}  // namespace fp8lab::gemm_detail
#endif

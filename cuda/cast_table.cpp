#include "cast_table.hpp"

#include <array>

namespace fp8lab::cuda {
namespace {

using enum FormatId;

constexpr CastPolicy kDown{.rounding = RoundingMode::toward_zero};
constexpr CastPolicy kUp{.rounding = RoundingMode::upward};
constexpr CastPolicy without_saturation(CastPolicy policy) {
  policy.overflow = OverflowPolicy::non_saturating;
  policy.infinity = InfinityPolicy::non_saturating;
  return policy;
}

constexpr std::array kNarrowCasts{
    CastInstruction{"cvt.rn.satfinite.e2m1x2.f32", f32, e2m1, kNvidiaSatfinite},
    CastInstruction{"cvt.rn.satfinite.e2m3x2.f32", f32, e2m3, kNvidiaSatfinite},
    CastInstruction{"cvt.rn.satfinite.e3m2x2.f32", f32, e3m2, kNvidiaSatfinite},
    CastInstruction{"cvt.rz.satfinite.ue8m0x2.f32", f32, e8m0fnu, kDown},
    CastInstruction{"cvt.rp.satfinite.ue8m0x2.f32", f32, e8m0fnu, kUp},
    CastInstruction{"cvt.rz.ue8m0x2.f32", f32, e8m0fnu, without_saturation(kDown)},
    CastInstruction{"cvt.rp.ue8m0x2.f32", f32, e8m0fnu, without_saturation(kUp)},
    CastInstruction{"cvt.rz.satfinite.ue8m0x2.bf16x2", bf16, e8m0fnu, kDown},
    CastInstruction{"cvt.rp.satfinite.ue8m0x2.bf16x2", bf16, e8m0fnu, kUp},
    CastInstruction{"cvt.rz.ue8m0x2.bf16x2", bf16, e8m0fnu, without_saturation(kDown)},
    CastInstruction{"cvt.rp.ue8m0x2.bf16x2", bf16, e8m0fnu, without_saturation(kUp)},
    CastInstruction{"cvt.rn.f16x2.e2m1x2", e2m1, f16, kNvidiaNosat},
    CastInstruction{"cvt.rn.f16x2.e2m3x2", e2m3, f16, kNvidiaNosat},
    CastInstruction{"cvt.rn.f16x2.e3m2x2", e3m2, f16, kNvidiaNosat},
    CastInstruction{"cvt.rn.bf16x2.ue8m0x2", e8m0fnu, bf16, kNvidiaNosat},
};

}  // namespace

std::span<const CastInstruction> narrow_casts() { return kNarrowCasts; }

}  // namespace fp8lab::cuda

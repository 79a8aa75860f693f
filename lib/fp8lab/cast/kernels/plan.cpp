// Derives the constants of the vector kernels from the scalar reference, so that the two
// agree about codes and thresholds by construction wherever that is possible.

#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/kernels/kernels.hpp"

namespace fp8lab::cast_kernels {
namespace {

constexpr std::uint32_t kInfinityBits = 0x7f800000;

/// 2^exponent, a normal binary32.
constexpr float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

/// The value of `code` on a grid that goes on past max finite.
float grid_value(const Format& f, std::uint32_t code) {
  const std::uint32_t field = code >> f.mantissa_bits;
  const std::uint32_t fraction = code & ((std::uint32_t{1} << f.mantissa_bits) - 1);
  const std::uint32_t significand =
      field == 0 ? fraction : fraction | (std::uint32_t{1} << f.mantissa_bits);
  const int exponent = static_cast<int>(field == 0 ? 1 : field) - f.bias;
  return static_cast<float>(significand) * power_of_two(exponent - f.mantissa_bits);
}

/// The smallest binary32 magnitude that rounds to more than `code`: the midpoint above it, or the
/// number after that where the tie goes to `code`.
std::uint32_t first_above(const Format& f, RoundingMode mode, std::uint32_t code) {
  const float midpoint = 0.5f * (grid_value(f, code) + grid_value(f, code + 1));
  const bool tie_stays = mode == RoundingMode::nearest_toward_zero || code % 2 == 0;
  return std::bit_cast<std::uint32_t>(midpoint) + (tie_stays ? 1 : 0);
}

/// The smallest binary32 magnitude whose product with `scale` rounds to a non-zero binary32:
/// the first that makes the product larger than 2^-150.
std::uint32_t first_nonzero(float scale) {
  const double exact_scale = scale;
  const auto near = static_cast<float>(0x1p-150 / exact_scale);
  const bool above = static_cast<double>(near) * exact_scale > 0x1p-150;
  return std::bit_cast<std::uint32_t>(near) + (above ? 0 : 1);
}

std::uint32_t nan_code(const Format& f, const CastPolicy& policy, bool negative) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  return encode(f, policy, std::copysign(nan, negative ? -1.0f : 1.0f));
}

/// Whether overflow is one more step of the grid, or a clamp at its end, or FNUZ's only NaN.
bool overflow_is_a_step(const Format& f, const CastPolicy& policy) {
  const CastResult huge = cast(f, policy, std::numeric_limits<float>::max());
  const CastResult infinite = cast(f, policy, std::numeric_limits<float>::infinity());
  const std::uint32_t last = detail::last_code(f, policy);
  return huge.overflowed && huge.code == infinite.code &&
         (huge.code == last || huge.code == last + 1);
}

bool narrow_plan_fits(const Format& f, const CastPolicy& policy) {
  return f.has_sign && f.mantissa_bits >= 1 && f.mantissa_bits <= 3 && f.code_bits() <= 8 &&
         overflow_is_a_step(f, policy);
}

NarrowPlan make_narrow_plan(const Format& f, const CastPolicy& policy) {
  const CastResult huge = cast(f, policy, std::numeric_limits<float>::max());
  NarrowPlan plan;
  plan.mantissa_bits = f.mantissa_bits;
  plan.min_field = static_cast<std::uint32_t>(f.min_exponent() + 127);
  plan.last_code = static_cast<std::uint8_t>(detail::last_code(f, policy));
  plan.overflow_code = static_cast<std::uint8_t>(huge.code);
  plan.nan_code = static_cast<std::uint8_t>(nan_code(f, policy, false));
  plan.nan_sign_mask = static_cast<std::uint8_t>(plan.nan_code ^ nan_code(f, policy, true));
  plan.sign_mask = static_cast<std::uint8_t>(f.sign_mask());
  plan.no_negative_zero = f.specials == SpecialValues::fnuz;
  plan.overflow_is_nan = huge.nan;
  return plan;
}

/// Which kernel for rounding to nearest serves the policy, if any does, where a narrow plan fits.
std::optional<SmallNumbers> nearest_kernel(const CastPolicy& policy) {
  if (policy.rounding == RoundingMode::nearest_even) {
    if (policy.subnormals == SubnormalPolicy::preserve) return SmallNumbers::gradual;
    if (policy.subnormals == SubnormalPolicy::flush_to_zero) return SmallNumbers::flushed;
  }
  if (policy.rounding == RoundingMode::nearest_toward_zero &&
      policy.subnormals == SubnormalPolicy::raise_to_min_normal)
    return SmallNumbers::raised;
  return std::nullopt;
}

NearestPlan make_nearest_plan(const Format& f, const CastPolicy& policy,
                              SmallNumbers small_numbers) {
  NearestPlan plan{make_narrow_plan(f, policy)};
  plan.small_numbers = small_numbers;
  plan.min_normal = power_of_two(f.min_exponent());
  plan.clamp = grid_value(f, plan.overflow_code);
  // A NaN without a sign of its own that is negative (vLLM's) needs the epilogue too.
  const bool negative_nan = plan.nan_sign_mask == 0 && (plan.nan_code & 0x80) != 0;
  plan.plain = f.code_bits() == 8 && !plan.no_negative_zero && !negative_nan;
  plan.overflow_from = first_above(f, policy.rounding, plan.last_code);
  const bool overflow_without_sign = plan.overflow_is_nan && plan.no_negative_zero;
  plan.nan_above = overflow_without_sign ? plan.overflow_from - 1 : kInfinityBits;
  return plan;
}

RoundingPlan make_rounding_plan(const Format& f, const CastPolicy& policy) {
  RoundingPlan plan{make_narrow_plan(f, policy)};
  plan.past_last = grid_value(f, plan.last_code + 1u);
  plan.preserves_subnormals = policy.subnormals == SubnormalPolicy::preserve;
  if (policy.subnormals == SubnormalPolicy::raise_to_min_normal)
    plan.small_value = plan.min_field << 23;
  return plan;
}

GeneralPlan make_general_plan(const Format& f, const CastPolicy& policy) {
  const std::uint32_t last = detail::last_code(f, policy);
  const CastResult overflow = policy.overflow == OverflowPolicy::non_saturating
                                  ? detail::non_saturated(f, false)
                                  : CastResult{.code = last};
  const CastResult infinite = cast(f, policy, std::numeric_limits<float>::infinity());
  GeneralPlan plan;
  plan.min_field = static_cast<std::uint32_t>(f.min_exponent() + 127);
  plan.field_offset = f.is_scale_only() ? 1 : 0;
  plan.last_code = last;
  plan.overflow_code = overflow.code;
  plan.overflow_is_nan = overflow.nan;
  plan.infinity_code = infinite.code;
  plan.infinity_is_nan = infinite.nan;
  if (policy.subnormals != SubnormalPolicy::preserve && !f.is_scale_only()) {
    plan.small_below = plan.min_field << 23;
    plan.small_code = policy.subnormals == SubnormalPolicy::raise_to_min_normal
                          ? std::uint32_t{1} << f.mantissa_bits
                          : 0;
  }
  plan.sign_mask = f.sign_mask();
  plan.sign_shift = f.has_sign ? static_cast<std::uint32_t>(32 - f.code_bits()) : 0;
  plan.nan_code = nan_code(f, policy, false);
  plan.nan_sign_mask = plan.nan_code ^ nan_code(f, policy, true);
  plan.no_negative_zero = f.specials == SpecialValues::fnuz;
  plan.unsigned_nan = f.is_scale_only() && policy.unsigned_target == UnsignedPolicy::nan;
  return plan;
}

/// Whether the vector kernels know the format and the policy.
bool kernels_take(const Format& f, const CastPolicy& policy) {
  return is_built_in(f.id) && policy.rounding != RoundingMode::to_odd &&
         policy.overflow != OverflowPolicy::by_direction &&
         policy.overflow != OverflowPolicy::canonical_nan &&
         policy.infinity != InfinityPolicy::canonical_nan &&
         (f.has_sign || policy.unsigned_target != UnsignedPolicy::least);
}

/// All but what depends on the scale.
EncodePlan make_scaleless_plan(const Format& f, const CastPolicy& policy) {
  EncodePlan plan;
  plan.format = &f;
  plan.policy = policy;
  if (!kernels_take(f, policy)) {
    plan.kernel = EncodeKernel::scalar;
  } else if (!narrow_plan_fits(f, policy)) {
    plan.general_plan = make_general_plan(f, policy);
  } else if (const std::optional<SmallNumbers> small_numbers = nearest_kernel(policy)) {
    plan.kernel = EncodeKernel::nearest;
    plan.nearest_plan = make_nearest_plan(f, policy, *small_numbers);
  } else {
    plan.kernel = EncodeKernel::rounding;
    plan.rounding_plan = make_rounding_plan(f, policy);
  }
  return plan;
}

}  // namespace

bool half_plan_fits(const Format& f, float inverse_scale) {
  return f.has_sign && f.exponent_bits <= 5 &&
         std::isfinite(inverse_scale * power_of_two(16 - f.bias));
}

HalfPlan make_half_plan(const Format& f, float inverse_scale) {
  const bool uses_last_field = f.exponent_bits == 5 && f.specials != SpecialValues::ieee;
  HalfPlan plan;
  plan.magnitude_mask = static_cast<std::uint16_t>(f.magnitude_mask());
  plan.last_number =
      static_cast<std::uint16_t>(f.has_infinity() ? f.infinity_code() : f.max_finite_code());
  plan.lone_nan = f.specials == SpecialValues::fnuz ? 0x80 : 0xffff;
  plan.field_offset = uses_last_field ? 0x400 : 0;
  plan.magnitude_shift = 10 - f.mantissa_bits;
  plan.sign_shift = 16 - f.code_bits();
  plan.factor = inverse_scale * power_of_two(15 - f.bias + (uses_last_field ? 1 : 0));
  return plan;
}

EncodePlan make_plan(const Format& f, const CastPolicy& policy, float scale) {
  // The reference is asked once where calls are alike; a few hundred cycles are a short call's
  // half.
  static thread_local EncodePlan last;
  if (last.format != &f || last.policy != policy) last = make_scaleless_plan(f, policy);
  EncodePlan plan = last;
  if (plan.kernel == EncodeKernel::general || plan.kernel == EncodeKernel::scalar) return plan;
  plan.nearest_plan.nonzero_from = plan.rounding_plan.nonzero_from = first_nonzero(scale);
  // Products below 2^-49 round stochastically to zero in every format.
  const float largest = plan.kernel == EncodeKernel::nearest ? 0x1p100f : 0x1p70f;
  plan.ignores_subnormals = scale >= 0x1p-100f && scale <= largest;
  return plan;
}

}  // namespace fp8lab::cast_kernels

// One block of an encode to nearest, and consecutive blocks; included once for each target.

#include <algorithm>
#include <bit>
#include <cstdint>

#include "fp8lab/cast/kernels/factors-inl.hpp"

#if defined(FP8LAB_CAST_NEAREST_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_CAST_NEAREST_INL
#undef FP8LAB_CAST_NEAREST_INL
#else
#define FP8LAB_CAST_NEAREST_INL
#endif

#if FP8LAB_HAS_CAST_KERNELS
HWY_BEFORE_NAMESPACE();
namespace fp8lab::cast_kernels {
namespace HWY_NAMESPACE {

/// Element i is in vector i / `kLanes`.
struct Block {
  F32 values[4];
};

HWY_INLINE Block load_block(const float* in) {
  const Tag<float> d;
  return {{hn::LoadU(d, in), hn::LoadU(d, in + kLanes), hn::LoadU(d, in + 2 * kLanes),
           hn::LoadU(d, in + 3 * kLanes)}};
}

/// 32-bit lanes as bytes, with saturation: zero, positive or negative as before (see join_bytes).
HWY_INLINE I8 pack_bytes(const I32 (&v)[4]) {
  return join_bytes(join_words(v[0], v[1]), join_words(v[2], v[3]));
}
HWY_INLINE I8 pack_bytes(const Block& block) {
  return pack_bytes({as<std::int32_t>(block.values[0]), as<std::int32_t>(block.values[1]),
                     as<std::int32_t>(block.values[2]), as<std::int32_t>(block.values[3])});
}

/// The plan in registers.
struct NearestConstants {
  F32 scale;
  I32 min_normal;
  I32 before_min_normal;
  I32 before_nonzero;
  I32 lower_for_zero;  ///< what zero is raised to where others are; its code is 0
  F32 for_nan;         ///< below every magnitude; its code is -1
  F32 magic;           ///< m times this, plus |x|: the rounded sum, from code 0 on
  I16 weights;         ///< of the words of the rounded sum: its integer's and its exponent's
  I32 tie_term;        ///< before a cut: to nearest, ties toward zero, from code 0
  I32 code_mask;       ///< that cut
  int tie_shift;       ///< leaves 256 times the code
  I8 overflow_code;
  I16 last_word;       ///< the last number's word
  I16 overflow_wraps;  ///< makes saturated words negative where overflow is FNUZ's NaN
  U8 nan_limit;        ///< NaN's byte: the top bit is set where NaN has no sign
  U8 nan_code;
  U8 nan_sign_mask;
  U8 sign_mask;
  int sign_shift;
  bool no_negative_zero;

  HWY_INLINE NearestConstants(const NearestPlan& plan, float factor)
      : NearestConstants(plan, factor, static_cast<std::uint32_t>(23 - plan.mantissa_bits)) {}

 private:
  HWY_INLINE NearestConstants(const NearestPlan& plan, float factor, std::uint32_t cut)
      : scale(hn::Set(Tag<float>(), factor)),
        min_normal(set<std::int32_t>(plan.min_field << 23)),
        before_min_normal(set<std::int32_t>((plan.min_field << 23) - 1)),
        before_nonzero(set<std::int32_t>(plan.nonzero_from - 1)),
        lower_for_zero(set<std::int32_t>((plan.min_field - 1) << 23)),
        for_nan(as<float>(set_words(plan.small_numbers == SmallNumbers::raised
                                        ? ((plan.min_field - 1) << 23) - (1u << cut)
                                        : 0x80000000 | (plan.min_field + cut - 23) << 23))),
        magic(as<float>(set_words(((127 + cut) << 23) + 0x10000 -
                                  ((plan.min_field + cut) << plan.mantissa_bits)))),
        weights(as<std::int16_t>(set_words((2u << plan.mantissa_bits) << 16 | 0x100))),
        tie_term(set<std::int32_t>((1u << (cut - 1)) - 1 - ((plan.min_field - 1) << 23))),
        code_mask(set<std::int32_t>(0 - (1u << cut))),
        tie_shift(static_cast<int>(cut) - 8),
        overflow_code(set<std::int8_t>(std::min<std::uint8_t>(plan.overflow_code, 0x7f))),
        last_word(set<std::int16_t>(plan.last_code * 0x100u)),
        overflow_wraps(set<std::int16_t>(plan.overflow_code == 0x80 ? 1 : 0)),
        nan_limit(
            set<std::uint8_t>(plan.nan_sign_mask != 0 ? plan.nan_code : plan.nan_code | 0x80u)),
        nan_code(set<std::uint8_t>(plan.nan_code)),
        nan_sign_mask(set<std::uint8_t>(plan.nan_sign_mask)),
        sign_mask(set<std::uint8_t>(plan.sign_mask)),
        sign_shift(std::countl_zero(plan.sign_mask)),
        no_negative_zero(plan.no_negative_zero) {}
};

/// NaN becomes `for_nan`.
HWY_INLINE I32 replace_nan(const NearestConstants& c, I32 magnitude) {
  return as<std::int32_t>(max_or_second(as<float>(magnitude), c.for_nan));
}

/// 256 times the magnitude code, above every number's where that overflows; NaN has code -1.
template <typename Form>
HWY_INLINE I32 nearest_words(const NearestConstants& c, I32 unscaled, I32 magnitude) {
  if constexpr (Form::kSmallNumbers == SmallNumbers::raised) {
    const I32 lower =
        hn::IfThenElse(hn::Gt(unscaled, c.before_nonzero), c.min_normal, c.lower_for_zero);
    const I32 raised = replace_nan(c, hn::Max(magnitude, lower));
    I32 sum = hn::Add(raised, c.tie_term);
    if constexpr (!Form::kPlain || Form::kStatistics == GatherStatistics::all)
      sum = hn::And(sum, c.code_mask);
    return hn::ShiftRightSame(sum, c.tie_shift);
  }
  if constexpr (Form::kSmallNumbers == SmallNumbers::flushed)
    magnitude = hn::IfThenElseZero(hn::Gt(magnitude, c.before_min_normal), magnitude);
  if constexpr (!Form::kBounded) magnitude = replace_nan(c, magnitude);
  const I32 normal = hn::Max(magnitude, c.min_normal);
  const F32 binade = as<float>(hn::And(normal, set<std::int32_t>(0x7f800000)));
  const F32 sum = hn::MulAdd(binade, c.magic, as<float>(magnitude));
  return weigh_words(as<std::int16_t>(sum), c.weights);
}

/// Where narrow formats have their sign, and none for FNUZ zeros.
HWY_INLINE U8 adjust_signs(const NearestConstants& c, U8 magnitude, U8 sign) {
  const U16 shifted = hn::ShiftRightSame(as<std::uint16_t>(sign), c.sign_shift);
  sign = hn::And(as<std::uint8_t>(shifted), c.sign_mask);
  if (!c.no_negative_zero) return sign;
  return hn::IfThenZeroElse(hn::Eq(magnitude, zeros<std::uint8_t>()), sign);
}

/// Codes from magnitude codes, of which those of NaN, and of FNUZ's overflow, are negative, and
/// from bytes with the signs.
template <typename Form>
HWY_INLINE U8 add_signs(const NearestConstants& c, U8 magnitude, U8 sign) {
  const U8 top = set<std::uint8_t>(0x80);
  if constexpr (Form::kPlain) {
    // NaN that has no sign comes with the top bit set, and gets it flipped whatever its sign.
    if constexpr (!Form::kBounded) {
      magnitude = hn::Min(magnitude, c.nan_limit);
      sign = hn::Or(sign, magnitude);
    }
    return hn::Xor(magnitude, hn::And(sign, top));
  }
  sign = adjust_signs(c, magnitude, hn::And(sign, top));
  const U8 code = hn::Or(magnitude, sign);
  if constexpr (Form::kBounded) return code;
  const U8 nan_code = hn::Xor(hn::And(sign, c.nan_sign_mask), c.nan_code);
  return as<std::uint8_t>(hn::IfNegativeThenElse(as<std::int8_t>(magnitude),
                                                 as<std::int8_t>(nan_code), as<std::int8_t>(code)));
}

/// Counts lanes: where masks are vectors, in bytes, 255 of them before these must widen.
class LaneCounter {
 public:
#if FP8LAB_HAS_MASKS
  template <class D>
  HWY_INLINE void add(D d, hn::Mask<D> mask) {
    total_ += hn::CountTrue(d, mask);
  }
  HWY_INLINE void add_words(hn::Mask<Tag<std::int16_t>> a, hn::Mask<Tag<std::int16_t>> b) {
    add(Tag<std::int16_t>(), a);
    add(Tag<std::int16_t>(), b);
  }
  HWY_INLINE void widen() {}
  [[nodiscard]] std::uint64_t total() const { return total_; }

 private:
  std::uint64_t total_ = 0;
#else
  HWY_INLINE LaneCounter() : narrow_(zeros<std::uint8_t>()), wide_(zeros<std::uint64_t>()) {}
  template <class D>
  HWY_INLINE void add(D d, hn::Mask<D> mask) {
    narrow_ = hn::Sub(narrow_, as<std::uint8_t>(hn::VecFromMask(d, mask)));
  }
  HWY_INLINE void add_words(hn::Mask<Tag<std::int16_t>> a, hn::Mask<Tag<std::int16_t>> b) {
    const Tag<std::int16_t> d;
    narrow_ = hn::Sub(narrow_,
                      as<std::uint8_t>(join_bytes(hn::VecFromMask(d, a), hn::VecFromMask(d, b))));
  }
  HWY_INLINE void widen() {
    wide_ = hn::Add(wide_, hn::SumsOf8(narrow_));
    narrow_ = zeros<std::uint8_t>();
  }
  [[nodiscard]] std::uint64_t total() const {
    const Tag<std::uint64_t> d;
    return hn::GetLane(hn::SumOfLanes(d, hn::Add(wide_, hn::SumsOf8(narrow_))));
  }

 private:
  U8 narrow_;
  U64 wide_;
#endif
};

struct NearestCounts {
  /// Added to magnitudes, it makes those of NaN negative.
  static constexpr std::uint32_t kNanWraps = 0x007fffff;

  I32 amax;
  LaneCounter over;
  LaneCounter small;  ///< not zeros
  LaneCounter nan;
  int room = 255;  ///< blocks until the counters are full

  HWY_INLINE NearestCounts() : amax(set<std::int32_t>(kNanWraps)) {}

  HWY_INLINE void add_magnitude(I32 unscaled) {
    amax = hn::Max(amax, hn::Add(unscaled, set<std::int32_t>(kNanWraps)));
  }
  HWY_INLINE void add_codes(I8 zero_inputs, I8 codes) {
    const Tag<std::int8_t> d;
    const I8 none = zeros<std::int8_t>();
    small.add(d, hn::AndNot(hn::Eq(zero_inputs, none), hn::Eq(codes, none)));
    nan.add(d, hn::Eq(codes, set<std::int8_t>(0xff)));
    if (--room == 0) widen();
  }
  HWY_INLINE void widen() {
    over.widen();
    small.widen();
    nan.widen();
    room = 255;
  }
  [[nodiscard]] float largest() const {
    return max_lanes(hn::Sub(amax, set<std::int32_t>(kNanWraps)));
  }
};

/// A block between its two stages.
struct NearestStage {
  I16 words[2];    ///< 256 times the magnitude codes, saturated (see join_words)
  I8 zero_inputs;  ///< where the bytes are 0, for statistics
};

/// Sets `signs` to values with the signs of the products.
template <typename Form, typename Factor>
HWY_INLINE NearestStage nearest_begin(const NearestConstants& c, const Factor& factor,
                                      const Block& block, Block& signs, NearestCounts& counts) {
  const I32 no_sign = set<std::int32_t>(0x7fffffff);
  I32 unscaled[4];
  I32 wide[4];
  signs = block;
  for (std::size_t v = 0; v < 4; ++v) {
    unscaled[v] = hn::And(as<std::int32_t>(block.values[v]), no_sign);
    I32 product;
    if constexpr (Form::kBounded) {
      // No factor is negative. The sign is the same under every factor.
      product = as<std::int32_t>(factor.apply(as<float>(unscaled[v]), v));
    } else {
      signs.values[v] = factor.apply(block.values[v], v);
      product = hn::And(as<std::int32_t>(signs.values[v]), no_sign);
    }
    wide[v] = nearest_words<Form>(c, Factor::kManyScales ? product : unscaled[v], product);
    if constexpr (Form::kStatistics != GatherStatistics::none) counts.add_magnitude(unscaled[v]);
  }
  constexpr bool kAll = Form::kStatistics == GatherStatistics::all;
  return {{join_words(wide[0], wide[1]), join_words(wide[2], wide[3])},
          kAll ? pack_bytes(unscaled) : zeros<std::int8_t>()};
}

template <typename Form>
HWY_INLINE U8 nearest_end(const NearestConstants& c, const NearestStage& stage, const Block& signs,
                          NearestCounts& counts) {
  I16 low = stage.words[0];
  I16 high = stage.words[1];
  if constexpr (!Form::kPlain && !Form::kBounded) {
    low = hn::Add(low, c.overflow_wraps);
    high = hn::Add(high, c.overflow_wraps);
  }
  I8 magnitude = join_bytes(hn::ShiftRight<8>(low), hn::ShiftRight<8>(high));
  if constexpr (!Form::kBounded) magnitude = hn::Min(magnitude, c.overflow_code);
  if constexpr (Form::kStatistics == GatherStatistics::all) {
    counts.over.add_words(hn::Gt(stage.words[0], c.last_word), hn::Gt(stage.words[1], c.last_word));
    counts.add_codes(stage.zero_inputs, magnitude);
  }
  const U8 code =
      add_signs<Form>(c, as<std::uint8_t>(magnitude), as<std::uint8_t>(pack_bytes(signs)));
  return in_order<4>(code);
}

template <typename Form, typename Factor>
HWY_INLINE U8 nearest_block(const NearestConstants& c, const Factor& factor, const Block& block,
                            NearestCounts& counts) {
  Block signs = block;
  const NearestStage stage = nearest_begin<Form>(c, factor, block, signs, counts);
  return nearest_end<Form>(c, stage, signs, counts);
}

/// Encodes consecutive blocks under one factor: `put(in, codes)` takes the codes of each. A block
/// ends beside the beginning of the next one: whole, it is a chain of which the processor's window
/// holds too few.
template <typename Form, typename Put>
HWY_INLINE void nearest_blocks(const NearestConstants& c, const float* in, std::size_t blocks,
                               NearestCounts& counts, const Put& put) {
  if (blocks == 0) return;
  const CallFactor<Form::kScaled> factor(c.scale);
  Block products = load_block(in);  // their signs are those of the input
  NearestStage stage = nearest_begin<Form>(c, factor, load_block(in), products, counts);
  for (std::size_t i = 1; i < blocks; ++i, in += kBlock) {
    const NearestStage next =
        nearest_begin<Form>(c, factor, load_block(in + kBlock), products, counts);
    put(in, nearest_end<Form>(c, stage, load_block(in), counts));
    stage = next;
  }
  put(in, nearest_end<Form>(c, stage, load_block(in), counts));
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::cast_kernels
HWY_AFTER_NAMESPACE();
#endif  // FP8LAB_HAS_CAST_KERNELS
#endif  // once for each target

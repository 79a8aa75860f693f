// Philox4x32-10 in the lanes, with the words of core/random.cpp, and the cut of significands that
// its draws decide; included once for each target.

#include <algorithm>
#include <cstdint>

#include "fp8lab/cast/kernels/vector-inl.hpp"

#if defined(FP8LAB_CAST_PHILOX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FP8LAB_CAST_PHILOX_INL
#undef FP8LAB_CAST_PHILOX_INL
#else
#define FP8LAB_CAST_PHILOX_INL
#endif

#if FP8LAB_HAS_CAST_KERNELS
HWY_BEFORE_NAMESPACE();
namespace fp8lab::cast_kernels {
namespace HWY_NAMESPACE {

// 64-bit lanes.

HWY_INLINE U32 multiply_lower_halves(U32 a, U32 b) { return as<std::uint32_t>(hn::MulEven(a, b)); }
HWY_INLINE U32 upper_halves(U32 v) {
  return as<std::uint32_t>(hn::ShiftRight<32>(as<std::uint64_t>(v)));
}
/// Upper halves become zero.
HWY_INLINE U32 only_lower_halves(U32 v) { return hn::OddEven(zeros<std::uint32_t>(), v); }
HWY_INLINE U32 set_halves(std::uint32_t lower, std::uint32_t upper) {
  return as<std::uint32_t>(hn::Set(Tag<std::uint64_t>(), std::uint64_t{upper} << 32 | lower));
}
HWY_INLINE void interleave(U32 a, U32 b, U32& first, U32& second) {
  const Tag<std::uint64_t> d;
  first = as<std::uint32_t>(hn::InterleaveLower(d, as<std::uint64_t>(a), as<std::uint64_t>(b)));
  second = as<std::uint32_t>(hn::InterleaveUpper(d, as<std::uint64_t>(a), as<std::uint64_t>(b)));
}
/// Consecutive numbers in the order that `interleave` undoes.
HWY_INLINE U32 counters(std::uint64_t first) {
  constexpr std::size_t kCount = kLanes / 2;
  std::array<std::uint64_t, kCount> order;
  for (std::size_t i = 0; i < kCount; ++i) order[i] = first + i / 2 + i % 2 * (kCount / 2);
  return as<std::uint32_t>(hn::LoadU(Tag<std::uint64_t>(), order.data()));
}

/// Draws of consecutive indices, four vectors at a time. Each 64-bit lane holds one counter, its
/// words in lower halves, where `multiply_lower_halves` wants them. With s and f for the products
/// of c2 and c0, a round is
///   c0' = upper(s) ^ c1 ^ key0,  c1' = lower(s),  c2' = upper(f) ^ c3 ^ key1,  c3' = lower(f).
/// The lower half of a product meets the next round's key and the upper half this round's, so one
/// exclusive or of both halves brings in the keys of two rounds, and every other round needs none.
/// What the first two rounds make of stream and upper counter word is the same for 2^32 counters.
class Philox {
 public:
  static constexpr std::size_t kDraws = 4 * kLanes;
  static constexpr std::size_t kSets = 2;     ///< of half as many counters as lanes
  static constexpr std::uint32_t kPairs = 4;  ///< of rounds, after the first two

  /// For draws from `counter` on.
  HWY_INLINE Philox(const RandomStream& random, std::uint64_t counter)
      : seed_(random.seed()), stream_(random.stream()), counter_(counter) {
    multipliers_[0] = opaque_words(0xd2511f53u);
    multipliers_[1] = opaque_words(0xcd9e8d57u);
    step_ = opaque_words(kLanes);
    const U32 product = multiply_lower_halves(set_words(low(stream_)), multipliers_[1]);
    third_ = set_words(high(stream_) ^ key(0, 1));
    first_ = hn::Xor(product, set_words(key(1, 0)));
    for (std::uint32_t i = 0; i < kPairs; ++i)
      for (std::uint32_t word = 0; word < 2; ++word)
        keys_[i][word] = set_halves(key(2 * i + 3, word), key(2 * i + 2, word));
  }

  /// Sets of counters on their way through the rounds.
  struct Rounds {
    HWY_INLINE Rounds() {}  // one that the compiler adds would not have the target's instructions
    U32 c0[kSets];
    U32 c2[kSets];
    U32 s[kSets];  ///< the products of the round before, whose lower halves are c1 and c3
    U32 f[kSets];
  };

  // A block of draws in six steps, so that other work can stand between them.

  /// The first two rounds of the next draws.
  HWY_INLINE void begin(Rounds& r) {
    if (prepared_ == 0) prepare();
    --prepared_;
    counter_ += kLanes;
    for (std::size_t i = 0; i < kSets; ++i) {
      const U32 product = multiply_lower_halves(counters_[i], multipliers_[0]);
      counters_[i] = hn::Add(counters_[i], step_);
      const U32 c2 = hn::Xor(upper_halves(product), third_);
      r.s[i] = multiply_lower_halves(c2, multipliers_[1]);
      r.f[i] = second_[i];
      r.c0[i] = hn::Xor(upper_halves(r.s[i]), first_);
      r.c2[i] = hn::Xor(product, second_upper_[i]);
    }
  }

  /// Two more; to be called with 0, 1, 2, 3.
  template <std::uint32_t kPair>
  HWY_INLINE void two_rounds(Rounds& r) const {
    for (std::size_t i = 0; i < kSets; ++i) {
      const U32 s = hn::Xor(multiply_lower_halves(r.c2[i], multipliers_[1]), keys_[kPair][0]);
      const U32 f = hn::Xor(multiply_lower_halves(r.c0[i], multipliers_[0]), keys_[kPair][1]);
      r.c0[i] = hn::Xor(upper_halves(s), r.s[i]);
      r.c2[i] = hn::Xor(upper_halves(f), r.f[i]);
      r.s[i] = multiply_lower_halves(r.c2[i], multipliers_[1]);
      r.f[i] = multiply_lower_halves(r.c0[i], multipliers_[0]);
      if constexpr (kPair + 1 < kPairs) {
        r.c0[i] = hn::Xor(upper_halves(r.s[i]), s);
        r.c2[i] = hn::Xor(upper_halves(r.f[i]), f);
      } else {
        // The four words in order: c0 below c1, c2 below c3.
        r.s[i] = hn::Xor(hn::Shuffle2301(r.s[i]), only_lower_halves(s));
        r.f[i] = hn::Xor(hn::Shuffle2301(r.f[i]), only_lower_halves(f));
      }
    }
  }

  /// The draws, in order.
  static HWY_INLINE void finish(const Rounds& r, U32 (&words)[4]) {
    for (std::size_t i = 0; i < kSets; ++i)
      interleave(r.s[i], r.f[i], words[2 * i], words[2 * i + 1]);
  }

  /// All steps.
  HWY_INLINE void draw(U32 (&words)[4]) {
    Rounds rounds;
    begin(rounds);
    two_rounds<0>(rounds);
    two_rounds<1>(rounds);
    two_rounds<2>(rounds);
    two_rounds<3>(rounds);
    finish(rounds, words);
  }

 private:
  static HWY_INLINE std::uint32_t low(std::uint64_t v) { return static_cast<std::uint32_t>(v); }
  static HWY_INLINE std::uint32_t high(std::uint64_t v) { return low(v >> 32); }
  [[nodiscard]] HWY_INLINE std::uint32_t key(std::uint32_t round, std::uint32_t word) const {
    return word == 0 ? low(seed_) + round * 0x9e3779b9u : high(seed_) + round * 0xbb67ae85u;
  }

  /// The part of the first two rounds that hangs on the upper words of the next counters.
  HWY_INLINE void prepare() {
    const std::uint64_t same_upper_word = ((std::uint64_t{1} << 32) - low(counter_)) / kLanes;
    prepared_ = std::max<std::uint64_t>(same_upper_word, 1);
    const U32 product = multiply_lower_halves(set_words(low(stream_)), multipliers_[1]);
    const U32 keyed = hn::Xor(upper_halves(product), set_words(key(0, 0)));
    for (std::size_t i = 0; i < kSets; ++i) {
      counters_[i] = counters(counter_ + i * kLanes / 2);
      const U32 c0 = hn::Xor(keyed, upper_halves(counters_[i]));
      second_[i] = multiply_lower_halves(c0, multipliers_[0]);
      second_upper_[i] = hn::Xor(upper_halves(second_[i]), set_words(key(1, 1)));
    }
  }

  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t counter_;       ///< the next block's first
  std::uint64_t prepared_ = 0;  ///< blocks for which the result of `prepare` holds
  U32 counters_[kSets];         ///< the next block's; only lower halves count on
  U32 multipliers_[2];
  U32 step_;                 ///< from block to block of `counters_`
  U32 third_;                ///< joins c2 after the first round
  U32 first_;                ///< joins c0 after the second round
  U32 second_[kSets];        ///< f of the second round
  U32 second_upper_[kSets];  ///< its upper half and key: joins c2 after the second round
  U32 keys_[kPairs][2];
};

/// The significand without its `dropped` bits, and one more where these, as a fraction of 32 bits,
/// carry when `random` is added. Shifts by 32 or more, also by negative counts, give zero: up to 31
/// bits the sum is cut in place, with 32 or more the code is the carry of a fraction of at most 24
/// bits, and the other one of the two is zero.
HWY_INLINE U32 cut_stochastically(U32 significand, U32 dropped, U32 random,
                                  U32 width = set_words(32)) {
  const U32 sum = hn::Add(significand, shift_right_or_zero(random, hn::Sub(width, dropped)));
  const U32 fraction = shift_right_or_zero(significand, hn::Sub(dropped, width));
  const U32 carry = hn::AndNot(hn::Add(random, fraction), random);
  return hn::Add(shift_right_or_zero(sum, dropped), hn::ShiftRight<31>(carry));
}

}  // namespace HWY_NAMESPACE
}  // namespace fp8lab::cast_kernels
HWY_AFTER_NAMESPACE();
#endif  // FP8LAB_HAS_CAST_KERNELS
#endif  // once for each target

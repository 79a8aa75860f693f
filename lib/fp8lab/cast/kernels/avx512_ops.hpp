// The vector operations of AVX-512 (F, BW, DQ, VL) under the names that the shared kernels
// use. Included inside a target region.

namespace fp8lab::cast_kernels {
namespace {

struct Ops {
  using U32 = __m512i;
  using Mask = __mmask16;
  static constexpr std::size_t kLanes = 16;

  static FP8LAB_INLINE U32 load(const void* from) { return _mm512_loadu_si512(from); }
  static FP8LAB_INLINE void store(void* to, U32 v) { _mm512_storeu_si512(to, v); }
  static FP8LAB_INLINE U32 set1(std::uint32_t v) { return _mm512_set1_epi32(static_cast<int>(v)); }
  static FP8LAB_INLINE U32 bit_and(U32 a, U32 b) { return _mm512_and_si512(a, b); }
  static FP8LAB_INLINE U32 bit_or(U32 a, U32 b) { return _mm512_or_si512(a, b); }
  static FP8LAB_INLINE U32 bit_xor(U32 a, U32 b) { return _mm512_xor_si512(a, b); }
  static FP8LAB_INLINE U32 add(U32 a, U32 b) { return _mm512_add_epi32(a, b); }
  static FP8LAB_INLINE U32 sub(U32 a, U32 b) { return _mm512_sub_epi32(a, b); }
  static FP8LAB_INLINE U32 min(U32 a, U32 b) { return _mm512_min_epu32(a, b); }
  static FP8LAB_INLINE U32 max(U32 a, U32 b) { return _mm512_max_epu32(a, b); }
  template <int kBits>
  static FP8LAB_INLINE U32 shift_right(U32 a) {
    return _mm512_srli_epi32(a, kBits);
  }
  static FP8LAB_INLINE U32 shift_left(U32 a, U32 bits) { return _mm512_sllv_epi32(a, bits); }
  static FP8LAB_INLINE U32 shift_right(U32 a, U32 bits) { return _mm512_srlv_epi32(a, bits); }
  static FP8LAB_INLINE U32 multiply(U32 a, float b) {
    return _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(a), _mm512_set1_ps(b)));
  }

  static FP8LAB_INLINE U32 to_float(U32 a) { return _mm512_castps_si512(_mm512_cvtepi32_ps(a)); }
  static FP8LAB_INLINE U32 load_bytes(const std::uint8_t* from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }

  static FP8LAB_INLINE Mask greater(U32 a, U32 b) { return _mm512_cmpgt_epu32_mask(a, b); }
  static FP8LAB_INLINE Mask equal(U32 a, U32 b) { return _mm512_cmpeq_epi32_mask(a, b); }
  static FP8LAB_INLINE Mask no_lanes() { return 0; }
  static FP8LAB_INLINE Mask either(Mask a, Mask b) { return _kor_mask16(a, b); }
  static FP8LAB_INLINE Mask both(Mask a, Mask b) { return _kand_mask16(a, b); }
  static FP8LAB_INLINE Mask but_not(Mask a, Mask b) { return _kandn_mask16(b, a); }
  static FP8LAB_INLINE U32 select(Mask mask, U32 yes, U32 no) {
    return _mm512_mask_mov_epi32(no, mask, yes);
  }
  /// `counts` plus one in each lane of `mask`.
  static FP8LAB_INLINE U32 count(U32 counts, Mask mask) {
    return _mm512_mask_sub_epi32(counts, mask, counts, _mm512_set1_epi32(-1));
  }

  /// Four vectors of codes below 256 as bytes, in order.
  static FP8LAB_INLINE void store_bytes(void* to, U32 a, U32 b, U32 c, U32 d) {
    const U32 order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const U32 packed = _mm512_packus_epi16(_mm512_packus_epi32(a, b), _mm512_packus_epi32(c, d));
    store(to, _mm512_permutexvar_epi32(order, packed));
  }
  /// Two vectors of codes below 65536 as 16-bit words, in order.
  static FP8LAB_INLINE void store_words(void* to, U32 a, U32 b) {
    const U32 order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    store(to, _mm512_permutexvar_epi64(order, _mm512_packus_epi32(a, b)));
  }

  /// Both halves of the 64-bit products.
  static FP8LAB_INLINE void multiply_wide(U32 a, U32 b, U32& high, U32& low) {
    const U32 even = _mm512_mul_epu32(a, b);
    const U32 odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
    high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd);
    low = _mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32));
  }
  /// Position p holds the counter whose four words `store_draws` puts in order.
  static FP8LAB_INLINE U32 counter_offsets() {
    return _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  }
  static FP8LAB_INLINE void store_draws(std::uint32_t* to, U32 a, U32 b, U32 c, U32 d) {
    const U32 ab_low = _mm512_unpacklo_epi32(a, b);
    const U32 ab_high = _mm512_unpackhi_epi32(a, b);
    const U32 cd_low = _mm512_unpacklo_epi32(c, d);
    const U32 cd_high = _mm512_unpackhi_epi32(c, d);
    store(to, _mm512_unpacklo_epi64(ab_low, cd_low));
    store(to + 16, _mm512_unpackhi_epi64(ab_low, cd_low));
    store(to + 32, _mm512_unpacklo_epi64(ab_high, cd_high));
    store(to + 48, _mm512_unpackhi_epi64(ab_high, cd_high));
  }
};

}  // namespace
}  // namespace fp8lab::cast_kernels

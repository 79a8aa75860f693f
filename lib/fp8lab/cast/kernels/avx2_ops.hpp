// The vector operations of AVX2 under the names that the shared kernels use. Included inside a
// target region.

namespace fp8lab::cast_kernels {
namespace {

struct Ops {
  using U32 = __m256i;
  using Mask = __m256i;
  static constexpr std::size_t kLanes = 8;

  static FP8LAB_INLINE U32 load(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  static FP8LAB_INLINE void store(void* to, U32 v) {
    _mm256_storeu_si256(static_cast<__m256i*>(to), v);
  }
  static FP8LAB_INLINE U32 set1(std::uint32_t v) { return _mm256_set1_epi32(static_cast<int>(v)); }
  static FP8LAB_INLINE U32 bit_and(U32 a, U32 b) { return _mm256_and_si256(a, b); }
  static FP8LAB_INLINE U32 bit_or(U32 a, U32 b) { return _mm256_or_si256(a, b); }
  static FP8LAB_INLINE U32 bit_xor(U32 a, U32 b) { return _mm256_xor_si256(a, b); }
  static FP8LAB_INLINE U32 add(U32 a, U32 b) { return _mm256_add_epi32(a, b); }
  static FP8LAB_INLINE U32 sub(U32 a, U32 b) { return _mm256_sub_epi32(a, b); }
  static FP8LAB_INLINE U32 min(U32 a, U32 b) { return _mm256_min_epu32(a, b); }
  static FP8LAB_INLINE U32 max(U32 a, U32 b) { return _mm256_max_epu32(a, b); }
  template <int kBits>
  static FP8LAB_INLINE U32 shift_right(U32 a) {
    return _mm256_srli_epi32(a, kBits);
  }
  static FP8LAB_INLINE U32 shift_left(U32 a, U32 bits) { return _mm256_sllv_epi32(a, bits); }
  static FP8LAB_INLINE U32 shift_right(U32 a, U32 bits) { return _mm256_srlv_epi32(a, bits); }
  static FP8LAB_INLINE U32 multiply(U32 a, float b) {
    return _mm256_castps_si256(_mm256_mul_ps(_mm256_castsi256_ps(a), _mm256_set1_ps(b)));
  }

  static FP8LAB_INLINE U32 to_float(U32 a) { return _mm256_castps_si256(_mm256_cvtepi32_ps(a)); }
  static FP8LAB_INLINE U32 load_bytes(const std::uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }

  static FP8LAB_INLINE Mask greater(U32 a, U32 b) {
    const U32 top = _mm256_set1_epi32(INT32_MIN);
    return _mm256_cmpgt_epi32(_mm256_xor_si256(a, top), _mm256_xor_si256(b, top));
  }
  static FP8LAB_INLINE Mask equal(U32 a, U32 b) { return _mm256_cmpeq_epi32(a, b); }
  static FP8LAB_INLINE Mask no_lanes() { return _mm256_setzero_si256(); }
  static FP8LAB_INLINE Mask either(Mask a, Mask b) { return _mm256_or_si256(a, b); }
  static FP8LAB_INLINE Mask both(Mask a, Mask b) { return _mm256_and_si256(a, b); }
  static FP8LAB_INLINE Mask but_not(Mask a, Mask b) { return _mm256_andnot_si256(b, a); }
  static FP8LAB_INLINE U32 select(Mask mask, U32 yes, U32 no) {
    return _mm256_blendv_epi8(no, yes, mask);
  }
  /// `counts` plus one in each lane of `mask`.
  static FP8LAB_INLINE U32 count(U32 counts, Mask mask) { return _mm256_sub_epi32(counts, mask); }

  /// Four vectors of codes below 256 as bytes, in order.
  static FP8LAB_INLINE void store_bytes(void* to, U32 a, U32 b, U32 c, U32 d) {
    const U32 order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const U32 packed = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
    store(to, _mm256_permutevar8x32_epi32(packed, order));
  }
  /// Two vectors of codes below 65536 as 16-bit words, in order.
  static FP8LAB_INLINE void store_words(void* to, U32 a, U32 b) {
    store(to, _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8));
  }

  /// Both halves of the 64-bit products.
  static FP8LAB_INLINE void multiply_wide(U32 a, U32 b, U32& high, U32& low) {
    const U32 even = _mm256_mul_epu32(a, b);
    const U32 odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
    high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  }
  /// Position p holds the counter whose four words `store_draws` puts in order.
  static FP8LAB_INLINE U32 counter_offsets() { return _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7); }
  static FP8LAB_INLINE void store_draws(std::uint32_t* to, U32 a, U32 b, U32 c, U32 d) {
    const U32 ab_low = _mm256_unpacklo_epi32(a, b);
    const U32 ab_high = _mm256_unpackhi_epi32(a, b);
    const U32 cd_low = _mm256_unpacklo_epi32(c, d);
    const U32 cd_high = _mm256_unpackhi_epi32(c, d);
    store(to, _mm256_unpacklo_epi64(ab_low, cd_low));
    store(to + 8, _mm256_unpackhi_epi64(ab_low, cd_low));
    store(to + 16, _mm256_unpacklo_epi64(ab_high, cd_high));
    store(to + 24, _mm256_unpackhi_epi64(ab_high, cd_high));
  }
};

}  // namespace
}  // namespace fp8lab::cast_kernels

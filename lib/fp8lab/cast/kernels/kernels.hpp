#pragma once
// What the kernels of every target share: a plan (the constants of one cast, derived from the
// scalar reference), a task (one thread's part of it), and the table of entry points.

#include <cstddef>
#include <cstdint>

#include "fp8lab/cast/encode.hpp"

namespace fp8lab::cast_kernels {

/// The policies that have a kernel of their own, by what happens below min normal.
enum class SmallNumbers : std::uint8_t {
  gradual,  ///< to nearest even, subnormals kept
  flushed,  ///< to nearest even, |x| < min normal becomes zero
  raised,   ///< to nearest, ties toward zero, 0 < |x| < min normal becomes min normal
};

/// What every kernel for signed formats of at most eight bits needs, where overflow is one more
/// step of the grid or stays at its end.
struct NarrowPlan {
  int mantissa_bits = 0;
  std::uint32_t min_field = 0;     ///< biased binary32 exponent of min normal
  std::uint32_t nonzero_from = 0;  ///< smallest binary32 magnitude whose scaled value is not zero
  std::uint8_t last_code = 0;      ///< largest code of the grid
  std::uint8_t overflow_code = 0;  ///< `last_code` or the one after it
  std::uint8_t nan_code = 0;       ///< what a positive NaN becomes
  std::uint8_t nan_sign_mask = 0;  ///< the bit that a negative NaN flips, if any
  std::uint8_t sign_mask = 0;
  bool no_negative_zero = false;
  bool overflow_is_nan = false;
};

/// Constants of the kernels for rounding to nearest. The rounding is one fused multiply-add:
/// |x| 2^-(23-M) + m, where m is the power of two at the top of x's binade (or at min
/// normal), leaves the rounded significand in the low bits of the sum.
struct NearestPlan : NarrowPlan {
  SmallNumbers small_numbers = SmallNumbers::gradual;
  float clamp = 0.0f;  ///< magnitudes above become this; it rounds to the overflow code
  float min_normal = 0.0f;
  std::uint32_t nan_above = 0;      ///< binary32 magnitudes above this become `nan_code`
  bool plain = false;               ///< eight bits wide with a negative zero: no epilogue
  std::uint32_t overflow_from = 0;  ///< smallest binary32 magnitude that overflows
};

/// Constants of the integer kernel, which serves every policy and every format of 16 bits or fewer.
struct GeneralPlan {
  std::uint32_t min_field = 0;     ///< biased binary32 exponent of the smallest normal number
  std::uint32_t field_offset = 0;  ///< 1 for scale-only formats, whose field 0 is a normal binade
  std::uint32_t last_code = 0;     ///< largest code of the grid
  std::uint32_t overflow_code = 0;
  std::uint32_t infinity_code = 0;
  std::uint32_t small_code = 0;   ///< code of magnitudes below min normal where not preserved
  std::uint32_t small_below = 0;  ///< binary32 magnitude below which `small_code` applies; 0: never
  std::uint32_t sign_shift = 0;   ///< from bit 31 to the sign bit of the code
  std::uint32_t sign_mask = 0;
  std::uint32_t nan_code = 0;
  std::uint32_t nan_sign_mask = 0;
  bool overflow_is_nan = false;  ///< and then, in FNUZ formats, it has no sign
  bool infinity_is_nan = false;
  bool no_negative_zero = false;
  bool unsigned_nan = false;  ///< zeros and negative numbers become NaN
};

/// Constants of the kernel for every rounding mode.
struct RoundingPlan : NarrowPlan {
  float past_last = 0.0f;  ///< the value that `last_code` + 1 would have; larger ones become it
  std::uint32_t small_value = 0;  ///< binary32 that small numbers become where not preserved
  bool preserves_subnormals = false;
};

/// The kernels, and which plan applies.
enum class EncodeKernel : std::uint8_t {
  nearest,
  rounding,
  general,
  scalar,  ///< the reference: formats beyond the table, and policies that no kernel has
};

struct EncodePlan {
  const Format* format = nullptr;
  CastPolicy policy;
  EncodeKernel kernel = EncodeKernel::general;
  bool ignores_subnormals = false;  ///< binary32 subnormals (of x and of x * scale) become zero
  NearestPlan nearest_plan;
  RoundingPlan rounding_plan;
  GeneralPlan general_plan;
};

/// Cheap: it stands before every call, however short. Needs rounding to nearest, with subnormals.
EncodePlan make_plan(const Format& format, const CastPolicy& policy, float scale);

struct EncodeTask {
  const EncodePlan* plan = nullptr;
  const float* in = nullptr;
  void* out = nullptr;  ///< bytes, or 16-bit words for formats wider than eight bits
  std::size_t count = 0;
  float scale = 1.0f;
  GatherStatistics statistics = GatherStatistics::none;
  const RandomStream* random = nullptr;
  std::uint64_t first_draw = 0;
  bool stream = false;  ///< write around the caches: the whole call is larger than they are
};

/// How many elements further memory is fetched meanwhile.
struct Ahead {
  std::size_t near = 0;  ///< into the first-level cache
  std::size_t far = 0;   ///< into the second-level one, by kernels where that pays (AVX-512)
};

/// Tiles are whole multiples of this many elements, or one element.
inline constexpr std::size_t kTileStep = 32;

/// One thread's part of an encode to nearest whose scale changes from tile to tile: out[i] is the
/// code of in[i] times (or divided by) factors[i / block], rounded once in the environment
/// of the caller, which keeps subnormals; a NaN product is canonical. Any factor will do.
struct TileTask {
  const EncodePlan* plan = nullptr;  ///< of scale 1, to nearest
  const float* in = nullptr;
  std::uint8_t* out = nullptr;
  std::size_t count = 0;
  /// 1, a multiple of `kTileStep`, or at least `count`.
  std::size_t block = 1;
  /// With a block of 1 and more than one element, 63 more than `count` can be read.
  const float* factors = nullptr;
  bool divide = false;
  Ahead ahead{};
  bool stream = false;  ///< write around the caches, where `out` begins on 16 bytes
};

/// One thread's part of an encode to nearest with subnormals of elements that lie in two tiles: one
/// of their row and one of their column. Each gives a code, by the rule of `TileTask`.
struct CrossTask {
  const EncodePlan* plan = nullptr;  ///< of scale 1, to nearest, gradual
  const float* in = nullptr;
  std::size_t stride = 0;  ///< elements between rows of `in`
  std::size_t rows = 0;
  std::size_t columns = 0;             ///< a multiple of `kCrossStep`
  const float* row_factors = nullptr;  ///< those of a row of tiles, then those of the next
  std::size_t block = 0;  ///< elements of a tile in a row: a multiple of `kTileStep` or >= columns
  const float* column_factors = nullptr;  ///< [columns], the same for all rows
  bool divide = false;
  /// All products are below `NearestPlan::overflow_from`, none is NaN, no factor is negative.
  bool bounded = false;
  std::uint8_t* row_codes = nullptr;
  std::size_t row_stride = 0;
  std::uint8_t* column_codes = nullptr;  ///< row-major like the others: not turned yet
  std::size_t column_stride = 0;
  const float* next = nullptr;  ///< fetched meanwhile, of the same shape
  std::size_t next_stride = 0;
  bool stream = false;  ///< write row codes around the caches, where they begin on whole vectors
};

inline constexpr std::size_t kCrossStep = 64;

struct DecodeTask {
  const Format* format = nullptr;
  const std::uint8_t* in = nullptr;
  float* out = nullptr;
  std::size_t count = 0;
  float inverse_scale = 1.0f;
  bool stream = false;
};

/// Decoding by way of FP16: a magnitude code becomes FP16 by a shift, since field 0 means the
/// same there; the conversion to binary32 then does the subnormals, and one
/// multiplication the difference of the biases together with the inverse scale. E5M2FNUZ has
/// numbers in field 31, which FP16 has not: its fields move down by one, where field 1 becomes
/// subnormal. Both cases are max((code << shift) - field_offset, code << (shift - 1)).
struct HalfPlan {
  std::uint16_t magnitude_mask = 0;
  std::uint16_t last_number = 0;  ///< magnitude codes above are NaN
  std::uint16_t lone_nan = 0;     ///< FNUZ: the code that alone is NaN; else out of reach
  std::uint16_t field_offset = 0;
  int magnitude_shift = 0;
  int sign_shift = 0;
  float factor = 1.0f;

  /// Whether no field moves and no NaN stands alone: a third of the operations less.
  [[nodiscard]] bool plain() const { return field_offset == 0 && lone_nan == 0xffff; }
};

inline constexpr std::uint16_t kHalfNan = 0x7e00;

/// Whether that way is exact: the format has a sign, and the factor does not overflow.
bool half_plan_fits(const Format& format, float inverse_scale);
HalfPlan make_half_plan(const Format& format, float inverse_scale);

// The kernels of one target, by the file that holds them.

struct NearestKernels {
  EncodeStatistics (*encode)(const EncodeTask& task);
  void (*encode_tiles)(const TileTask& task);
  void (*encode_crossed)(const CrossTask& task);
};

struct RoundingKernels {
  EncodeStatistics (*encode)(const EncodeTask& task);
  /// The 32-bit draws `first` and on of the stream.
  void (*draw)(const RandomStream& random, std::uint64_t first, std::uint32_t* out,
               std::size_t count);
};

struct GeneralKernels {
  EncodeStatistics (*encode)(const EncodeTask& task);
};

struct DecodeKernels {
  void (*decode)(const DecodeTask& task);
  /// FP16 or BF16 to binary32, exactly.
  void (*widen)(FormatId input, const std::uint16_t* in, float* out, std::size_t count);
};

// Null where the build has none for the target, as for `scalar`.
const NearestKernels* nearest_kernels(Target target);
const RoundingKernels* rounding_kernels(Target target);
const GeneralKernels* general_kernels(Target target);
const DecodeKernels* decode_kernels(Target target);

struct KernelTable {
  NearestKernels nearest;
  RoundingKernels rounding;
  GeneralKernels general;
  DecodeKernels decode;

  EncodeStatistics encode(const EncodeTask& task) const;
};

/// Of a target that is available.
const KernelTable& kernel_table(Target target);

extern const KernelTable kScalarKernels;

}  // namespace fp8lab::cast_kernels

#pragma once
// Casts of whole arrays at the speed of memory: scaling, rounding and statistics in one pass.
// Every code is that of the scalar reference in cast.hpp, for every target and number of threads.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fp8lab/cast/policy.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// The statistics that `encode` gathers. More of them take more time, but no second pass.
enum class GatherStatistics : std::uint8_t {
  none,  ///< all fields stay zero
  amax,  ///< only amax, which current and delayed scaling need
  all,
};

/// What happened to the elements of one call.
struct EncodeStatistics {
  float amax = 0.0f;              ///< largest |x| before scaling; NaN elements are ignored
  std::uint64_t overflowed = 0;   ///< rounded above max finite (saturated or not), and +-Inf
  std::uint64_t underflowed = 0;  ///< non-zero x whose code is a zero
  std::uint64_t nan = 0;          ///< NaN elements, and elements whose code became NaN

  friend bool operator==(const EncodeStatistics&, const EncodeStatistics&) = default;
  EncodeStatistics& operator+=(const EncodeStatistics& other);
};

struct EncodeOptions {
  FormatId format = FormatId::e4m3fn;
  CastPolicy policy = kNvidiaSatfinite;
  float scale = 1.0f;  ///< multiplies each element in binary32, to nearest even; finite, positive
  GatherStatistics statistics = GatherStatistics::none;
  /// Stochastic rounding only, and required there: element i uses draw `first_draw` + i.
  std::optional<RandomStream> random = {};
  std::uint64_t first_draw = 0;
  int threads = 1;                    ///< 0 means as many as OpenMP offers
  std::optional<Target> target = {};  ///< unset means `current_target()`
};

/// Writes the code of in[i] * scale to out[i], one code per byte, also for formats
/// narrower than eight bits. The format has at most eight code bits. The spans need no
/// alignment and must not overlap. Scaling rounds to nearest even and keeps subnormals;
/// `options.policy` decides overflow, Inf and NaN. The caller's floating-point environment
/// has no effect and is not changed. Throws `Error` for spans of different lengths or that
/// overlap, a wider format, a scale that is not positive and finite, a negative number of
/// threads, a target that is not available, and stochastic rounding without `random`.
EncodeStatistics encode(std::span<const float> in, std::span<std::uint8_t> out,
                        const EncodeOptions& options = {});

/// The same for FP16 or BF16 input, as `input` says. Each element is first widened exactly.
EncodeStatistics encode(std::span<const std::uint16_t> in, FormatId input,
                        std::span<std::uint8_t> out, const EncodeOptions& options = {});

/// The same for output in formats of 9 to 16 bits: FP16, BF16 and formats beyond the table.
EncodeStatistics encode(std::span<const float> in, std::span<std::uint16_t> out,
                        const EncodeOptions& options);

/// Writes the draw `first` + i of `random`, `bits32(first + i)`, to out[i]. Stochastic rounding
/// uses these draws. Throws `Error` for a target that is not available.
void draw_bits(const RandomStream& random, std::uint64_t first, std::span<std::uint32_t> out,
               const std::optional<Target>& target = {});

struct DecodeOptions {
  FormatId format = FormatId::e4m3fn;
  /// Multiplies each decoded value in binary32, to nearest even; finite, positive.
  float inverse_scale = 1.0f;
  int threads = 1;                    ///< 0 means as many as OpenMP offers
  std::optional<Target> target = {};  ///< unset means `current_target()`
};

/// Writes the value of code in[i] times inverse_scale to out[i], rounded to nearest even. A NaN
/// code gives a quiet NaN with its sign and no payload. Bits above the format's width are ignored.
/// The format has at most eight code bits, and binary32 represents its values. Alignment, overlap,
/// environment and errors: as `encode`.
void decode(std::span<const std::uint8_t> in, std::span<float> out,
            const DecodeOptions& options = {});

}  // namespace fp8lab

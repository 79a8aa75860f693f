#include "fp8lab/cast/encode.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <string>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "fp8lab/cast/kernels/kernels.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/threads.hpp"

namespace fp8lab {
namespace {

using namespace cast_kernels;

/// Rounding to nearest even with every exception masked, until the end of the scope.
class DefaultEnvironment {
 public:
#if defined(__x86_64__)
  /// `ignore_subnormals` reads and writes subnormals as zeros, which costs nothing, where an
  /// arithmetic instruction on a subnormal costs some 150 cycles.
  explicit DefaultEnvironment(bool ignore_subnormals) : saved_(_mm_getcsr()) {
    constexpr unsigned kAllMasked = 0x1f80;
    constexpr unsigned kFlushAndDenormalsAreZero = 0x8040;
    _mm_setcsr(kAllMasked | (ignore_subnormals ? kFlushAndDenormalsAreZero : 0));
  }
  ~DefaultEnvironment() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#else
  explicit DefaultEnvironment(bool) {
    std::feholdexcept(&saved_);
    std::fesetround(FE_TONEAREST);
  }
  ~DefaultEnvironment() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_{};
#endif

 public:
  DefaultEnvironment(const DefaultEnvironment&) = delete;
  DefaultEnvironment& operator=(const DefaultEnvironment&) = delete;
};

Target chosen(const std::optional<Target>& target) {
  if (!target) return current_target();
  require_available(*target);
  return *target;
}

// The checks build their messages only when they fail: short calls are common.

template <typename From, typename To>
void require_apart(std::span<const From> in, std::span<To> out) {
  if (in.size() != out.size())
    throw Error("out", "as many elements as in, " + std::to_string(in.size()),
                std::to_string(out.size()));
  const auto in_begin = std::bit_cast<std::uintptr_t>(in.data());
  const auto out_begin = std::bit_cast<std::uintptr_t>(out.data());
  const bool apart =
      in_begin + in.size_bytes() <= out_begin || out_begin + out.size_bytes() <= in_begin;
  if (!in.empty() && !apart) throw Error("out", "memory apart from in", "memory that overlaps it");
}

void require_scale(float scale, std::string_view name) {
  if (!std::isfinite(scale) || scale <= 0.0f)
    throw Error(name, "a finite, positive number", std::to_string(scale));
}

/// A thread with fewer elements would be done before it has woken.
constexpr std::size_t kElementsPerThread = 32768;
/// Parts begin on multiples of this many elements: whole pages and whole blocks.
constexpr std::size_t kPart = 4096;
/// Calls that touch more bytes than this write around the caches.
constexpr std::size_t kStreamBytes = std::size_t{4} << 20;

int thread_count(int requested, std::size_t count) {
  if (requested < 0) throw Error("threads", "0 (all) or more", std::to_string(requested));
  const std::size_t useful = count / kElementsPerThread;
  if (useful <= 1) return 1;
  return static_cast<int>(std::min(useful, static_cast<std::size_t>(team_size(requested))));
}

/// Calls `run(begin, end)` for contiguous parts of [0, count), one a thread.
template <typename Run>
void for_each_part(std::size_t count, int threads, const Run& run) {
  if (threads == 1) return run(0, count);
  const auto parts = static_cast<std::size_t>(threads);
  const std::size_t pages = (count + kPart - 1) / kPart;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t begin = std::min(count, pages * part / parts * kPart);
    const std::size_t end = std::min(count, pages * (part + 1) / parts * kPart);
    run(begin, end);
  }
}

EncodePlan checked_plan(const EncodeOptions& options, bool wide) {
  const Format& f = format(options.format);
  const bool fits = wide ? f.storage_bits == 16 : f.code_bits() <= 8;
  require(fits, "format", wide ? "a format of 9 to 16 bits" : "a format of at most eight bits",
          f.name);
  require_scale(options.scale, "scale");
  if (options.policy.rounding == RoundingMode::stochastic)
    require(options.random.has_value(), "random", "a stream for stochastic rounding", "none");
  const DefaultEnvironment environment(false);
  return make_plan(f, options.policy, options.scale);
}

EncodeStatistics encode_task(const KernelTable& kernels, const EncodeTask& task,
                             bool ignore_subnormals) {
  const DefaultEnvironment environment(ignore_subnormals);
  return kernels.encode(task);
}

/// Encodes `count` elements from `first` on by way of `read(first, count)`, which gives binary32.
template <typename Code, typename Read>
EncodeStatistics encode_with(const EncodeOptions& options, std::size_t count, Code* out,
                             std::size_t chunk, std::size_t bytes, const Read& read) {
  const EncodePlan plan = checked_plan(options, sizeof(Code) == 2);
  const Target target = chosen(options.target);
  const KernelTable& kernels = kernel_table(target);
  const int threads = thread_count(options.threads, count);
  const bool ignore_subnormals = plan.ignores_subnormals && target != Target::scalar;
  const auto run = [&](std::size_t begin, std::size_t end) {
    EncodeStatistics part;
    for (std::size_t at = begin; at < end; at += std::min(chunk, end - at)) {
      const std::size_t length = std::min(chunk, end - at);
      const EncodeTask task{.plan = &plan,
                            .in = read(kernels, at, length),
                            .out = out + at,
                            .count = length,
                            .scale = options.scale,
                            .statistics = options.statistics,
                            .random = options.random ? &*options.random : nullptr,
                            .first_draw = options.first_draw + at,
                            .stream = bytes > kStreamBytes};
      // The sum is outside the environment: it compares amaxes, which may be subnormal.
      part += encode_task(kernels, task, ignore_subnormals);
    }
    return part;
  };
  if (threads == 1) return run(0, count);
  EncodeStatistics statistics;
  for_each_part(count, threads, [&](std::size_t begin, std::size_t end) {
    const EncodeStatistics part = run(begin, end);
#pragma omp critical(fp8lab_encode_statistics)
    statistics += part;
  });
  return statistics;
}

}  // namespace

EncodeStatistics& EncodeStatistics::operator+=(const EncodeStatistics& other) {
  amax = std::max(amax, other.amax);
  overflowed += other.overflowed;
  underflowed += other.underflowed;
  nan += other.nan;
  return *this;
}

EncodeStatistics encode(std::span<const float> in, std::span<std::uint8_t> out,
                        const EncodeOptions& options) {
  require_apart(in, out);
  return encode_with(
      options, in.size(), out.data(), std::max<std::size_t>(in.size(), 1),
      in.size_bytes() + out.size_bytes(),
      [&](const KernelTable&, std::size_t at, std::size_t) { return in.data() + at; });
}

EncodeStatistics encode(std::span<const float> in, std::span<std::uint16_t> out,
                        const EncodeOptions& options) {
  require_apart(in, out);
  return encode_with(
      options, in.size(), out.data(), std::max<std::size_t>(in.size(), 1),
      in.size_bytes() + out.size_bytes(),
      [&](const KernelTable&, std::size_t at, std::size_t) { return in.data() + at; });
}

EncodeStatistics encode(std::span<const std::uint16_t> in, FormatId input,
                        std::span<std::uint8_t> out, const EncodeOptions& options) {
  require(input == FormatId::f16 || input == FormatId::bf16, "input", "f16 or bf16",
          format(input).name);
  require_apart(in, out);
  const auto widened = [&](const KernelTable& kernels, std::size_t at, std::size_t length) {
    alignas(64) thread_local std::array<float, kPart> values;
    kernels.decode.widen(input, in.data() + at, values.data(), length);
    return static_cast<const float*>(values.data());
  };
  return encode_with(options, in.size(), out.data(), kPart, in.size_bytes() + out.size_bytes(),
                     widened);
}

void draw_bits(const RandomStream& random, std::uint64_t first, std::span<std::uint32_t> out,
               const std::optional<Target>& target) {
  kernel_table(chosen(target)).rounding.draw(random, first, out.data(), out.size());
}

void decode(std::span<const std::uint8_t> in, std::span<float> out, const DecodeOptions& options) {
  require_apart(in, out);
  const Format& f = format(options.format);
  require(f.code_bits() <= 8, "format", "a format of at most eight bits", f.name);
  require(f.fits_binary32(), "format", "a format whose values binary32 represents", f.name);
  require_scale(options.inverse_scale, "inverse_scale");
  const KernelTable& kernels = kernel_table(chosen(options.target));
  const bool stream = in.size_bytes() + out.size_bytes() > kStreamBytes;
  for_each_part(in.size(), thread_count(options.threads, in.size()),
                [&](std::size_t begin, std::size_t end) {
                  const DefaultEnvironment environment(false);
                  kernels.decode.decode({.format = &f,
                                         .in = in.data() + begin,
                                         .out = out.data() + begin,
                                         .count = end - begin,
                                         .inverse_scale = options.inverse_scale,
                                         .stream = stream});
                });
}

}  // namespace fp8lab

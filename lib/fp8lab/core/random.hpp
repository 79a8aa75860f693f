#pragma once
// Counter-based random streams (Philox4x32-10, Salmon et al. 2011): every draw
// is a pure function of (seed, stream, index), so results depend on neither
// the order of evaluation nor the number of threads.

#include <array>
#include <cstdint>
#include <string_view>

namespace fp8lab {

/// One stream of draws. It has no state except its key, so copies are cheap.
class RandomStream {
 public:
  /// `stream` separates independent uses of one seed.
  constexpr RandomStream(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  /// The stream called `name` of `seed` (64-bit FNV-1a of the name).
  constexpr RandomStream(std::uint64_t seed, std::string_view name)
      : RandomStream(seed, hash(name)) {}

  [[nodiscard]] constexpr std::uint64_t seed() const { return seed_; }
  [[nodiscard]] constexpr std::uint64_t stream() const { return stream_; }

  /// The four 32-bit words of counter `index`.
  [[nodiscard]] std::array<std::uint32_t, 4> block(std::uint64_t index) const;

  /// 32 uniform bits; draw `index`.
  [[nodiscard]] std::uint32_t bits32(std::uint64_t index) const {
    return block(index / 4)[index % 4];
  }

  /// 64 uniform bits; draw `index`.
  [[nodiscard]] std::uint64_t bits64(std::uint64_t index) const;

  /// Uniform on [0, 1), a multiple of 2^-53.
  [[nodiscard]] double uniform(std::uint64_t index) const;

  /// Uniform integer on [0, bound), bound > 0 (multiply-shift; bias below bound / 2^64).
  [[nodiscard]] std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;

  /// Standard normal (Box-Muller on the words of one counter; uses libm, so the
  /// last bit may depend on the C library).
  [[nodiscard]] double normal(std::uint64_t index) const;

  /// Student t with `degrees_of_freedom` (an integer >= 1), from one normal and
  /// a chi-square sum of that many normals of a sub-stream.
  [[nodiscard]] double student_t(std::uint64_t index, int degrees_of_freedom) const;

  static constexpr std::uint64_t hash(std::string_view name) {
    std::uint64_t h = 0xcbf29ce484222325u;
    for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return h;
  }

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
};

}  // namespace fp8lab

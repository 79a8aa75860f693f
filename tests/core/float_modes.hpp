#pragma once
// Floating-point modes of a caller, and jobs that must give the same bits in each.

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "catch.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/random.hpp"
#include "sweep_share.hpp"

namespace fp8lab::test {

/// A mode that a caller may run in.
struct Mode {
  const char* name;
  int rounding;
  bool flushes;
};
inline const std::vector<Mode>& modes() {
  static const std::vector<Mode> kModes{{"flush to zero", FE_TONEAREST, true},
                                        {"upward", FE_UPWARD, false},
                                        {"toward zero", FE_TOWARDZERO, false},
                                        {"downward, flush to zero", FE_DOWNWARD, true}};
  return kModes;
}

/// The control bits of this thread.
inline unsigned control() {
#if defined(__x86_64__)
  return _mm_getcsr() & 0xffc0u;
#else
  return static_cast<unsigned>(std::fegetround());
#endif
}

inline void enter(const Mode& mode) {
  std::fesetround(mode.rounding);
#if defined(__x86_64__)
  if (mode.flushes) _mm_setcsr(_mm_getcsr() | 0x8040u);
#endif
}

/// Bytes of what a function gives, appended piece by piece.
class Bits {
 public:
  template <typename T>
  void add(const T& value) requires std::is_arithmetic_v<T> || std::is_enum_v<T> {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  template <typename T>
  void add(std::span<const T> values) {
    text_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
  void add(const std::string& text) { text_ += text; }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Values around 1, beside ones that are subnormal in binary32 or become it.
inline std::vector<float> values_of(std::size_t count, std::uint64_t seed) {
  const FloatEnvironment environment;  // the inputs are the same in every mode
  const RandomStream random(seed, "float environment");
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(random.normal(i));
    x[i] = i % 3 == 0 ? std::ldexp(value, -128 - static_cast<int>(i % 20)) : value;
  }
  return x;
}

inline std::vector<double> doubles_of(std::size_t count, std::uint64_t seed) {
  const std::vector<float> values = values_of(count, seed);
  const FloatEnvironment environment;
  std::vector<double> x;
  for (const float value : values) x.push_back(double{value} * 1.000001);
  return x;
}

struct Job {
  std::string name;
  std::function<void(Bits&)> run;
};

/// Each job in drawn modes (one in `modulus` pairs), against the default one.
inline void check_modes(const std::vector<Job>& jobs, std::uint64_t modulus, int at_least) {
  const SweepShare share;
  std::uint64_t pair = 0;
  int checked = 0;
  for (const Job& job : jobs) {
    Bits expected;
    job.run(expected);
    for (const Mode& mode : modes()) {
      if (!share.takes_one_in(modulus, "floating-point modes", pair++)) continue;
      ++checked;
      Bits got;
      INFO(job.name << ", " << mode.name);
      {
        const FloatEnvironment back;
        enter(mode);
        const unsigned before = control();
        job.run(got);
        const unsigned after = control();
        std::fesetenv(FE_DFL_ENV);
        CHECK(after == before);
      }
      const bool same = got.text() == expected.text();  // of bytes, which nobody wants to read
      CHECK(same);
    }
  }
  CHECK(checked > at_least);
}

}  // namespace fp8lab::test

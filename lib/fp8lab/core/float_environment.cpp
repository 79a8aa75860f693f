#include "fp8lab/core/float_environment.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

// Calls, not inline: a compiler may move arithmetic across a change of mode that it sees.

namespace fp8lab {

#if defined(__x86_64__)

namespace {

constexpr unsigned kDefaultOfVectors = 0x1f80;  // nearest, all masked, subnormals kept
// The same with 64 bits of significand. The library computes in vector registers, but what it calls
// may not: a C library's conversion of text, arithmetic on long double.
constexpr unsigned short kDefaultOfX87 = 0x37f;

unsigned short x87_control() {
  unsigned short word = 0;
  __asm__ volatile("fnstcw %0" : "=m"(word));
  return word;
}
void set_x87_control(unsigned short word) { __asm__ volatile("fldcw %0" : : "m"(word)); }
unsigned short x87_flags() {
  unsigned short status = 0;
  __asm__ volatile("fnstsw %0" : "=m"(status));
  return status & FE_ALL_EXCEPT;
}

}  // namespace

FloatEnvironment::FloatEnvironment(int mode)
    : vectors_(_mm_getcsr()), x87_(x87_control()), x87_flags_(x87_flags()) {
  const bool nearest = mode == FE_TONEAREST;
  // Both have the mode in two bits, the same ones but for their place.
  const auto of_x87 = static_cast<unsigned short>(nearest ? kDefaultOfX87 : kDefaultOfX87 | mode);
  const unsigned wanted = kDefaultOfVectors | (nearest ? 0u : static_cast<unsigned>(mode) << 3);
  if (x87_ != of_x87) set_x87_control(of_x87);
  if (vectors_ != wanted) _mm_setcsr(wanted);
}

FloatEnvironment::~FloatEnvironment() {
  const int raised = x87_flags() & ~x87_flags_;
  if (raised != 0) std::feclearexcept(raised);
  if (x87_control() != x87_) set_x87_control(x87_);
  if (_mm_getcsr() != vectors_) _mm_setcsr(vectors_);
}

#else

FloatEnvironment::FloatEnvironment(int mode) {
  std::fegetenv(&saved_);
  std::fesetenv(FE_DFL_ENV);
  if (mode != FE_TONEAREST) std::fesetround(mode);
}

FloatEnvironment::~FloatEnvironment() { std::fesetenv(&saved_); }

#endif

}  // namespace fp8lab

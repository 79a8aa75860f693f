#pragma once
// The floating-point environment of a computation: a known rounding mode, no flush to
// zero, and the caller's own environment back on every way out.
//
// Every public function that computes with floats holds one, and so does every thread of
// a parallel region in it: threads have environments of their own. The bits of a result then
// do not depend on what the caller set (torch.set_flush_denormal(True), a directed mode).

#include <cfenv>

namespace fp8lab {

/// Sets the default environment (subnormals kept) of this thread with the given
/// rounding mode (FE_TONEAREST or FE_TOWARDZERO) until the end of the scope.
///
/// One inside another of the same mode takes a few cycles on x86, where the unit of vectors has a
/// register of its own: functions that are called for each sum hold one, too.
class FloatEnvironment {
 public:
  explicit FloatEnvironment(int mode = FE_TONEAREST);
  ~FloatEnvironment();
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  unsigned vectors_;          ///< the caller's control and flags of vector registers
  unsigned short x87_;        ///< its control word of the x87 unit
  unsigned short x87_flags_;  ///< and that unit's flags
#else
  std::fenv_t saved_{};
#endif
};

}  // namespace fp8lab

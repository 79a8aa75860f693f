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
class FloatEnvironment {
 public:
  explicit FloatEnvironment(int mode = FE_TONEAREST) {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
    if (mode != FE_TONEAREST) std::fesetround(mode);
  }
  ~FloatEnvironment() { std::fesetenv(&saved_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  std::fenv_t saved_{};
};

}  // namespace fp8lab

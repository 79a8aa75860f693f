// The floating-point mode in which a public function of the package runs.

#include <cfenv>

#include "bindings.hpp"

namespace fp8lab::python {
namespace {

/// A thread's rounding mode, its flushing of subnormals, and its flags.
struct FloatMode {
  std::fenv_t environment{};
};

/// Sets a mode, nearest even with subnormals where none is given, and returns the one before.
FloatMode set_float_mode(const std::optional<FloatMode>& mode) {
  FloatMode before;
  std::fegetenv(&before.environment);
  std::fesetenv(mode ? &mode->environment : FE_DFL_ENV);
  return before;
}

}  // namespace

void bind_float_mode(nb::module_& m) {
  nb::class_<FloatMode>(m, "FloatMode");
  m.def("set_float_mode", set_float_mode, "mode"_a.none());
}

}  // namespace fp8lab::python

#include "bindings.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/printable.hpp"
#include "messages.hpp"
#include "reveal.hpp"

NB_MODULE(_core, m) {
  using namespace fp8lab::python;  // NOLINT(google-build-using-namespace)
  // What lives on when the interpreter ends (in a traceback, in a cache) goes with the process.
  nb::set_leak_warnings(false);
  m.def("in_python", &in_python, "message"_a);
  m.doc() = "The compiled part of fp8lab. Use the package, not this.";
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const fp8lab::Error& error) {
      PyErr_SetString(PyExc_ValueError, fp8lab::printable(in_python(error.what())).c_str());
    }
  });
  bind_registry(m);
  bind_arrays(m);
  bind_float_mode(m);
  bind_casts(m);
  bind_recipes(m);
  bind_auto_scaling(m);
  bind_kill_switch(m);
  bind_product(m);
  bind_gemm(m);
  bind_checks(m);
  bind_verify(m);
  bind_identify(m);
  bind_grouped(m);
  bind_reveal(m);
  bind_attention(m);
  bind_device(m);
  bind_linear(m);
  bind_grouped_linear(m);
  bind_results(m);
  bind_vectors(m);
  bind_command(m);
}

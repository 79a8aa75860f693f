#pragma once
// What the module has for unknown kernels.

#include "bindings.hpp"

namespace fp8lab::python {

void bind_reveal(nb::module_& m);

}  // namespace fp8lab::python

#pragma once
// Errors of the library in the words of Python.

#include <string>
#include <string_view>

namespace fp8lab::python {

/// The message with arguments (`fp8lab/core/argument.hpp`) as keywords: `out_dtype` is
/// `got_format`, `model=exact` is `model="exact"`.
std::string in_python(std::string_view message);

}  // namespace fp8lab::python

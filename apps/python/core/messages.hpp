#pragma once
// Errors of the library in the words of Python.

#include <string>
#include <string_view>

namespace fp8lab::python {

/// The message with options of the tool as keywords: `--out-dtype` is `got_format`,
/// `--scale-format` `scale_format`, `--model exact` `model="exact"`.
std::string in_python(std::string_view message);

}  // namespace fp8lab::python

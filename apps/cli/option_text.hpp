#pragma once
// Errors of the library in the words of the command line.

#include <string>
#include <string_view>

namespace fp8lab::cli {

/// The message with arguments (`fp8lab/core/argument.hpp`) as options: `out_dtype` is
/// `--out-dtype`, `model=exact` is `--model exact`.
std::string in_options(std::string_view message);

}  // namespace fp8lab::cli

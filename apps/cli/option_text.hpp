#pragma once
// Errors of the library in the words of the command line, and the line that was given.

#include <string>
#include <string_view>

#include "fp8lab/core/error.hpp"
#include "parser.hpp"

namespace fp8lab::cli {

/// The message with arguments (`fp8lab/core/argument.hpp`) as options: `out_dtype` is
/// `--out-dtype`, `model=exact` is `--model exact`.
std::string in_options(std::string_view message);

/// An error's message, which begins with its argument: that one as the option of the chosen
/// subcommand that holds it (`promotion_interval` is `--promotion`), where it has such an option.
std::string with_option(std::string_view message, const Command& program);

/// An error that expects one of many names, with the command that lists them.
std::string with_list(std::string_view message);

/// What `body` returns; its errors are in the words of the command line.
template <class Body>
int naming_options(const Command& program, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw Error(with_list(in_options(with_option(error.what(), program))));
  }
}

/// `name` and the options that `command` was given, as a shell takes them.
std::string shell_command(std::string_view name, const Command& command);

}  // namespace fp8lab::cli

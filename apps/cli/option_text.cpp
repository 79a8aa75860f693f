#include "option_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fp8lab/core/argument.hpp"

namespace fp8lab::cli {

std::string in_options(std::string_view message) {
  return spell_arguments(message, [](std::string_view name, std::string_view value) {
    std::string option(name);
    std::ranges::replace(option, '_', '-');
    return value.empty() ? fmt::format("--{}", option) : fmt::format("--{} {}", option, value);
  });
}

}  // namespace fp8lab::cli

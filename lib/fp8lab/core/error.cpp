#include "fp8lab/core/error.hpp"

#include <fmt/format.h>

namespace fp8lab {

Error::Error(std::string_view argument, std::string_view expected, std::string_view got)
    : std::runtime_error(fmt::format("{}: expected {}, got {}", argument, expected, got)) {}

}  // namespace fp8lab

#include "fp8lab/core/names.hpp"

#include <string>

#include "fp8lab/core/error.hpp"

namespace fp8lab {

std::size_t find_name(std::span<const std::string_view> names, std::string_view argument,
                      std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return i;
    known += (known.empty() ? "" : ", ") + std::string(names[i]);
  }
  throw Error(argument, "one of " + known, "'" + std::string(name) + "'");
}

}  // namespace fp8lab

#include "fp8lab/core/names.hpp"

#include <string>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/near_names.hpp"

namespace fp8lab {

std::size_t find_name(std::span<const std::string_view> names, std::string_view argument,
                      std::string_view name) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return i;
  throw Error(argument, expected_name(names, name), "'" + std::string(name) + "'");
}

}  // namespace fp8lab

#include "pictures/numbers.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "fp8lab/core/error.hpp"

namespace fp8lab::explorer {

std::vector<double> numbers_of(std::string_view argument, std::string_view text, std::size_t most) {
  constexpr std::string_view kBetween = " ,;\t\r\n";
  std::vector<double> numbers;
  for (std::size_t at = text.find_first_not_of(kBetween); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    const std::string word(text.substr(at, end - at));
    char* rest = nullptr;
    const double number = std::strtod(word.c_str(), &rest);
    require(*rest == '\0' && std::isfinite(number),
            fmt::format("{}, number {}", argument, numbers.size() + 1), "a finite number",
            "'" + word + "'");
    numbers.push_back(number);
    at = text.find_first_not_of(kBetween, end);
  }
  require(!numbers.empty() && numbers.size() <= most, argument,
          fmt::format("1 to {} numbers", most), fmt::format("{}", numbers.size()));
  return numbers;
}

}  // namespace fp8lab::explorer

#include "fp8lab/core/integer_list.hpp"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

#include "fp8lab/core/error.hpp"

namespace fp8lab {

std::vector<std::int64_t> parse_integers(std::string_view argument, std::string_view text,
                                         char separator, std::size_t count, std::string_view form) {
  const auto refuse = [&] { throw Error(argument, form, fmt::format("'{}'", text)); };
  std::vector<std::int64_t> values(count);
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) {
      if (at == end || *at != separator) refuse();
      ++at;
    }
    const auto [stop, error] = std::from_chars(at, end, values[i]);
    if (error != std::errc()) refuse();
    at = stop;
  }
  if (at != end) refuse();
  return values;
}

}  // namespace fp8lab

#include "messages.hpp"

#include <array>

#include "fp8lab/core/argument.hpp"

namespace fp8lab::python {
namespace {

struct Keyword {
  std::string_view argument;
  std::string_view keyword;
};

/// Those that are called otherwise.
constexpr std::array kKeywords{Keyword{"dtype", "a_format"}, Keyword{"dtype_b", "b_format"},
                               Keyword{"out_dtype", "got_format"},
                               Keyword{"promotion", "promotion_interval"},
                               Keyword{"transpose_b", ".T"}};

std::string keyword_of(std::string_view argument) {
  for (const Keyword& one : kKeywords)
    if (one.argument == argument) return std::string(one.keyword);
  return std::string(argument);
}

}  // namespace

std::string in_python(std::string_view message) {
  return spell_arguments(message, [](std::string_view name, std::string_view value) {
    std::string text = keyword_of(name);
    if (!value.empty()) text.append("=\"").append(value).append("\"");
    return text;
  });
}

}  // namespace fp8lab::python

#include "messages.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace fp8lab::python {
namespace {

struct Keyword {
  std::string_view option;
  std::string_view keyword;
};

/// Those that are called otherwise; the others are the option's name with underscores.
constexpr std::array kKeywords{
    Keyword{"dtype", "a_format"},       Keyword{"dtype-b", "b_format"},
    Keyword{"out-dtype", "got_format"}, Keyword{"promotion", "promotion_interval"},
    Keyword{"scale-a", "a_scales"},     Keyword{"scale-b", "b_scales"},
    Keyword{"transpose-b", ".T"}};

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

std::string keyword_of(std::string_view option) {
  for (const Keyword& one : kKeywords)
    if (one.option == option) return std::string(one.keyword);
  std::string name(option);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// Whether an option begins at `at`: two dashes and a letter, after nothing that is part of a word.
bool begins_option(std::string_view text, std::size_t at) {
  return text.substr(at, 2) == "--" && at + 2 < text.size() &&
         std::islower(static_cast<unsigned char>(text[at + 2])) != 0 &&
         (at == 0 || !is_word(text[at - 1]));
}

std::size_t end_of_word(std::string_view text, std::size_t at) {
  while (at < text.size() && is_word(text[at])) ++at;
  return at;
}

}  // namespace

std::string in_python(std::string_view message) {
  std::string text;
  for (std::size_t at = 0; at < message.size();) {
    if (!begins_option(message, at)) {
      text += message[at++];
      continue;
    }
    const std::size_t end = end_of_word(message, at + 2);
    text += keyword_of(message.substr(at + 2, end - at - 2));
    at = end;
    // `--model exact` has a value; a word of a sentence after an option comes behind a comma.
    const std::size_t value_end =
        at < message.size() && message[at] == ' ' ? end_of_word(message, at + 1) : at;
    if (value_end <= at + 1) continue;
    text.append("=\"").append(message.substr(at + 1, value_end - at - 1)).append("\"");
    at = value_end;
  }
  return text;
}

}  // namespace fp8lab::python

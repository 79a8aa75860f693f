#include "training/model_files/name_pattern.hpp"

#include <fmt/format.h>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view kRegex = "re:";
constexpr std::size_t kLongest = 1000;

/// The regular expression of a pattern with `*` and `?`.
std::string regex_of_glob(std::string_view glob) {
  std::string regex;
  for (const char c : glob) {
    if (c == '*')
      regex += ".*";
    else if (c == '?')
      regex += '.';
    else if (std::string_view("\\^$.|+()[]{}").find(c) != std::string_view::npos)
      regex += fmt::format("\\{}", c);
    else
      regex += c;
  }
  return regex + "(\\..*)?$";
}

std::regex compile(const std::string& text, std::string_view pattern, const std::string& where) {
  try {
    return std::regex(text, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error&) {
    throw Error(where, "a valid regular expression", fmt::format("'{}'", pattern));
  }
}

}  // namespace

NamePattern::NamePattern(std::string_view text, PatternKind kind, const std::string& where)
    : text_(text), kind_(kind) {
  require(!text.empty() && text.size() <= kLongest, where, "a pattern of 1 to 1000 characters",
          fmt::format("{} characters", text.size()));
  is_regex_ = kind == PatternKind::compressed_tensors && text.starts_with(kRegex);
  if (is_regex_) {
    regex_ = compile(text_.substr(kRegex.size()), text, where);
  } else if (kind == PatternKind::modelopt) {
    regex_ = compile(regex_of_glob(text), text, where);
  } else if (kind == PatternKind::transformers) {
    // Most are plain names, of which the library may also make a regular expression.
    try {
      regex_ = std::regex(text_);
      is_regex_ = true;
    } catch (const std::regex_error&) {
      is_regex_ = false;
    }
  }
}

bool NamePattern::matches(std::string_view module) const {
  const auto starts = [&] {
    return std::regex_search(module.begin(), module.end(), regex_,
                             std::regex_constants::match_continuous);
  };
  switch (kind_) {
    case PatternKind::compressed_tensors:
      return is_regex_ ? starts() : module == text_;
    case PatternKind::modelopt:
      return starts();
    case PatternKind::transformers:
      break;
  }
  return module.starts_with(text_) || module.ends_with(text_) || (is_regex_ && starts());
}

const NamePattern* find_match(const std::vector<NamePattern>& patterns, std::string_view module) {
  for (const NamePattern& pattern : patterns)
    if (pattern.matches(module)) return &pattern;
  return nullptr;
}

}  // namespace fp8lab

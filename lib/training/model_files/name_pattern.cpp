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

/// Replaces `from` wherever no backslash stands before it.
void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    const bool escaped = at > 0 && text[at - 1] == '\\' && (at < 2 || text[at - 2] != '\\');
    if (!escaped) text.replace(at, from.size(), to);
    at += escaped ? 1 : to.size();
  }
}

/// Python's regular expression in ECMAScript's words: groups lose their names, anchors of the whole
/// text are those of a line.
std::string from_python(std::string text) {
  for (std::size_t at = text.find("(?P<"); at != std::string::npos; at = text.find("(?P<", at)) {
    const std::size_t end = text.find('>', at);
    if (end == std::string::npos) break;
    text.replace(at, end - at + 1, "(");
  }
  replace_all(text, "\\Z", "$");
  replace_all(text, "\\A", "^");
  return text;
}

/// Lower and upper case are one where Python's flag says so at the start.
bool take_ignore_case(std::string& text) {
  constexpr std::string_view kFlag = "(?i)";
  const std::size_t at = text.starts_with('^') ? 1 : 0;
  if (text.compare(at, kFlag.size(), kFlag) != 0) return false;
  text.erase(at, kFlag.size());
  return true;
}

std::regex compile(std::string text, std::string_view pattern, const std::string& where) {
  auto flags = std::regex::ECMAScript | std::regex::optimize;
  if (take_ignore_case(text)) flags |= std::regex::icase;
  try {
    return std::regex(text, flags);
  } catch (const std::regex_error&) {
    throw Error(where, "a valid regular expression", fmt::format("'{}'", pattern));
  }
}

}  // namespace

NamePattern::NamePattern(std::string_view text, PatternKind kind, const std::string& where)
    : text_(text), kind_(kind) {
  require(!text.empty() && text.size() <= kLongest, where, "a pattern of 1 to 1000 characters",
          fmt::format("{} characters", text.size()));
  const bool may_be_regex = kind == PatternKind::compressed_tensors || kind == PatternKind::quark;
  is_regex_ = may_be_regex && text.starts_with(kRegex);
  if (is_regex_) {
    regex_ = compile(from_python(text_.substr(kRegex.size())), text, where);
  } else if (kind == PatternKind::modelopt || kind == PatternKind::quark) {
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
    case PatternKind::quark:
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

#pragma once
// Patterns of module names, as the configurations of each system write them.

#include <cstdint>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace fp8lab {

enum class PatternKind : std::uint8_t {
  compressed_tensors,  ///< a whole name, or `re:` and a regular expression that matches its start
  transformers,        ///< the start of a name, its end, or a regular expression of its start
  modelopt,            ///< a name with `*` and `?`; it also covers the modules inside it
  quark,               ///< the same, or `re:` and a regular expression that matches its start
};

/// One pattern. Regular expressions have ECMAScript's grammar. Python's are translated; lookbehind,
/// which ECMAScript's grammar does not have, and flags other than `(?i)` at the start are refused.
class NamePattern {
 public:
  /// Throws `Error` that starts with `where` for a regular expression that is not valid, and for a
  /// pattern of more than 1000 characters.
  NamePattern(std::string_view text, PatternKind kind, const std::string& where);

  [[nodiscard]] bool matches(std::string_view module) const;
  [[nodiscard]] const std::string& text() const { return text_; }
  /// Whether it is a regular expression of compressed-tensors.
  [[nodiscard]] bool is_regex() const { return is_regex_; }

 private:
  std::string text_;
  PatternKind kind_;
  bool is_regex_ = false;
  std::regex regex_;
};

/// The first pattern that matches, or null.
const NamePattern* find_match(const std::vector<NamePattern>& patterns, std::string_view module);

}  // namespace fp8lab

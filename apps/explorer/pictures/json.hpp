#pragma once
// As much JSON as the pictures need. Numbers are written in the shortest form that reads back
// to the same bits; what JSON has no number for is the string "NaN", "Infinity" or "-Infinity".

#include <fmt/format.h>

#include <cmath>
#include <span>
#include <string>
#include <string_view>

namespace fp8lab::explorer {

inline std::string json(double x) {
  if (std::isnan(x)) return "\"NaN\"";
  if (std::isinf(x)) return x > 0.0 ? "\"Infinity\"" : "\"-Infinity\"";
  return fmt::format("{}", x);
}

inline std::string json(bool value) { return value ? "true" : "false"; }

/// Texts of the library are ASCII without control characters.
inline std::string json(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

/// An array of `make(element)`.
template <typename Range, typename Make>
std::string json_array(const Range& range, const Make& make) {
  std::string text = "[";
  for (const auto& element : range) {
    if (text.size() > 1) text += ',';
    text += make(element);
  }
  return text + ']';
}

inline std::string json(std::span<const double> values) {
  return json_array(values, [](double x) { return json(x); });
}

/// An object, member by member.
class JsonObject {
 public:
  JsonObject& raw(std::string_view name, std::string_view text) {
    text_ += text_.empty() ? '{' : ',';
    text_ += json(name);
    text_ += ':';
    text_ += text;
    return *this;
  }
  JsonObject& number(std::string_view name, double x) { return raw(name, json(x)); }
  JsonObject& flag(std::string_view name, bool value) { return raw(name, json(value)); }
  JsonObject& text(std::string_view name, std::string_view value) { return raw(name, json(value)); }
  [[nodiscard]] std::string str() const { return text_.empty() ? "{}" : text_ + '}'; }

 private:
  std::string text_;
};

}  // namespace fp8lab::explorer

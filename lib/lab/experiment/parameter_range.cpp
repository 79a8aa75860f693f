#include "lab/experiment/parameter_range.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view kCountEnd = " of ";
constexpr std::string_view kCountMiddle = " to ";
constexpr std::string_view kModels = "models";

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool read_counts(std::string_view text, ParameterRange& range) {
  const auto middle = text.find(kCountMiddle);
  if (middle == std::string_view::npos) return false;
  const auto fewest = number<std::int64_t>(text.substr(0, middle));
  const auto most = number<std::int64_t>(text.substr(middle + kCountMiddle.size()));
  if (!fewest || !most || *fewest < 0 || *most < *fewest) return false;
  range.fewest = *fewest;
  range.most = *most;
  return true;
}

bool read_interval(std::string_view text, ParameterRange& range) {
  const auto comma = text.find(", ");
  if (text.size() < 2 || comma == std::string_view::npos) return false;
  if ((text.front() != '[' && text.front() != '(') || (text.back() != ']' && text.back() != ')'))
    return false;
  const auto low = number<double>(text.substr(1, comma - 1));
  const auto high = number<double>(text.substr(comma + 2, text.size() - comma - 3));
  if (!low || !high) return false;
  range.low = *low;
  range.high = *high;
  range.low_open = text.front() == '(';
  range.high_open = text.back() == ')';
  range.interval = text;
  return range.low_open || range.high_open ? *low < *high : *low <= *high;
}

bool read(std::string_view text, ParameterRange& range) {
  const auto of = text.find(kCountEnd);
  if (of != std::string_view::npos) {
    const std::string_view what = text.substr(of + kCountEnd.size());
    if (what == kModels) range.interval = what;
    return read_counts(text.substr(0, of), range) &&
           (what == kModels || read_interval(what, range));
  }
  if (text == kModels) range.interval = text;
  return text == kModels || read_interval(text, range) || read_counts(text, range);
}

}  // namespace

ParameterRange ParameterRange::parse(std::string_view text) {
  ParameterRange range;
  if (!read(text, range))
    throw Error("range",
                "'[LOW, HIGH]', 'models', 'FEWEST to MOST', 'FEWEST to MOST of [LOW, HIGH]' or "
                "'FEWEST to MOST of models'",
                fmt::format("'{}'", text));
  return range;
}

bool ParameterRange::holds(double value) const {
  if (!std::isfinite(value)) return false;
  const bool above = low_open ? value > low : value >= low;
  const bool below = high_open ? value < high : value <= high;
  return above && below;
}

}  // namespace fp8lab

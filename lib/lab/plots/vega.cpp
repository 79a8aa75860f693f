#include "lab/plots/vega.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/json_text.hpp"
#include "lab/plots/text.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kTitleColumns = 96;
constexpr std::size_t kNoteColumns = 116;

constexpr const char* kLook = R"({
  "font": "DejaVu Sans, Verdana, sans-serif",
  "view": {"stroke": null},
  "axis": {"labelFontSize": 12, "titleFontSize": 13, "titleFontWeight": "normal", "labelColor": "#111",
           "titleColor": "#111", "gridColor": "#e0e0e0", "domainColor": "#444", "tickColor": "#444"},
  "legend": {"orient": "bottom", "direction": "vertical", "labelFontSize": 12, "titleFontSize": 12,
             "titleFontWeight": "normal", "labelColor": "#111", "titleColor": "#111", "labelLimit": 700,
             "titleLimit": 700, "labelOffset": 12, "symbolSize": 100, "symbolOpacity": 1,
             "symbolStrokeWidth": 2, "rowPadding": 4, "columnPadding": 26},
  "title": {"anchor": "start", "frame": "bounds", "fontSize": 15, "fontWeight": "normal", "color": "#111",
            "subtitleFontSize": 12, "subtitleColor": "#555", "subtitlePadding": 5, "offset": 12}
})";

/// A digit of the whole number that the expression `number` gives, as a superscript.
std::string digit_of(const std::string& number, int place) {
  const std::string digit = fmt::format("floor(abs({}) / {}) % 10", number, place);
  return fmt::format("slice('⁰¹²³⁴⁵⁶⁷⁸⁹', {0}, {0} + 1)", digit);
}

std::string superscript_of(const std::string& number) {
  std::string text = fmt::format("({} < 0 ? '⁻' : '')", number);
  for (const int place : {100, 10})
    text += fmt::format(" + (abs({}) >= {} ? {} : '')", number, place, digit_of(number, place));
  return text + " + " + digit_of(number, 1);
}

/// The lines of a title: where one is not enough, what follows in parentheses has its own.
std::vector<std::string> title_lines(const std::string& title) {
  const std::size_t setup = title.rfind(" (");
  if (columns_of(title) <= kTitleColumns || setup == std::string::npos)
    return wrap(title, kTitleColumns);
  std::vector<std::string> lines = wrap(title.substr(0, setup), kTitleColumns);
  std::ranges::copy(wrap(title.substr(setup + 1), kTitleColumns), std::back_inserter(lines));
  return lines;
}

}  // namespace

Json vega_frame(const std::string& name, std::string_view title, const std::string& note) {
  Json heading{{"text", title_lines(typeset(title))}};
  if (!note.empty()) heading["subtitle"] = wrap(typeset(note), kNoteColumns);
  return {{"$schema", "https://vega.github.io/schema/vega-lite/v6.json"},
          {"name", name},
          {"title", heading},
          {"width", 800},
          {"height", 380},
          {"autosize", {{"type", "fit-x"}, {"contains", "padding"}}},
          {"padding", 10},
          {"background", "white"},
          {"config", parse_json<Json>(kLook, "look")}};
}

Json json_numbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(std::isfinite(value) ? Json(value) : Json());
  return list;
}

std::string vega_lookup(const std::vector<std::string>& texts, std::string_view field) {
  return fmt::format("{}[datum.{}]", json_text(Json(texts)), field);
}

bool labels_are_powers(const Axis& axis, double low, double high) {
  const FloatEnvironment environment;
  const bool two = axis.log_base == 2;
  return axis.log && (low < (two ? 0x1p-4 : 1e-3) * 0.999 || high > (two ? 0x1p17 : 1e4) * 1.001);
}

std::string log_labels(const Axis& axis, double low, double high, double unit, int digits) {
  const FloatEnvironment environment;
  const std::string value = unit == 1.0 ? "datum.value" : fmt::format("datum.value / {}", unit);
  std::string label = fmt::format("format({}, '.{}~g')", value, digits);
  if (labels_are_powers(axis, low / unit, high / unit)) {
    const std::string power =
        fmt::format("log({}) / {}", value, axis.log_base == 2 ? "LN2" : "LN10");
    const std::string whole = fmt::format("round({})", power);
    label = fmt::format("abs({} - {}) < 1e-6 ? '{}' + {} : {}", power, whole, axis.log_base,
                        superscript_of(whole), label);
  }
  // The scale labels no tick that has no room.
  return unit == 1.0 ? fmt::format("datum.label == '' ? '' : {}", label) : label;
}

std::vector<std::string> typeset_all(const std::vector<std::string>& labels) {
  std::vector<std::string> out;
  for (const std::string& label : labels) out.push_back(typeset(label));
  return out;
}

}  // namespace fp8lab

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/io/files.hpp"
#include "lab/plots/look.hpp"
#include "lab/plots/plot_json.hpp"
#include "lab/plots/text.hpp"
#include "lab/plots/vega.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kMaxWrittenCells = 200;  // more than that, and numbers do not fit
constexpr double kDarkShades = 0.42;   // below, white text has the better contrast, above black
constexpr double kPixels = 8.0;        // of a letter, capitals included
constexpr double kMostBeside = 400.0;  // pixels for the labels of rows
constexpr double kWidth = 780.0;       // of labels and cells

/// The cells that have a value, a row an object.
Json data_of(const HeatMap& map) {
  const std::vector<std::string> texts = cell_texts(map);
  Json values = Json::array();
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    Json row{
        {"row", r}, {"column", Json::array()}, {"value", Json::array()}, {"text", Json::array()}};
    for (std::size_t c = 0; c < map.columns.size(); ++c) {
      const std::size_t i = r * map.columns.size() + c;
      if (std::isnan(map.values[i])) continue;
      row["column"].push_back(c);
      row["value"].push_back(std::isfinite(map.values[i]) ? Json(map.values[i]) : Json());
      row["text"].push_back(texts[i]);
    }
    values.push_back(row);
  }
  return {{"name", "values"}, {"values", values}};
}

/// An axis of labels, the field an index of them.
Json channel(const char* field, const std::string& title, const std::vector<std::string>& labels,
             std::size_t columns) {
  Json places = Json::array();
  for (std::size_t i = 0; i < labels.size(); ++i) places.push_back(i);
  if (std::string_view(field) == "row") std::ranges::reverse(places);
  return {{"field", field},
          {"type", "nominal"},
          {"scale", {{"domain", places}}},
          {"axis",
           {{"title", wrap(typeset(title), columns)},
            {"labelExpr", vega_lookup(labels, "value")},
            {"labelOverlap", false},
            {"domain", false},
            {"ticks", false},
            {"labelPadding", 6}}}};
}

Json tips_of(const HeatMap& map) {
  return {{{"field", "row_label"}, {"type", "nominal"}, {"title", typeset(map.y_label)}},
          {{"field", "column_label"}, {"type", "nominal"}, {"title", typeset(map.x_label)}},
          {{"field", "value"},
           {"type", "quantitative"},
           {"title", typeset(map.value_label)},
           {"format", ".4~g"}}};
}

}  // namespace

std::string plot_json(const HeatMap& map) {
  const FloatEnvironment environment;
  require_file_name("heat map name", map.name);
  const std::size_t expected = map.rows.size() * map.columns.size();
  require(expected == map.values.size() && expected > 0,
          fmt::format("heat map {}: values", map.name),
          fmt::format("rows x columns = {}, and at least one", expected),
          std::to_string(map.values.size()));
  const std::vector<std::string> columns = typeset_all(map.columns);
  const std::vector<std::string> rows = typeset_all(map.rows);
  const ColourRange range = colour_range(map);
  const Axis axis{map.value_label, map.log, 10};

  const std::string can =
      fmt::format("isValid(datum.value){}", map.log ? " && datum.value > 0" : "");
  const std::string shade =
      map.log
          ? fmt::format("log(datum.value / {}) / log({} / {})", range.low, range.high, range.low)
          : fmt::format("(datum.value - {}) / ({} - {})", range.low, range.high, range.low);
  Json legend{{"title", wrap(typeset(map.value_label), 60)},
              {"direction", "horizontal"},
              {"gradientLength", 300},
              {"gradientThickness", 10},
              {"labelOffset", 2}};
  if (map.log)
    legend["labelExpr"] = log_labels(axis, range.low, range.high, 1.0, 3);
  else
    legend["format"] = ".3~g";
  const Json scale{{"type", map.log ? "log" : "linear"},
                   {"domain", {range.low, range.high}},
                   {"scheme", "viridis"},
                   {"clamp", true}};
  const Json coloured{{"test", can},
                      {"field", "value"},
                      {"type", "quantitative"},
                      {"scale", scale},
                      {"legend", legend}};
  Json layers = Json::array();
  layers.push_back(
      {{"mark", {{"type", "rect"}, {"stroke", "white"}}},
       {"encoding",
        {{"color", {{"condition", coloured}, {"value", "#cccccc"}}}, {"tooltip", tips_of(map)}}}});
  if (map.values.size() <= kMaxWrittenCells) {
    const Json white{{"test", fmt::format("{} && {} < {}", can, shade, kDarkShades)},
                     {"value", "white"}};
    layers.push_back({{"mark", {{"type", "text"}, {"fontSize", 12}, {"tooltip", nullptr}}},
                      {"encoding",
                       {{"text", {{"field", "text"}, {"type", "nominal"}}},
                        {"color", {{"condition", white}, {"value", "black"}}}}}});
  }

  Json spec = vega_frame(map.name, map.title, note_of(map));
  spec["height"] = map.rows.size() * (map.rows.size() > 30 ? 12 : 26);
  // Labels that do not fit below their column stand aslant.
  const double beside = std::min(static_cast<double>(widest_of(rows)) * kPixels, kMostBeside);
  const double room = (kWidth - beside) / static_cast<double>(columns.size());
  const bool aslant = static_cast<double>(widest_of(columns)) * kPixels > room;
  spec["config"]["axisX"] = {{"labelAngle", aslant ? -32 : 0},
                             {"labelAlign", aslant ? "right" : "center"},
                             {"labelLimit", 320}};
  spec["config"]["axisY"] = {{"labelLimit", kMostBeside}, {"minExtent", beside + 6.0}};
  spec["usermeta"] = {{"kind", "heat_map"}, {"columns", columns}, {"rows", rows},
                      {"x", map.x_label},   {"y", map.y_label},   {"value", map.value_label}};
  spec["data"] = data_of(map);
  spec["transform"] = {{{"flatten", {"column", "value", "text"}}},
                       {{"calculate", vega_lookup(columns, "column")}, {"as", "column_label"}},
                       {{"calculate", vega_lookup(rows, "row")}, {"as", "row_label"}}};
  spec["encoding"] = {{"x", channel("column", map.x_label, columns, 90)},
                      {"y", channel("row", map.y_label, rows, 46)}};
  spec["layer"] = layers;
  return json_text(spec) + "\n";
}

}  // namespace fp8lab

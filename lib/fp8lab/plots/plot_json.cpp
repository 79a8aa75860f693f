#include "fp8lab/plots/plot_json.hpp"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "fp8lab/plots/look.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "fp8lab.plot.1";

std::string_view to_string(Series::Style style) {
  constexpr std::array<std::string_view, 5> kNames{"lines", "points", "lines_points", "steps",
                                                   "dashed"};
  return kNames[static_cast<std::size_t>(style)];
}

Json json_of(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(std::isfinite(value) ? Json(value) : Json());
  return list;
}

Json json_of(const Axis& axis) {
  Json json{{"label", axis.label}, {"log", axis.log}, {"base", axis.log_base}};
  if (axis.second) json["second"] = {{"label", axis.second->label}, {"unit", axis.second->unit}};
  return json;
}

}  // namespace

std::string plot_json(const Plot& plot) {
  Json series = Json::array();
  const std::vector<std::size_t> colours = colours_of(plot);
  std::size_t i = 0;
  for (const Series& s : plot.series) {
    Json& json = series.emplace_back(Json{{"label", s.label},
                                          {"style", to_string(s.style)},
                                          {"x", json_of(s.x)},
                                          {"y", json_of(s.y)}});
    if (colours[i] != i) json["colour"] = colours[i];
    ++i;
    if (s.low.empty()) continue;
    json["low"] = json_of(s.low);
    json["high"] = json_of(s.high);
  }
  return Json{{"schema", kSchema},    {"name", plot.name},    {"title", plot.title},
              {"x", json_of(plot.x)}, {"y", json_of(plot.y)}, {"series", series}}
             .dump() +
         "\n";
}

std::string plot_json(const HeatMap& map) {
  const ColourRange colours = colour_range(map);
  return Json{{"schema", kSchema},        {"name", map.name},
              {"title", map.title},       {"x_label", map.x_label},
              {"y_label", map.y_label},   {"value_label", map.value_label},
              {"log", map.log},           {"columns", map.columns},
              {"rows", map.rows},         {"values", json_of(map.values)},
              {"texts", cell_texts(map)}, {"colours", {colours.low, colours.high}},
              {"beyond", colours.beyond}}
             .dump() +
         "\n";
}

}  // namespace fp8lab

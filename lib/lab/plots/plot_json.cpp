#include "lab/plots/plot_json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/io/files.hpp"
#include "lab/plots/look.hpp"
#include "lab/plots/text.hpp"
#include "lab/plots/vega.hpp"

namespace fp8lab {
namespace {

using Indices = std::vector<std::size_t>;

// After Okabe and Ito, told apart by people of every colour vision: without green any two are 25
// apart (CIELAB), as in their own set they are not. Their yellow is left out, too pale on white.
constexpr std::array<const char*, kPalette> kColours{"#0072B2", "#C44E00", "#009E73", "#A05195",
                                                     "#E69F00", "#56B4E9", "#000000"};
// Of an ordered quantity, from dark to light and from blue to yellow.
constexpr std::array<const char*, kMostShades> kShades{"#0B1F78", "#43307F", "#6F3A6E", "#8F4658",
                                                       "#9F6049", "#AD7B3B", "#B79825"};
constexpr std::array kShapes{"circle",        "square", "triangle-up",   "diamond",
                             "triangle-down", "cross",  "triangle-right"};
constexpr const char* kStroke = "M-2,0L2,0";  ///< of a curve without marks, in the legend
constexpr std::size_t kMarks = 40;            ///< on a curve; a longer one has them at some points
constexpr double kPixels = 6.6;               ///< of a letter
constexpr double kWidth = 740.0;              ///< of the legend, in pixels

void require_fit(const Plot& plot) {
  require_file_name("plot name", plot.name);
  for (const Series& series : plot.series) {
    const std::string name = fmt::format("plot {}: series '{}'", plot.name, series.label);
    require(series.x.size() == series.y.size(), name, fmt::format("{} y values", series.x.size()),
            std::to_string(series.y.size()));
    const std::size_t band = series.low.empty() && series.high.empty() ? 0 : series.x.size();
    require(series.low.size() == band && series.high.size() == band, name,
            fmt::format("a band of {} values", series.x.size()),
            fmt::format("{} low and {} high", series.low.size(), series.high.size()));
  }
  for (const Axis& axis : {plot.x, plot.y})
    require(axis.log_base == 10 || axis.log_base == 2, fmt::format("axis {}: log_base", axis.label),
            "10 or 2", std::to_string(axis.log_base));
  if (!plot.x.second) return;
  const double unit = plot.x.second->unit;
  require(unit > 0.0 && std::isfinite(unit), fmt::format("axis {}: unit", plot.x.label),
          "a positive number", fmt::format("{}", unit));
}

std::size_t bands_of(const Plot& plot) {
  return static_cast<std::size_t>(
      std::ranges::count_if(plot.series, [](const Series& s) { return !s.low.empty(); }));
}

Indices series_of(const Plot& plot, bool (*holds)(const Series&)) {
  Indices found;
  for (std::size_t i = 0; i < plot.series.size(); ++i)
    if (holds(plot.series[i])) found.push_back(i);
  return found;
}

bool is_line(const Series& series) {
  using enum Series::Style;
  return series.style == lines || series.style == dashed || series.style == lines_points;
}

bool is_stair(const Series& series) { return series.style == Series::Style::steps; }

/// A line of one point would not be seen.
bool has_marks(const Series& series) {
  return series.style == Series::Style::points || series.style == Series::Style::lines_points ||
         series.x.size() == 1;
}

/// The values, a series an object, in drawing order: later curves lie on top.
Json data_of(const Plot& plot) {
  Json values = Json::array();
  for (const std::size_t i : drawing_order(plot)) {
    const Series& series = plot.series[i];
    Json& json = values.emplace_back(
        Json{{"series", i}, {"x", json_numbers(series.x)}, {"y", json_numbers(series.y)}});
    if (bands_of(plot) == 0) continue;
    json["low"] = json_numbers(series.low);
    json["high"] = json_numbers(series.high);
  }
  return {{"name", "values"}, {"values", values}};
}

/// The smallest positive value that the y axis has: where edges of bands lie that a log axis cannot
/// show.
double floor_of(const Plot& plot) {
  double least = std::numeric_limits<double>::infinity();
  for (const Series& series : plot.series)
    for (const auto* values : {&series.y, &series.low, &series.high})
      for (const double value : *values)
        if (value > 0.0) least = std::min(least, value);
  return std::isfinite(least) ? least : 1.0;
}

/// What a log axis cannot show is a gap, as is a band without one of its edges.
Json transform_of(const Plot& plot, const std::vector<std::string>& labels) {
  const auto calculate = [](const std::string& expression, const char* as) {
    return Json{{"calculate", expression}, {"as", as}};
  };
  Json columns{"x", "y"};
  if (bands_of(plot) > 0) columns.insert(columns.end(), {"low", "high"});
  Json list{{{"flatten", columns}},
            calculate(vega_lookup(labels, "series"), "label"),
            calculate("log_x && datum.x <= 0 ? null : datum.x", "x"),
            calculate("log_y && datum.y <= 0 ? null : datum.y", "y")};
  if (bands_of(plot) > 0) {
    const auto edge = [least = floor_of(plot)](std::string_view other, std::string_view name) {
      return fmt::format(
          "isValid(datum.{0}) && isValid(datum.{1}) ? (log_y ? max(datum.{1}, {2}) : "
          "datum.{1}) : null",
          other, name, least);
    };
    list.push_back(calculate(edge("high", "low"), "low"));
    list.push_back(calculate(edge("low", "high"), "high"));
  }
  if (widest_of(labels) > 0) list.push_back({{"filter", {{"param", "shown"}}}});
  return list;
}

/// Shares and errors start at zero: an axis that leaves zero out overstates changes.
bool begins_at_zero(const std::vector<double>& values, double share) {
  if (values.empty()) return false;
  const auto [low, high] = std::ranges::minmax(values);
  return low >= 0.0 && low < share * high;
}

Json channel(const char* field, const Axis& axis, std::vector<double> values, double zero_share,
             std::size_t columns) {
  Json look{{"title", wrap(typeset(axis.label), columns)}, {"tickCount", 8}};
  Json scale{{"type", axis.log ? "log" : "linear"}, {"nice", false}, {"padding", 8}};
  const bool nothing = values.empty();
  if (nothing) scale["domain"] = axis.log ? Json{1, 10} : Json{0, 1};
  if (nothing) values = {1.0};
  const auto [low, high] = std::ranges::minmax(values);
  if (axis.log) {
    scale["base"] = axis.log_base;
    look["labelExpr"] =
        fmt::format("log_{} ? {} : datum.label", field, log_labels(axis, low, high));
    look["gridOpacity"] = {{"condition", {{"test", "datum.label == ''"}, {"value", 0}}},
                           {"value", 1}};
  } else {
    scale["zero"] = begins_at_zero(values, zero_share);
    const bool whole = std::ranges::all_of(values, [](double v) { return v == std::floor(v); });
    if (whole) look["tickMinStep"] = 1;
  }
  return {{"field", field}, {"type", "quantitative"}, {"axis", look}, {"scale", scale}};
}

Json y_channel(const Plot& plot) {
  const Indices away = runaways(plot);
  std::vector<double> values = shown_values(plot, false, away);
  if (away.empty() || values.empty()) return channel("y", plot.y, values, 0.4, 46);
  const auto [low, high] = std::ranges::minmax(values);
  const double air = 0.03 * (high - low);
  const bool zero = begins_at_zero(values, 0.4);
  Json y = channel("y", plot.y, values, 0.4, 46);
  y["scale"]["domain"] = {zero ? 0.0 : low - air, high + air};
  y["scale"].erase("zero");
  return y;
}

/// The x axis in other units, at the top.
Json second_axis(const Axis& axis, const std::vector<double>& values) {
  const SecondScale& second = *axis.second;
  Json look{{"title", typeset(second.label)}, {"orient", "top"}, {"grid", false}};
  // A scale labels no tick that has no room.
  const std::string plain =
      fmt::format("datum.label == '' ? '' : format(datum.value / {}, '.3~r')", second.unit);
  look["labelExpr"] = plain;
  if (!axis.log || values.empty()) return look;
  const auto [low, high] = std::ranges::minmax(values);
  look["labelExpr"] =
      fmt::format("log_x ? {} : {}", log_labels(axis, low, high, second.unit), plain);
  look["values"] = Json::array();
  const double base = axis.log_base;
  const double last = std::floor(std::log(high / second.unit) / std::log(base) + 1e-9);
  for (double n = std::ceil(std::log(low / second.unit) / std::log(base) - 1e-9); n <= last; ++n)
    look["values"].push_back(second.unit * std::pow(base, n));
  return look;
}

/// Colours, dashes and shapes of the series, with one legend.
class Looks {
 public:
  Looks(const Plot& plot, std::vector<std::string> labels) : labels_(std::move(labels)) {
    const std::vector<SeriesColour> colours = colours_of(plot);
    for (std::size_t i = 0; i < colours.size(); ++i) {
      const auto [place, shades] = colours[i];
      const Series& series = plot.series[i];
      // Colours come back after seven series, and in variants: then the mark, or the dash, tells
      // them apart. Marks have no dash, which would be that of their outline.
      const bool again = shades == 0 && place >= kColours.size();
      colours_.push_back(shades > 0 ? kShades[spread(place, shades)]
                                    : kColours[place % kColours.size()]);
      shapes_.push_back(
          has_marks(series)
              ? kShapes[(place + 3 * (place / kColours.size()) + (series.like ? 4 : 0)) %
                        kShapes.size()]
              : kStroke);
      dashes_.push_back(has_marks(series)                       ? Json{1, 0}
                        : series.style == Series::Style::dashed ? Json{8, 5}
                        : again                                 ? Json{2, 3}
                                                                : Json{1, 0});
    }
    if (widest_of(labels_) == 0) return;
    legend_ = {{"title", nullptr}};
    if (std::ranges::none_of(plot.series, has_marks)) legend_["symbolType"] = kStroke;
  }
  [[nodiscard]] Json colour() const { return by_label(colours_); }
  [[nodiscard]] Json dash() const { return by_label(dashes_); }
  [[nodiscard]] Json shape() const { return by_label(shapes_); }
  [[nodiscard]] bool named() const { return !legend_.is_null(); }

 private:
  /// `place` of `shades`, at equal steps from the first of all shades to the last.
  static std::size_t spread(std::size_t place, std::size_t shades) {
    return (place * (kMostShades - 1) + (shades - 1) / 2) / (shades - 1);
  }
  [[nodiscard]] Json by_label(const Json& range) const {
    return {{"field", "label"},
            {"type", "nominal"},
            {"scale", {{"domain", labels_}, {"range", range}}},
            {"legend", legend_}};
  }

  std::vector<std::string> labels_;
  Json colours_ = Json::array();
  Json dashes_ = Json::array();
  Json shapes_ = Json::array();
  Json legend_ = nullptr;
};

/// Only the series of `which`.
Json only(const Plot& plot, const Indices& which) {
  Json list = Json::array();
  if (which.size() < plot.series.size())
    list.push_back(
        {{"filter", fmt::format("indexof([{}], datum.series) >= 0", fmt::join(which, ", "))}});
  return list;
}

Json band_layer(const Plot& plot, const Looks& looks) {
  const auto bands = static_cast<double>(bands_of(plot));
  // Bands that lie on each other turn into mud: the more of them, the paler.
  return {
      {"mark", {{"type", "area"}, {"clip", true}, {"opacity", bands <= 3 ? 0.18 : 0.54 / bands}}},
      {"encoding",
       {{"y", {{"field", "low"}, {"type", "quantitative"}}},
        {"y2", {{"field", "high"}}},
        {"color", looks.colour()}}}};
}

Json line_layer(const Plot& plot, const Looks& looks, const Indices& which, bool steps) {
  Json mark{{"type", "line"}, {"clip", true}, {"strokeWidth", 2}};
  if (steps) mark["interpolate"] = "step-after";
  return {{"transform", only(plot, which)},
          {"mark", mark},
          {"encoding", {{"color", looks.colour()}, {"strokeDash", looks.dash()}}}};
}

Json mark_layer(const Plot& plot, const Looks& looks, const Indices& which) {
  Indices every;
  for (const Series& series : plot.series)
    every.push_back(series.style == Series::Style::points ? 1 : 1 + series.x.size() / kMarks);
  Json transform = only(plot, which);
  if (std::ranges::max(every) > 1) {
    const Json count = Json::array({{{"op", "row_number"}, {"as", "point"}}});
    transform.push_back({{"window", count}, {"groupby", {"series"}}});
    transform.push_back({{"filter", fmt::format("(datum.point - 1) % [{}][datum.series] == 0",
                                                fmt::join(every, ", "))}});
  }
  return {
      {"transform", transform},
      {"mark", {{"type", "point"}, {"filled", true}, {"clip", true}, {"size", 45}, {"opacity", 1}}},
      {"encoding", {{"color", looks.colour()}, {"shape", looks.shape()}}}};
}

/// The selection of series by the legend, for a layer that has one.
Json legend_selection() {
  return {{"name", "shown"},
          {"select", {{"type", "point"}, {"fields", {"label"}}, {"toggle", "true"}}},
          {"bind", "legend"}};
}

/// Rings around the points, seen where the pointer is, with the values; the selections of a place.
Json pointer_layer(const Plot& plot, const Looks& looks) {
  const auto tip = [](const char* field, const std::string& title) {
    return Json{{"field", field}, {"type", "quantitative"}, {"title", title}, {"format", ".4~g"}};
  };
  Json tips = Json::array();
  if (looks.named()) tips.push_back({{"field", "label"}, {"type", "nominal"}, {"title", "series"}});
  tips.push_back(tip("x", typeset(plot.x.label)));
  tips.push_back(tip("y", typeset(plot.y.label)));
  if (bands_of(plot) > 0) {
    tips.push_back(tip("low", "least"));
    tips.push_back(tip("high", "most"));
  }
  const Json params{
      {{"name", "at"},
       {"select", {{"type", "point"}, {"on", "pointerover"}, {"clear", "pointerout"}}}},
      {{"name", "zoom"},
       {"select", {{"type", "interval"}, {"zoom", "wheel![event.ctrlKey]"}}},
       {"bind", "scales"}}};
  const Json seen{{"param", "at"}, {"empty", false}, {"value", 1}};
  return {{"name", "pointer"},
          {"params", params},
          {"mark",
           {{"type", "point"},
            {"size", 120},
            {"clip", true},
            {"strokeWidth", 1.5},
            {"fill", "transparent"},
            {"color", "#777"}}},
          {"encoding", {{"opacity", {{"condition", seen}, {"value", 0}}}, {"tooltip", tips}}}};
}

}  // namespace

std::string plot_json(const Plot& plot) {
  const FloatEnvironment environment;
  require_fit(plot);
  std::vector<std::string> labels;
  for (const Series& series : plot.series) labels.push_back(typeset(series.label));
  const Looks looks(plot, labels);
  const std::vector<double> places = shown_values(plot, true);
  const Json x = channel("x", plot.x, places, 0.1, 90);

  Json layers = Json::array();
  if (bands_of(plot) > 0) layers.push_back(band_layer(plot, looks));
  if (const Indices which = series_of(plot, is_line); !which.empty())
    layers.push_back(line_layer(plot, looks, which, false));
  if (const Indices which = series_of(plot, is_stair); !which.empty())
    layers.push_back(line_layer(plot, looks, which, true));
  if (const Indices which = series_of(plot, has_marks); !which.empty())
    layers.push_back(mark_layer(plot, looks, which));
  layers.push_back(pointer_layer(plot, looks));
  if (looks.named()) layers.front()["params"] = Json::array({legend_selection()});

  Json spec = vega_frame(plot.name, plot.title, note_of(plot));
  const double entry = static_cast<double>(widest_of(labels)) * kPixels + 50.0;
  spec["config"]["legend"]["columns"] = std::max(1.0, std::floor(kWidth / entry));
  spec["usermeta"] = {
      {"kind", "plot"}, {"labels", labels}, {"x", plot.x.label}, {"y", plot.y.label}};
  spec["params"] = {{{"name", "log_x"}, {"value", plot.x.log}},
                    {{"name", "log_y"}, {"value", plot.y.log}}};
  spec["data"] = data_of(plot);
  spec["transform"] = transform_of(plot, labels);
  spec["encoding"] = {{"x", x}, {"y", y_channel(plot)}};
  if (plot.x.second) {
    // The axes of one scale at both sides: one layer has the lower one, the last the upper one.
    for (Json& layer : layers) {
      layer["encoding"]["x"] = x;
      layer["encoding"]["x"]["axis"] = nullptr;
    }
    layers.front()["encoding"]["x"]["axis"] = x["axis"];
    layers.back()["encoding"]["x"]["axis"] = second_axis(plot.x, places);
    spec["encoding"].erase("x");
    spec["resolve"] = {{"axis", {{"x", "independent"}}}};
  }
  spec["layer"] = layers;
  return json_text(spec) + "\n";
}

}  // namespace fp8lab

#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "fp8lab/cast/cast.hpp"
#include "lab/experiment/parameter_struct.hpp"
#include "walkthrough/walkthrough.hpp"

namespace fp8lab::experiments {
namespace {

double or_nan(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

const Column kOutlierColumn{"outlier", "1", "element 2"};
const Column kScalingColumn{"scaling", "", "per tensor, or per tile of 3"};
const Column kIndexColumn{"index", "1", "of the element"};

Table cast_table(const std::vector<WalkthroughRow>& rows) {
  Table table("cast", "Divide by s and round: figures of the text and of E4M3",
              {kOutlierColumn,
               kScalingColumn,
               kIndexColumn,
               {"x", "1", "the element, binary32"},
               {"inverse_scale", "1", "s = amax / 448 (the text's scale)"},
               {"scaled", "1", "x / s"},
               {"scaled_text", "1", "as printed; nan if the text prints nothing"},
               {"quantized_text", "1", "as printed"},
               {"quantized_flush", "1", "E4M3, subnormals flushed to zero"},
               {"quantized_preserve", "1", "E4M3 as hardware casts, with subnormals"},
               {"code_preserve", "", "its code"}});
  for (const WalkthroughRow& r : rows)
    table.add_row({r.outlier, std::string(r.scaling), std::int64_t{r.index},
                   static_cast<double>(r.x), static_cast<double>(r.inverse_scale),
                   static_cast<double>(r.scaled), or_nan(r.text.scaled), or_nan(r.text.quantized),
                   r.flushed.quantized, r.preserved.quantized,
                   fmt::format("0x{:02x}", r.preserved.code)});
  return table;
}

Table back_table(const std::vector<WalkthroughRow>& rows) {
  Table table("value_back", "Multiply back by s, and the error",
              {kOutlierColumn,
               kScalingColumn,
               kIndexColumn,
               {"x", "1", "the element"},
               {"back_text", "1", "as printed; nan if the text prints nothing"},
               {"back_flush", "1", "with subnormals flushed"},
               {"back_preserve", "1", "with subnormals"},
               {"absolute_error_flush", "1", "|back - x|"},
               {"absolute_error_preserve", "1", "|back - x|"},
               {"relative_error_flush", "%", "|back - x| / |x|"},
               {"relative_error_preserve", "%", "|back - x| / |x|"}});
  for (const WalkthroughRow& r : rows)
    table.add_row({r.outlier, std::string(r.scaling), std::int64_t{r.index},
                   static_cast<double>(r.x), or_nan(r.text.value_back), r.flushed.value_back,
                   r.preserved.value_back, r.flushed.absolute_error, r.preserved.absolute_error,
                   100.0 * r.flushed.relative_error, 100.0 * r.preserved.relative_error});
  return table;
}

Table grid_table() {
  Table table("grid", "The grid values that step 3 of the text lists, and E4M3's",
              {{"text", "1", "as printed"},
               {"e4m3", "1", "nearest E4M3 value"},
               {"is_e4m3", "", "the printed value is an E4M3 value to its four decimals"},
               {"next_text", "1", "the value printed after it; nan at the end of a run"},
               {"next_e4m3", "1", "the next E4M3 value"},
               {"next_agrees", "", "the text does not skip a value"}});
  for (const GridValue& v : grid_values())
    table.add_row({v.text, v.e4m3, v.is_e4m3, v.text_next, v.e4m3_next, v.next_agrees});
  return table;
}

Series error_curve(const CastPolicy& policy, std::string label, std::int64_t points) {
  Series series{std::move(label), {}, {}, Series::Style::lines};
  const Format& e4m3 = format(FormatId::e4m3fn);
  for (std::int64_t i = 0; i < points; ++i) {
    const auto x = static_cast<float>(
        std::exp2(-11.0 + 8.0 * static_cast<double>(i) / static_cast<double>(points - 1)));
    const double relative = std::abs(round_trip(e4m3, policy, x) - x) / x;
    series.x.push_back(x);
    series.y.push_back(100.0 * relative);
  }
  return series;
}

Plot floor_plot(const std::vector<WalkthroughRow>& rows, std::int64_t points) {
  Plot plot;
  plot.name = "error_near_the_floor";
  plot.title =
      "Relative error of a cast to E4M3 near its floor; points: the elements, outlier 4400";
  plot.x = {"|x / s|", true, 2};
  plot.y = {"relative error (%)", false};
  plot.series = {error_curve(kFlush, "subnormals flushed", points),
                 error_curve(kNvidiaSatfinite, "subnormals kept (hardware)", points)};
  Series flushed{"elements, flushed", {}, {}, Series::Style::points};
  Series kept{"elements, kept", {}, {}, Series::Style::points};
  for (const WalkthroughRow& r : rows) {
    if (r.outlier < 1000.0 || r.scaling != "per tensor" || r.index == 2) continue;
    for (Series* series : {&flushed, &kept}) series->x.push_back(std::abs(r.scaled));
    flushed.y.push_back(100.0 * r.flushed.relative_error);
    kept.y.push_back(100.0 * r.preserved.relative_error);
  }
  plot.series.push_back(std::move(flushed));
  plot.series.push_back(std::move(kept));
  return plot;
}

void add_grid_finding(std::vector<std::string>& findings) {
  int off_grid = 0;
  int skips = 0;
  for (const GridValue& v : grid_values()) {
    off_grid += v.is_e4m3 ? 0 : 1;
    skips += v.next_agrees ? 0 : 1;
  }
  findings.push_back(fmt::format(
      "Of the {} grid values in step 3 of the text, {} are not E4M3 values, and in {} places the "
      "next E4M3 value is left out.",
      grid_values().size(), off_grid, skips));
}

struct Settings {
  std::int64_t curve_points = 0;

  static constexpr auto fields() {
    return std::tuple{field("curve_points", &Settings::curve_points)};
  }
};

}  // namespace

Results walkthrough(const RunContext& context) {
  const std::int64_t points = read_parameters<Settings>(context.parameters).curve_points;
  const std::vector<WalkthroughRow> rows = walkthrough_rows(context.backend);
  Results results;
  results.tables = {cast_table(rows), back_table(rows), grid_table()};
  results.plots = {floor_plot(rows, points)};
  for (const WalkthroughRow& r : rows) {
    if (r.outlier < 1000.0 || r.scaling != "per tensor" || (r.index != 1 && r.index != 3)) continue;
    results.findings.push_back(fmt::format(
        "Outlier {}, per tensor: element {} is {:.4f} / s = {:.6f}, which E4M3 stores as {:.6f} "
        "({:.1f} % off); with subnormals flushed it becomes {} ({:.0f} % off).",
        r.outlier, r.index, r.x, r.scaled, r.preserved.quantized,
        100.0 * r.preserved.relative_error, std::abs(r.flushed.quantized),
        100.0 * r.flushed.relative_error));
  }
  add_grid_finding(results.findings);
  context.progress(1.0);
  return results;
}

}  // namespace fp8lab::experiments

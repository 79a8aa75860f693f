#include "accumulator-drift/slopes.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/spread.hpp"

namespace fp8lab::experiments {
namespace {

/// "sm90.wgmma.e4m3 1.23 ± 0.11, ...": the 14-bit accumulators' exponents on one distribution.
std::string exponents_of(const Sweep& sweep, Distribution d, OperandFormat operands) {
  std::string text;
  for (const Curve& curve : sweep.curves(d)) {
    const bool of_interest =
        curve.accumulator == kHopper || curve.accumulator.starts_with("sequential14");
    if (!of_interest || curve.interval != 0 || curve.operands != operands) continue;
    const std::vector<double> slopes = sweep.slopes(curve);
    if (slopes.empty()) continue;
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", curve.accumulator, interval_text(slopes));
  }
  return text.empty() ? "not fitted" : text;
}

/// The columns that say which curve a row is about, then `more`.
std::vector<Column> curve_columns(std::vector<Column> more) {
  std::vector<Column> columns{{"operands", "", "e4m3 with amax scales, or bf16"},
                              {"distribution", "", "of the operands"},
                              {"accumulator", "", "registered model"},
                              {"promotion_interval", "1", "terms between promotions; 0 for none"}};
  columns.insert(columns.end(), more.begin(), more.end());
  return columns;
}

/// Their cells, then `more`.
std::vector<Cell> curve_row(Distribution d, const Curve& curve, std::vector<Cell> more) {
  std::vector<Cell> row{std::string(to_string(curve.operands)), std::string(to_string(d)),
                        curve.accumulator, curve.interval};
  row.insert(row.end(), more.begin(), more.end());
  return row;
}

}  // namespace

Table slope_table(const Sweep& sweep) {
  const DriftSettings& p = sweep.settings();
  Table table(
      "slopes",
      fmt::format("Fitted exponents: relative L2 error ~ K^slope (e4m3: {} <= K <= {}, "
                  "bf16: K >= {}; sets of operands: {})",
                  p.fit_k_min, p.fit_k_max, p.bf16_fit_k_min, p.fit_repeats),
      curve_columns(
          {{"slope", "1", "least squares of log2 error on log2 K, mean over sets of operands"},
           {"slope_half_width", "1", "half width of the interval that holds 99 % of single sets"},
           {"slope_min", "1", "smallest"},
           {"slope_max", "1", "largest"},
           {"standard_error", "1", "standard error from the residuals of the first set"},
           {"points", "1", "lengths fitted"}}));
  for (const Distribution d : sweep.distributions())
    for (const Curve& curve : sweep.curves(d)) {
      const LineFit fit = sweep.slope(curve);
      const std::vector<double> slopes = sweep.slopes(curve);
      const Spread spread = slopes.empty() ? Spread{NAN, NAN, NAN} : spread_of(slopes);
      table.add_row(curve_row(d, curve,
                              {spread.mean, interval_of(slopes).half_width, spread.min, spread.max,
                               fit.slope_standard_error, std::int64_t{fit.points}}));
    }
  return table;
}

Table slope_repeat_table(const Sweep& sweep) {
  Table table("slope_repeats", "The exponent of every set of operands",
              curve_columns({{"repeat", "1", "set of operands, from 0"},
                             {"slope", "1", "least squares of log2 error on log2 K"}}));
  const std::int64_t repeats = sweep.settings().fit_repeats;
  for (const Distribution d : sweep.distributions())
    for (const Curve& curve : sweep.curves(d))
      for (std::int64_t repeat = 0; repeat < repeats; ++repeat)
        table.add_row(curve_row(
            d, curve, {repeat, sweep.slope(curve, static_cast<std::size_t>(repeat)).slope}));
  return table;
}

void add_slope_findings(const Sweep& sweep, std::vector<std::string>& findings) {
  const DriftSettings& p = sweep.settings();
  const auto add = [&](Distribution d, OperandFormat operands, const std::string& setup) {
    findings.push_back(fmt::format(
        "Without promotion the relative L2 error on {} operands grows with these powers of K: {} "
        "({}; {}; "
        "sets of operands: {}).",
        to_string(d), exponents_of(sweep, d, operands), setup, kIntervalMeaning, p.fit_repeats));
  };
  for (const Distribution d : sweep.distributions()) {
    add(d, OperandFormat::e4m3, fmt::format("E4M3, K = {} to {}", p.fit_k_min, p.fit_k_max));
    add(d, OperandFormat::bf16,
        fmt::format("BF16, where only the accumulator rounds, K >= {}", p.bf16_fit_k_min));
  }
}

}  // namespace fp8lab::experiments

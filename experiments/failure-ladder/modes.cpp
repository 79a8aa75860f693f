#include "failure-ladder/modes.hpp"

#include <cmath>

#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::int64_t kPromotion = 128;

/// Per-tensor current scales forward; gradients in `format`, under a scale or as they are.
Variant with_gradients(FormatId format, bool scaled, double log2_constant) {
  const Recipe forward{.format = FormatId::e4m3fn};
  Recipe gradient{.format = format};
  if (!scaled) gradient.rule = ScaleRule::unit;
  return {"rung", "rung", train::fp8_recipe("rung", forward, forward, gradient, kPromotion),
          std::exp2(log2_constant), false};
}

Rung range_rung(double value) {
  return {"range",
          "log2 of the constant that multiplies gradients",
          "a current scale of the gradients",
          value,
          with_gradients(FormatId::e5m2, false, value),
          with_gradients(FormatId::e5m2, true, value),
          {}};
}

Rung formats_rung(double value) {
  return {"formats",
          "log2 of the constant that multiplies E4M3 gradients",
          "E5M2 gradients",
          value,
          with_gradients(FormatId::e4m3fn, false, value),
          with_gradients(FormatId::e5m2, false, value),
          {}};
}

Rung ladder_rung(const std::string& mode, const std::string& mitigation, const char* failing,
                 const char* mended, double value, std::int64_t channels) {
  const LadderStep bad = find_ladder(failing, {value}, channels).front();
  const LadderStep good = find_ladder(mended, {value}, channels).front();
  return {mode, bad.what, mitigation, value, bad.variant, good.variant, bad.outliers};
}

}  // namespace

Rung make_rung(const std::string& mode, double value, std::int64_t outlier_channels) {
  if (mode == "range") return range_rung(value);
  if (mode == "formats") return formats_rung(value);
  if (mode == "outliers")
    return ladder_rung(mode, "tiles of 32", "outliers", "outliers-mx", value, outlier_channels);
  require(mode == "accumulator", "modes", "range, outliers, formats or accumulator",
          "'" + mode + "'");
  return ladder_rung(mode, "promotion every 32 terms", "accumulator", "accumulator-promoted", value,
                     outlier_channels);
}

std::vector<Rung> find_rungs(const RungSettings& settings) {
  std::vector<Rung> rungs;
  for (const std::string& mode : settings.modes) {
    (void)make_rung(mode, 1.0, 1);  // the mode is one
    const std::vector<double>& values = mode == "range"      ? settings.range_log2
                                        : mode == "outliers" ? settings.outliers_log2
                                        : mode == "formats"  ? settings.formats_log2
                                                             : settings.accumulator_bits;
    for (const double value : values)
      rungs.push_back(make_rung(mode, value, settings.outlier_channels));
  }
  return rungs;
}

}  // namespace fp8lab::experiments

#pragma once
// The naive-FP8 tutorial's five-value walk-through, computed: every step per tensor and per
// tile, with subnormals (as hardware casts) and with them flushed to zero (as
// the text says), beside the figures that the text prints.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "fp8lab/gemm/backend.hpp"

namespace fp8lab::experiments {

/// What the text prints for one element; empty where it prints nothing.
struct TextFigures {
  std::optional<double> scaled;
  std::optional<double> quantized;
  std::optional<double> value_back;
};

/// One element cast one way.
struct CastStep {
  std::uint32_t code = 0;
  double quantized = 0.0;
  double value_back = 0.0;  ///< quantized * inverse_scale
  double absolute_error = 0.0;
  double relative_error = 0.0;
};

struct WalkthroughRow {
  double outlier = 0.0;
  std::string_view scaling;  ///< "per tensor" or "per tile"
  int index = 0;
  float x = 0.0F;
  float inverse_scale = 0.0F;  ///< the text's s = amax / 448
  float scaled = 0.0F;         ///< x / s in binary32
  CastStep flushed;
  CastStep preserved;
  TextFigures text;
};

/// Steps 1 to 8: outlier 220 then 4400 per tensor, then 4400 in tiles of 3.
std::vector<WalkthroughRow> walkthrough_rows(const Backend& backend = {});

/// Whether a computed figure agrees with one that the text prints to `decimals`
/// places: at most one unit of the last place apart.
bool agrees(double computed, double printed, int decimals);

/// A value that the text lists as lying on the E4M3 grid.
struct GridValue {
  double text = 0.0;
  double text_next = 0.0;   ///< the value that the text lists after it; NaN for none or "..."
  double e4m3 = 0.0;        ///< nearest E4M3 value
  double e4m3_next = 0.0;   ///< the E4M3 value after that one
  bool is_e4m3 = false;     ///< to the text's four decimals
  bool next_agrees = true;  ///< the text's next value is the next on the grid
};
std::vector<GridValue> grid_values();

}  // namespace fp8lab::experiments

#include "walkthrough/walkthrough.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "common/cast.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t kCount = 5;
constexpr std::size_t kTextTile = 3;
using Tensor = std::array<float, kCount>;

CastStep cast_step(const Backend& backend, const CastPolicy& policy, const WalkthroughRow& row) {
  const Format& e4m3 = format(FormatId::e4m3fn);
  CastStep step;
  step.code = cast_all(backend, e4m3, policy, {&row.scaled, 1})[0].code;
  step.quantized = decode(e4m3, step.code);
  step.value_back = step.quantized * row.inverse_scale;
  step.absolute_error = std::abs(step.value_back - row.x);
  step.relative_error = step.absolute_error / std::abs(row.x);
  return step;
}

void append_rows(const Backend& backend, std::vector<WalkthroughRow>& rows, const Tensor& x,
                 std::string_view scaling, std::size_t tile, std::span<const TextFigures> text) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t begin = i / tile * tile;
    float amax = 0.0F;
    for (std::size_t j = begin; j < std::min(begin + tile, x.size()); ++j)
      amax = std::max(amax, std::abs(x[j]));
    WalkthroughRow row;
    row.outlier = x[2];
    row.scaling = scaling;
    row.index = static_cast<int>(i);
    row.x = x[i];
    row.inverse_scale = amax / 448.0F;
    row.scaled = x[i] / row.inverse_scale;
    row.flushed = cast_step(backend, kFlush, row);
    row.preserved = cast_step(backend, kNvidiaSatfinite, row);
    row.text = text[i];
    rows.push_back(row);
  }
}

constexpr std::optional<double> kNothing;

/// Steps 2 and 3 of the text.
constexpr std::array<TextFigures, kCount> kText220{{{0.815, 0.8125, 0.3990},
                                                    {-0.204, -0.2031, -0.0997},
                                                    {448.0, 448.0, 220.0},
                                                    {0.102, 0.1016, 0.0499},
                                                    {-0.611, -0.6250, -0.3070}}};
/// Steps 5 and 6; 0.0102 "is" 0.0176 there.
constexpr std::array<TextFigures, kCount> kText4400{{{0.0407, kNothing, kNothing},
                                                     {-0.0102, -0.0176, kNothing},
                                                     {448.0, kNothing, kNothing},
                                                     {0.0051, 0.0, 0.0},
                                                     {-0.0305, kNothing, kNothing}}};
/// Step 7; the text computes the second tile only.
constexpr std::array<TextFigures, kCount> kTextTiles{
    {{}, {}, {}, {74.65, 72.0, 0.0482}, {-448.0, -448.0, -0.30}}};

}  // namespace

std::vector<WalkthroughRow> walkthrough_rows(const Backend& backend) {
  Tensor x{0.40F, -0.10F, 220.0F, 0.05F, -0.30F};
  std::vector<WalkthroughRow> rows;
  append_rows(backend, rows, x, "per tensor", x.size(), kText220);
  x[2] = 4400.0F;
  append_rows(backend, rows, x, "per tensor", x.size(), kText4400);
  append_rows(backend, rows, x, "per tile", kTextTile, kTextTiles);
  return rows;
}

bool agrees(double computed, double printed, int decimals) {
  const double unit = std::pow(10.0, -decimals);
  return std::abs(std::round(computed / unit) - std::round(printed / unit)) <= 1.0;
}

std::vector<GridValue> grid_values() {
  const double none = std::numeric_limits<double>::quiet_NaN();
  constexpr std::array kText{0.0156, 0.0176, 0.0625, 0.0703, 0.0781,
                             0.0859, 0.75,   0.875,  1.0,    1.125};
  constexpr std::array kEndsARun{false, true, false, false, false, true, false, false, false, true};
  const Format& f = format(FormatId::e4m3fn);
  std::vector<GridValue> values;
  for (std::size_t i = 0; i < kText.size(); ++i) {
    GridValue v;
    v.text = kText[i];
    v.text_next = kEndsARun[i] ? none : kText[i + 1];
    const std::uint32_t code = encode(f, kNvidiaSatfinite, static_cast<float>(v.text));
    v.e4m3 = decode(f, code);
    v.e4m3_next = decode(f, code + 1);
    v.is_e4m3 = std::abs(v.e4m3 - v.text) <= 0.5e-4 * 1.000001;
    v.next_agrees = kEndsARun[i] || std::abs(v.e4m3_next - v.text_next) <= 0.5e-4 * 1.000001;
    values.push_back(v);
  }
  return values;
}

}  // namespace fp8lab::experiments

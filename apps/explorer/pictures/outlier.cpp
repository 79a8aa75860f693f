#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/scaling/statistics.hpp"
#include "pictures/json.hpp"
#include "pictures/pictures.hpp"

namespace fp8lab::explorer {
namespace {

void validate(const OutlierQuestion& q) {
  require(q.elements >= 1 && q.elements <= 65536, "elements", "1 .. 65536",
          fmt::format("{}", q.elements));
  require(q.position >= 0 && q.position < q.elements, "position",
          fmt::format("below {} elements", q.elements), fmt::format("{}", q.position));
  require(q.tile >= 0, "tile", "0 or more", fmt::format("{}", q.tile));
  require(std::isfinite(q.sigma) && q.sigma >= 0.0, "sigma", "a finite number >= 0",
          fmt::format("{}", q.sigma));
  require(std::abs(q.outlier) <= 1e30, "outlier", "a magnitude of at most 1e30",
          fmt::format("{}", q.outlier));
}

std::vector<float> draw(const OutlierQuestion& q) {
  const RandomStream random(q.seed, "explorer/outlier");
  std::vector<float> x(static_cast<std::size_t>(q.elements));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(q.sigma * random.normal(i));
  x[static_cast<std::size_t>(q.position)] = static_cast<float>(q.outlier);
  return x;
}

/// The recipe with another format and tile. A row of any length will do here, so that the sizes
/// that kernels insist on do not matter.
Recipe recipe_of(const OutlierQuestion& q, int tile) {
  Recipe recipe = find_preset(q.recipe).activation;
  recipe.format = q.format;
  recipe.row_block = 1;
  recipe.k_block = tile;
  recipe.rows_multiple = 1;
  recipe.k_multiple = 1;
  if (q.flush) recipe.policy.subnormals = SubnormalPolicy::flush_to_zero;
  return recipe;
}

bool is_zero(const Format& f, std::uint8_t code) {
  return unpack(f, code).value_class == ValueClass::zero;
}

/// The smallest positive number whose code in this tile is not zero, found by bisection over
/// binary32: casts are monotone. Infinity if there is none.
double smallest_survivor(const Recipe& recipe, const TileScale& scale) {
  const Format& f = format(recipe.format);
  const bool divide = divides(recipe.rule);
  const auto survives = [&](std::uint32_t bits) {
    const std::array<float, 1> x{std::bit_cast<float>(bits)};
    std::array<std::uint8_t, 1> code{};
    encode_scaled(f, recipe.policy, x, scale, divide, code);
    return !is_zero(f, code[0]);
  };
  constexpr std::uint32_t kInfinity = 0x7f800000;
  std::uint32_t zero = 0;
  std::uint32_t alive = kInfinity;
  while (alive - zero > 1) {
    const std::uint32_t middle = zero + (alive - zero) / 2;
    (survives(middle) ? alive : zero) = middle;
  }
  return static_cast<double>(std::bit_cast<float>(alive));
}

/// The elements but the one at `position`.
std::vector<float> bulk(std::vector<float> x, int position) {
  x.erase(x.begin() + position);
  return x;
}

struct Outcome {
  QuantizedTensor tensor;
  std::vector<float> values;
  std::string figures;
};

Outcome quantize_row(const OutlierQuestion& q, const std::vector<float>& x, int tile) {
  const Recipe recipe = recipe_of(q, tile);
  const Format& f = format(recipe.format);
  const FloatMatrix row{x, 1, q.elements};
  Outcome outcome;
  outcome.tensor = quantize(recipe, row, false, 1);
  outcome.values = dequantize(outcome.tensor);
  const QuantizationStatistics s = quantization_statistics(row, outcome.tensor);
  const std::vector<float> reference = bulk(x, q.position);
  const std::vector<float> actual = bulk(outcome.values, q.position);
  const Comparison c = compare(std::span(reference), std::span(actual));
  const auto crushed = std::count_if(outcome.tensor.codes.begin(), outcome.tensor.codes.end(),
                                     [&](std::uint8_t code) { return is_zero(f, code); });
  const auto zeros = std::count(x.begin(), x.end(), 0.0F);
  outcome.figures = JsonObject()
                        .number("killed", static_cast<double>(crushed - zeros))
                        .number("underflow_percent", s.underflow_percent)
                        .number("saturated_percent", s.saturated_percent)
                        .number("nan_percent", s.nan_percent)
                        .number("relative_l2", s.relative_l2)
                        .number("sqnr_db", s.sqnr_db)
                        .number("bulk_relative_l2", c.relative_l2)
                        .number("bulk_sqnr_db", c.sqnr_db)
                        .number("scale_min", s.scale_min)
                        .number("scale_max", s.scale_max)
                        .number("scale_overhead_percent", s.scale_overhead_percent)
                        .str();
  return outcome;
}

std::string describe_tiles(const QuantizedTensor& q, const Recipe& recipe) {
  std::string text = "[";
  for (std::size_t t = 0; t < q.scales.size(); ++t) {
    const TileScale scale{q.scales[t], q.inverse_scales[t],
                          q.e8m0.empty() ? std::uint8_t{0} : q.e8m0[t]};
    if (t > 0) text += ',';
    text += JsonObject()
                .number("scale", static_cast<double>(scale.scale))
                .number("inverse_scale", static_cast<double>(scale.inverse_scale))
                .number("smallest_survivor", smallest_survivor(recipe, scale))
                .str();
  }
  return text + ']';
}

std::string_view fate_of(const Format& f, std::uint8_t code, float x) {
  const Unpacked u = unpack(f, code);
  if (u.value_class == ValueClass::zero) return x == 0.0F ? "zero" : "killed";
  if (u.is_finite() && (code & f.magnitude_mask()) == f.max_finite_code()) return "largest";
  return to_string(u.value_class);
}

std::string floats(const std::vector<float>& values) {
  return json_array(values, [](float x) { return json(static_cast<double>(x)); });
}

}  // namespace

std::string outlier(const OutlierQuestion& question) {
  validate(question);
  const Format& f = format(question.format);
  const std::vector<float> x = draw(question);
  const Outcome tiled = quantize_row(question, x, question.tile);
  std::string fates = "[";
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i > 0) fates += ',';
    fates += json(fate_of(f, tiled.tensor.codes[i], x[i]));
  }
  return JsonObject()
      .number("tile", static_cast<double>(tiled.tensor.k_block))
      .raw("x", floats(x))
      .raw("values", floats(tiled.values))
      .raw("fates", fates + ']')
      .raw("tiles", describe_tiles(tiled.tensor, recipe_of(question, question.tile)))
      .raw("figures", tiled.figures)
      .raw("per_tensor", quantize_row(question, x, 0).figures)
      .str();
}

}  // namespace fp8lab::explorer

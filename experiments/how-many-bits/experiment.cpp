#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/product.hpp"
#include "common/quantize.hpp"
#include "common/series.hpp"
#include "common/tensors.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "lab/experiment/parameter_struct.hpp"
#include "lab/experiment/row_table.hpp"

namespace fp8lab::experiments {
namespace {

enum class Operands : std::uint8_t { normal, positive };

constexpr std::array<std::string_view, 2> kOperandNames{"normal", "positive"};

std::string_view to_string(Operands operands) {
  return kOperandNames[static_cast<std::size_t>(operands)];
}

Operands find_operands(std::string_view name) {
  return find_enumerator<Operands>(kOperandNames, "operands", name);
}

struct Settings {
  std::vector<Operands> operands;
  std::vector<const Format*> formats;
  std::vector<std::int64_t> blocks;
  std::vector<std::int64_t> terms;
  std::vector<std::int64_t> fraction_bits;
  std::int64_t k = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  double margin = 0.0;

  static constexpr auto fields() {
    return std::tuple{field("operands", &Settings::operands, find_operands),
                      field("formats", &Settings::formats, find_format),
                      field("blocks", &Settings::blocks),
                      field("terms", &Settings::terms),
                      field("fraction_bits", &Settings::fraction_bits),
                      field("k", &Settings::k),
                      field("rows", &Settings::rows),
                      field("columns", &Settings::columns),
                      field("margin", &Settings::margin)};
  }
};

/// Every block is a whole number of steps.
void validate(const Settings& s) {
  for (const std::int64_t block : s.blocks)
    for (const std::int64_t terms : s.terms)
      require(block % terms == 0, "terms", fmt::format("a divisor of the block of {}", block),
              terms);
}

/// Operands of one kind in one format with scales of one block, and one size of steps.
struct Unit {
  Operands operands = Operands::normal;
  const Format* format = nullptr;
  std::int64_t block = 0;
  std::int64_t terms = 0;
};

struct Point {
  Unit unit;
  std::int64_t bits = 0;
  double accumulation = 0.0;  ///< error against the exact sum of the same products
  double format = 0.0;        ///< error of the exact sum of these products
  double total = 0.0;

  [[nodiscard]] double ratio() const { return total / format; }
};

/// The fewest bits from which on the accumulator adds at most the margin; 0 if there are none.
struct Enough {
  Unit unit;
  std::int64_t bits = 0;
};

std::vector<float> draw(const RunContext& context, const Settings& s, Operands operands,
                        std::string_view side, std::int64_t rows) {
  const RandomStream random =
      context.random(fmt::format("how-many-bits/{}/{}", to_string(operands), side));
  const auto count = static_cast<std::size_t>(rows * s.k);
  return operands == Operands::normal ? normal(random, count, 1.0)
                                      : uniform(random, count, 0.0, 1.0);
}

/// Both operands of a product, before the cast and after it.
struct Product {
  Quantized a;
  Quantized b;
  std::vector<double> exact;     ///< of the operands
  std::vector<double> of_codes;  ///< of what the codes stand for
  double format_error = 0.0;
};

Product make_product(const RunContext& context, const Settings& s, const Unit& unit) {
  const auto k = static_cast<std::size_t>(s.k);
  const std::vector<float> a = draw(context, s, unit.operands, "a", s.rows);
  const std::vector<float> b = draw(context, s, unit.operands, "b", s.columns);
  const ScaleBlock block =
      unit.block == 0 ? kPerTensor : tile(static_cast<std::size_t>(unit.block));
  const auto cast = [&](const std::vector<float>& x, std::int64_t rows) {
    return quantize(x, static_cast<std::size_t>(rows), k, block, *unit.format, kNvidiaSatfinite,
                    context.backend);
  };
  Product product{cast(a, s.rows), cast(b, s.columns), exact_product(a, b, k), {}, 0.0};
  product.of_codes = exact_product(product.a.values, product.b.values, k);
  product.format_error =
      compare(std::span<const double>(product.exact), std::span<const double>(product.of_codes))
          .relative_l2;
  return product;
}

/// Fused steps that align to F bits below the largest exponent and keep as many: truncated.
Point measure(const RunContext& context, const Product& product, const Unit& unit,
              std::int64_t bits) {
  GemmProblem problem;
  problem.model =
      find_instruction_model(fmt::format("fused:terms={},F={},M={}", unit.terms, bits, bits))
          .accumulator;
  problem.a = product.a.matrix();
  problem.b = product.b.matrix();
  problem.scale_a = product.a.scales();
  problem.scale_b = product.b.scales();
  problem.promotion_interval = unit.block;
  std::vector<float> d(product.exact.size());
  gemm_on(context.backend, problem, d, 1);
  const auto error = [&](const std::vector<double>& reference) {
    return compare(std::span<const double>(reference), std::span<const float>(d)).relative_l2;
  };
  return {unit, bits, error(product.of_codes), product.format_error, error(product.exact)};
}

std::vector<Unit> units_of(const Settings& s) {
  std::vector<Unit> units;
  for (const Operands operands : s.operands)
    for (const Format* format : s.formats)
      for (const std::int64_t block : s.blocks) units.push_back({operands, format, block, 0});
  return units;
}

std::vector<Point> measure_all(const RunContext& context, const Settings& s) {
  const std::vector<Unit> units = units_of(s);
  const std::size_t of_unit = s.terms.size() * s.fraction_bits.size();
  std::vector<Point> points(units.size() * of_unit);
  parallel_points(context, units.size(), [&](std::size_t i) {
    const Product product = make_product(context, s, units[i]);
    std::size_t at = i * of_unit;
    for (const std::int64_t terms : s.terms)
      for (const std::int64_t bits : s.fraction_bits) {
        Unit unit = units[i];
        unit.terms = terms;
        points[at++] = measure(context, product, unit, bits);
      }
  });
  return points;
}

/// Points of one unit follow each other.
std::vector<Enough> find_enough(const Settings& s, const std::vector<Point>& points) {
  std::vector<Enough> all;
  for (std::size_t begin = 0; begin < points.size(); begin += s.fraction_bits.size()) {
    Enough enough{points[begin].unit, 0};
    std::vector<Point> of_unit(
        points.begin() + static_cast<std::ptrdiff_t>(begin),
        points.begin() + static_cast<std::ptrdiff_t>(begin + s.fraction_bits.size()));
    std::ranges::sort(of_unit, std::ranges::greater(), &Point::bits);
    for (const Point& p : of_unit) {
      if (!(p.ratio() <= 1.0 + s.margin)) break;
      enough.bits = p.bits;
    }
    all.push_back(enough);
  }
  return all;
}

std::string block_name(std::int64_t block) {
  return block == 0 ? "one scale" : fmt::format("scales and promotion every {}", block);
}

std::string setup(const Settings& s) {
  return fmt::format("K = {}, {} sums, truncated", s.k, s.rows * s.columns);
}

Table error_table(const std::vector<Point>& points) {
  return row_table<Point>(
      "errors", "Error of a product against bits, terms, format and block",
      {{"operands", "", "normal N(0, 1), or positive U[0, 1)",
        [](const Point& p) { return p.unit.operands; }},
       {"format", "", "of both operands", [](const Point& p) { return p.unit.format->name; }},
       {"block", "1", "terms that share a scale and after which sums are promoted; 0: all of K",
        [](const Point& p) { return p.unit.block; }},
       {"terms", "1", "products of a step", [](const Point& p) { return p.unit.terms; }},
       {"fraction_bits", "1", "to which a step aligns, and which its sum keeps", &Point::bits},
       {"accumulation", "1", "relative L2 error against the exact sum of the same products",
        &Point::accumulation},
       {"format_error", "1", "relative L2 error of the exact sum of these products",
        &Point::format},
       {"total", "1", "relative L2 error against the product of the operands", &Point::total},
       {"ratio", "1", "total over format_error", &Point::ratio}},
      points);
}

Table enough_table(const Settings& s, const std::vector<Enough>& all) {
  return row_table<Enough>(
      "bits",
      fmt::format("Fraction bits from which on the accumulator adds at most {:g} % of the format's "
                  "error",
                  100.0 * s.margin),
      {{"operands", "", "normal N(0, 1), or positive U[0, 1)",
        [](const Enough& e) { return e.unit.operands; }},
       {"format", "", "of both operands", [](const Enough& e) { return e.unit.format->name; }},
       {"block", "1", "terms that share a scale and after which sums are promoted; 0: all of K",
        [](const Enough& e) { return e.unit.block; }},
       {"terms", "1", "products of a step", [](const Enough& e) { return e.unit.terms; }},
       {"bits", "1", "0: more than all that were tried", &Enough::bits}},
      all);
}

/// The first block's lines have points, the second's are dashed.
Series::Style style_of(const Settings& s, std::int64_t block) {
  if (block == s.blocks.front()) return Series::Style::lines_points;
  return block == s.blocks[1] ? Series::Style::dashed : Series::Style::lines;
}

/// Lines of equal error in the plane of terms and bits: above them more bits gain nothing.
Plot contour_plot(const Settings& s, const std::vector<Enough>& all, Operands operands) {
  Plot plot{fmt::format("contours_{}", to_string(operands)),
            fmt::format("Bits from which on the accumulator adds at most {:g} % ({} operands, {})",
                        100.0 * s.margin, to_string(operands), setup(s)),
            {"terms of a step", true, 2},
            {"fraction bits", false},
            {}};
  plot.series = series_by(
      all,
      [&](const Enough& e) {
        return e.unit.operands != operands || e.bits == 0
                   ? ""
                   : fmt::format("{}, {}", e.unit.format->name, block_name(e.unit.block));
      },
      [](const Enough& e) {
        return std::tuple(static_cast<double>(e.unit.terms), static_cast<double>(e.bits));
      },
      [&](const Enough& e) { return style_of(s, e.unit.block); });
  for (const std::int64_t block : s.blocks)
    share_colours(plot.series, block_name(block), block_name(s.blocks.front()));
  return plot;
}

/// Columns: format and terms. Rows: bits.
HeatMap ratio_map(const Settings& s, const std::vector<Point>& points, Operands operands,
                  std::int64_t block) {
  HeatMap map;
  map.name = fmt::format("error_{}_{}", to_string(operands), block);
  map.title = fmt::format("Error of a product over that of its format ({} operands, {}; {})",
                          to_string(operands), block_name(block), setup(s));
  map.x_label = "format, terms of a step";
  map.y_label = "fraction bits";
  map.value_label = "error over the format's";
  map.log = true;
  for (const std::int64_t bits : s.fraction_bits) map.rows.push_back(fmt::format("{}", bits));
  map.values.resize(map.rows.size() * s.formats.size() * s.terms.size());
  const std::size_t width = s.formats.size() * s.terms.size();
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Point& p = points[i];
    if (p.unit.operands != operands || p.unit.block != block) continue;
    const std::size_t row = i % s.fraction_bits.size();
    if (row == 0) map.columns.push_back(fmt::format("{}, {}", p.unit.format->name, p.unit.terms));
    map.values[row * width + map.columns.size() - 1] = p.ratio();
  }
  return map;
}

std::string bits_text(std::int64_t bits, const Settings& s) {
  if (bits != 0) return fmt::format("{}", bits);
  return fmt::format("more than {}", *std::ranges::max_element(s.fraction_bits));
}

/// "13 and 9 for e4m3fn; 8 and 6 for e2m1": bits at the most terms, of each block.
std::string answer(const Settings& s, const std::vector<Enough>& all, Operands operands) {
  const std::int64_t terms = *std::ranges::max_element(s.terms);
  std::vector<std::string> formats;
  for (const Format* format : s.formats) {
    std::vector<std::string> of_format;
    for (const Enough& e : all)
      if (e.unit.operands == operands && e.unit.format == format && e.unit.terms == terms)
        of_format.push_back(bits_text(e.bits, s));
    formats.push_back(fmt::format("{} for {}", in_words(of_format), format->name));
  }
  std::vector<std::string> blocks;
  for (const std::int64_t block : s.blocks) blocks.push_back(block_name(block));
  return fmt::format(
      "With {} operands and steps of {} terms the accumulator adds at most {:g} % to the error of "
      "the format from so many fraction bits on, with {}: {} ({}).",
      to_string(operands), terms, 100.0 * s.margin, in_words(blocks), fmt::join(formats, "; "),
      setup(s));
}

}  // namespace

Results how_many_bits(const RunContext& context) {
  const auto settings = read_parameters<Settings>(context.parameters);
  validate(settings);
  const std::vector<Point> points = measure_all(context, settings);
  const std::vector<Enough> enough = find_enough(settings, points);
  Results results;
  results.tables = {enough_table(settings, enough), error_table(points)};
  for (const Operands operands : settings.operands) {
    results.plots.push_back(contour_plot(settings, enough, operands));
    for (const std::int64_t block : settings.blocks)
      results.heat_maps.push_back(ratio_map(settings, points, operands, block));
    results.findings.push_back(answer(settings, enough, operands));
  }
  return results;
}

}  // namespace fp8lab::experiments

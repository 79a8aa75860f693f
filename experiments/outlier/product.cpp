#include "outlier/product.hpp"

#include <fmt/format.h>

#include <cmath>
#include <span>
#include <tuple>

#include "common/parallel.hpp"
#include "common/product.hpp"
#include "common/quantize.hpp"
#include "common/series.hpp"
#include "common/tensors.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "lab/experiment/row_table.hpp"

namespace fp8lab::experiments::outlier_sweep {
namespace {

constexpr const char* kModel = "sm90.wgmma.e4m3";
constexpr std::size_t kTile = 128;

bool is_whole_decade(double outlier) {
  const double decade = std::log10(outlier);
  return std::abs(decade - std::round(decade)) < 1e-9;
}

/// The outputs [1, n] of the instruction.
std::vector<float> multiply(const Quantized& a, const Quantized& b, std::int64_t interval,
                            const Backend& backend) {
  GemmProblem problem;
  problem.model = find_instruction_model(kModel).accumulator;
  problem.a = a.matrix();
  problem.b = b.matrix();
  problem.scale_a = a.scales();
  problem.scale_b = b.scales();
  problem.promotion_interval = interval;
  std::vector<float> d(a.rows * b.rows);
  gemm_on(backend, problem, d, 1);
  return d;
}

const ProductPoint* find_point(const std::vector<ProductPoint>& points, std::size_t k,
                               double outlier, const ProductScheme& scheme) {
  for (const ProductPoint& p : points)
    if (p.k == k && p.outlier == outlier && p.scheme == &scheme) return &p;
  return nullptr;
}

}  // namespace

const std::vector<ProductScheme>& product_schemes() {
  static const std::vector<ProductScheme> kSchemes{
      {"per tensor, no promotion", 0, 0},
      {fmt::format("per tile of {}, promoted", kTile), kTile, static_cast<std::int64_t>(kTile)}};
  return kSchemes;
}

double product_error(const RandomStream& random, double sigma, double outlier, std::size_t k,
                     std::size_t outputs, const ProductScheme& scheme, const Backend& backend) {
  const std::size_t at = k / 2;
  std::vector<float> x = normal(random, k, sigma);
  const std::vector<float> w = normal(RandomStream(random.bits64(0), 1), outputs * k, 1.0);
  std::vector<float> bulk = x;
  bulk[at] = 0.0F;
  x[at] = static_cast<float>(outlier);
  const Format& e4m3 = format(FormatId::e4m3fn);
  const Quantized a = quantize(x, 1, k, scheme.tile == 0 ? kPerTensor : tile(scheme.tile), e4m3,
                               kNvidiaSatfinite, backend);
  const Quantized b = quantize(w, outputs, k, kPerTensor, e4m3, kNvidiaSatfinite, backend);
  const std::vector<float> d = multiply(a, b, scheme.promotion_interval, backend);
  const std::vector<double> expected = exact_product(bulk, w, k);
  double error = 0.0;
  double size = 0.0;
  for (std::size_t j = 0; j < outputs; ++j) {
    const double own =
        static_cast<double>(a.values[at]) * static_cast<double>(b.values[j * k + at]);
    const double off = static_cast<double>(d[j]) - own - expected[j];
    error += off * off;
    size += expected[j] * expected[j];
  }
  return std::sqrt(error / size);
}

std::vector<ProductPoint> product_points(const RunContext& context, const Setup& setup) {
  std::vector<ProductPoint> points;
  for (const ProductScheme& scheme : product_schemes())
    for (const std::size_t k : setup.product_k)
      for (const double outlier : setup.outliers)
        if (is_whole_decade(outlier)) points.push_back({k, outlier, &scheme, {}, {}});
  parallel_points(
      context, points.size(),
      [&](std::size_t i) {
        ProductPoint& p = points[i];
        const RandomStream random = context.random("product");
        std::vector<double> errors;
        for (std::size_t repeat = 0; repeat < setup.repeats; ++repeat)
          errors.push_back(product_error(RandomStream(random.bits64(repeat), repeat),
                                         setup.tensor.sigma, p.outlier, p.k, setup.product_outputs,
                                         *p.scheme, context.backend));
        p.error = spread_of(errors);
        p.draws = std::move(errors);
      },
      0.9, 1.0);
  return points;
}

Table product_table(const Setup& s, const std::vector<ProductPoint>& points) {
  using P = ProductPoint;
  return row_table<P>(
      "product",
      fmt::format("What one outlier does to the other elements' part of an output ({}, {} outputs, "
                  "{} repeats)",
                  kModel, s.product_outputs, s.repeats),
      {{"k", "1", "length of the dot product", [](const P& p) { return p.k; }},
       {"outlier", "1", "magnitude of the one outlier of the row", &P::outlier},
       {"scheme", "", "scales of the row and promotion", [](const P& p) { return p.scheme->name; }},
       {"tile", "elements", "elements of the row that share a scale",
        [](const P& p) { return p.scheme->tile == 0 ? p.k : p.scheme->tile; }},
       {"promotion_interval", "1", "terms between promotions into FP32; 0 for none",
        [](const P& p) { return p.scheme->promotion_interval; }},
       {"error", "1", "relative L2 error of the other elements' part, mean over repeats",
        [](const P& p) { return p.error.mean; }},
       {"error_min", "1", "smallest", [](const P& p) { return p.error.min; }},
       {"error_max", "1", "largest", [](const P& p) { return p.error.max; }}},
      points);
}

Table product_draws(const std::vector<ProductPoint>& points) {
  Table table("product_repeats", "The error of an output beside an outlier, draw by draw",
              {{"k", "1", "length of the dot product"},
               {"outlier", "1", "magnitude of the one outlier of the row"},
               {"scheme", "", "scales of the row and promotion"},
               {"repeat", "1", "draw, from 0"},
               {"error", "1", "relative L2 error of the other elements' part"}});
  for (const ProductPoint& p : points)
    for (std::size_t i = 0; i < p.draws.size(); ++i)
      table.add_row({static_cast<std::int64_t>(p.k), p.outlier, p.scheme->name,
                     static_cast<std::int64_t>(i), p.draws[i]});
  return table;
}

Plot product_plot(const Setup& s, const std::vector<ProductPoint>& points) {
  Plot plot{
      "output_error_against_outlier",
      fmt::format("One outlier in a dot product: error of the other elements' part ({})", kModel),
      {"magnitude of the one outlier", true, 10,
       SecondScale{"in units of σ of the other elements", s.tensor.sigma}},
      {"relative L2 error of the other elements' part (%)", true},
      {}};
  plot.series = series_by(
      points, [](const ProductPoint& p) { return fmt::format("K {}, {}", p.k, p.scheme->name); },
      [](const ProductPoint& p) {
        return std::tuple(p.outlier, p.error.mean, p.error.min, p.error.max);
      },
      [](const ProductPoint& p) {
        return p.scheme->tile == 0 ? Series::Style::lines_points : Series::Style::dashed;
      });
  share_colours(plot.series, product_schemes()[1].name, product_schemes()[0].name);
  return in_percent(std::move(plot));
}

std::string product_finding(const Setup& s, const std::vector<ProductPoint>& points) {
  const std::size_t k = s.product_k.back();
  std::string figures;
  for (const double outlier : {1e2, 1e3, 1e4}) {
    const ProductPoint* naive = find_point(points, k, outlier, product_schemes()[0]);
    const ProductPoint* tiled = find_point(points, k, outlier, product_schemes()[1]);
    if (naive == nullptr || tiled == nullptr) continue;
    figures += fmt::format("{} {} % and {} % at {:g}", figures.empty() ? "" : ",",
                           interval_text(naive->draws, 100.0), interval_text(tiled->draws, 100.0),
                           outlier);
  }
  return fmt::format(
      "In a dot product of {} elements on {} with one outlier, the other elements' part of the "
      "output has, {} and {}, relative L2 errors of:{} (N(0, {:g}^2); {}; draws: {}).",
      k, kModel, product_schemes()[0].name, product_schemes()[1].name, figures, s.tensor.sigma,
      kIntervalMeaning, s.repeats);
}

}  // namespace fp8lab::experiments::outlier_sweep

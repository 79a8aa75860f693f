#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tuple>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/series.hpp"
#include "common/spread.hpp"
#include "format-asymmetry/findings.hpp"
#include "lab/experiment/parameter_struct.hpp"

namespace fp8lab::experiments {
namespace {

using namespace asymmetry;

template <typename Member>
constexpr auto source(std::string_view name, Member member) {
  return field(name, member, [name](const std::string& text) { return find_source(name, text); });
}

struct Settings {
  Setup setup;

  static constexpr auto fields() {
    return std::tuple{group(
        &Settings::setup,
        group(&Setup::shape, field("tokens", &LayerShape::tokens),
              field("inputs", &LayerShape::inputs), field("outputs", &LayerShape::outputs),
              group(&LayerShape::activation, field("activation_sigma", &OutlierChannels::sigma),
                    field("outlier_channels", &OutlierChannels::outlier_channels),
                    field("outlier_magnitude", &OutlierChannels::magnitude)),
              field("weight_sigma", &LayerShape::weight_sigma),
              field("gradient_decades", &LayerShape::gradient_decades),
              field("gradient_row_share", &LayerShape::gradient_row_share),
              source("activations", &LayerShape::activations),
              source("weights", &LayerShape::weights), source("gradients", &LayerShape::gradients)),
        group(&Setup::product, field("tile", &ProductSetup::tile),
              field("promotion_interval", &ProductSetup::promotion_interval)),
        field("policies", &Setup::policies, find_cast_profile), field("repeats", &Setup::repeats),
        field("tensor_repeats", &Setup::tensor_repeats),
        field("sweep_decades", &Setup::sweep_decades),
        field("sweep_row_shares", &Setup::sweep_row_shares))};
  }
};

Setup read_setup(const Parameters& parameters) {
  Setup s = read_parameters<Settings>(parameters).setup;
  s.product.policy = s.policies.front()->policy;
  return s;
}

RandomStream layer_stream(const RunContext& context, std::size_t repeat) {
  return context.random(fmt::format("layer {}", repeat));
}

ScaleBlock block_of(const Recipe& recipe, bool weight, std::size_t size) {
  if (!recipe.fine_scales) return kPerTensor;
  return weight ? ScaleBlock{size, size} : tile(size);
}

std::vector<TensorPoint> measure_tensors(const RunContext& context, const Setup& s) {
  std::vector<TensorPoint> points;
  for (const char* tensor : {"activation", "weight", "gradient"})
    for (const Recipe& recipe : kRecipes)
      for (const CastProfile* policy : s.policies) {
        const bool gradient = std::string_view(tensor) == "gradient";
        points.push_back(
            {&recipe, policy, tensor, gradient ? recipe.backward : recipe.forward, {}});
      }
  parallel_points(
      context, points.size(),
      [&](std::size_t i) {
        TensorPoint& p = points[i];
        for (std::size_t repeat = 0; repeat < s.tensor_repeats; ++repeat) {
          const Layer layer = make_layer(layer_stream(context, repeat), s.shape);
          const bool weight = p.tensor == "weight";
          const bool activation = p.tensor == "activation";
          const std::vector<float>& x = weight ? layer.w : activation ? layer.x : layer.dy;
          const std::size_t rows = weight ? layer.outputs : layer.tokens;
          const TensorLoss loss = tensor_loss(
              x, quantize(x, rows, x.size() / rows, block_of(*p.recipe, weight, s.product.tile),
                          format(p.format), p.policy->policy, context.backend));
          p.figures.zero_share.push_back(loss.zero_share);
          p.figures.relative_l2.push_back(loss.error.relative_l2);
          p.figures.sqnr_db.push_back(loss.error.sqnr_db);
        }
      },
      0.0, 0.1);
  return points;
}

std::vector<ProductPoint> measure_products(const RunContext& context, const Setup& s) {
  std::vector<ProductPoint> points;
  for (const bool exact : {true, false})
    for (const Product product : kProducts)
      for (const Recipe& recipe : kRecipes) points.push_back({&recipe, product, exact, {}, {}});
  parallel_points(
      context, points.size(),
      [&](std::size_t i) {
        ProductPoint& p = points[i];
        ProductSetup setup = s.product;
        setup.exact = p.exact;
        for (std::size_t repeat = 0; repeat < s.repeats; ++repeat) {
          const Layer layer = make_layer(layer_stream(context, repeat), s.shape);
          ProductError e = product_error(layer, *p.recipe, p.product, setup);
          p.figures.relative_l2.push_back(e.error.relative_l2);
          p.figures.sqnr_db.push_back(e.error.sqnr_db);
          p.figures.bias.push_back(e.error.mean_signed_relative);
          p.figures.median_row.push_back(e.median_row_error());
          p.figures.worst_row.push_back(e.worst_row_error());
          if (repeat == 0) p.first = std::move(e);
        }
      },
      0.1, 0.9);
  return points;
}

/// One gradient of the zero-share sweeps.
struct SweepPoint {
  bool over_decades = false;  ///< which of the two sweeps it belongs to
  double decades = 0.0;
  double row_share = 0.0;
  const Recipe* recipe = nullptr;
  const CastProfile* policy = nullptr;
  Spread zero_share;
};

std::vector<SweepPoint> measure_sweep(const RunContext& context, const Setup& s) {
  std::vector<SweepPoint> points;
  const auto add = [&](bool over_decades, double decades, double row_share) {
    for (const Recipe& recipe : kRecipes)
      for (const CastProfile* policy : s.policies)
        if (recipe.name != "hybrid")  // its gradients are those of E5M2 everywhere
          points.push_back({over_decades, decades, row_share, &recipe, policy, {}});
  };
  for (const double decades : s.sweep_decades) add(true, decades, s.shape.gradient_row_share);
  for (const double share : s.sweep_row_shares) add(false, s.shape.gradient_decades, share);
  parallel_points(
      context, points.size(),
      [&](std::size_t i) {
        SweepPoint& p = points[i];
        std::vector<double> shares;
        for (std::size_t repeat = 0; repeat < s.tensor_repeats; ++repeat) {
          LayerShape shape = s.shape;
          shape.gradient_decades = p.decades;
          shape.gradient_row_share = p.row_share;
          shape.gradients.reset();  // the sweep is over log-normal ones
          const std::vector<float> dy = make_gradient(layer_stream(context, repeat), shape);
          const Quantized q = quantize(
              dy, s.shape.tokens, s.shape.outputs, block_of(*p.recipe, false, s.product.tile),
              format(p.recipe->backward), p.policy->policy, context.backend);
          shares.push_back(tensor_loss(dy, q).zero_share);
        }
        p.zero_share = spread_of(shares);
      },
      0.9, 1.0);
  return points;
}

std::string scales_name(const TensorPoint& p, std::size_t size) {
  if (!p.recipe->fine_scales) return "per tensor";
  return fmt::format("{}x{}", p.tensor == "weight" ? size : 1, size);
}

Table tensor_table(const Setup& s, const std::vector<TensorPoint>& points) {
  Table table("tensors", "Errors of each recipe in each tensor of the layer",
              {{"tensor", "", "activation [tokens, inputs], weight, gradient of the output"},
               {"recipe", "", "which formats and scales"},
               {"format", "", "that this tensor takes"},
               {"scales", "", "per tensor or fine"},
               {"subnormals", "", "kept or flushed"},
               {"zero_share", "1", "share of the non-zero elements that became zero, mean"},
               {"relative_l2", "1", "error of the reconstructed tensor, mean over repeats"},
               {"relative_l2_min", "1", "smallest"},
               {"relative_l2_max", "1", "largest"},
               {"sqnr_db", "dB", "signal to quantization noise, mean over repeats"}});
  for (const TensorPoint& p : points) {
    const Spread l2 = spread_of(p.figures.relative_l2);
    table.add_row({p.tensor, std::string(p.recipe->name), std::string(format(p.format).name),
                   scales_name(p, s.product.tile), subnormal_name(p.policy->policy),
                   spread_of(p.figures.zero_share).mean, l2.mean, l2.min, l2.max,
                   spread_of(p.figures.sqnr_db).mean});
  }
  return table;
}

Table product_table(const std::vector<ProductPoint>& points) {
  Table table("products", "Errors of the three matrix products against FP64",
              {{"product", "", "which product of the layer"},
               {"recipe", "", "which formats and scales"},
               {"accumulation", "", "exact, or Hopper's sm90.wgmma"},
               {"relative_l2", "1", "error of the whole product, mean over repeats"},
               {"relative_l2_min", "1", "smallest"},
               {"relative_l2_max", "1", "largest"},
               {"median_row_relative_l2", "1", "error of the median row, mean over repeats"},
               {"worst_row_relative_l2", "1", "error of the worst row, mean over repeats"},
               {"sqnr_db", "dB", "signal to noise, mean over repeats"},
               {"mean_signed_relative", "1", "bias: below 0 is toward zero, mean over repeats"}});
  for (const ProductPoint& p : points) {
    const Spread l2 = spread_of(p.figures.relative_l2);
    table.add_row({std::string(to_string(p.product)), std::string(p.recipe->name),
                   std::string(p.exact ? "exact" : "sm90.wgmma"), l2.mean, l2.min, l2.max,
                   spread_of(p.figures.median_row).mean, spread_of(p.figures.worst_row).mean,
                   spread_of(p.figures.sqnr_db).mean, spread_of(p.figures.bias).mean});
  }
  return table;
}

Table sweep_table(const std::vector<SweepPoint>& points) {
  Table table("gradient_zeros", "Share of a log-normal gradient that becomes zero",
              {{"decades", "decades", "that the gradient spans, ±3 σ"},
               {"row_share", "1", "share of the variance that is common to a token"},
               {"recipe", "", "which format and scales"},
               {"subnormals", "", "kept or flushed"},
               {"zero_share", "1", "share that became zero, mean over repeats"},
               {"zero_share_min", "1", "smallest"},
               {"zero_share_max", "1", "largest"}});
  for (const SweepPoint& p : points)
    table.add_row({p.decades, p.row_share, std::string(p.recipe->name),
                   subnormal_name(p.policy->policy), p.zero_share.mean, p.zero_share.min,
                   p.zero_share.max});
  return table;
}

/// Every draw behind the means of `tensors`.
Table tensor_repeat_table(const std::vector<TensorPoint>& points) {
  Table table("tensor_repeats", "What each recipe does to each tensor, draw by draw",
              {{"tensor", "", "activation [tokens, inputs], weight, gradient of the output"},
               {"recipe", "", "which formats and scales"},
               {"subnormals", "", "kept or flushed"},
               {"repeat", "1", "draw, from 0"},
               {"zero_share", "1", "share of the non-zero elements that became zero"},
               {"relative_l2", "1", "error of the tensor"}});
  for (const TensorPoint& p : points)
    for (std::size_t i = 0; i < p.figures.zero_share.size(); ++i)
      table.add_row({p.tensor, std::string(p.recipe->name), subnormal_name(p.policy->policy),
                     static_cast<std::int64_t>(i), p.figures.zero_share[i],
                     p.figures.relative_l2[i]});
  return table;
}

/// Every draw behind the means of `products`.
Table product_repeat_table(const std::vector<ProductPoint>& points) {
  Table table("product_repeats", "Errors of the three matrix products, draw by draw",
              {{"product", "", "which product of the layer"},
               {"recipe", "", "which formats and scales"},
               {"accumulation", "", "exact, or Hopper's sm90.wgmma"},
               {"repeat", "1", "draw, from 0"},
               {"relative_l2", "1", "error of the whole product"},
               {"worst_row_relative_l2", "1", "error of the worst row"}});
  for (const ProductPoint& p : points)
    for (std::size_t i = 0; i < p.figures.relative_l2.size(); ++i)
      table.add_row({std::string(to_string(p.product)), std::string(p.recipe->name),
                     std::string(p.exact ? "exact" : "sm90.wgmma"), static_cast<std::int64_t>(i),
                     p.figures.relative_l2[i], p.figures.worst_row[i]});
  return table;
}

std::string gradient_label(const Recipe& recipe, const CastProfile& policy) {
  return fmt::format("{} {}{}", short_name(format(recipe.backward)),
                     recipe.fine_scales ? "fine scales" : "per tensor",
                     policy.policy.subnormals == SubnormalPolicy::flush_to_zero ? ", flushed" : "");
}

/// Lines over one of the two sweeps.
Plot sweep_plot(const Setup& s, const std::vector<SweepPoint>& points, bool over_decades) {
  Plot plot;
  plot.y.label = "elements lost to zero (%)";
  if (over_decades) {
    plot.name = "zeros_against_decades";
    plot.title = fmt::format("How much of a gradient becomes zero ({} x {} log-normal)",
                             s.shape.tokens, s.shape.outputs);
    plot.x.label = fmt::format(
        "decades that the gradient spans (±3 σ; {:g} % of the variance common to a token)",
        100.0 * s.shape.gradient_row_share);
  } else {
    plot.name = "zeros_against_row_share";
    plot.title = fmt::format(
        "Fine scales help if neighbours have similar magnitudes ({} x {}, {:g} decades)",
        s.shape.tokens, s.shape.outputs, s.shape.gradient_decades);
    plot.x.label = "share of the gradient's log variance that is common to a token (%)";
  }
  plot.series = series_by(
      points,
      [&](const SweepPoint& p) {
        return p.over_decades == over_decades ? gradient_label(*p.recipe, *p.policy) : "";
      },
      [&](const SweepPoint& p) {
        return std::tuple(over_decades ? p.decades : 100.0 * p.row_share, 100.0 * p.zero_share.mean,
                          100.0 * p.zero_share.min, 100.0 * p.zero_share.max);
      },
      [](const SweepPoint& p) {
        const bool kept = p.policy->policy.subnormals == SubnormalPolicy::preserve;
        return kept ? Series::Style::lines_points : Series::Style::dashed;
      });
  share_colours(plot.series, ", flushed", "");
  return plot;
}

Plot token_plot(const Setup& s, const std::vector<ProductPoint>& points) {
  Plot plot{
      "token_errors",
      fmt::format("Tokens with small gradients lose them first (dx of {} tokens, {:g} decades)",
                  s.shape.tokens, s.shape.gradient_decades),
      {"L2 norm of the token's input gradient", true},
      {"its relative L2 error (%)", true},
      {}};
  for (const ProductPoint& p : points) {
    if (p.exact || p.product != Product::input_gradient) continue;
    Series series{std::string(p.recipe->label), p.first.row_norm, {}, Series::Style::points};
    for (const double error : p.first.row_error) series.y.push_back(100.0 * error);
    plot.series.push_back(series);
  }
  return plot;
}

HeatMap error_map(const Setup& s, const std::vector<ProductPoint>& points) {
  HeatMap map;
  map.name = "product_errors";
  map.title = fmt::format("Error of each product, by recipe (tokens {}, inputs {}, outputs {})",
                          s.shape.tokens, s.shape.inputs, s.shape.outputs);
  map.x_label = "y = x w^T, dx = dy w (all of it, its median and worst token), dw = dy^T x";
  map.y_label = "recipe";
  map.log = true;
  map.value_label = "relative L2 error (%)";
  map.columns = {"y", "dx", "dx median", "dx worst", "dw"};
  for (const Recipe& recipe : kRecipes) {
    map.rows.emplace_back(recipe.label);
    for (const ProductPoint& p : points) {
      if (p.exact || p.recipe != &recipe) continue;
      map.values.push_back(100.0 * spread_of(p.figures.relative_l2).mean);
      if (p.product != Product::input_gradient) continue;
      map.values.push_back(100.0 * spread_of(p.figures.median_row).mean);
      map.values.push_back(100.0 * spread_of(p.figures.worst_row).mean);
    }
  }
  return map;
}

}  // namespace

Results format_asymmetry(const RunContext& context) {
  Setup setup = read_setup(context.parameters);
  setup.product.backend = context.backend;
  const std::vector<TensorPoint> tensors = measure_tensors(context, setup);
  const std::vector<ProductPoint> products = measure_products(context, setup);
  const std::vector<SweepPoint> sweep = measure_sweep(context, setup);
  Results results;
  results.tables = {tensor_table(setup, tensors), tensor_repeat_table(tensors),
                    product_table(products), product_repeat_table(products), sweep_table(sweep)};
  results.plots = {sweep_plot(setup, sweep, true), sweep_plot(setup, sweep, false),
                   token_plot(setup, products)};
  results.heat_maps = {error_map(setup, products)};
  for (const CastProfile* policy : setup.policies)
    results.findings.push_back(zero_finding(setup, tensors, policy));
  for (const Recipe& recipe : kRecipes)
    results.findings.push_back(product_finding(setup, recipe, products));
  bool other = false;
  const auto own = [&](const char* role, const std::optional<TensorSource>& source) {
    if (!source) return;
    other = true;
    results.findings.push_back(
        fmt::format("{} are {}, unchanged; the sweeps over decades and common variance use "
                    "log-normal gradients.",
                    role, source->name()));
  };
  own("Activations", setup.shape.activations);
  own("Weights", setup.shape.weights);
  own("Gradients", setup.shape.gradients);
  if (!other) results.headline = headline_of(setup, tensors);
  return results;
}

}  // namespace fp8lab::experiments

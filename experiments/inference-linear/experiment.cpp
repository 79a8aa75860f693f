#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/repeats.hpp"
#include "common/series.hpp"
#include "common/spread.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "inference-linear/layer.hpp"
#include "lab/experiment/parameter_struct.hpp"
#include "lab/experiment/row_table.hpp"

namespace fp8lab::experiments {
namespace {

struct Settings {
  std::int64_t tokens = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  double weight_sigma = 0.0;
  std::int64_t outlier_channels = 0;
  double outlier_magnitude = 0.0;
  double token_octaves = 0.0;
  std::vector<std::int64_t> calibration_batches;
  std::int64_t test_batches = 0;
  std::vector<double> shifts;
  std::int64_t promotion_interval = 0;
  std::size_t repeats = 0;

  static constexpr auto fields() {
    return std::tuple{field("tokens", &Settings::tokens),
                      field("inputs", &Settings::inputs),
                      field("outputs", &Settings::outputs),
                      field("weight_sigma", &Settings::weight_sigma),
                      field("outlier_channels", &Settings::outlier_channels),
                      field("outlier_magnitude", &Settings::outlier_magnitude),
                      field("token_octaves", &Settings::token_octaves),
                      field("calibration_batches", &Settings::calibration_batches),
                      field("test_batches", &Settings::test_batches),
                      field("shifts", &Settings::shifts),
                      field("promotion_interval", &Settings::promotion_interval),
                      field("repeats", &Settings::repeats)};
  }
};

struct Setup {
  InferenceShape shape;
  std::vector<std::int64_t> calibration_batches;
  std::vector<double> shifts;
  std::vector<float> w;
  std::vector<std::vector<float>> calibration;  ///< batches
  std::vector<std::vector<float>> test;
};

Setup draw_setup(const RunContext& context, const Settings& p) {
  Setup s;
  s.shape.tokens = p.tokens;
  s.shape.inputs = p.inputs;
  s.shape.outputs = p.outputs;
  s.shape.activation.outlier_channels = static_cast<std::size_t>(p.outlier_channels);
  s.shape.activation.magnitude = p.outlier_magnitude;
  s.shape.token_octaves = p.token_octaves;
  s.shape.weight_sigma = p.weight_sigma;
  s.shape.promotion_interval = p.promotion_interval;
  s.calibration_batches = p.calibration_batches;
  s.shifts = p.shifts;
  const std::int64_t most = *std::ranges::max_element(s.calibration_batches);
  s.w = make_weights(context.random("inference-linear/weights"), s.shape);
  const RandomStream random = context.random("inference-linear/activations");
  for (std::int64_t batch = 0; batch < most; ++batch)
    s.calibration.push_back(make_batch(random, s.shape, batch));
  for (std::int64_t batch = 0; batch < p.test_batches; ++batch)
    s.test.push_back(make_batch(random, s.shape, most + batch));
  return s;
}

/// One way to scale, on test batches multiplied by `shift`.
struct Point {
  std::string scaling;
  std::string preset;
  std::int64_t calibration = 0;  ///< batches; 0 where the scale is dynamic
  double shift = 1.0;
  InferenceLoss loss;  ///< means over the test batches
};

std::vector<Point> make_points(const Setup& s) {
  std::vector<Point> points;
  for (const double shift : s.shifts) {
    points.push_back({"dynamic, per tensor", "torchao-tensorwise", 0, shift, {}});
    points.push_back({"dynamic, per token", "inference-dynamic", 0, shift, {}});
    for (const std::int64_t batches : s.calibration_batches)
      points.push_back({fmt::format("static, {} batch{}", batches, batches == 1 ? "" : "es"),
                        "inference-static",
                        batches,
                        shift,
                        {}});
  }
  return points;
}

void measure(const Backend& backend, const Setup& s, Point& p) {
  const Preset& preset = find_preset(p.preset);
  Quantizer quantizer(preset.activation);
  for (std::int64_t batch = 0; batch < p.calibration; ++batch)
    quantizer.observe(
        {s.calibration[static_cast<std::size_t>(batch)], s.shape.tokens, s.shape.inputs}, 1);
  // Weights have a scale a channel in all cases, so that activations alone differ.
  const QuantizedTensor w = quantize(find_preset("inference-static").weight,
                                     {s.w, s.shape.outputs, s.shape.inputs}, false, 1, {}, backend);
  std::vector<double> relative, worst, saturated, underflow;
  for (std::vector<float> x : s.test) {
    for (float& value : x) value *= static_cast<float>(p.shift);
    const QuantizedTensor q =
        quantizer.quantize({x, s.shape.tokens, s.shape.inputs}, false, 1, {}, backend);
    const InferenceLoss loss = inference_loss(s.shape, x, q, s.w, w, backend);
    relative.push_back(loss.relative_l2);
    worst.push_back(loss.worst_token_l2);
    saturated.push_back(loss.saturated_percent);
    underflow.push_back(loss.underflow_percent);
  }
  p.loss = {spread_of(relative).mean, spread_of(worst).mean, spread_of(saturated).mean,
            spread_of(underflow).mean};
}

Table make_table(const Setup& s, const std::vector<Point>& points) {
  return row_table<Point>(
      "inference",
      fmt::format("y = x w^T with {} tokens, {} inputs, {} outputs, means of {} batches",
                  s.shape.tokens, s.shape.inputs, s.shape.outputs, s.test.size()),
      {{"scaling", "", "recipe of the activations; weights have one scale per channel",
        &Point::scaling},
       {"calibration", "batches", "calibration batches; 0 if the scale is dynamic",
        &Point::calibration},
       {"shift", "1", "factor of the test batches", &Point::shift},
       {"relative_l2", "1", "error of y against FP64",
        [](const Point& p) { return p.loss.relative_l2; }},
       {"worst_token_l2", "1", "error of the worst token",
        [](const Point& p) { return p.loss.worst_token_l2; }},
       {"saturated", "%", "activations at max finite",
        [](const Point& p) { return p.loss.saturated_percent; }},
       {"underflow", "%", "non-zero activations that became zero",
        [](const Point& p) { return p.loss.underflow_percent; }}},
      points);
}

/// The layer and the batches of one repeat, and what each way to scale loses on them.
struct Draw {
  Setup setup;
  std::vector<Point> points;
};

Draw measure_all(const RunContext& context, const Settings& settings) {
  Draw d{draw_setup(context, settings), {}};
  d.points = make_points(d.setup);
  parallel_points(context, d.points.size(),
                  [&](std::size_t i) { measure(context.backend, d.setup, d.points[i]); });
  return d;
}

std::vector<double> each(const std::vector<Draw>& draws, std::size_t point,
                         double InferenceLoss::*figure) {
  return each_repeat(draws, [&](const Draw& d) { return d.points[point].loss.*figure; });
}

Plot shift_plot(const std::vector<Draw>& draws, const std::string& name, const std::string& title,
                const std::string& label, double factor, double InferenceLoss::*figure) {
  const Draw& first = draws.front();
  Plot plot{name,
            fmt::format("{} ({} inputs, {} outlier channels)", title, first.setup.shape.inputs,
                        first.setup.shape.activation.outlier_channels),
            {"factor of the activations after calibration", true, 2},
            {label, false},
            {}};
  plot.series = series_by(
      first.points, [](const Point& p) { return p.scaling; },
      [&](const Point& p) {
        const auto i = static_cast<std::size_t>(&p - first.points.data());
        const Spread spread = spread_of(each(draws, i, figure));
        return std::tuple(p.shift, factor * spread.mean, factor * spread.min, factor * spread.max);
      });
  return plot;
}

/// The error of each scaling where activations grow most after the calibration.
std::string answer_of(const std::vector<Draw>& draws) {
  const std::vector<Point>& points = draws.front().points;
  const double most = std::ranges::max_element(points, {}, &Point::shift)->shift;
  std::vector<std::string> errors;
  for (std::size_t i = 0; i < points.size(); ++i)
    if (points[i].shift == most)
      errors.push_back(fmt::format(
          "{} % ({})", log_interval_text(each(draws, i, &InferenceLoss::relative_l2), 100.0),
          points[i].scaling));
  return fmt::format(
      "Where activations are {:g} times as large as in the calibration, the error of y is {} ({}; "
      "draws: {}).",
      most, in_words(errors), kLogIntervalMeaning, draws.size());
}

void add_findings(const std::vector<Draw>& draws, Results& results) {
  const auto& [setup, points] = draws.front();
  results.findings.push_back(answer_of(draws));
  const double resolution =
      100.0 * share_resolution(static_cast<std::size_t>(setup.shape.tokens * setup.shape.inputs));
  for (std::size_t i = 0; i < points.size(); ++i)
    results.findings.push_back(fmt::format(
        "Factor {:g}, {}: error of y {} %, worst token {} %, saturated {} ({}; {}; draws: {}).",
        points[i].shift, points[i].scaling,
        log_interval_text(each(draws, i, &InferenceLoss::relative_l2), 100.0),
        log_interval_text(each(draws, i, &InferenceLoss::worst_token_l2), 100.0),
        share_text(each(draws, i, &InferenceLoss::saturated_percent), 1.0, resolution),
        kIntervalMeaning, kLogIntervalMeaning, draws.size()));
}

}  // namespace

Results inference_linear(const RunContext& context) {
  const auto settings = read_parameters<Settings>(context.parameters);
  const auto draws = measure_repeats(
      context, settings.repeats, [&](const RunContext& one) { return measure_all(one, settings); });
  std::vector<Table> tables;
  for (const Draw& draw : draws) tables.push_back(make_table(draw.setup, draw.points));
  Results results;
  results.tables =
      join_repeats(tables, {"relative_l2", "worst_token_l2", "saturated", "underflow"});
  results.plots = {
      shift_plot(draws, "error", "Static and dynamic scales when inputs grow or shrink",
                 "relative L2 error of y (%)", 100.0, &InferenceLoss::relative_l2),
      shift_plot(draws, "saturated", "Elements that a static scale saturates",
                 "activations at max finite (%)", 1.0, &InferenceLoss::saturated_percent)};
  add_findings(draws, results);
  return results;
}

}  // namespace fp8lab::experiments

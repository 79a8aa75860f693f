#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/repeats.hpp"
#include "common/tensor_file.hpp"
#include "common/tensors.hpp"
#include "fp8lab/core/error.hpp"
#include "int8-vs-fp8/grid.hpp"
#include "lab/experiment/parameter_struct.hpp"

namespace fp8lab::experiments {
namespace {

struct Settings {
  std::vector<std::string> formats;
  std::vector<std::string> tensors;
  std::int64_t elements = 0;
  std::int64_t degrees_of_freedom = 0;
  std::int64_t clips_per_octave = 0;
  std::int64_t clip_octaves = 0;
  std::int64_t published_elements = 0;
  std::string file;
  std::size_t repeats = 0;

  static constexpr auto fields() {
    return std::tuple{field("formats", &Settings::formats),
                      field("tensors", &Settings::tensors),
                      field("elements", &Settings::elements),
                      field("degrees_of_freedom", &Settings::degrees_of_freedom),
                      field("clips_per_octave", &Settings::clips_per_octave),
                      field("clip_octaves", &Settings::clip_octaves),
                      field("published_elements", &Settings::published_elements),
                      field("file", &Settings::file),
                      field("repeats", &Settings::repeats)};
  }
};

struct Tensor {
  std::string name;
  std::vector<float> values;
};

struct Setup {
  std::vector<Grid> grids;
  std::vector<Tensor> tensors;
  int per_octave = 0;
  int octaves = 0;
};

Tensor make_tensor(const RunContext& context, const Settings& p, const std::string& name) {
  const auto count = static_cast<std::size_t>(p.elements);
  const RandomStream random = context.random("int8-vs-fp8/" + name);
  const auto freedom = static_cast<int>(p.degrees_of_freedom);
  if (name == "uniform") return {name, uniform(random, count, -1.0, 1.0)};
  if (name == "normal") return {name, normal(random, count, 1.0)};
  if (name == "student-t") return {name, student_t(random, count, freedom, 1.0)};
  throw Error("tensors", "uniform, normal or student-t", "'" + name + "'");
}

Setup draw_setup(const RunContext& context, const Settings& p) {
  Setup s;
  for (const std::string& name : p.formats) s.grids.push_back(find_grid(name));
  if (p.file.empty())
    for (const std::string& name : p.tensors) s.tensors.push_back(make_tensor(context, p, name));
  else
    for (NamedMatrix& matrix : read_matrices(p.file))
      s.tensors.push_back({matrix.name, std::move(matrix.values)});
  s.per_octave = static_cast<int>(p.clips_per_octave);
  s.octaves = static_cast<int>(p.clip_octaves);
  return s;
}

/// One tensor on one grid, under both scales.
struct Point {
  GridLoss at_max;
  GridLoss best;
};

std::vector<Point> measure_points(const RunContext& context, const Setup& s) {
  std::vector<Point> points(s.tensors.size() * s.grids.size());
  parallel_points(context, points.size(), [&](std::size_t i) {
    const Grid& grid = s.grids[i % s.grids.size()];
    const std::vector<float>& x = s.tensors[i / s.grids.size()].values;
    points[i] = {loss_at(grid, x, 1.0), best_loss(grid, x, s.per_octave, s.octaves)};
  });
  return points;
}

Table sqnr_table(const Setup& s, const std::vector<Point>& points) {
  Table table("sqnr",
              "Eight bits, one scale per tensor: which split of exponent and mantissa is best?",
              {{"tensor", "", "what the elements are"},
               {"elements", "1", "of the tensor"},
               {"format", "", "exponent and mantissa bits beside the sign, or INT8"},
               {"scale", "", "from the amax, or the scale with the least squared error"},
               {"clip", "1", "largest representable magnitude over the amax"},
               {"mse", "1", "mean squared error"},
               {"sqnr", "dB", "signal to quantization noise"}});
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Tensor& tensor = s.tensors[i / s.grids.size()];
    const auto add = [&](const char* scale, const GridLoss& loss) {
      table.add_row({tensor.name, static_cast<std::int64_t>(tensor.values.size()),
                     s.grids[i % s.grids.size()].name, std::string(scale), loss.clip, loss.mse,
                     loss.sqnr_db});
    };
    add("max", points[i].at_max);
    add("best", points[i].best);
  }
  return table;
}

/// Lines of the published table with what it says.
struct Published {
  const char* name;
  double outlier_share;
  double int8_mse;
  double fp8_mse;
};
constexpr std::array<Published, 3> kPublished{{{"Gaussian", 0.0, 1.2e-5, 1.8e-5},
                                               {"Gaussian, 1 % outliers", 0.01, 8.4e-4, 3.1e-4},
                                               {"Gaussian, 5 % outliers", 0.05, 4.2e-3, 9.8e-4}}};

/// Mean squared errors of a line of the published table.
struct PublishedLoss {
  double int8 = 0.0;
  double fp8 = 0.0;
};

/// One repeat: its tensors, their losses, and those of the published comparison.
struct Draw {
  Setup setup;
  std::vector<Point> points;
  std::vector<PublishedLoss> published;

  [[nodiscard]] const GridLoss& loss(std::size_t tensor, std::size_t grid,
                                     GridLoss Point::*which) const {
    return points[tensor * setup.grids.size() + grid].*which;
  }
};

Draw measure(const RunContext& context, const Settings& settings) {
  Draw d{draw_setup(context, settings), {}, {}};
  d.points = measure_points(context, d.setup);
  const auto count = static_cast<std::size_t>(settings.published_elements);
  for (const Published& line : kPublished) {
    const auto outliers = static_cast<std::size_t>(line.outlier_share * static_cast<double>(count));
    const std::vector<float> x = normal_with_outliers(context.seed, count, outliers);
    d.published.push_back(
        {loss_at(find_grid("INT8"), x, 1.0).mse, loss_at(find_grid("E4M3 (OCP)"), x, 1.0).mse});
  }
  return d;
}

HeatMap sqnr_map(const std::vector<Draw>& draws, const std::string& name, const std::string& title,
                 GridLoss Point::*loss) {
  const Setup& s = draws.front().setup;
  HeatMap map{name, title, "tensor", "format", "SQNR (dB)", {}, {}, {}, false};
  for (const Tensor& tensor : s.tensors) map.columns.push_back(tensor.name);
  for (std::size_t g = s.grids.size(); g-- > 0;) {
    map.rows.push_back(s.grids[g].name);
    for (std::size_t t = 0; t < s.tensors.size(); ++t)
      map.values.push_back(
          mean_of_repeats(draws, [&](const Draw& d) { return d.loss(t, g, loss).sqnr_db; }));
  }
  return map;
}

Table published_table(const Draw& draw) {
  Table table("published", "A published comparison repeated (N(0, 0.5^2), outliers 20 times)",
              {{"tensor", "", "what the elements are"},
               {"int8_mse", "1", "INT8, scale amax / 127"},
               {"fp8_mse", "1", "OCP E4M3, scale 448 / amax"},
               {"advantage", "1", "INT8's error over FP8's"},
               {"published_int8_mse", "1", "as printed there"},
               {"published_fp8_mse", "1", "as printed there"},
               {"published_advantage", "1", "their ratio"}});
  for (std::size_t i = 0; i < kPublished.size(); ++i) {
    const Published& line = kPublished[i];
    const auto [int8, fp8] = draw.published[i];
    table.add_row({std::string(line.name), int8, fp8, int8 / fp8, line.int8_mse, line.fp8_mse,
                   line.int8_mse / line.fp8_mse});
  }
  return table;
}

std::string published_finding(const std::vector<Draw>& draws, std::size_t i, std::int64_t count) {
  const Published& line = kPublished[i];
  const auto each = [&](const auto& figure) {
    return log_interval_text(
        each_repeat(draws, [&](const Draw& d) { return figure(d.published[i]); }));
  };
  return fmt::format(
      "{}: MSE {} in INT8 and {} in E4M3, a ratio of {}; published {:.2g} and {:.2g}, {:.2f} ({} "
      "elements; {}; draws: {}).",
      line.name, each([](const PublishedLoss& l) { return l.int8; }),
      each([](const PublishedLoss& l) { return l.fp8; }),
      each([](const PublishedLoss& l) { return l.int8 / l.fp8; }), line.int8_mse, line.fp8_mse,
      line.int8_mse / line.fp8_mse, count, kLogIntervalMeaning, draws.size());
}

/// The formats with the least error in some repeat, and the figure of the one with the least mean:
/// where the repeats disagree, they do not tell which is best.
std::string winner(const std::vector<Draw>& draws, std::size_t tensor, GridLoss Point::*loss) {
  const std::vector<Grid>& grids = draws.front().setup.grids;
  std::vector<std::size_t> wins(grids.size());
  for (const Draw& draw : draws) {
    std::size_t best = 0;
    for (std::size_t g = 1; g < grids.size(); ++g)
      if (draw.loss(tensor, g, loss).mse < draw.loss(tensor, best, loss).mse) best = g;
    ++wins[best];
  }
  const auto most = static_cast<std::size_t>(std::ranges::max_element(wins) - wins.begin());
  std::string text = fmt::format("{} with {} dB", grids[most].name,
                                 interval_text(each_repeat(draws, [&](const Draw& d) {
                                   return d.loss(tensor, most, loss).sqnr_db;
                                 })));
  for (std::size_t g = 0; g < grids.size(); ++g)
    if (g != most && wins[g] > 0)
      text += fmt::format(" (in {} of {} draws {})", wins[g], draws.size(), grids[g].name);
  return text;
}

}  // namespace

Results int8_vs_fp8(const RunContext& context) {
  const auto settings = read_parameters<Settings>(context.parameters);
  const auto draws = measure_repeats(context, settings.repeats,
                                     [&](const RunContext& one) { return measure(one, settings); });
  std::vector<Table> sqnr;
  std::vector<Table> published;
  for (const Draw& draw : draws) {
    sqnr.push_back(sqnr_table(draw.setup, draw.points));
    published.push_back(published_table(draw));
  }
  Results results;
  results.tables = join_repeats(sqnr, {"clip", "mse", "sqnr"});
  for (Table& table : join_repeats(published, {"int8_mse", "fp8_mse", "advantage"}))
    results.tables.push_back(std::move(table));
  results.heat_maps = {
      sqnr_map(draws, "sqnr_max", "Signal to noise with the amax scale", &Point::at_max),
      sqnr_map(draws, "sqnr_best", "Signal to noise with the best scale", &Point::best)};
  const std::vector<Tensor>& tensors = draws.front().setup.tensors;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    results.findings.push_back(fmt::format(
        "Of the {} tensor the amax scale gives the smallest error in {}, the best scale in {} ({} "
        "elements; {}; draws: {}).",
        tensors[t].name, winner(draws, t, &Point::at_max), winner(draws, t, &Point::best),
        tensors[t].values.size(), kIntervalMeaning, draws.size()));
  for (std::size_t i = 0; i < kPublished.size(); ++i)
    results.findings.push_back(published_finding(draws, i, settings.published_elements));
  return results;
}

}  // namespace fp8lab::experiments

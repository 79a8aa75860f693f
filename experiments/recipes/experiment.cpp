#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "common/names.hpp"
#include "common/page_reads.hpp"
#include "common/parallel.hpp"
#include "common/repeats.hpp"
#include "common/tensor_file.hpp"
#include "common/tensors.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "fp8lab/metrics/tensor.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/scaling/statistics.hpp"
#include "lab/experiment/parameter_struct.hpp"

namespace fp8lab::experiments {
namespace {

/// A tensor and what came before it.
struct Subject {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> values;
  std::vector<std::vector<float>> past;

  [[nodiscard]] FloatMatrix matrix() const { return {values, rows, columns}; }
};

struct Outcome {
  std::string refused;  ///< why the recipe does not take this tensor, or empty
  QuantizationStatistics statistics;
  double small_half_relative_l2 = 0.0;
  std::int64_t scales = 0;
  std::string format;
};

struct Setup {
  std::vector<const Preset*> presets;
  TensorRole role = TensorRole::activation;
  std::vector<Subject> subjects;
};

struct Settings {
  std::vector<const Preset*> recipes;
  TensorRole role = TensorRole::activation;
  std::vector<std::string> tensors;
  std::size_t rows = 0;
  std::size_t columns = 0;
  double decades = 0.0;
  int degrees_of_freedom = 0;
  double magnitude = 0.0;
  std::int64_t past_steps = 0;
  std::string file;
  std::int64_t read_rows = 0;
  std::int64_t read_columns = 0;
  std::size_t read_window_kib = 0;
  std::size_t repeats = 0;

  static constexpr auto fields() {
    return std::tuple{field("recipes", &Settings::recipes, find_preset),
                      field("role", &Settings::role, find_tensor_role),
                      field("tensors", &Settings::tensors),
                      field("rows", &Settings::rows),
                      field("columns", &Settings::columns),
                      field("decades", &Settings::decades),
                      field("degrees_of_freedom", &Settings::degrees_of_freedom),
                      field("magnitude", &Settings::magnitude),
                      field("past_steps", &Settings::past_steps),
                      field("file", &Settings::file),
                      field("read_rows", &Settings::read_rows),
                      field("read_columns", &Settings::read_columns),
                      field("read_window_kib", &Settings::read_window_kib),
                      field("repeats", &Settings::repeats)};
  }
};

std::vector<float> draw(const RunContext& context, const Settings& p, const std::string& kind,
                        std::int64_t step) {
  const std::size_t rows = p.rows;
  const std::size_t columns = p.columns;
  const RandomStream random = context.random(fmt::format("recipes/{}/{}", kind, step));
  std::vector<float> x;
  if (kind == "normal")
    x = normal(random, rows * columns, 1.0);
  else if (kind == "log-normal")
    x = log_normal(random, rows * columns, p.decades);
  else if (kind == "student-t")
    x = student_t(random, rows * columns, p.degrees_of_freedom, 1.0);
  else if (kind == "outlier-channels")
    x = outlier_channels(random, {.rows = rows, .channels = columns});
  else
    throw Error("tensors", "normal, log-normal, student-t or outlier-channels", "'" + kind + "'");
  const auto magnitude = static_cast<float>(p.magnitude);
  for (float& value : x) value *= magnitude;
  const auto beyond = std::count_if(x.begin(), x.end(), [](float v) { return !std::isfinite(v); });
  require(beyond == 0, "magnitude",
          fmt::format("a magnitude at which every {} element fits FP32", kind),
          fmt::format("{:g}, with {} elements beyond it", p.magnitude, beyond));
  return x;
}

/// The 2-D tensors of a file; their past is themselves.
std::vector<Subject> read_subjects(const std::string& path) {
  std::vector<Subject> subjects;
  for (NamedMatrix& matrix : read_matrices(path)) {
    Subject subject{matrix.name, matrix.rows, matrix.columns, std::move(matrix.values), {}};
    subject.past = {subject.values};
    subjects.push_back(std::move(subject));
  }
  return subjects;
}

Setup make_setup(const RunContext& context, const Settings& p) {
  Setup s{.presets = p.recipes, .role = p.role, .subjects = {}};
  if (!p.file.empty()) {
    s.subjects = read_subjects(p.file);
    return s;
  }
  for (const std::string& kind : p.tensors) {
    Subject subject{kind,
                    static_cast<std::int64_t>(p.rows),
                    static_cast<std::int64_t>(p.columns),
                    draw(context, p, kind, p.past_steps),
                    {}};
    for (std::int64_t step = 0; step < p.past_steps; ++step)
      subject.past.push_back(draw(context, p, kind, step));
    s.subjects.push_back(std::move(subject));
  }
  return s;
}

/// The relative L2 error of the elements below the median magnitude: what large
/// elements, which own the whole error, do not show.
double small_half_error(const std::vector<float>& x, const std::vector<float>& y) {
  const double middle = magnitude_quantiles(x, std::vector<double>{0.5})[0];
  std::vector<float> small_x;
  std::vector<float> small_y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (static_cast<double>(std::abs(x[i])) > middle) continue;
    small_x.push_back(x[i]);
    small_y.push_back(y[i]);
  }
  return compare(small_x, small_y).relative_l2;
}

Outcome measure(const Backend& backend, const Recipe& recipe, const Subject& subject) {
  Outcome outcome;
  outcome.format = short_name(format(recipe.format));
  Quantizer quantizer(recipe);
  try {
    if (recipe.source != ScaleSource::current)
      for (const std::vector<float>& step : subject.past)
        quantizer.observe({step, subject.rows, subject.columns}, 1);
    const QuantizedTensor q = quantizer.quantize(subject.matrix(), false, 1, {}, backend);
    outcome.statistics = quantization_statistics(subject.matrix(), q);
    outcome.small_half_relative_l2 = small_half_error(subject.values, dequantize(q));
    outcome.scales = static_cast<std::int64_t>(q.scales.size());
  } catch (const Error& error) {
    outcome.refused = error.what();
  }
  return outcome;
}

std::vector<Outcome> measure_all(const RunContext& context, const Setup& s) {
  std::vector<Outcome> outcomes(s.subjects.size() * s.presets.size());
  parallel_points(context, outcomes.size(), [&](std::size_t i) {
    const Recipe& recipe = s.presets[i % s.presets.size()]->recipe(s.role);
    outcomes[i] = measure(context.backend, recipe, s.subjects[i / s.presets.size()]);
  });
  return outcomes;
}

/// How often each recipe reads a tensor from memory, in the step after its warm-up.
std::vector<double> count_reads(const RunContext& context, const Settings& p, const Setup& s) {
  const std::int64_t rows = p.read_rows;
  const std::int64_t columns = p.read_columns;
  const std::vector<float> values =
      normal(context.random("recipes/reads"), static_cast<std::size_t>(rows * columns), 1.0);
  const FloatMatrix first{values, rows, columns};
  PageCountedTensor counted(values, p.read_window_kib * 1024);
  std::vector<double> reads;
  for (const Preset* preset : s.presets) {
    const Recipe& recipe = preset->recipe(s.role);
    Quantizer quantizer(recipe);
    if (recipe.source != ScaleSource::current)
      for (std::int64_t step = 0; step <= recipe.window; ++step) quantizer.observe(first, 1);
    reads.push_back(counted.reads([&] {
      // A named target: what is counted is how the host's kernels read memory.
      quantizer.quantize({counted.values(), rows, columns}, false, 1, current_target());
    }));
  }
  return reads;
}

/// The tensors of one repeat, and what each recipe makes of them.
struct Draw {
  Setup setup;
  std::vector<Outcome> outcomes;

  [[nodiscard]] const Outcome& at(std::size_t subject, std::size_t recipe) const {
    return outcomes[subject * setup.presets.size() + recipe];
  }
};

Draw measure_draw(const RunContext& context, const Settings& settings) {
  Draw d{make_setup(context, settings), {}};
  d.outcomes = measure_all(context, d.setup);
  return d;
}

using Figure = double (*)(const Outcome&);

double small_half(const Outcome& o) { return 100.0 * o.small_half_relative_l2; }
double whole(const Outcome& o) { return 100.0 * o.statistics.relative_l2; }
double underflow(const Outcome& o) { return o.statistics.underflow_percent; }

std::vector<double> each(const std::vector<Draw>& draws, std::size_t subject, std::size_t recipe,
                         Figure figure) {
  return each_repeat(draws, [&](const Draw& d) { return figure(d.at(subject, recipe)); });
}

/// A recipe may refuse one draw and take another (a tensor with an Inf); then it has no mean.
bool is_refused(const std::vector<Draw>& draws, std::size_t subject, std::size_t recipe) {
  return std::ranges::any_of(draws,
                             [&](const Draw& d) { return !d.at(subject, recipe).refused.empty(); });
}

Table make_table(const Draw& draw, const std::vector<double>& all_reads) {
  const auto& [s, outcomes] = draw;
  Table table("recipes",
              fmt::format("Every recipe on the same tensors ({} role)", to_string(s.role)),
              {{"tensor", "", "what the elements are"},
               {"recipe", "", "name of the recipe"},
               {"format", "", "element format"},
               {"scales", "1", "scales of the tensor"},
               {"relative_l2", "1", "error of the whole tensor"},
               {"small_half_relative_l2", "1", "error of the elements below the median magnitude"},
               {"sqnr", "dB", "signal to quantization noise"},
               {"underflow", "%", "non-zero elements that became zero"},
               {"saturated", "%", "codes at max finite"},
               {"overflow", "%", "elements above max finite after scaling"},
               {"scale_overhead", "%", "bytes of scales over bytes of codes"},
               {"reads", "1", "times that the tensor is read from memory, by its pages"},
               {"traffic", "bytes", "bytes moved per element: FP32 reads, FP8 write, scales"},
               {"refused", "", "why the recipe refuses the tensor"}});
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Preset& preset = *s.presets[i % s.presets.size()];
    const Outcome& o = outcomes[i];
    const double reads = all_reads[i % s.presets.size()];
    table.add_row({s.subjects[i / s.presets.size()].name, std::string(preset.name), o.format,
                   o.scales, o.statistics.relative_l2, o.small_half_relative_l2,
                   o.statistics.sqnr_db, o.statistics.underflow_percent,
                   o.statistics.saturated_percent, o.statistics.overflow_percent,
                   o.statistics.scale_overhead_percent, reads,
                   4.0 * reads + 1.0 + o.statistics.scale_overhead_percent / 100.0, o.refused});
  }
  return table;
}

HeatMap make_map(const std::vector<Draw>& draws, const std::string& name, const std::string& title,
                 const std::string& label, Figure figure) {
  const Setup& s = draws.front().setup;
  HeatMap map{name, title, "tensor", "recipe", label, {}, {}, {}, true};
  for (const Subject& subject : s.subjects) map.columns.push_back(subject.name);
  for (std::size_t r = s.presets.size(); r-- > 0;) {  // the first recipe on top
    map.rows.emplace_back(s.presets[r]->name);
    for (std::size_t c = 0; c < s.subjects.size(); ++c)
      map.values.push_back(is_refused(draws, c, r) ? std::numeric_limits<double>::quiet_NaN()
                                                   : spread_of(each(draws, c, r, figure)).mean);
  }
  return map;
}

/// What smaller tiles buy and cost: TransformerEngine's rule with one FP32 scale
/// for 16 elements of a row up to the whole row.
Plot tile_plot(const RunContext& context, const Setup& s) {
  Plot plot{"underflow_against_tile",
            "Gain (less underflow) and cost (bytes of FP32 scales) of smaller tiles",
            {"elements of a row that share a scale", true, 2},
            {"share (%)", true},
            {}};
  std::vector<std::int64_t> tiles;
  for (std::int64_t tile = 16; tile <= s.subjects.front().columns; tile *= 2) tiles.push_back(tile);
  Series overhead{"scale bytes per code byte", {}, {}, Series::Style::dashed};
  for (const std::int64_t tile : tiles) {
    overhead.x.push_back(static_cast<double>(tile));
    overhead.y.push_back(400.0 / static_cast<double>(tile));
  }
  for (const Subject& subject : s.subjects) {
    Series series{"underflow, " + subject.name, overhead.x, {}};
    series.y.resize(tiles.size());
    parallel_points(
        context, tiles.size(),
        [&](std::size_t i) {
          Recipe recipe = s.presets.front()->recipe(s.role);
          recipe = {.format = recipe.format, .row_block = 1, .k_block = tiles[i]};
          series.y[i] = measure(context.backend, recipe, subject).statistics.underflow_percent;
        },
        1.0, 1.0);
    plot.series.push_back(series);
  }
  plot.series.push_back(overhead);
  return plot;
}

std::string reads_finding(const Setup& s, const std::vector<double>& reads) {
  std::string once;
  std::string more;
  for (std::size_t r = 0; r < s.presets.size(); ++r) {
    if (reads[r] < 1.5)
      once += fmt::format("{}{}", once.empty() ? "" : ", ", s.presets[r]->name);
    else
      more += fmt::format("{}{} ({:.2f})", more.empty() ? "" : ", ", s.presets[r]->name, reads[r]);
  }
  return fmt::format("Read from memory once: {}; more than once: {}.", once.empty() ? "none" : once,
                     more.empty() ? "none" : more);
}

/// `a leaves`, `a, b and c leave`.
std::string leave_text(const std::vector<std::string>& names) {
  return in_words(names) + (names.size() == 1 ? " leaves" : " leave");
}

/// Which recipes leave the small elements the smallest and the largest error, and what they cost.
std::vector<std::string> subject_findings(const std::vector<Draw>& draws, std::size_t subject) {
  const Setup& s = draws.front().setup;
  std::vector<std::size_t> taken;
  std::vector<std::vector<double>> errors;
  for (std::size_t r = 0; r < s.presets.size(); ++r)
    if (!is_refused(draws, subject, r)) {
      taken.push_back(r);
      errors.push_back(each(draws, subject, r, small_half));
    }
  if (taken.empty()) return {};
  const auto group_text = [&](const std::vector<std::size_t>& group, const std::string& error) {
    std::vector<std::string> names;
    std::vector<double> all;
    for (const std::size_t i : group) {
      names.emplace_back(s.presets[taken[i]]->name);
      all.insert(all.end(), errors[i].begin(), errors[i].end());
    }
    const auto [low, high] = std::ranges::minmax(all);
    return fmt::format("{} the smaller half of the elements the {} error, {:.3g} to {:.3g} %{}",
                       leave_text(names), error, low, high,
                       group.size() > 1 ? ", and draws do not tell them apart" : "");
  };
  const std::vector<std::size_t> smallest = smallest_of(errors);
  const std::vector<std::size_t> largest = largest_of(errors);
  const std::size_t best = taken[smallest.front()];
  const std::size_t worst = taken[largest.front()];
  const auto range = [&](std::size_t r, Figure figure) {
    const auto [low, high] = std::ranges::minmax(each(draws, subject, r, figure));
    return fmt::format("{:.3g} to {:.3g} %", low, high);
  };
  const std::string tensor = fmt::format("{} [{}, {}]", s.subjects[subject].name,
                                         s.subjects[subject].rows, s.subjects[subject].columns);
  return {
      fmt::format("{}: {} (over {}).", tensor, group_text(smallest, "smallest"),
                  counted(draws.size(), "draw")),
      fmt::format("{}: {}.", tensor, group_text(largest, "largest")),
      fmt::format("{}: {} of the elements become zero under {}, and {} under {}. The errors of "
                  "the whole tensor are {} and {}. Scales add {:.3g} % to the bytes of {}.",
                  tensor, range(best, underflow), s.presets[best]->name, range(worst, underflow),
                  s.presets[worst]->name, range(best, whole), range(worst, whole),
                  draws.front().at(subject, best).statistics.scale_overhead_percent,
                  s.presets[best]->name)};
}

}  // namespace

Results recipes(const RunContext& context) {
  const auto settings = read_parameters<Settings>(context.parameters);
  // Tensors of a file are the same in every repeat.
  const std::size_t repeats = settings.file.empty() ? settings.repeats : 1;
  const auto draws = measure_repeats(
      context, repeats, [&](const RunContext& one) { return measure_draw(one, settings); });
  const Setup& first = draws.front().setup;
  const std::vector<double> reads = count_reads(context, settings, first);
  std::vector<Table> tables;
  for (const Draw& draw : draws) tables.push_back(make_table(draw, reads));
  Results results;
  results.tables = join_repeats(tables, {"relative_l2", "small_half_relative_l2", "sqnr",
                                         "underflow", "saturated", "overflow"});
  results.heat_maps = {
      make_map(draws, "error", "Relative L2 error of the whole tensor, recipe by tensor",
               "relative L2 error (%)", whole),
      make_map(draws, "small_half_error",
               "Relative L2 error of the elements below the median magnitude",
               "relative L2 error (%)", small_half),
      make_map(draws, "underflow", "Non-zero elements that become zero", "underflow (%)",
               underflow)};
  results.plots = {tile_plot(context, first)};
  for (std::size_t c = 0; c < first.subjects.size(); ++c)
    std::ranges::move(subject_findings(draws, c), std::back_inserter(results.findings));
  results.findings.push_back(reads_finding(first, reads));
  return results;
}

}  // namespace fp8lab::experiments

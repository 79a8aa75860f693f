#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "common/names.hpp"
#include "common/parallel.hpp"
#include "common/series.hpp"
#include "common/spread.hpp"
#include "common/tensor_source.hpp"
#include "common/tensors.hpp"
#include "dynamic-range/dynamic_range.hpp"
#include "dynamic-range/spacing.hpp"
#include "fp8lab/metrics/tensor.hpp"
#include "lab/experiment/parameter_struct.hpp"

namespace fp8lab::experiments {
namespace {

/// What `distributions` may name besides log_uniform and log_normal.
bool has_decades(const std::string& name) { return name == "log_uniform" || name == "log_normal"; }

/// A name as part of a file's name.
std::string file_name(std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

struct Setup {
  std::vector<std::string> distributions;
  std::map<std::string, TensorSource> sources;  ///< of the others
  std::vector<double> decades;
  std::vector<const Format*> formats;
  std::vector<const CastProfile*> policies;
  std::vector<double> scales;
  std::size_t elements = 0;
  std::size_t repeats = 1;
  double plot_decades = 0.0;
  std::vector<std::string> spacing_formats;
};

struct Settings {
  Setup setup;
  LogAxis scales;

  static constexpr auto fields() {
    return std::tuple{
        group(&Settings::setup, field("distributions", &Setup::distributions),
              field("decades", &Setup::decades), field("formats", &Setup::formats, find_format),
              field("policies", &Setup::policies, find_cast_profile),
              field("elements", &Setup::elements), field("repeats", &Setup::repeats),
              field("plot_decades", &Setup::plot_decades),
              field("spacing_formats", &Setup::spacing_formats)),
        group(&Settings::scales, field("scale_from", &LogAxis::from),
              field("scale_to", &LogAxis::to), field("scales_per_decade", &LogAxis::per_decade))};
  }
};

Setup read_setup(const Parameters& parameters) {
  auto p = read_parameters<Settings>(parameters);
  for (const std::string& name : p.setup.distributions)
    if (!has_decades(name)) p.setup.sources.emplace(name, TensorSource("distributions", name));
  p.setup.scales = log_steps("scale", p.scales);
  return std::move(p.setup);
}

std::vector<float> make_tensor(const RunContext& context, const Setup& setup,
                               const std::string& distribution, double decades,
                               std::size_t repeat) {
  const std::size_t elements = setup.elements;
  if (const auto source = setup.sources.find(distribution); source != setup.sources.end()) {
    std::vector<float> x =
        source->second.draw(context.random(fmt::format("own {}", repeat)), 1, elements);
    normalize_amax(x);
    return x;
  }
  std::string stream = fmt::format("{} {}", distribution, decades);
  if (repeat > 0) stream += fmt::format(" {}", repeat);
  const RandomStream random = context.random(stream);
  std::vector<float> x = distribution == "log_uniform" ? log_uniform(random, elements, decades)
                                                       : log_normal(random, elements, decades);
  normalize_amax(x);
  return x;
}

/// What one draw keeps.
struct Kept {
  double measured_decades = 0.0;
  double best_scale = 0.0;
  double representable = 0.0;  ///< share at the best scale
  double accurate = 0.0;
  double at_amax = 0.0;  ///< share at scale = max_finite / amax
};

/// Draws of a tensor cast into one format under one policy, at every scale.
struct Case {
  std::string distribution;
  double decades = 0.0;
  const Format* format = nullptr;
  const CastProfile* policy = nullptr;
  std::vector<SurvivalShares> shares;  ///< of the first draw, scale by scale
  std::vector<Kept> draws;

  [[nodiscard]] std::vector<double> all(double Kept::*field) const {
    std::vector<double> values;
    for (const Kept& draw : draws) values.push_back(draw.*field);
    return values;
  }
  /// In findings and in plots against the scale.
  [[nodiscard]] bool is_shown(const Setup& setup) const {
    return !has_decades(distribution) || decades == setup.plot_decades;
  }
  [[nodiscard]] std::string label() const {
    return fmt::format("{}, subnormals {}", short_name(*format), subnormal_name(policy->policy));
  }
};

std::vector<Case> measure(const RunContext& context, const Setup& setup) {
  std::vector<Case> cases;
  for (const std::string& distribution : setup.distributions) {
    std::vector<double> all = setup.decades;
    if (!has_decades(distribution))
      all = {tensor_statistics(make_tensor(context, setup, distribution, 0.0, 0)).decades};
    for (const double decades : all)
      for (const Format* f : setup.formats)
        for (const CastProfile* policy : setup.policies) {
          Case& c = cases.emplace_back();
          c.distribution = distribution;
          c.decades = decades;
          c.format = f;
          c.policy = policy;
        }
  }
  parallel_points(context, cases.size(), [&](std::size_t i) {
    Case& c = cases[i];
    for (std::size_t repeat = 0; repeat < setup.repeats; ++repeat) {
      const std::vector<float> x = make_tensor(context, setup, c.distribution, c.decades, repeat);
      std::vector<SurvivalShares> shares =
          sweep(x, setup.scales, *c.format, c.policy->policy, context.backend);
      const BestScale best = best_of(setup.scales, shares);
      c.draws.push_back(
          {tensor_statistics(x).decades, best.scale, best.shares.representable, best.accurate,
           survival(x, c.format->max_finite(), *c.format, c.policy->policy, context.backend)
               .representable});
      if (repeat == 0) c.shares = std::move(shares);
    }
  });
  return cases;
}

Table format_table() {
  Table table("formats", "Range of each format",
              {{"format", "", "name"},
               {"bits", "bits", "width of a code"},
               {"min_subnormal", "1", "smallest positive number"},
               {"min_normal", "1", "smallest normal number"},
               {"max_finite", "1", "largest finite number"},
               {"decades_normal", "decades", "log10(max_finite / min_normal)"},
               {"decades_with_subnormals", "decades", "log10(max_finite / min_subnormal)"},
               {"rounding_bound", "1", "largest relative error of a normal number, 2^-(m+1)"}});
  for (const Format& f : kFormats) {
    if (f.is_scale_only()) continue;
    const FormatRange r = range_of(f);
    table.add_row({std::string(f.name), std::int64_t{f.code_bits()}, r.min_subnormal, r.min_normal,
                   r.max_finite, r.decades_normal, r.decades_with_subnormals,
                   std::ldexp(1.0, -(f.mantissa_bits + 1))});
  }
  return table;
}

Table survival_table(const Setup& setup, const std::vector<Case>& cases) {
  Table table("survival",
              "What happens to the non-zero elements of a tensor with amax 1 (first draw)",
              {{"distribution", "", "of the magnitudes"},
               {"decades", "decades", "that the distribution spans"},
               {"format", "", "cast into"},
               {"subnormals", "", "kept or flushed"},
               {"scale", "1", "multiplies into the format"},
               {"representable", "1", "share that neither became zero nor saturated"},
               {"accurate", "1", "share with relative error within the format's normal bound"},
               {"crushed", "1", "share that became zero"},
               {"saturated", "1", "share above the largest finite number"}});
  for (const Case& c : cases)
    for (std::size_t i = 0; i < setup.scales.size(); ++i) {
      const SurvivalShares& s = c.shares[i];
      table.add_row({c.distribution, c.decades, std::string(c.format->name),
                     subnormal_name(c.policy->policy), setup.scales[i], s.representable, s.accurate,
                     s.crushed, s.saturated});
    }
  return table;
}

Table best_table(const std::vector<Case>& cases) {
  Table table("best_scale", "The best that one scale can do for a tensor",
              {{"distribution", "", "of the magnitudes"},
               {"decades", "decades", "that the distribution spans"},
               {"measured_decades", "decades", "log10(amax / smallest), mean over draws"},
               {"format", "", "cast into"},
               {"subnormals", "", "kept or flushed"},
               {"best_scale", "1", "with the largest representable share, of the first draw"},
               {"representable", "1",
                "share that neither became zero nor saturated at a draw's best scale, mean"},
               {"representable_min", "1", "smallest"},
               {"representable_max", "1", "largest"},
               {"accurate", "1", "largest share within the format's normal error bound, mean"},
               {"representable_at_amax", "1", "representable share at scale = max / amax, mean"},
               {"representable_at_amax_min", "1", "smallest"},
               {"representable_at_amax_max", "1", "largest"}});
  for (const Case& c : cases) {
    const Spread best = spread_of(c.all(&Kept::representable));
    const Spread at_amax = spread_of(c.all(&Kept::at_amax));
    table.add_row({c.distribution, c.decades, spread_of(c.all(&Kept::measured_decades)).mean,
                   std::string(c.format->name), subnormal_name(c.policy->policy),
                   c.draws.front().best_scale, best.mean, best.min, best.max,
                   spread_of(c.all(&Kept::accurate)).mean, at_amax.mean, at_amax.min, at_amax.max});
  }
  return table;
}

Table draw_table(const std::vector<Case>& cases) {
  Table table("best_scale_repeats", "The best that one scale can do, draw by draw",
              {{"distribution", "", "of the magnitudes"},
               {"decades", "decades", "that the distribution spans"},
               {"format", "", "cast into"},
               {"subnormals", "", "kept or flushed"},
               {"repeat", "1", "draw, from 0"},
               {"best_scale", "1", "with the largest representable share"},
               {"representable", "1", "share that neither became zero nor saturated, there"},
               {"representable_at_amax", "1", "representable share at scale = max / amax"}});
  for (const Case& c : cases)
    for (std::size_t i = 0; i < c.draws.size(); ++i)
      table.add_row({c.distribution, c.decades, std::string(c.format->name),
                     subnormal_name(c.policy->policy), static_cast<std::int64_t>(i),
                     c.draws[i].best_scale, c.draws[i].representable, c.draws[i].at_amax});
  return table;
}

Series::Style style_of(const Case& c) {
  return c.policy->policy.subnormals == SubnormalPolicy::preserve ? Series::Style::lines
                                                                  : Series::Style::dashed;
}

Plot share_plot(const Setup& setup, const std::vector<Case>& cases, const std::string& name) {
  Plot plot{"share_against_scale_" + file_name(name),
            fmt::format("One scale for {}: which elements survive the cast? ({}, amax 1)",
                        has_decades(name) ? fmt::format("{:g} decades", setup.plot_decades)
                                          : std::string("all"),
                        plain_name(name)),
            {"scale that multiplies into the format", true},
            {"elements that neither vanish nor saturate (%)"},
            {}};
  for (const Case& c : cases) {
    if (c.distribution != name || !c.is_shown(setup)) continue;
    Series series{c.label(), setup.scales, {}, style_of(c)};
    for (const SurvivalShares& s : c.shares) series.y.push_back(100.0 * s.representable);
    plot.series.push_back(series);
  }
  share_colours(plot.series, "flushed", "kept");
  return plot;
}

Plot best_plot(const std::vector<Case>& cases, const std::string& name) {
  Plot plot{"best_share_" + file_name(name),
            fmt::format("The largest share that one scale can keep ({})", plain_name(name)),
            {"decades that the tensor spans"},
            {"elements that neither vanish nor saturate (%)"},
            {}};
  plot.series = series_by(
      cases, [&](const Case& c) { return c.distribution == name ? c.label() : ""; },
      [](const Case& c) {
        const Spread kept = spread_of(c.all(&Kept::representable));
        return std::tuple(c.decades, 100.0 * kept.mean, 100.0 * kept.min, 100.0 * kept.max);
      },
      [](const Case& c) {
        const Series::Style style = style_of(c);
        return style == Series::Style::lines ? Series::Style::lines_points : style;
      });
  share_colours(plot.series, "flushed", "kept");
  return plot;
}

/// Where the elements of one tensor go as its scale moves.
Plot fate_plot(const Setup& setup, const Case& c) {
  Plot plot{"fate_of_elements",
            fmt::format("Small scales give zeros, large ones saturate ({}, {:g} decades, {})",
                        short_name(*c.format), c.decades, plain_name(c.distribution)),
            {"scale that multiplies into the format", true},
            {"share of the non-zero elements (%)"},
            {}};
  const auto add = [&](const std::string& label, double SurvivalShares::*share,
                       Series::Style style) {
    Series series{label, setup.scales, {}, style};
    for (const SurvivalShares& s : c.shares) series.y.push_back(100.0 * (s.*share));
    plot.series.push_back(series);
  };
  add("kept", &SurvivalShares::representable, Series::Style::lines);
  add("kept with full precision", &SurvivalShares::accurate, Series::Style::dashed);
  add("became zero", &SurvivalShares::crushed, Series::Style::lines);
  add("saturated", &SurvivalShares::saturated, Series::Style::lines);
  return plot;
}

void add_findings(const Setup& setup, const std::vector<Case>& cases, Results& results) {
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2}) {
    const FormatRange r = range_of(format(id));
    results.findings.push_back(fmt::format(
        "{} holds {:.2f} decades of normal numbers ({:g} to {:g}) and {:.2f} with its subnormals "
        "(from {:g}); computed from the format.",
        short_name(format(id)), r.decades_normal, r.min_normal, r.max_finite,
        r.decades_with_subnormals, r.min_subnormal));
  }
  for (const Case& c : cases)
    if (c.is_shown(setup))
      results.findings.push_back(fmt::format(
          "{}, {:.3g} decades {}: the best scale keeps {}, the amax scale {} ({} "
          "elements; {}; draws: {}).",
          c.label(), c.decades, plain_name(c.distribution),
          share_text(c.all(&Kept::representable), 100.0, share_resolution(setup.elements)),
          share_text(c.all(&Kept::at_amax), 100.0, share_resolution(setup.elements)),
          setup.elements, kIntervalMeaning, setup.repeats));
}

/// The range that E4M3 lacks, and what E5M2 gives of it; none where the run has not both.
std::optional<Headline> headline_of(const Setup& setup, const std::vector<Case>& cases) {
  const auto find = [&](FormatId id) {
    const auto found = std::ranges::find_if(cases, [&](const Case& c) {
      return c.distribution == "log_normal" && c.decades == setup.plot_decades &&
             c.format->id == id && c.policy == setup.policies.front();
    });
    return found == cases.end() ? nullptr : &*found;
  };
  const Case* narrow = find(FormatId::e4m3fn);
  const Case* wide = find(FormatId::e5m2);
  if (narrow == nullptr || wide == nullptr) return std::nullopt;
  const auto lost = [&](const Case& c) {
    std::vector<double> shares = c.all(&Kept::representable);
    for (double& share : shares) share = 1.0 - share;
    return range_text(spread_of(shares));
  };
  return Headline{
      .title = "One scale cannot hold a tensor's range",
      .sentence = fmt::format(
          "Of a log-normal tensor over {:g} decades, the best single scale "
          "loses {} of the elements in E4M3 and {} in E5M2 (mean and range of {} draws).",
          setup.plot_decades, lost(*narrow), lost(*wide), setup.repeats),
      .plot = "best_share_log_normal",
      .advice =
          "Scale finer parts of the tensor, keep subnormals, and give gradients a format with "
          "more exponent bits.",
      .measure = "elements lost at the best single scale",
      .failing = lost(*narrow) + " in E4M3",
      .mitigation = "E5M2",
      .mitigated = lost(*wide),
      .curves = {{"E4M3,", "E4M3"}, {"E5M2,", "E5M2"}}};
}

}  // namespace

Results dynamic_range(const RunContext& context) {
  const Setup setup = read_setup(context.parameters);
  const std::vector<Case> cases = measure(context, setup);
  Results results;
  results.tables.push_back(format_table());
  results.tables.push_back(best_table(cases));
  results.tables.push_back(draw_table(cases));
  add_spacing(setup.spacing_formats, results);
  results.tables.push_back(survival_table(setup, cases));
  for (const std::string& name : setup.distributions) {
    results.plots.push_back(share_plot(setup, cases, name));
    results.plots.push_back(best_plot(cases, name));
  }
  for (const Case& c : cases)
    if (c.is_shown(setup) && c.format->id == FormatId::e4m3fn) {
      results.plots.push_back(fate_plot(setup, c));
      break;
    }
  add_findings(setup, cases, results);
  results.headline = headline_of(setup, cases);
  return results;
}

}  // namespace fp8lab::experiments

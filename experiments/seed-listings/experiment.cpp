#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "common/series.hpp"
#include "common/spread.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/counted.hpp"
#include "lab/experiment/parameter_struct.hpp"
#include "seed-listings/numpy_listing.hpp"
#include "seed-listings/repeats.hpp"
#include "seed-listings/torch_listing.hpp"

namespace fp8lab::experiments {
namespace {

constexpr const char* kRepeatMeaning =
    "[]: an interval that holds, with a confidence of 99 %, the figure of 90 % of as many other "
    "draws";
constexpr double kListingOutlier = 200.0;  // of the PyTorch listing

struct Settings {
  std::int64_t listing_repeats = 0;
  std::int64_t torch_repeats = 0;
  std::vector<double> torch_outliers;

  static constexpr auto fields() {
    return std::tuple{field("listing_repeats", &Settings::listing_repeats),
                      field("torch_repeats", &Settings::torch_repeats),
                      field("torch_outliers", &Settings::torch_outliers)};
  }
};

struct NumpyRun {
  ListingCasts casts_written;
  ListingCasts casts_corrected;
  ListingDot dot_written;
  ListingDot dot_corrected;
};

NumpyRun run_numpy_listing() {
  const ListingDraws draws = numpy_draws();
  return {cast_as_written(draws), cast_corrected(draws), dot_as_written(draws),
          dot_corrected(draws)};
}

/// The figures that the listing prints, beside those that its text claims.
Table printed_table(const NumpyRun& run) {
  Table table("numpy_listing",
              "Output of the NumPy listing: printed in the text, as written, corrected",
              {{"figure", "", "as the listing names it"},
               {"unit", "", "of the figure"},
               {"text", "1", "the text's \"representative run\""},
               {"as_written", "1", "transcribed, on the draws of numpy.random.default_rng(0)"},
               {"corrected", "1", "E4M3, exact products, sm90.wgmma.e4m3; same draws"}});
  const auto add = [&](const char* figure, const char* unit, double text, double written,
                       double corrected) {
    table.add_row({std::string(figure), std::string(unit), text, written, corrected});
  };
  const ListingCasts& w = run.casts_written;
  const ListingCasts& c = run.casts_corrected;
  add("per-tensor scale", "1", 0.5580, w.per_tensor.scale, c.per_tensor.scale);
  add("per-tensor crushed", "of 128", 3, w.per_tensor.crushed, c.per_tensor.crushed);
  add("per-tensor rel_err", "1", 0.043, w.per_tensor.relative_l2, c.per_tensor.relative_l2);
  add("per-tile crushed", "of 128", 0, w.per_tile.crushed, c.per_tile.crushed);
  add("per-tile rel_err", "1", 0.011, w.per_tile.relative_l2, c.per_tile.relative_l2);
  add("exact", "1", 18.4172, run.dot_written.exact, run.dot_corrected.exact);
  add("naive", "1", 18.9143, run.dot_written.naive, run.dot_corrected.naive);
  add("naive off", "%", 2.70, run.dot_written.naive_percent_off(),
      run.dot_corrected.naive_percent_off());
  add("promoted", "1", 18.4286, run.dot_written.promoted, run.dot_corrected.promoted);
  add("promoted off", "%", 0.06, run.dot_written.promoted_percent_off(),
      run.dot_corrected.promoted_percent_off());
  return table;
}

/// rel_err is dominated by the outlier; without it, the bulk's error shows.
Table bulk_table(const NumpyRun& run) {
  Table table("numpy_bulk", "Relative L2 error of the 127 values that are not the outlier",
              {{"scaling", "", "per tensor, or per tile of 16"},
               {"as_written", "1", "grid to 240, floor 2^-6"},
               {"corrected", "1", "E4M3"}});
  table.add_row({std::string("per tensor"), run.casts_written.per_tensor.bulk_relative_l2,
                 run.casts_corrected.per_tensor.bulk_relative_l2});
  table.add_row({std::string("per tile"), run.casts_written.per_tile.bulk_relative_l2,
                 run.casts_corrected.per_tile.bulk_relative_l2});
  return table;
}

Table quantizer_table() {
  Table table("quantizer", "The listing's to_e4m3 and E4M3 on values that its text mentions",
              {{"x", "1", "input"},
               {"text", "1", "the text's result"},
               {"as_written", "1", "what the listing returns"},
               {"corrected", "1", "E4M3, nearest even, saturating"}});
  const auto add = [&](double x, double text) {
    table.add_row({x, text, listing_to_e4m3(x),
                   round_trip(format(FormatId::e4m3fn), kNvidiaSatfinite, static_cast<float>(x))});
  };
  add(0.5, 0.5);
  add(250.0, 256.0);
  add(0.008, 0.0);
  add(-0.31, -0.3125);
  add(448.0, 448.0);
  return table;
}

Table split_table(const NumpyRun& run) {
  Table table("numpy_error_split",
              "Where the listing's error comes from: signed share of the exact sum",
              {{"stage", "", "of the dot product"},
               {"as_written", "%", "shift of the sum / |exact sum|"},
               {"corrected", "%", "shift of the sum / |exact sum|"}});
  const ListingDot& w = run.dot_written;
  const ListingDot& c = run.dot_corrected;
  const auto add = [&](const char* stage, double written, double corrected) {
    table.add_row({std::string(stage), 100.0 * written / std::abs(w.exact),
                   100.0 * corrected / std::abs(c.exact)});
  };
  add("input quantization", w.input_error, c.input_error);
  add("product rounding", w.product_error, c.product_error);
  add("accumulation, no promotion", w.naive_accumulation_error, c.naive_accumulation_error);
  add("accumulation, promoted every 128", w.promoted_accumulation_error,
      c.promoted_accumulation_error);
  add("total, no promotion", w.naive - w.exact, c.naive - c.exact);
  add("total, promoted every 128", w.promoted - w.exact, c.promoted - c.exact);
  return table;
}

template <typename Run>
std::vector<double> each(const std::vector<Run>& runs, double (*figure)(const Run&)) {
  std::vector<double> values;
  values.reserve(runs.size());
  for (const Run& run : runs) values.push_back(figure(run));
  return values;
}

struct DotFigure {
  const char* name;
  double (*of)(const ListingDot&);
};

double percent(double part, const ListingDot& d) { return 100.0 * std::abs(part / d.exact); }

constexpr DotFigure kDotFigures[] = {
    {"naive off", [](const ListingDot& d) { return d.naive_percent_off(); }},
    {"promoted off", [](const ListingDot& d) { return d.promoted_percent_off(); }},
    {"input quantization", [](const ListingDot& d) { return percent(d.input_error, d); }},
    {"product rounding", [](const ListingDot& d) { return percent(d.product_error, d); }},
    {"accumulation, no promotion",
     [](const ListingDot& d) { return percent(d.naive_accumulation_error, d); }},
    {"accumulation, promoted every 128",
     [](const ListingDot& d) { return percent(d.promoted_accumulation_error, d); }},
};

Table repeats_table(const DotRepeats& repeats) {
  Table table("numpy_repeats",
              fmt::format("Part 3 of the NumPy listing {} times: |shift| / |exact sum|",
                          repeats.as_written.size()),
              {{"version", "", "as written or corrected"},
               {"figure", "", "total or stage"},
               {"percentile_5", "%", "over the repeats"},
               {"median", "%", "over the repeats"},
               {"percentile_95", "%", "over the repeats"}});
  for (const auto& [version, dots] :
       {std::pair{"as written", &repeats.as_written}, std::pair{"corrected", &repeats.corrected}})
    for (const DotFigure& figure : kDotFigures) {
      const Quantiles s = quantiles_of(each(*dots, figure.of));
      table.add_row({std::string(version), std::string(figure.name), s.low, s.median, s.high});
    }
  return table;
}

/// Every draw of the NumPy listing.
Table draw_table(const DotRepeats& repeats) {
  Table table("numpy_draws", "Part 3 of the NumPy listing: |shift| / |exact sum|, draw by draw",
              {{"version", "", "as written or corrected"},
               {"repeat", "1", "draw, from 0"},
               {"naive", "%", "total, no promotion"},
               {"promoted", "%", "total, promoted every 128"},
               {"input", "%", "input quantization"},
               {"product", "%", "product rounding"},
               {"accumulation", "%", "no promotion"},
               {"promoted_accumulation", "%", "promoted every 128"}});
  for (const auto& [version, dots] :
       {std::pair{"as written", &repeats.as_written}, std::pair{"corrected", &repeats.corrected}})
    for (std::size_t i = 0; i < dots->size(); ++i) {
      std::vector<Cell> cells{std::string(version), static_cast<std::int64_t>(i)};
      for (const DotFigure& figure : kDotFigures) cells.emplace_back(figure.of((*dots)[i]));
      table.add_row(std::move(cells));
    }
  return table;
}

struct TorchFigure {
  const char* name;
  double text;  ///< what the text says at outlier 200; NaN for nothing
  double (*of)(const TorchListing&);
};

constexpr TorchFigure kTorchFigures[] = {
    {"per-tile rel_err", 0.006, [](const TorchListing& t) { return t.per_tile; }},
    {"per-tensor rel_err", 0.2, [](const TorchListing& t) { return t.per_tensor; }},
    {"ratio", 40.0, [](const TorchListing& t) { return t.ratio(); }},
    {"per-tile rel_err of the bulk", NAN, [](const TorchListing& t) { return t.per_tile_bulk; }},
    {"per-tensor rel_err of the bulk", NAN,
     [](const TorchListing& t) { return t.per_tensor_bulk; }},
    {"ratio of the bulk", NAN, [](const TorchListing& t) { return t.bulk_ratio(); }},
};

void add_torch_rows(Table& table, const std::vector<TorchListing>& runs, double outlier) {
  for (const TorchFigure& figure : kTorchFigures) {
    const Quantiles s = quantiles_of(each(runs, figure.of));
    table.add_row({outlier, std::string(figure.name),
                   outlier == kListingOutlier ? figure.text : NAN, s.low, s.median, s.high,
                   static_cast<std::int64_t>(runs.size())});
  }
}

struct TorchResult {
  Table table;
  Table draws;
  Plot plot;
  std::vector<std::string> findings;
};

TorchResult torch_results(const RunContext& context, const Settings& p) {
  TorchResult result{
      Table("torch_listing",
            "The PyTorch listing, BF16 [64, 1024], with other draws (not torch.randn's bits)",
            {{"outlier", "1", "the value at (0, 511); 200 in the listing"},
             {"figure", "", "relative L2 error, or per tensor / per tile"},
             {"text", "1", "as the text says (ratio 30-50: its middle); nan for nothing"},
             {"percentile_5", "1", "over the repeats"},
             {"median", "1", "over the repeats"},
             {"percentile_95", "1", "over the repeats"},
             {"repeats", "1", "runs"}}),
      Table("torch_draws", "The PyTorch listing, draw by draw",
            {{"outlier", "1", "the value at (0, 511)"},
             {"repeat", "1", "draw, from 0"},
             {"figure", "", "relative L2 error, or per tensor / per tile"},
             {"value", "1", "of the draw"}}),
      {},
      {}};
  Plot& plot = result.plot;
  plot.name = "torch_error_against_outlier";
  plot.title = "PyTorch listing: median relative L2 error against its outlier";
  plot.x = {"outlier (the listing's is 200)", true};
  plot.y = {"relative L2 error (%)", true};
  plot.series = {{"per tile, all elements", {}, {}},
                 {"per tensor, all elements", {}, {}},
                 {"per tile, without the outlier", {}, {}, Series::Style::dashed},
                 {"per tensor, without the outlier", {}, {}, Series::Style::dashed}};
  share_colours(plot.series, "without the outlier", "all elements");
  const std::vector<double>& outliers = p.torch_outliers;
  for (const double outlier : outliers) {
    const std::vector<TorchListing> runs =
        repeat_torch(context.seed, p.torch_repeats, static_cast<float>(outlier), context.threads);
    add_torch_rows(result.table, runs, outlier);
    for (std::size_t i = 0; i < runs.size(); ++i)
      for (const TorchFigure& figure : kTorchFigures)
        result.draws.add_row(
            {outlier, static_cast<std::int64_t>(i), std::string(figure.name), figure.of(runs[i])});
    const auto median = [&](double TorchListing::*figure) {
      std::vector<double> values;
      for (const TorchListing& run : runs) values.push_back(run.*figure);
      return quantiles_of(std::move(values)).median;
    };
    const double medians[] = {median(&TorchListing::per_tile), median(&TorchListing::per_tensor),
                              median(&TorchListing::per_tile_bulk),
                              median(&TorchListing::per_tensor_bulk)};
    for (std::size_t i = 0; i < plot.series.size(); ++i) {
      plot.series[i].x.push_back(outlier);
      plot.series[i].y.push_back(100.0 * medians[i]);
    }
    if (outlier != kListingOutlier && outlier != outliers.back()) continue;
    const auto text = [&](std::size_t figure, double factor) {
      return interval_text(each(runs, kTorchFigures[figure].of), factor);
    };
    result.findings.push_back(fmt::format(
        "PyTorch listing, outlier {}: relative L2 error per tile {} %, per tensor {} % (ratio {}); "
        "without the outlier {} % and {} % (ratio {}) ({}; draws: {}).",
        outlier, text(0, 100.0), text(1, 100.0), text(2, 1.0), text(3, 100.0), text(4, 100.0),
        text(5, 1.0), kIntervalMeaning, runs.size()));
  }
  return result;
}

Plot repeats_plot(const DotRepeats& repeats) {
  Plot plot;
  plot.name = "numpy_repeats";
  plot.title = fmt::format("NumPy listing, part 3, {}: errors of the sums",
                           counted(repeats.as_written.size(), "draw"));
  plot.x = {"|sum - exact| / |exact| (%)", true};
  plot.y = {"draws with at most this error (%)", false};
  const auto add = [&](const char* label, const std::vector<ListingDot>& dots, const DotFigure& f,
                       Series::Style style) {
    Series series{label, each(dots, f.of), {}, style};
    std::sort(series.x.begin(), series.x.end());
    for (std::size_t i = 0; i < series.x.size(); ++i)
      series.y.push_back(100.0 * static_cast<double>(i + 1) / static_cast<double>(dots.size()));
    plot.series.push_back(std::move(series));
  };
  add("as written, no promotion", repeats.as_written, kDotFigures[0], Series::Style::lines);
  add("as written, promoted", repeats.as_written, kDotFigures[1], Series::Style::dashed);
  add("corrected, no promotion", repeats.corrected, kDotFigures[0], Series::Style::lines);
  add("corrected, promoted", repeats.corrected, kDotFigures[1], Series::Style::dashed);
  add("accumulation alone, no promotion", repeats.corrected, kDotFigures[4], Series::Style::lines);
  add("accumulation alone, promoted", repeats.corrected, kDotFigures[5], Series::Style::dashed);
  share_colours(plot.series, ", promoted", ", no promotion");
  return plot;
}

std::vector<std::string> numpy_findings(const NumpyRun& run, const DotRepeats& repeats) {
  const ListingCasts& w = run.casts_written;
  const ListingCasts& c = run.casts_corrected;
  const auto medians = [](const std::vector<ListingDot>& dots, std::size_t figure) {
    return median_text(each(dots, kDotFigures[figure].of));
  };
  const auto draws = static_cast<double>(repeats.as_written.size());
  const double nearer = share_promoted_nearer(repeats.as_written);
  // Of the difference of two shares of as many draws.
  const double half_width = 2.576 * std::sqrt(2.0 * nearer * (1.0 - nearer) / draws);
  return {
      fmt::format("On NumPy's draws the listing as written prints per-tensor rel_err {:.3f} and "
                  "per-tile {:.3f} (text: 0.043 and 0.011), because its grid ends at {} and its "
                  "outlier saturates; with E4M3 they are {:.4f} and {:.4f}.",
                  w.per_tensor.relative_l2, w.per_tile.relative_l2, listing_grid().back(),
                  c.per_tensor.relative_l2, c.per_tile.relative_l2),
      fmt::format("On NumPy's draws the sum as written has an error of {:.2f} % without promotion "
                  "and {:.2f} % with (text: 2.70 and 0.06); corrected {:.3f} % and {:.3f} %.",
                  run.dot_written.naive_percent_off(), run.dot_written.promoted_percent_off(),
                  run.dot_corrected.naive_percent_off(), run.dot_corrected.promoted_percent_off()),
      fmt::format("Over {} as written, promotion brings the sum nearer to the exact one in "
                  "{} % of them; the median errors are {} % without and {} % with it ({}).",
                  counted(repeats.as_written.size(), "draw"),
                  interval_text(Interval{nearer, half_width}, 100.0),
                  medians(repeats.as_written, 0), medians(repeats.as_written, 1), kRepeatMeaning),
      fmt::format("Corrected, the median error of the accumulation alone is {} % without and "
                  "{} % with promotion; that of input quantization is {} % ({}; {}).",
                  medians(repeats.corrected, 4), medians(repeats.corrected, 5),
                  medians(repeats.corrected, 2), counted(repeats.corrected.size(), "draw"),
                  kRepeatMeaning),
  };
}

}  // namespace

Results seed_listings(const RunContext& context) {
  const auto p = read_parameters<Settings>(context.parameters);
  const NumpyRun run = run_numpy_listing();
  const DotRepeats repeats = repeat_dots(context.seed, p.listing_repeats, context.threads);
  context.progress(0.3);
  TorchResult torch = torch_results(context, p);
  Results results;
  results.tables = {printed_table(run),  bulk_table(run),        quantizer_table(),
                    split_table(run),    repeats_table(repeats), std::move(torch.table),
                    draw_table(repeats), std::move(torch.draws)};
  results.plots = {repeats_plot(repeats), std::move(torch.plot)};
  results.findings = numpy_findings(run, repeats);
  results.findings.insert(results.findings.end(), torch.findings.begin(), torch.findings.end());
  context.progress(1.0);
  return results;
}

}  // namespace fp8lab::experiments

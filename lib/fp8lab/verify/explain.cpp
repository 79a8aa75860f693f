#include "fp8lab/verify/explain.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fp8lab/verify/attempt.hpp"

namespace fp8lab {
namespace {

constexpr double kWholeLine = 0.9;  // of a line differs: then all of it is taken to be wrong

std::vector<std::int64_t> line_of(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> places = spread(count, count);
  for (std::int64_t& at : places) at += first;
  return places;
}

/// The rows, or the columns, of which nearly all elements differ.
std::vector<std::int64_t> wrong_lines(const Product& product, const WrongElements& wrong,
                                      bool columns) {
  const std::int64_t lines = columns ? product.columns() : product.rows();
  const std::int64_t across = columns ? product.rows() : product.columns();
  const std::vector<std::int64_t> looked_at = spread(across, 64);
  std::vector<std::int64_t> found;
  for (std::int64_t line = 0; line < lines; ++line) {
    std::int64_t differ = 0;
    for (const std::int64_t at : looked_at)
      differ += wrong.at(columns ? at * lines + line : line * across + at) ? 1 : 0;
    if (static_cast<double>(differ) >= kWholeLine * static_cast<double>(looked_at.size()))
      found.push_back(line);
  }
  return found;
}

/// "12 rows, i mod 16 >= 8": how many, and the pattern if there is one.
std::string lines_text(const std::vector<std::int64_t>& lines, std::int64_t count, bool columns) {
  const std::string_view name = columns ? "columns" : "rows";
  for (std::int64_t period = 2; period <= std::min<std::int64_t>(count / 2, 256); period *= 2) {
    std::vector<bool> in(static_cast<std::size_t>(period), false);
    for (const std::int64_t line : lines) in[static_cast<std::size_t>(line % period)] = true;
    const auto first = std::ranges::find(in, true) - in.begin();
    const auto wide = std::ranges::count(in, true);
    std::int64_t expected = 0;
    for (std::int64_t line = 0; line < count; ++line)
      expected += in[static_cast<std::size_t>(line % period)] ? 1 : 0;
    const bool together =
        std::ranges::count(in.begin() + first, in.begin() + first + wide, true) == wide;
    if (wide == period || expected != std::ssize(lines) || !together) continue;
    return fmt::format("{} {} with i mod {} in {}-{}", lines.size(), name, period, first,
                       first + wide - 1);
  }
  return fmt::format("{} {}, the first {}", lines.size(), name, lines.front());
}

/// A fault of some rows or columns that are no rectangle: the mistake is sought in them alone.
void diagnose_lines(const Product& product, std::span<const std::byte> got,
                    const WrongElements& wrong, const DiagnosisOptions& how, VerifyReport& report) {
  constexpr std::int64_t kLines = 16;
  constexpr std::int64_t kAcross = 64;
  for (const bool columns : {false, true}) {
    const std::int64_t count = columns ? product.columns() : product.rows();
    const std::vector<std::int64_t> lines = wrong_lines(product, wrong, columns);
    if (lines.empty() || std::ssize(lines) == count) continue;
    std::vector<std::int64_t> chosen;
    for (const std::int64_t i : spread(std::ssize(lines), kLines))
      chosen.push_back(lines[static_cast<std::size_t>(i)]);
    const std::int64_t across = columns ? product.rows() : product.columns();
    DiagnosisOptions one = how;
    one.area =
        columns ? Sample{spread(across, across), lines} : Sample{lines, spread(across, across)};
    const std::vector<std::int64_t> others = spread(across, kAcross);
    Diagnosis found =
        diagnose(product, got, columns ? Sample{others, chosen} : Sample{chosen, others}, one);
    if (says_little(found)) continue;
    for (Cause& cause : found.causes)
      cause.text = fmt::format("in {}: {}", lines_text(lines, count, columns), cause.text);
    report.diagnosis = std::move(found);
    return;
  }
}

// Of a region, that a mistake is sought in.
constexpr std::int64_t kRegionRows = 16;
constexpr std::int64_t kRegionColumns = 64;

/// Rectangles of a map's tiles of which nearly all elements differ.
class WrongTiles {
 public:
  WrongTiles(const MismatchMap& map, std::int64_t rows, std::int64_t columns)
      : map_(map), rows_(rows), columns_(columns) {}

  /// The rectangle around the first such tile, or the last one, as wide and then as high as it is
  /// all wrong; nothing without any.
  [[nodiscard]] std::optional<Region> around(bool last) const {
    const auto count = std::ssize(map_.counts);
    for (std::int64_t n = 0; n < count; ++n) {
      const std::int64_t at = last ? count - 1 - n : n;
      if (wrong(at / map_.columns, at % map_.columns))
        return grown(at / map_.columns, at % map_.columns);
    }
    return std::nullopt;
  }

 private:
  [[nodiscard]] Region region(std::int64_t top, std::int64_t bottom, std::int64_t left,
                              std::int64_t right) const {
    Region one{.row = top * map_.tile_rows, .column = left * map_.tile_columns};
    one.rows = std::min((bottom + 1) * map_.tile_rows, rows_) - one.row;
    one.columns = std::min((right + 1) * map_.tile_columns, columns_) - one.column;
    return one;
  }
  [[nodiscard]] bool wrong(std::int64_t row, std::int64_t column) const {
    constexpr double kMostlyWrong = 0.8;
    if (row < 0 || column < 0 || row >= map_.rows || column >= map_.columns) return false;
    const auto count = map_.counts[static_cast<std::size_t>(row * map_.columns + column)];
    const auto size = static_cast<double>(region(row, row, column, column).size());
    return static_cast<double>(count) >= kMostlyWrong * size;
  }
  [[nodiscard]] Region grown(std::int64_t row, std::int64_t column) const {
    std::int64_t left = column;
    std::int64_t right = column;
    while (wrong(row, left - 1)) --left;
    while (wrong(row, right + 1)) ++right;
    const auto line = [&](std::int64_t at) {
      for (std::int64_t c = left; c <= right; ++c)
        if (!wrong(at, c)) return false;
      return true;
    };
    std::int64_t top = row;
    std::int64_t bottom = row;
    while (line(top - 1)) --top;
    while (line(bottom + 1)) ++bottom;
    return region(top, bottom, left, right);
  }

  const MismatchMap& map_;
  std::int64_t rows_;
  std::int64_t columns_;
};

/// A fault of rectangles that are many: the mistake that explains the first and the last one.
void diagnose_wrong_tiles(const Product& product, std::span<const std::byte> got,
                          const DiagnosisOptions& how, VerifyReport& report) {
  constexpr std::uint64_t kFewest = 128;  // elements of a rectangle
  const WrongTiles tiles(report.map, product.rows(), product.columns());
  const std::optional<Region> first = tiles.around(false);
  const std::optional<Region> last = tiles.around(true);
  if (!first || place_of(*first) == place_of(*last)) return;
  std::optional<Diagnosis> found;
  for (const Region& tile : {*first, *last}) {
    if (tile.size() < kFewest) return;
    DiagnosisOptions one = how;
    one.area = Sample{line_of(tile.row, tile.rows), line_of(tile.column, tile.columns)};
    Diagnosis own = diagnose(product, got, sample_of(tile, kRegionRows, kRegionColumns), one);
    if (says_little(own)) return;
    if (found && own.causes.front().name != found->causes.front().name) return;
    if (!found) found = std::move(own);
  }
  for (Cause& cause : found->causes)
    cause.text = fmt::format("in {}, and other places: {}", place_of(*first), cause.text);
  report.diagnosis = std::move(found);
}

/// Whether a cause explains all of its sample.
bool is_whole(const Diagnosis& diagnosis) {
  if (diagnosis.causes.empty()) return false;
  const Cause& cause = diagnosis.causes.front();
  return !cause.vague && cause.explained == diagnosis.mismatches && cause.contradicted == 0;
}

}  // namespace

Sample sample_of(const Region& region, std::int64_t most_rows, std::int64_t most_columns) {
  Sample sample{spread(region.rows, most_rows), spread(region.columns, most_columns)};
  for (std::int64_t& row : sample.rows) row += region.row;
  for (std::int64_t& column : sample.columns) column += region.column;
  return sample;
}

bool says_little(const Diagnosis& diagnosis) {
  return diagnosis.causes.empty() || diagnosis.causes.front().vague;
}

std::optional<Diagnosis> diagnosis_of_regions(const VerifyReport& report) {
  std::uint64_t inside = 0;
  for (const Region& region : report.regions) {
    if (!region.diagnosis || !is_whole(*region.diagnosis)) return std::nullopt;
    if (region.diagnosis->causes.front().name !=
        report.regions.front().diagnosis->causes.front().name)
      return std::nullopt;
    inside += region.mismatches;
  }
  if (inside == 0 || inside != report.comparison.bit_mismatches) return std::nullopt;
  Diagnosis found = *report.regions.front().diagnosis;
  const std::string where = report.regions.size() == 1
                                ? place_of(report.regions.front())
                                : fmt::format("{} regions", report.regions.size());
  for (Cause& cause : found.causes) cause.text = fmt::format("in {}: {}", where, cause.text);
  return found;
}

std::vector<WrongProduct> more_mistakes(const VerifyOptions& options) {
  if (!options.more) return {};
  return attempt([&] { return options.more(); }).value_or(std::vector<WrongProduct>{});
}

void diagnose_what_counts(const Product& product, std::span<const std::byte> golden,
                          std::span<const std::byte> got, std::span<const std::int64_t> mismatches,
                          const VerifyOptions& options, std::span<const WrongProduct> more,
                          VerifyReport& report) {
  if (options.check.kind != Check::Kind::budget) {
    const DiagnosisOptions how{.golden = golden, .more = more, .threads = options.threads};
    report.diagnosis = diagnose(product, got, mismatches, how);
    if (!says_little(*report.diagnosis)) return;
    if (std::optional<Diagnosis> found = diagnosis_of_regions(report))
      report.diagnosis = std::move(found);
    else if (std::ranges::none_of(report.regions, says_why)) {
      diagnose_lines(product, got, WrongElements(product.output.format, golden, got), how, report);
      if (says_little(*report.diagnosis) && report.regions.empty())
        diagnose_wrong_tiles(product, got, how, report);
    }
  } else if (!report.budget->outside.empty()) {
    report.diagnosis =
        diagnose(product, got, report.budget->outside,
                 {.closeness = Closeness::budget, .more = more, .threads = options.threads});
  }
}

std::vector<Region> look_at_regions(const Product& product, std::span<const std::byte> golden,
                                    std::span<const std::byte> got, const VerifyOptions& options,
                                    std::span<const WrongProduct> more,
                                    const VerifyReport& report) {
  const bool budget = options.check.kind == Check::Kind::budget;
  const FormatId id = product.output.format;
  const std::int64_t rows = product.rows();
  const std::int64_t columns = product.columns();
  std::vector<Region> regions = budget ? find_regions(id, golden, got, rows, columns,
                                                      map_of(rows, columns, report.budget->outside),
                                                      WrongElements(report.budget->outside))
                                       : find_regions(id, golden, got, rows, columns, report.map,
                                                      WrongElements(id, golden, got));
  for (Region& region : regions) {
    if (region.content != RegionContent::other) continue;
    DiagnosisOptions how{
        .closeness = budget ? Closeness::budget : Closeness::bits,
        .more = more,
        .threads = options.threads,
        .area = Sample{line_of(region.row, region.rows), line_of(region.column, region.columns)}};
    if (!budget) how.golden = golden;
    region.diagnosis = diagnose(product, got, sample_of(region, kRegionRows, kRegionColumns), how);
    if (region.diagnosis->causes.empty() && unrelated(id, golden, got, columns, region))
      region.content = RegionContent::unrelated;
  }
  return regions;
}

}  // namespace fp8lab

#include "fp8lab/verify/explain.hpp"

#include "fp8lab/verify/attempt.hpp"

namespace fp8lab {

std::vector<WrongProduct> more_mistakes(const VerifyOptions& options) {
  if (!options.more) return {};
  return attempt([&] { return options.more(); }).value_or(std::vector<WrongProduct>{});
}

void diagnose_what_counts(const Product& product, std::span<const std::byte> golden,
                          std::span<const std::byte> got, std::span<const std::int64_t> mismatches,
                          const VerifyOptions& options, std::span<const WrongProduct> more,
                          VerifyReport& report) {
  if (options.check.kind != Check::Kind::budget) {
    report.diagnosis = diagnose(product, got, mismatches,
                                {.golden = golden, .more = more, .threads = options.threads});
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
  constexpr std::int64_t kRows = 16;
  constexpr std::int64_t kColumns = 64;
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
    Sample sample{spread(region.rows, kRows), spread(region.columns, kColumns)};
    for (std::int64_t& row : sample.rows) row += region.row;
    for (std::int64_t& column : sample.columns) column += region.column;
    DiagnosisOptions how{.closeness = budget ? Closeness::budget : Closeness::bits,
                         .more = more,
                         .threads = options.threads,
                         .area = OutputArea{region.row, region.rows, region.column, region.columns}};
    if (!budget) how.golden = golden;
    region.diagnosis = diagnose(product, got, sample, how);
    if (region.diagnosis->causes.empty() && unrelated(id, golden, got, columns, region))
      region.content = RegionContent::unrelated;
  }
  return regions;
}

}  // namespace fp8lab

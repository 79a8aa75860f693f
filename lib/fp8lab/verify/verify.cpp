#include "fp8lab/verify/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <queue>
#include <utility>

#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/first_error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/element.hpp"
#include "fp8lab/verify/gates.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 22;  // elements read at a time
constexpr std::uint64_t kMostMismatches = 4096;      // that are looked at one by one
constexpr double kBudgetWork = 1e7;                  // terms, over all budgets, where they decide
constexpr double kBudgetWorkTold = 2e6;              // and where they are told only

std::size_t width_of(FormatId id) { return static_cast<std::size_t>(format(id).storage_bits / 8); }

void require_row_major(std::string_view name, const TensorView& tensor) {
  require(!tensor.fortran_order || tensor.shape.size() < 2, name,
          "row-major order; save np.ascontiguousarray(x)", "Fortran order");
}

void require_output(const Operand& got, FormatId id, const std::vector<std::int64_t>& shape) {
  const TensorView& tensor = got.tensor();
  const ElementType expected = element_type_of(id);
  const bool is_codes = tensor.type == ElementType::u8 && element_bytes(expected) == 1;
  require(tensor.type == expected || is_codes, got.name(),
          fmt::format("{} elements; say what they are with --out-dtype", to_string(expected)),
          to_string(tensor.type));
  require(tensor.shape == shape, got.name(), fmt::format("shape {}", shape_text(shape)),
          shape_text(tensor.shape));
  require_row_major(got.name(), tensor);
}

/// Indices of `count` mismatches (payloads of NaN too), evenly spread: every so many-th one.
template <typename Word>
std::vector<std::int64_t> some_mismatches(std::span<const std::byte> expected,
                                          std::span<const std::byte> got, std::uint64_t count) {
  std::vector<std::int64_t> indices;
  const std::uint64_t step = std::max<std::uint64_t>(1, count / kMostMismatches);
  std::uint64_t left = 1;
  for (std::size_t at = 0; at < expected.size(); at += sizeof(Word)) {
    Word x = 0;
    Word y = 0;
    std::memcpy(&x, &expected[at], sizeof(Word));
    std::memcpy(&y, &got[at], sizeof(Word));
    left -= x != y ? 1 : 0;
    if (left != 0) continue;
    indices.push_back(static_cast<std::int64_t>(at / sizeof(Word)));
    left = step;
  }
  return indices;
}

std::vector<std::int64_t> some_mismatches(FormatId id, std::span<const std::byte> expected,
                                          std::span<const std::byte> got, std::uint64_t count) {
  switch (width_of(id)) {
    case 1:
      return some_mismatches<std::uint8_t>(expected, got, count);
    case 2:
      return some_mismatches<std::uint16_t>(expected, got, count);
    default:
      return some_mismatches<std::uint32_t>(expected, got, count);
  }
}

double norm_of_row(const CodeMatrix& m, const ScaleLookup& scales, std::int64_t row) {
  double sum = 0.0;
  for (std::int64_t k = 0; k < m.k; ++k) {
    const double x =
        decode(format(m.format), code_at(m, row, k)) * static_cast<double>(scales.at(row, k));
    sum += x * x;
  }
  return std::sqrt(sum);
}

std::vector<double> norms_of_rows(const CodeMatrix& m, const InverseScales& scales, int threads) {
  const ScaleLookup lookup(scales, m);
  std::vector<double> norms(static_cast<std::size_t>(m.rows));
  FirstError error;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (std::int64_t row = 0; row < m.rows; ++row)
    error.guard([&] {
      const FloatEnvironment environment;
      norms[static_cast<std::size_t>(row)] = norm_of_row(m, lookup, row);
    });
  error.rethrow();
  return norms;
}

/// The elements that are farthest from the golden ones, beside the norms of what they sum up:
/// of all elements these are the likeliest to lie outside of their budgets.
std::vector<std::int64_t> farthest_off(const Product& product, std::span<const std::byte> golden,
                                       std::span<const std::byte> got, std::int64_t most,
                                       int threads) {
  const GemmProblem& p = product.problem;
  const FormatId id = product.output.format;
  const std::vector<double> a = norms_of_rows(p.a, p.a_scales, threads);
  const std::vector<double> b = norms_of_rows(p.b, p.b_scales, threads);
  using Entry = std::pair<double, std::int64_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> kept;
  for (std::int64_t row = 0; row < product.rows(); ++row)
    for (std::int64_t column = 0; column < product.columns(); ++column) {
      const std::int64_t at = row * product.columns() + column;
      const std::uint32_t x_code = code_at(id, golden, static_cast<std::size_t>(at));
      const std::uint32_t y_code = code_at(id, got, static_cast<std::size_t>(at));
      if (x_code == y_code) continue;
      const double x = decode(format(id), x_code);
      const double y = decode(format(id), y_code);
      if (x == y) continue;  // zeros of both signs
      const double reach =
          a[static_cast<std::size_t>(row)] * b[static_cast<std::size_t>(column)] + std::abs(x);
      double off = std::abs(y - x) / reach;
      if (std::isnan(off)) off = std::isnan(x) && std::isnan(y) ? 0.0 : INFINITY;
      if (kept.size() == static_cast<std::size_t>(most)) {
        if (kept.top().first >= off) continue;
        kept.pop();
      }
      kept.emplace(off, at);
    }
  std::vector<std::int64_t> places;
  for (; !kept.empty(); kept.pop()) places.push_back(kept.top().second);
  return places;
}

BudgetSummary check_budgets(const Product& product, std::span<const std::byte> golden,
                            std::span<const std::byte> got,
                            std::span<const std::int64_t> mismatches,
                            const VerifyOptions& options) {
  const int threads = team_size(options.threads);
  const double terms = static_cast<double>(std::max<std::int64_t>(product.problem.a.k, 1));
  const bool decides = options.check.kind == Check::Kind::budget;
  const double work = decides ? kBudgetWork : kBudgetWorkTold;
  const auto most = static_cast<std::int64_t>(std::clamp(work / terms, 64.0, 4096.0));
  const FormatId id = product.output.format;
  std::vector<std::int64_t> chosen;
  if (decides) chosen = farthest_off(product, golden, got, most, threads);
  for (const std::int64_t i : spread(static_cast<std::int64_t>(mismatches.size()), most))
    chosen.push_back(mismatches[static_cast<std::size_t>(i)]);
  std::ranges::sort(chosen);
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  std::vector<double> relative(chosen.size());
  std::vector<char> inside(chosen.size());
  FirstError error;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (std::size_t i = 0; i < chosen.size(); ++i)
    error.guard([&] {
      const FloatEnvironment environment;
      const std::int64_t at = chosen[i];
      const ErrorBudget budget =
          error_budget(product, at / product.columns(), at % product.columns());
      const auto index = static_cast<std::size_t>(at);
      const bool fits =
          allowed(budget, product.output, code_at(id, golden, index), code_at(id, got, index));
      inside[i] = fits ? 1 : 0;
      relative[i] = budget.exact == 0.0 ? INFINITY : budget.total() / std::abs(budget.exact);
    });
  error.rethrow();
  BudgetSummary summary{.checked = chosen.size()};
  for (std::size_t i = 0; i < chosen.size(); ++i)
    if (inside[i] == 0) summary.outside.push_back(chosen[i]);
  summary.within = chosen.size() - summary.outside.size();
  if (!relative.empty()) {
    const auto middle = relative.begin() + static_cast<std::ptrdiff_t>(relative.size() / 2);
    std::nth_element(relative.begin(), middle, relative.end());
    summary.median = *middle;
  }
  return summary;
}

/// What the causes are fitted to: with a budget, only elements outside of theirs, since
/// what lies inside is allowed to differ.
void diagnose_what_counts(const Product& product, std::span<const std::byte> got,
                          std::span<const std::int64_t> mismatches, const VerifyOptions& options,
                          VerifyReport& report) {
  if (options.check.kind != Check::Kind::budget) {
    report.diagnosis = diagnose(product, got, mismatches, options.threads);
  } else if (!report.budget->outside.empty()) {
    report.diagnosis =
        diagnose(product, got, report.budget->outside, options.threads, Closeness::budget);
  }
}

/// The regions that are wrong (with a budget: outside of it), with the causes of those whose
/// content does not say what they are.
std::vector<Region> look_at_regions(const Product& product, std::span<const std::byte> golden,
                                    std::span<const std::byte> got, const VerifyOptions& options,
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
    region.diagnosis = diagnose(product, got, sample, options.threads,
                                budget ? Closeness::budget : Closeness::bits);
  }
  return regions;
}

bool passes(const VerifyReport& report) {
  switch (report.check.kind) {
    case Check::Kind::bitwise:
      return report.comparison.bitwise();
    case Check::Kind::gate:
      return report.gates[report.check.gate];
    case Check::Kind::budget:
      break;
  }
  return report.comparison.bitwise() ||
         (report.budget && report.budget->within == report.budget->checked);
}

void judge_gates(VerifyReport& report) {
  for (std::size_t i = 0; i < gates().size(); ++i)
    report.gates.push_back(gate_passes(i, report.comparison));
}

std::vector<Check> checks_to_try(const VerifyOptions& options, bool with_budget) {
  if (!options.fault_matrix) return {options.check};
  std::vector<Check> checks;
  for (const Check& check : all_checks())
    if (with_budget || check.kind != Check::Kind::budget) checks.push_back(check);
  return checks;
}

/// Sets the verdict; `faults` tries the checks it is given.
template <typename Faults>
void decide(VerifyReport& report, const VerifyOptions& options, bool with_budget,
            const Faults& faults) {
  const bool passed = passes(report);
  report.verdict = passed ? Verdict::pass : Verdict::mismatch;
  if (!passed && !options.fault_matrix) return;
  report.power = faults(checks_to_try(options, with_budget));
  const std::vector<Check>& checks = report.power->checks;
  for (std::size_t i = 0; i < checks.size(); ++i)
    if (checks[i].name() == report.check.name()) report.power_of_check = i;
  if (passed && !report.power->has_power(report.power_of_check)) report.verdict = Verdict::no_power;
}

VerifyReport new_report(const VerifyOptions& options, FormatId output, std::int64_t rows,
                        std::int64_t columns) {
  VerifyReport report;
  report.check = options.check;
  report.output = output;
  report.rows = rows;
  report.columns = columns;
  report.map = make_map(rows, columns);
  return report;
}

/// A tensor as a matrix: the last dimension is a row's length.
std::array<std::int64_t, 2> matrix_shape(const TensorView& tensor) {
  const std::int64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  std::int64_t rows = 1;
  for (std::size_t d = 0; d + 1 < tensor.shape.size(); ++d) rows *= tensor.shape[d];
  return {rows, columns};
}

void add_elements(VerifyReport& report) {
  const CodeComparison& c = report.comparison;
  if (!c.first) return;
  const auto add = [&](std::string_view which, const CodeMismatch& mismatch) {
    ElementReport element;
    element.which = which;
    element.mismatch = mismatch;
    element.row = mismatch.index / std::max<std::int64_t>(report.columns, 1);
    element.column = mismatch.index % std::max<std::int64_t>(report.columns, 1);
    report.elements.push_back(element);
  };
  add("first", *c.first);
  if (c.worst->index != c.first->index) add("worst", *c.worst);
}

/// The scale of every element of a dump.
class DumpScale {
 public:
  DumpScale(const Operand* scale, const std::optional<ScaleTiles>& tiles, std::int64_t rows,
            std::int64_t columns)
      : columns_(columns) {
    if (scale == nullptr) {
      values_ = {1.0F};
      return;
    }
    const TensorView& tensor = scale->tensor();
    require_scale_type(scale->name(), tensor.type);
    tiles_ = checked_tiles(scale->name(), tensor.shape, tiles, rows, columns);
    values_ = to_float(tensor);
    grid_columns_ = grid_shape(tensor.shape)[1];
  }

  [[nodiscard]] float at(std::size_t index) const {
    if (values_.size() == 1) return values_[0];
    const auto i = static_cast<std::int64_t>(index);
    return values_[static_cast<std::size_t>(i / columns_ / tiles_.rows * grid_columns_ +
                                            i % columns_ / tiles_.columns)];
  }

 private:
  std::vector<float> values_;
  std::int64_t columns_;
  std::int64_t grid_columns_ = 1;
  ScaleTiles tiles_;
};

/// Elements [begin, begin + count) as floats.
std::vector<float> floats_of(const TensorView& tensor, std::size_t begin, std::size_t count) {
  const std::size_t width = element_bytes(tensor.type);
  return to_float({tensor.type,
                   {static_cast<std::int64_t>(count)},
                   tensor.bytes.subspan(begin * width, count * width),
                   false});
}

/// What is kept of a dump for the diagnosis and for the power of its check.
struct DumpSample {
  std::vector<float> x;
  std::vector<float> scale;
  std::vector<std::byte> got;
  std::size_t wrong = 0;

  void add(float value, float by, std::byte code) {
    x.push_back(value);
    scale.push_back(by);
    got.push_back(code);
  }
};

constexpr std::size_t kMostWrong = 16384;
constexpr std::size_t kMostRight = 32768;

}  // namespace

std::string_view to_string(Verdict verdict) {
  constexpr std::array<std::string_view, 3> kNames{"pass", "mismatch", "no power"};
  return kNames[static_cast<std::size_t>(verdict)];
}

VerifyReport verify(const Product& product, const Operand& got, const VerifyOptions& options) {
  const FloatEnvironment environment;
  require_output(got, product.output.format, {product.rows(), product.columns()});
  const std::vector<std::byte> golden = golden_output(product, options.threads);
  const std::span<const std::byte> codes = got.tensor().bytes;
  VerifyReport report =
      new_report(options, product.output.format, product.rows(), product.columns());
  report.subject = fmt::format("{}, k = {}, promotion {}", product.model, product.problem.a.k,
                               product.problem.promotion_interval);
  report.comparison = compare_codes(format(report.output), golden, codes,
                                    {.tolerances = gate_tolerances(report.output),
                                     .map = &report.map,
                                     .threads = options.threads});
  report.non_finite = count_non_finite(product);
  report.non_finite.push_back({"the golden output", count_non_finite(report.output, golden)});
  report.non_finite.push_back({got.name(), count_non_finite(report.output, codes)});
  judge_gates(report);
  if (!report.comparison.bitwise()) {
    const std::vector<std::int64_t> mismatches =
        some_mismatches(report.output, golden, codes,
                        report.comparison.bit_mismatches + report.comparison.nan_payloads);
    report.budget = check_budgets(product, golden, codes, mismatches, options);
    report.regions = look_at_regions(product, golden, codes, options, report);
    diagnose_what_counts(product, codes, mismatches, options, report);
    add_elements(report);
    for (ElementReport& element : report.elements) explain_element(product, element);
  }
  decide(report, options, true,
         [&](const std::vector<Check>& checks) { return power(product, checks, options.threads); });
  return report;
}

VerifyReport verify(const Operand& golden, const Operand& got, const VerifyOptions& options) {
  const FloatEnvironment environment;
  const TensorView& expected = golden.tensor();
  const std::optional<FormatId> id = format_of(expected.type);
  require(id.has_value(), golden.name(), "f32, f16, bf16 or FP8 elements (--out-dtype)",
          to_string(expected.type));
  require(options.check.kind != Check::Kind::budget, "check",
          "one that needs no inputs, with a golden file", "budget");
  require_row_major(golden.name(), expected);
  require_output(got, *id, expected.shape);
  const auto [rows, columns] = matrix_shape(expected);
  VerifyReport report = new_report(options, *id, rows, columns);
  report.subject = golden.name();
  CodeComparer comparer(
      format(*id),
      {.tolerances = gate_tolerances(*id), .map = &report.map, .threads = options.threads});
  const std::size_t width = width_of(*id);
  const std::size_t step = kPart * width;
  const std::vector<std::int64_t> places = spread(expected.size(), kPowerSample);
  auto place = places.begin();
  std::vector<std::byte> sample;
  NonFinite in_golden;
  NonFinite in_got;
  for (std::size_t begin = 0; begin < expected.bytes.size(); begin += step) {
    const std::size_t size = std::min(step, expected.bytes.size() - begin);
    for (; place != places.end(); ++place) {
      const std::size_t at = static_cast<std::size_t>(*place) * width;
      if (at >= begin + size) break;
      sample.insert(sample.end(), &expected.bytes[at], &expected.bytes[at] + width);
    }
    comparer.add(expected.bytes.subspan(begin, size), got.tensor().bytes.subspan(begin, size));
    in_golden += count_non_finite(*id, expected.bytes.subspan(begin, size));
    in_got += count_non_finite(*id, got.tensor().bytes.subspan(begin, size));
    golden.release(expected.bytes.subspan(begin, size));
    got.release(got.tensor().bytes.subspan(begin, size));
  }
  report.comparison = comparer.finish();
  report.non_finite = {{golden.name(), in_golden}, {got.name(), in_got}};
  judge_gates(report);
  add_elements(report);
  decide(report, options, false, [&](const std::vector<Check>& checks) {
    return power(default_output(*id), sample, checks, options.threads);
  });
  return report;
}

VerifyReport verify_cast(const CastSpec& spec, const Operand& x, const Operand* scale,
                         const Operand& got, const VerifyOptions& options) {
  const FloatEnvironment environment;
  const TensorView& input = x.tensor();
  const bool is_float = input.type == ElementType::f32 || input.type == ElementType::f16 ||
                        input.type == ElementType::bf16 || input.type == ElementType::f64;
  require(is_float, x.name(), "floats to cast", to_string(input.type));
  require(options.check.kind != Check::Kind::budget, "check", "bitwise or a gate, for a cast",
          "budget");
  require(format(spec.format).storage_bits == 8, "cast", "an 8-bit format such as e4m3fn",
          format(spec.format).name);
  require_row_major(x.name(), input);
  require_output(got, spec.format, input.shape);
  const auto [rows, columns] = matrix_shape(input);
  VerifyReport report = new_report(options, spec.format, rows, columns);
  report.subject = fmt::format("cast of {} to {}", x.name(), format(spec.format).name);
  const DumpScale scales(scale, options.scale_tiles, rows, columns);
  const OutputCast output{spec.format, spec.policy};
  CodeComparer comparer(
      format(spec.format),
      {.tolerances = gate_tolerances(spec.format), .map = &report.map, .threads = options.threads});
  DumpSample sample;
  NonFinite in_x;
  NonFinite in_golden;
  NonFinite in_got;
  const std::span<const std::byte> codes = got.tensor().bytes;
  const std::size_t stride = std::max<std::size_t>(1, codes.size() / kMostRight);
  for (std::size_t begin = 0; begin < codes.size(); begin += kPart) {
    const std::size_t size = std::min(kPart, codes.size() - begin);
    const std::vector<float> values = floats_of(input, begin, size);
    std::vector<float> scaled(size);
    for (std::size_t i = 0; i < size; ++i) scaled[i] = canonical(values[i] * scales.at(begin + i));
    const std::vector<std::byte> golden = cast_output(scaled, output, options.threads);
    const std::span<const std::byte> part = codes.subspan(begin, size);
    comparer.add(golden, part);
    in_x += count_non_finite(values);
    in_golden += count_non_finite(spec.format, golden);
    in_got += count_non_finite(spec.format, part);
    for (std::size_t i = 0; i < size; ++i) {
      const bool wrong = golden[i] != part[i] && sample.wrong < kMostWrong;
      if (!wrong && (begin + i) % stride != 0) continue;
      sample.wrong += wrong ? 1 : 0;
      sample.add(values[i], scales.at(begin + i), part[i]);
    }
    const std::size_t width = element_bytes(input.type);
    x.release(input.bytes.subspan(begin * width, size * width));
    got.release(part);
  }
  report.comparison = comparer.finish();
  report.non_finite = {{x.name(), in_x}, {"the golden cast", in_golden}, {got.name(), in_got}};
  judge_gates(report);
  add_elements(report);
  if (!report.comparison.bitwise())
    report.diagnosis = diagnose_cast(spec, sample.x, sample.scale, sample.got);
  decide(report, options, false, [&](const std::vector<Check>& checks) {
    std::vector<float> scaled(sample.x.size());
    for (std::size_t i = 0; i < scaled.size(); ++i)
      scaled[i] = canonical(sample.x[i] * sample.scale[i]);
    return power_of_cast(output, scaled, checks, options.threads);
  });
  return report;
}

}  // namespace fp8lab

#include "fp8lab/verify/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/verify/codes.hpp"
#include "fp8lab/verify/element.hpp"
#include "fp8lab/verify/gates.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 22;  // elements read at a time
constexpr std::uint64_t kMostMismatches = 4096;      // that are looked at one by one
constexpr double kBudgetWork = 1e7;                  // terms, over all budgets

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

/// Indices of mismatches, evenly spread among all of them.
std::vector<std::int64_t> some_mismatches(FormatId id, std::span<const std::byte> expected,
                                          std::span<const std::byte> got, std::uint64_t count) {
  std::vector<std::int64_t> indices;
  const std::uint64_t step = std::max<std::uint64_t>(1, count / kMostMismatches);
  const std::size_t width = width_of(id);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < expected.size() / width; ++i) {
    if (std::equal(expected.begin() + static_cast<std::ptrdiff_t>(i * width),
                   expected.begin() + static_cast<std::ptrdiff_t>((i + 1) * width),
                   got.begin() + static_cast<std::ptrdiff_t>(i * width)))
      continue;
    if (seen++ % step == 0) indices.push_back(static_cast<std::int64_t>(i));
  }
  return indices;
}

BudgetSummary check_budgets(const Product& product, std::span<const std::byte> golden,
                            std::span<const std::byte> got,
                            std::span<const std::int64_t> mismatches) {
  const double terms = static_cast<double>(std::max<std::int64_t>(product.problem.a.k, 1));
  const auto most = static_cast<std::int64_t>(std::clamp(kBudgetWork / terms, 64.0, 4096.0));
  const std::vector<std::int64_t> chosen =
      spread(static_cast<std::int64_t>(mismatches.size()), most);
  const FormatId id = product.output.format;
  std::vector<double> relative(chosen.size());
  std::vector<char> inside(chosen.size());
#pragma omp parallel for schedule(dynamic)
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::int64_t at = mismatches[static_cast<std::size_t>(chosen[i])];
    const ErrorBudget budget =
        error_budget(product, at / product.columns(), at % product.columns());
    const auto index = static_cast<std::size_t>(at);
    const std::uint32_t code = code_at(id, got, index);
    inside[i] =
        budget.special ? code == code_at(id, golden, index) : within(budget, product.output, code);
    relative[i] = budget.exact == 0.0 ? INFINITY : budget.total() / std::abs(budget.exact);
  }
  BudgetSummary summary{chosen.size(), 0, 0.0};
  for (const char one : inside) summary.within += one != 0 ? 1 : 0;
  if (!relative.empty()) {
    const auto middle = relative.begin() + static_cast<std::ptrdiff_t>(relative.size() / 2);
    std::nth_element(relative.begin(), middle, relative.end());
    summary.median = *middle;
  }
  return summary;
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
  if (passed && report.power->undetected(report.power_of_check) != nullptr)
    report.verdict = Verdict::no_power;
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
  DumpScale(const Operand* scale, std::int64_t rows, std::int64_t columns) : columns_(columns) {
    if (scale == nullptr) {
      values_ = {1.0F};
      return;
    }
    values_ = to_float(scale->tensor());
    if (values_.size() == 1) return;
    std::vector<std::int64_t> shape = scale->tensor().shape;
    if (shape.size() == 1) shape.push_back(1);
    const bool fits = shape.size() == 2 && shape[0] > 0 && shape[1] > 0 && rows % shape[0] == 0 &&
                      columns % shape[1] == 0;
    require(fits, scale->name(),
            fmt::format("one value, [{}], or a grid of tiles over [{}, {}]", rows, rows, columns),
            shape_text(scale->tensor().shape));
    row_block_ = rows / shape[0];
    column_block_ = columns / shape[1];
    tiles_ = shape[1];
  }

  [[nodiscard]] float at(std::size_t index) const {
    if (values_.size() == 1) return values_[0];
    const auto i = static_cast<std::int64_t>(index);
    return values_[static_cast<std::size_t>(i / columns_ / row_block_ * tiles_ +
                                            i % columns_ / column_block_)];
  }

 private:
  std::vector<float> values_;
  std::int64_t columns_;
  std::int64_t row_block_ = 1;
  std::int64_t column_block_ = 1;
  std::int64_t tiles_ = 1;
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
  judge_gates(report);
  if (!report.comparison.bitwise()) {
    const std::vector<std::int64_t> mismatches =
        some_mismatches(report.output, golden, codes,
                        report.comparison.bit_mismatches + report.comparison.nan_payloads);
    report.budget = check_budgets(product, golden, codes, mismatches);
    report.diagnosis = diagnose(product, codes, mismatches, options.threads);
    add_elements(report);
    for (ElementReport& element : report.elements) explain_element(product, element);
  }
  decide(report, options, true,
         [&](const std::vector<Check>& checks) { return power(product, checks, options.threads); });
  return report;
}

VerifyReport verify(const Operand& golden, const Operand& got, const VerifyOptions& options) {
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
  for (std::size_t begin = 0; begin < expected.bytes.size(); begin += step) {
    const std::size_t size = std::min(step, expected.bytes.size() - begin);
    for (; place != places.end(); ++place) {
      const std::size_t at = static_cast<std::size_t>(*place) * width;
      if (at >= begin + size) break;
      sample.insert(sample.end(), &expected.bytes[at], &expected.bytes[at] + width);
    }
    comparer.add(expected.bytes.subspan(begin, size), got.tensor().bytes.subspan(begin, size));
    golden.release(expected.bytes.subspan(begin, size));
    got.release(got.tensor().bytes.subspan(begin, size));
  }
  report.comparison = comparer.finish();
  judge_gates(report);
  add_elements(report);
  decide(report, options, false, [&](const std::vector<Check>& checks) {
    return power(default_output(*id), sample, checks, options.threads);
  });
  return report;
}

VerifyReport verify_cast(const CastSpec& spec, const Operand& x, const Operand* scale,
                         const Operand& got, const VerifyOptions& options) {
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
  const DumpScale scales(scale, rows, columns);
  const OutputCast output{spec.format, spec.policy};
  CodeComparer comparer(
      format(spec.format),
      {.tolerances = gate_tolerances(spec.format), .map = &report.map, .threads = options.threads});
  DumpSample sample;
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

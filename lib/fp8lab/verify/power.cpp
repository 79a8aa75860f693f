#include "fp8lab/verify/power.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/first_error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/activation_reach.hpp"
#include "fp8lab/verify/attempt.hpp"
#include "fp8lab/verify/budget.hpp"
#include "fp8lab/verify/gates.hpp"

namespace fp8lab {
namespace {

constexpr std::int64_t kRows = 64;
constexpr std::int64_t kColumns = 512;
constexpr std::int64_t kBudgets = 1024;  // elements whose budget is worked out
constexpr float kGain = 0.72F;

/// The golden output of the sample and what checks need to know of it.
class Trial {
 public:
  Trial(const OutputCast& output, std::vector<std::byte> golden, const std::vector<Check>& checks,
        int threads)
      : output_(output),
        golden_(std::move(golden)),
        values_(decode_codes(output.format, golden_)),
        checks_(checks),
        tolerances_(gate_tolerances(output.format)),
        threads_(threads) {}

  void add_budgets(const Product& sample) {
    const bool wanted = std::any_of(checks_.begin(), checks_.end(), [](const Check& check) {
      return check.kind == Check::Kind::budget;
    });
    if (!wanted) return;
    budget_at_ = spread(static_cast<std::int64_t>(sample.size()), kBudgets);
    budgets_.resize(budget_at_.size());
    FirstError error;
#pragma omp parallel for schedule(dynamic) num_threads(team_size(threads_))
    for (std::size_t i = 0; i < budgets_.size(); ++i)
      error.guard([&] {
        budgets_[i] = error_budget(sample, budget_at_[i] / sample.columns(),
                                   budget_at_[i] % sample.columns());
      });
    error.rethrow();
  }

  /// The values that the golden codes were cast from, with what their activation allows.
  void allow(Finished finished) { finished_ = std::move(finished); }

  [[nodiscard]] const std::vector<float>& values() const { return values_; }
  [[nodiscard]] const std::vector<std::byte>& golden() const { return golden_; }

  void judge(std::span<const float> output, FaultOutcome& fault) const {
    judge(cast_output(output, output_, threads_), fault);
  }

  void judge(const std::vector<std::byte>& wrong, FaultOutcome& fault) const {
    const std::vector<std::byte> codes =
        finished_.reach.empty() ? wrong : within_reach(output_, finished_, golden_, wrong).codes;
    const CodeComparison c = compare_codes(format(output_.format), golden_, codes,
                                           {.tolerances = tolerances_, .threads = threads_});
    fault.mismatch_rate = c.values.count == 0 ? 0.0
                                              : static_cast<double>(c.bit_mismatches) /
                                                    static_cast<double>(c.values.count);
    for (const Check& check : checks_) fault.detected.push_back(!passes(check, c, codes));
  }

 private:
  [[nodiscard]] bool passes(const Check& check, const CodeComparison& c,
                            const std::vector<std::byte>& codes) const {
    switch (check.kind) {
      case Check::Kind::bitwise:
        return c.bitwise();
      case Check::Kind::gate:
        return gate_passes(check.gate, c);
      case Check::Kind::budget:
        break;
    }
    for (std::size_t i = 0; i < budgets_.size(); ++i) {
      const auto at = static_cast<std::size_t>(budget_at_[i]);
      const std::uint32_t got = code_at(output_.format, codes, at);
      if (!allowed(budgets_[i], output_, code_at(output_.format, golden_, at), got)) return false;
    }
    return true;
  }

  OutputCast output_;
  std::vector<std::byte> golden_;
  std::vector<float> values_;
  const std::vector<Check>& checks_;
  std::vector<Tolerance> tolerances_;
  Finished finished_;
  std::vector<std::int64_t> budget_at_;
  std::vector<ErrorBudget> budgets_;
  int threads_;
};

FaultOutcome outcome(FaultClass kind, std::string name, std::string text) {
  FaultOutcome fault;
  fault.name = std::move(name);
  fault.text = std::move(text);
  fault.kind = kind;
  return fault;
}

FaultOutcome not_there(FaultOutcome fault, std::string reason) {
  fault.applies = false;
  fault.reason = std::move(reason);
  return fault;
}

double rms(std::span<const float> values) {
  double sum = 0.0;
  std::size_t count = 0;
  for (const float x : values) {
    if (!std::isfinite(x)) continue;
    sum += static_cast<double>(x) * static_cast<double>(x);
    ++count;
  }
  return count == 0 ? 0.0 : std::sqrt(sum / static_cast<double>(count));
}

/// Zeros, random output, sign flip, gain: they need the output alone.
void output_faults(const Trial& trial, std::vector<FaultOutcome>& faults) {
  const std::vector<float>& golden = trial.values();
  std::vector<float> wrong(golden.size(), 0.0F);
  faults.push_back(outcome(FaultClass::output, "zeros", "the output is all zeros"));
  trial.judge(wrong, faults.back());

  const RandomStream random(1, "power.random");
  const double scale = rms(golden);
  for (std::size_t i = 0; i < wrong.size(); ++i)
    wrong[i] = static_cast<float>(scale * random.normal(i));
  faults.push_back(outcome(FaultClass::output, "random", "normal numbers of the output's RMS"));
  trial.judge(wrong, faults.back());

  std::transform(golden.begin(), golden.end(), wrong.begin(), std::negate<>());
  faults.push_back(outcome(FaultClass::output, "sign_flip", "every sign is wrong"));
  trial.judge(wrong, faults.back());

  std::transform(golden.begin(), golden.end(), wrong.begin(), [](float x) { return kGain * x; });
  faults.push_back(outcome(FaultClass::output, "gain_0.72", "the output times 0.72"));
  trial.judge(wrong, faults.back());
}

/// The codes of [rows, columns] with the element of (i, j) from `source(i, j)`.
template <typename Source>
std::vector<std::byte> moved_codes(FormatId id, const std::vector<std::byte>& codes,
                                   std::int64_t rows, std::int64_t columns, const Source& source) {
  const auto width = static_cast<std::size_t>(format(id).bytes());
  std::vector<std::byte> moved(codes.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      std::copy_n(&codes[static_cast<std::size_t>(source(i, j)) * width], width,
                  &moved[static_cast<std::size_t>(i * columns + j) * width]);
  return moved;
}

/// Right values in wrong places.
void moved_output_faults(const Product& product, const Product& sampled, const Trial& trial,
                         const std::vector<Check>& checks, std::vector<FaultOutcome>& faults,
                         int threads) {
  const FormatId id = product.output.format;
  const std::int64_t rows = sampled.rows();
  const std::int64_t columns = sampled.columns();
  FaultOutcome exchanged =
      outcome(FaultClass::output, "exchanged_rows", "each row in the place of the next one");
  if (rows < 2) {
    faults.push_back(not_there(std::move(exchanged), "the output has one row"));
  } else {
    trial.judge(
        moved_codes(id, trial.golden(), rows, columns,
                    [&](std::int64_t i, std::int64_t j) { return (i + 1) % rows * columns + j; }),
        exchanged);
    faults.push_back(std::move(exchanged));
  }
  FaultOutcome transposed =
      outcome(FaultClass::output, "transposed_output", "rows and columns exchanged");
  if (product.rows() != product.columns() || product.rows() < 2) {
    faults.push_back(not_there(std::move(transposed), "the output is not square"));
    return;
  }
  const std::vector<std::int64_t> some = spread(product.rows(), kRows);
  const auto side = static_cast<std::int64_t>(some.size());
  const Product square = take(product, {some, some});
  Finished finished = compute_finished(square, true, threads);
  Trial of_square(product.output, cast_output(finished.values, product.output, threads), checks,
                  threads);
  of_square.allow(std::move(finished));
  of_square.add_budgets(square);
  of_square.judge(moved_codes(id, of_square.golden(), side, side,
                              [&](std::int64_t i, std::int64_t j) { return j * side + i; }),
                  transposed);
  faults.push_back(std::move(transposed));
}

/// True if every operand is -1, 0 or 1.
bool tiny_integers(const CodeMatrix& m) {
  for (std::int64_t row = 0; row < m.rows; ++row)
    for (std::int64_t k = 0; k < m.k; ++k) {
      const double x = decode(format(m.format), code_at(m, row, k));
      if (x != 0.0 && x != 1.0 && x != -1.0) return false;
    }
  return true;
}

/// An accumulator that a kernel could have by mistake: wide for narrow, narrow for wide.
AccumulatorModel other_accumulator(const AccumulatorModel& model) {
  const bool narrow = traits_of(model).rounds_sums && model.output_fraction_bits < 23;
  return find_instruction_model(narrow ? "fp32" : "sm90.wgmma.e4m3").accumulator;
}

class InputFaults {
 public:
  InputFaults(const Product& product, const Sample& sample, const Product& sampled,
              const Trial& trial, std::vector<FaultOutcome>& faults, int threads)
      : product_(product),
        sample_(sample),
        sampled_(sampled),
        trial_(trial),
        faults_(faults),
        threads_(threads) {}

  void run(std::span<const WrongProduct> more) {
    dropped_tile();
    whole("swapped_scales", "A's scales on B and B's on A", with_swapped_scales(product_),
          "it needs scales of both operands with the same tile width along K, and more than one "
          "tile");
    whole("transposed_b", "B's memory read in the other order", with_transposed_b(product_),
          "B is not one dense matrix with several rows and columns");
    whole("fnuz_as_fn", "FNUZ codes read as FN codes, or the reverse", with_fnuz_codes(product_),
          "the operands are not E4M3 or E5M2");
    missing_promotion();
    accumulator();
    for (const WrongProduct& wrong : more)
      if (wrong.must_be_seen) whole(wrong.name, wrong.text, wrong.product, "");
  }

 private:
  void add(FaultOutcome fault, const std::optional<std::vector<float>>& output,
           const std::string& reason) {
    if (!output) {
      faults_.push_back(not_there(std::move(fault), reason));
      return;
    }
    trial_.judge(*output, fault);
    faults_.push_back(std::move(fault));
  }

  /// A fault of the whole product, of which the sample is then taken.
  void whole(const std::string& name, const std::string& text, const std::optional<Product>& wrong,
             const std::string& reason) {
    const auto output = attempt([&]() -> std::optional<std::vector<float>> {
      if (!wrong) return std::nullopt;
      return compute(take(*wrong, sample_), threads_);
    });
    add(outcome(FaultClass::operands, name, text), output,
        wrong ? "the instruction cannot compute it" : reason);
  }

  void dropped_tile() {
    const GemmProblem& p = sampled_.problem;
    const std::int64_t tile =
        p.promotion_interval > 0
            ? p.promotion_interval
            : std::min<std::int64_t>(128, std::max<std::int64_t>(p.a.k / 2, 1));
    FaultOutcome fault = outcome(FaultClass::operands, "dropped_k_tile",
                                 fmt::format("the last {} left out", counted(tile, "term")));
    if (p.a.k < 2) return add(std::move(fault), std::nullopt, "K has one term");
    add(std::move(fault),
        compute(without_terms(sampled_, (p.a.k - 1) / tile * tile, p.a.k), threads_), "");
  }

  void missing_promotion() {
    add(outcome(FaultClass::rounding, "missing_promotion", "the first promotion does not happen"),
        compute_missing_promotion(sampled_), "the product has no promotion inside K");
  }

  void accumulator() {
    const AccumulatorModel other = other_accumulator(product_.problem.model);
    const bool wide = other.kind == AccumulationKind::float32;
    FaultOutcome fault =
        outcome(FaultClass::rounding, "accumulator",
                wide ? "an FP32 accumulator" : "an accumulator of 14 bits, as Hopper's");
    if (applies_scales(sampled_.problem))
      return add(std::move(fault), std::nullopt, "the instruction applies the scales itself");
    if (!takes_formats(other, sampled_.problem.a.format, sampled_.problem.b.format))
      return add(std::move(fault), std::nullopt, "it does not read these operands");
    const Product changed = with_accumulator(sampled_, other);
    // Terms that do not fit between promotions leave scales along K without a place.
    if (changed.problem.promotion_interval != sampled_.problem.promotion_interval)
      return add(std::move(fault), std::nullopt, "its terms do not divide the promotion interval");
    add(std::move(fault), compute(changed, threads_), "");
  }

  const Product& product_;
  const Sample& sample_;
  const Product& sampled_;
  const Trial& trial_;
  std::vector<FaultOutcome>& faults_;
  int threads_;
};

/// Sums of FP4 and FP6 codes without scales fit every accumulator: no data could show the fault.
void leave_out_exact_sums(const GemmProblem& p, std::vector<FaultOutcome>& faults) {
  const auto narrow = [](const CodeMatrix& m) { return format(m.format).code_bits() <= 6; };
  if (!narrow(p.a) || !narrow(p.b) || applies_scales(p)) return;
  for (FaultOutcome& fault : faults) {
    if (!fault.applies || fault.kind != FaultClass::rounding || fault.mismatch_rate > 0.0) continue;
    fault.applies = false;
    fault.detected.clear();
    fault.reason = "sums of these formats are the same in every accumulator";
  }
}

/// Says why a fault passes some check.
void explain(std::vector<FaultOutcome>& faults, std::span<const float> golden,
             const Product* sampled) {
  const bool zero = std::all_of(golden.begin(), golden.end(), [](float x) { return x == 0.0F; });
  float largest = 0.0F;
  for (const float x : golden)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  for (FaultOutcome& fault : faults) {
    const bool seen = std::all_of(fault.detected.begin(), fault.detected.end(),
                                  [](bool detected) { return detected; });
    if (!fault.applies || seen) continue;
    const bool about_sums = fault.name == "accumulator" || fault.name == "missing_promotion";
    if (zero)
      fault.reason = "the right output is all zeros";
    else if (fault.mismatch_rate > 0.0)
      fault.reason = fmt::format(
          "it changes {:.3g} % of the outputs, but by less than a tolerance allows (largest output "
          "{:.3g})",
          100.0 * fault.mismatch_rate, static_cast<double>(largest));
    else if (about_sums && sampled != nullptr && tiny_integers(sampled->problem.a) &&
             tiny_integers(sampled->problem.b))
      fault.reason = "all inputs are integers in {-1, 0, 1}: every accumulator gives the same sums";
    else if (about_sums)
      fault.reason = "these sums are the same in every accumulator";
    else
      fault.reason = "it changes no output of this data";
  }
}

}  // namespace

std::string_view to_string(FaultClass kind) {
  constexpr std::array<std::string_view, 3> kNames{"output", "operands", "rounding"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view Check::name() const {
  if (kind == Kind::gate) return gates()[gate].name;
  return kind == Kind::bitwise ? "bitwise" : "budget";
}

std::vector<Check> all_checks() {
  std::vector<Check> checks{{Check::Kind::bitwise, 0}, {Check::Kind::budget, 0}};
  for (std::size_t i = 0; i < gates().size(); ++i) checks.push_back({Check::Kind::gate, i});
  return checks;
}

Check find_check(std::string_view name) {
  std::string known;
  for (const Check& check : all_checks()) {
    if (check.name() == name) return check;
    known += (known.empty() ? "" : ", ") + std::string(check.name());
  }
  throw Error("check", "one of " + known, fmt::format("'{}'", name));
}

const FaultOutcome* PowerReport::undetected(std::size_t index) const {
  for (const FaultOutcome& fault : faults)
    if (fault.applies && !fault.detected[index]) return &fault;
  return nullptr;
}

PowerReport::Seen PowerReport::seen(std::size_t index, FaultClass kind) const {
  Seen result;
  for (const FaultOutcome& fault : faults) {
    if (!fault.applies || fault.kind != kind) continue;
    ++result.applicable;
    result.seen += fault.detected[index] ? 1 : 0;
  }
  return result;
}

bool PowerReport::has_power(std::size_t index) const {
  if (faults.empty()) return false;
  if (checks[index].kind == Check::Kind::bitwise) return undetected(index) == nullptr;
  const auto blind = [&](FaultClass kind) {
    const Seen of_kind = seen(index, kind);
    return of_kind.applicable > 0 && of_kind.seen == 0;
  };
  return !blind(FaultClass::output) && !blind(FaultClass::operands);
}

PowerReport power(const Product& product, const std::vector<Check>& checks, int threads,
                  std::span<const WrongProduct> more) {
  const FloatEnvironment environment;
  const Sample sample{spread(product.rows(), kRows), spread(product.columns(), kColumns)};
  const Product sampled = take(product, sample);
  PowerReport report{checks, {}, sampled.rows(), sampled.columns()};
  if (sampled.size() == 0) return report;
  Finished finished = compute_finished(sampled, true, threads);
  Trial trial(product.output, cast_output(finished.values, product.output, threads), checks,
              threads);
  trial.allow(std::move(finished));
  trial.add_budgets(sampled);
  output_faults(trial, report.faults);
  moved_output_faults(product, sampled, trial, checks, report.faults, threads);
  InputFaults(product, sample, sampled, trial, report.faults, threads).run(more);
  leave_out_exact_sums(sampled.problem, report.faults);
  explain(report.faults, trial.values(), &sampled);
  return report;
}

PowerReport power(const OutputCast& output, std::span<const std::byte> golden,
                  const std::vector<Check>& checks, int threads) {
  const FloatEnvironment environment;
  for (const Check& check : checks)
    require(check.kind != Check::Kind::budget, "check", "one that needs no inputs", "budget");
  const auto width = static_cast<std::size_t>(format(output.format).bytes());
  PowerReport report{checks, {}, 1, static_cast<std::int64_t>(golden.size() / width)};
  if (golden.empty()) return report;
  const Trial trial(output, {golden.begin(), golden.end()}, checks, threads);
  output_faults(trial, report.faults);
  explain(report.faults, trial.values(), nullptr);
  return report;
}

PowerReport power_of_cast(const OutputCast& output, std::span<const float> values,
                          const std::vector<Check>& checks, int threads) {
  const FloatEnvironment environment;
  PowerReport report = power(output, cast_output(values, output, threads), checks, threads);
  if (values.empty()) return report;
  const Trial trial(output, cast_output(values, output, threads), checks, threads);
  OutputCast wrong = output;
  wrong.policy.rounding = RoundingMode::toward_zero;
  report.faults.push_back(
      outcome(FaultClass::rounding, "rtz_cast", "truncated instead of rounded to nearest"));
  trial.judge(cast_output(values, wrong, threads), report.faults.back());
  wrong = output;
  report.faults.push_back(
      outcome(FaultClass::operands, "fnuz_as_fn", "encoded as FNUZ, read as FN, or the reverse"));
  if (const std::optional<FormatId> other = fnuz_counterpart(output.format)) {
    wrong.format = *other;
    trial.judge(cast_output(values, wrong, threads), report.faults.back());
  } else {
    report.faults.back() = not_there(report.faults.back(), "the format has no FNUZ form");
  }
  explain(report.faults, trial.values(), nullptr);
  return report;
}

}  // namespace fp8lab

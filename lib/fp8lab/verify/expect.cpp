#include "fp8lab/verify/expect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>
#include <utility>

#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/core/parallel.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/metrics/code_comparison.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/references.hpp"
#include "fp8lab/verify/tails.hpp"

namespace fp8lab {
namespace {

constexpr std::int64_t kSide = 128;           // rows and columns of a trial, of the whole output's
constexpr std::int64_t kMostTerms = 1 << 20;  // half an hour of one core
constexpr int kFaultTrials = 3;
constexpr int kDegrees = 4;  // of freedom, of Student's t
constexpr std::array<std::string_view, 3> kReferenceNames{"fp64", "fp32", "bf16"};
constexpr std::array<std::string_view, 4> kDistributionNames{"normal", "uniform", "student_t",
                                                             "log_normal"};

float draw(Distribution distribution, const RandomStream& stream, std::uint64_t i) {
  switch (distribution) {
    case Distribution::uniform:
      return static_cast<float>(stream.uniform(i));
    case Distribution::student_t:
      return static_cast<float>(stream.student_t(i, kDegrees) / std::numbers::sqrt2);
    case Distribution::log_normal: {
      const double x = std::exp(stream.normal(2 * i));
      return static_cast<float>(stream.uniform(2 * i + 1) < 0.5 ? -x : x);
    }
    case Distribution::normal:
      break;
  }
  return static_cast<float>(stream.normal(i));
}

std::vector<float> draws(const ExpectOptions& o, std::int64_t count, std::string_view name,
                         int trial) {
  const RandomStream stream(o.seed, fmt::format("expect.{}.{}", name, trial));
  std::vector<float> values(static_cast<std::size_t>(count));
  parallel_for(count, team_size(o.threads), [&](std::int64_t i) {
    values[static_cast<std::size_t>(i)] =
        draw(o.distribution, stream, static_cast<std::uint64_t>(i));
  });
  return values;
}

/// Floats as codes of an instruction's operand, saturating.
std::vector<std::uint8_t> codes_of(const std::vector<float>& values, FormatId id, int threads) {
  std::vector<std::uint8_t> codes(values.size());
  encode(values, codes, {.format = id, .policy = kNvidiaSatfinite, .threads = threads});
  return codes;
}

Product drawn_product(const ExpectOptions& o, int trial) {
  const std::int64_t columns = o.gemm.epilogue.activation == Activation::swiglu ? 2 : 1;
  const std::int64_t m = std::min(o.m, kSide);
  const std::int64_t n = std::min(o.n, columns * kSide);
  const auto a = std::make_shared<std::vector<float>>(draws(o, m * o.k, "a", trial));
  const auto b = std::make_shared<std::vector<float>>(draws(o, n * o.k, "b", trial));
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  GemmOperands operands;
  operands.recipe = o.recipe;
  if (!o.recipe.empty()) {
    operands.a.codes = {ElementType::f32, {m, o.k}, bytes(*a), false};
    operands.b.codes = {ElementType::f32, {n, o.k}, bytes(*b), false};
    return make_product(operands, o.gemm);
  }
  const InstructionModel& model = find_instruction_model(o.gemm.model);
  for (const FormatId id : {model.a_format, model.b_format})
    require(format(id).storage_bits == 8, "model", "an instruction of 8-bit operands, or a recipe",
            model.name);
  const auto codes = std::make_shared<std::array<std::vector<std::uint8_t>, 2>>();
  (*codes)[0] = codes_of(*a, model.a_format, o.threads);
  (*codes)[1] = codes_of(*b, model.b_format, o.threads);
  operands.a.codes = {element_type_of(model.a_format), {m, o.k}, bytes((*codes)[0]), false};
  operands.b.codes = {element_type_of(model.b_format), {n, o.k}, bytes((*codes)[1]), false};
  operands.owner = codes;
  return make_product(operands, o.gemm);
}

/// At most `most` of `count` places, drawn without regard to order, ascending.
std::vector<std::int64_t> some_places(std::int64_t count, std::int64_t most,
                                      const RandomStream& stream) {
  if (count <= most) return spread(count, count);
  std::vector<std::int64_t> places;
  for (std::uint64_t i = 0; static_cast<std::int64_t>(places.size()) < most; ++i) {
    const auto place =
        static_cast<std::int64_t>(stream.below(i, static_cast<std::uint64_t>(count)));
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }
  std::sort(places.begin(), places.end());
  return places;
}

double rtol_of(FormatId output) {
  constexpr double kTorchFp32 = 1.3e-6;
  return output == FormatId::f32 ? kTorchFp32 : std::ldexp(1.0, -format(output).mantissa_bits);
}

/// How far one output is from one reference.
struct Errors {
  double relative_l2 = 0.0;
  double calc_diff = 0.0;
  double one_minus_cosine = 0.0;
  double excess = 0.0;  ///< the largest |y - x| - rtol |x|, or 0
  double max_ulp = 0.0;
  bool finite = true;
};
constexpr std::array<std::pair<std::string_view, double Errors::*>, 5> kMetrics{
    {{"relative_l2", &Errors::relative_l2},
     {"calc_diff", &Errors::calc_diff},
     {"one_minus_cosine", &Errors::one_minus_cosine},
     {"excess", &Errors::excess},
     {"max_ulp", &Errors::max_ulp}}};
constexpr std::size_t kWholeMetrics = 3;  // the first ones

Errors errors_of(const Reference& x, const std::vector<std::byte>& codes, FormatId id) {
  const std::vector<float> narrow = decode_codes(id, codes);
  const std::vector<double> y(narrow.begin(), narrow.end());
  const Comparison c = compare(std::span<const double>(x.values), std::span<const double>(y));
  Errors e;
  e.relative_l2 = c.relative_l2;
  e.calc_diff = c.calc_diff;
  e.one_minus_cosine = 1.0 - c.cosine;
  e.finite = c.non_finite_mismatches == 0;
  const double rtol = rtol_of(id);
  for (std::size_t i = 0; i < y.size(); ++i)
    e.excess = std::max(e.excess, std::abs(y[i] - x.values[i]) - rtol * std::abs(x.values[i]));
  e.max_ulp = static_cast<double>(
      compare_codes(format(id), x.codes, codes, {.threads = 1}).ulp.max_distance);
  return e;
}

ExpectedGate gate_of(ReferenceKind kind, const std::vector<Errors>& errors, const Expectation& e) {
  const ExpectOptions& o = e.options;
  ExpectedGate gate;
  gate.reference = kind;
  const double blocks =
      static_cast<double>(o.m) * static_cast<double>(o.n) /
      (static_cast<double>(e.sample_rows) * static_cast<double>(e.sample_columns));
  const bool heavy = o.operands || o.distribution == Distribution::student_t ||
                     o.distribution == Distribution::log_normal;
  for (std::size_t i = 0; i < kMetrics.size(); ++i) {
    // Steps to the other side of zero are as many as there are small numbers.
    const bool worst_ulp = kMetrics[i].second == &Errors::max_ulp;
    std::vector<double> values;
    for (const Errors& one : errors) values.push_back(one.*kMetrics[i].second);
    std::sort(values.begin(), values.end());
    const double tail = i < kWholeMetrics ? tail_of_whole(values, o.risk)
                                          : tail_of_maximum(values, o.risk, std::max(blocks, 1.0),
                                                            heavy || worst_ulp);
    gate.metrics.push_back({kMetrics[i].first, values[values.size() / 2], values.back(),
                            std::max(tail, values.back())});
  }
  gate.rtol = rtol_of(o.gemm.output.format);
  gate.calc_diff = gate.metrics[1].tail;
  gate.cosine = 1.0 - gate.metrics[2].tail;
  gate.atol = gate.metrics[3].tail;
  return gate;
}

/// What the trials saw of one fault at one reference.
struct FaultTrials {
  std::string text;
  std::vector<double> sizes;
  std::array<std::vector<Errors>, kReferences> errors;
};
using FaultsByName = std::map<std::string, FaultTrials>;

/// The bound in ulps, if it catches a fault that leaves finite numbers: any gate catches the
/// others.
std::optional<std::uint64_t> ulp_gate(double tail, const FaultsByName& faults,
                                      std::size_t reference) {
  const double bound = std::min(std::ceil(tail), 0x1p62);
  const bool catches = std::ranges::any_of(faults, [&](const auto& fault) {
    return std::ranges::all_of(fault.second.errors[reference],
                               [&](const Errors& e) { return e.finite && e.max_ulp > bound; });
  });
  return catches ? std::optional(static_cast<std::uint64_t>(bound)) : std::nullopt;
}

std::vector<ExpectedFault> judged(const FaultsByName& faults, const ExpectedGate& gate,
                                  std::size_t reference) {
  std::vector<ExpectedFault> result;
  for (const auto& entry : faults) {
    const FaultTrials& trials = entry.second;
    ExpectedFault fault;
    fault.name = entry.first;
    fault.text = trials.text;
    std::vector<double> sizes = trials.sizes;
    std::sort(sizes.begin(), sizes.end());
    fault.size = sizes[sizes.size() / 2];
    const auto always = [&](const auto& fails) {
      const std::vector<Errors>& errors = trials.errors[reference];
      return std::all_of(errors.begin(), errors.end(),
                         [&](const Errors& e) { return !e.finite || fails(e); });
    };
    fault.close = always([&](const Errors& e) { return e.excess > gate.atol; });
    fault.calc_diff = always([&](const Errors& e) { return e.calc_diff > gate.calc_diff; });
    fault.cosine = always([&](const Errors& e) { return 1.0 - e.one_minus_cosine < gate.cosine; });
    fault.max_ulp = gate.max_ulp && always([&](const Errors& e) {
                      return e.max_ulp > static_cast<double>(*gate.max_ulp);
                    });
    result.push_back(std::move(fault));
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const auto& x, const auto& y) { return x.size < y.size; });
  return result;
}

class Trials {
 public:
  explicit Trials(const ExpectOptions& options) {
    e_.options = options;
    ExpectOptions& o = e_.options;
    if (o.operands) {
      o.operands->recipe = o.recipe;
      whole_ = make_product(*o.operands, o.gemm);
      o.m = whole_->rows();
      o.n = whole_->columns();
      o.k = whole_->problem.a.k;
    }
    require(o.m > 0 && o.n > 0 && o.k > 0, "shape", "m, n and k above 0",
            fmt::format("{} x {} x {}", o.m, o.n, o.k));
    require(o.k <= kMostTerms, "shape", fmt::format("k of at most {}", kMostTerms),
            fmt::format("{}", o.k));
    require(o.trials >= 10 && o.trials <= 100000, "trials", "10 to 100000",
            fmt::format("{}", o.trials));
    require(o.risk > 0.0 && o.risk <= 0.1, "risk", "above 0, at most 0.1",
            fmt::format("{}", o.risk));
    require(!o.against_originals || !o.recipe.empty(), "against_originals",
            "a recipe, which has floats to compare with", "codes");
  }

  Expectation run() {
    for (int trial = 0; trial < e_.options.trials; ++trial) one(trial);
    e_.rms = std::sqrt(squares_ / static_cast<double>(count_));
    for (std::size_t r = 0; r < kReferences; ++r) {
      e_.gates.push_back(gate_of(static_cast<ReferenceKind>(r), errors_[r], e_));
      ExpectedGate& gate = e_.gates.back();
      gate.max_ulp = ulp_gate(gate.metrics[4].tail, faults_, r);
      e_.faults.push_back(judged(faults_, gate, r));
    }
    return std::move(e_);
  }

 private:
  [[nodiscard]] Product product_of(int trial) const {
    const ExpectOptions& o = e_.options;
    if (!whole_) return drawn_product(o, trial);
    const auto stream = [&](std::string_view name) {
      return RandomStream(o.seed, fmt::format("expect.{}.{}", name, trial));
    };
    const Sample sample{some_places(o.m, kSide, stream("rows")),
                        some_places(o.n, kSide, stream("columns"))};
    Product taken = take(*whole_, sample);
    if (!o.against_originals) return taken;
    taken.a_original = rows_of(whole_->a_original, sample.rows);
    taken.b_original = rows_of(whole_->b_original, whole_->rows_of_b(sample.columns));
    return taken;
  }

  [[nodiscard]] Originals rows_of(const Originals& from,
                                  const std::vector<std::int64_t>& rows) const {
    auto values = std::make_shared<std::vector<float>>();
    for (const std::int64_t row : rows) {
      const auto begin = from->begin() + row * e_.options.k;
      values->insert(values->end(), begin, begin + e_.options.k);
    }
    return values;
  }

  void one(int trial) {
    const ExpectOptions& o = e_.options;
    const Product p = product_of(trial);
    const FormatId id = p.output.format;
    e_.sample_rows = p.rows();
    e_.sample_columns = p.columns();
    const std::vector<float> right = compute(p, o.threads);
    const std::vector<std::byte> codes = cast_output(right, p.output, o.threads);
    const std::array<Reference, kReferences> references = references_of(p, o);
    for (std::size_t r = 0; r < kReferences; ++r) {
      errors_[r].push_back(errors_of(references[r], codes, id));
      require(errors_[r].back().finite, "output", "finite numbers, so that errors can be measured",
              "NaN or infinities in a right output");
    }
    const std::vector<float> stored = decode_codes(id, codes);
    for (const float x : stored) squares_ += static_cast<double>(x) * static_cast<double>(x);
    count_ += stored.size();
    if (trial >= kFaultTrials) return;
    const Reference golden = reference_of({stored.begin(), stored.end()}, p.output);
    for (const WrongOutput& wrong : wrong_outputs(p, right)) {
      FaultTrials& fault = faults_[wrong.name];
      fault.text = wrong.text;
      const double size = errors_of(golden, wrong.codes, id).relative_l2;
      fault.sizes.push_back(std::isnan(size) ? std::numeric_limits<double>::infinity() : size);
      for (std::size_t r = 0; r < kReferences; ++r)
        fault.errors[r].push_back(errors_of(references[r], wrong.codes, id));
    }
  }

  Expectation e_;
  std::optional<Product> whole_;
  std::array<std::vector<Errors>, kReferences> errors_;
  FaultsByName faults_;
  double squares_ = 0.0;
  std::size_t count_ = 0;
};

}  // namespace

std::string_view to_string(ReferenceKind kind) {
  return kReferenceNames[static_cast<std::size_t>(kind)];
}

std::string_view to_string(Distribution distribution) {
  return kDistributionNames[static_cast<std::size_t>(distribution)];
}

Distribution find_distribution(std::string_view name) {
  return find_enumerator<Distribution>(kDistributionNames, "distribution", name);
}

Expectation expect_errors(const ExpectOptions& options) {
  const FloatEnvironment environment;
  return Trials(options).run();
}

}  // namespace fp8lab

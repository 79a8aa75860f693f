#include "fp8lab/verify/causes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <set>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/first_error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/budget.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kRows = 16;
constexpr std::size_t kColumns = 256;
constexpr std::int64_t kProbeSide = 4;  // rows and columns that a hypothesis is tried on first
constexpr double kProbeShare = 0.25;    // of their mismatches that it must explain to be computed

/// What a finished number becomes on its way into the output format.
struct CastMistake {
  std::string name;
  std::string text;
  std::function<std::uint32_t(float)> code;
};

std::function<std::uint32_t(float)> cast_through(FormatId between, FormatId to,
                                                 const CastPolicy& policy) {
  return [=](float x) {
    const Format& f = format(between);
    const auto rounded = static_cast<float>(decode(f, encode(f, kNvidiaNosat, x)));
    return encode(format(to), policy, rounded);
  };
}

std::function<std::uint32_t(float)> cast_as(FormatId to, const CastPolicy& policy) {
  return [=](float x) { return encode(format(to), policy, x); };
}

/// The ways in which casts go wrong, more particular ones first.
std::vector<CastMistake> cast_mistakes(FormatId id, const CastPolicy& policy) {
  std::vector<CastMistake> mistakes;
  const auto add = [&](std::string name, std::string text, FormatId to, CastPolicy changed) {
    mistakes.push_back({std::move(name), std::move(text), cast_as(to, changed)});
  };
  if (id == FormatId::f32) {
    mistakes.push_back({"flushed_subnormals", "subnormal results flushed to zero", [](float x) {
                          const bool subnormal = std::fpclassify(x) == FP_SUBNORMAL;
                          return std::bit_cast<std::uint32_t>(subnormal ? std::copysign(0.0F, x)
                                                                        : x);
                        }});
    return mistakes;
  }
  const bool narrow = format(id).storage_bits == 8;
  if (narrow)
    for (const FormatId between : {FormatId::f16, FormatId::bf16})
      mistakes.push_back({fmt::format("double_rounding_{}", format(between).name),
                          fmt::format("double rounding: rounded to {} first, then to {}",
                                      format(between).name, format(id).name),
                          cast_through(between, id, policy)});
  CastPolicy changed = policy;
  changed.rounding = RoundingMode::toward_zero;
  add("rtz_cast", "truncated (round toward zero) instead of rounded to nearest", id, changed);
  changed.rounding = RoundingMode::nearest_away;
  add("ties_away_cast", "ties rounded away from zero instead of to even", id, changed);
  changed = policy;
  const bool saturates = policy.overflow == OverflowPolicy::saturate;
  changed.overflow = saturates ? OverflowPolicy::non_saturating : OverflowPolicy::saturate;
  changed.infinity = saturates ? InfinityPolicy::non_saturating : InfinityPolicy::saturate;
  add(saturates ? "not_saturated" : "saturated",
      saturates ? "values past the largest finite one became NaN or infinity, not saturated"
                : "values past the largest finite one saturated, not NaN or infinity",
      id, changed);
  changed = policy;
  changed.subnormals = SubnormalPolicy::flush_to_zero;
  add("flushed_subnormals", "subnormal results flushed to zero", id, changed);
  if (const std::optional<FormatId> other = fnuz_counterpart(id)) {
    if (format(id).specials == SpecialValues::fnuz)
      add("fn_output", "encoded as FN (bias one lower), read as FNUZ", *other, policy);
    else
      add("fnuz_output", "encoded as FNUZ (bias one higher), read as FN", *other, policy);
  }
  return mistakes;
}

/// Counts what a hypothesis gets right and sorts the ones that explain enough.
class Judge {
 public:
  /// With budgets, one an element, codes within them are right.
  Judge(const OutputCast& output, std::vector<std::uint32_t> golden, std::vector<std::uint32_t> got,
        std::vector<ErrorBudget> budgets = {})
      : output_(output),
        golden_(std::move(golden)),
        got_(std::move(got)),
        budgets_(std::move(budgets)) {
    for (std::size_t i = 0; i < golden_.size(); ++i)
      (right(i, got_[i]) ? diagnosis_.right : diagnosis_.mismatches) += 1;
  }

  void consider(std::string name, std::string text, std::span<const std::uint32_t> codes) {
    ++diagnosis_.tried;
    Cause cause{std::move(name), std::move(text), 0, 0};
    for (std::size_t i = 0; i < codes.size(); ++i) {
      if (right(i, got_[i]))
        cause.contradicted += contradicts(i, codes[i]) ? 1 : 0;
      else
        cause.explained += explains(i, codes[i]) ? 1 : 0;
    }
    const auto share = [](std::uint64_t part, double of, std::uint64_t all) {
      return static_cast<double>(part) - of * static_cast<double>(all);
    };
    if (cause.explained > 0 &&
        share(cause.explained, kExplainedShare, diagnosis_.mismatches) >= 0.0 &&
        share(cause.contradicted, kContradictedShare, diagnosis_.right) <= 0.0)
      diagnosis_.causes.push_back(std::move(cause));
  }

  /// A hypothesis that cannot explain even a few mismatches and was not computed.
  void dismiss() { ++diagnosis_.tried; }

  [[nodiscard]] bool is_right(std::size_t place) const { return right(place, got_[place]); }
  /// The mismatch there is what a mistake gives that gives `code`.
  [[nodiscard]] bool explains(std::size_t place, std::uint32_t code) const {
    if (same(got_[place], code)) return true;
    if (budgets_.empty() || is_nan(code) || is_nan(got_[place])) return false;
    // Both may be off by as much as the budget allows.
    const ErrorBudget& budget = budgets_[place];
    const Format& f = format(output_.format);
    const double off = std::abs(decode(f, got_[place]) - decode(f, code));
    return !budget.special && off <= 2.0 * budget.total();
  }

  Diagnosis finish() {
    std::stable_sort(diagnosis_.causes.begin(), diagnosis_.causes.end(),
                     [](const Cause& a, const Cause& b) {
                       return a.explained != b.explained ? a.explained > b.explained
                                                         : a.contradicted < b.contradicted;
                     });
    return std::move(diagnosis_);
  }

 private:
  [[nodiscard]] bool is_nan(std::uint32_t code) const {
    return unpack(format(output_.format), code).value_class == ValueClass::nan;
  }
  [[nodiscard]] bool same(std::uint32_t a, std::uint32_t b) const {
    return a == b || (is_nan(a) && is_nan(b));
  }
  [[nodiscard]] bool right(std::size_t place, std::uint32_t code) const {
    return budgets_.empty() ? same(golden_[place], code)
                            : allowed(budgets_[place], output_, golden_[place], code);
  }
  /// A mistake that gives `code` there would have made the element, which is right, wrong.
  [[nodiscard]] bool contradicts(std::size_t place, std::uint32_t code) const {
    return budgets_.empty() ? !same(got_[place], code) : !right(place, code);
  }

  OutputCast output_;
  std::vector<std::uint32_t> golden_;
  std::vector<std::uint32_t> got_;
  std::vector<ErrorBudget> budgets_;  // one an element, or none
  Diagnosis diagnosis_;
};

std::vector<std::uint32_t> words(FormatId id, std::span<const std::byte> codes) {
  const auto width = static_cast<std::size_t>(format(id).storage_bits / 8);
  std::vector<std::uint32_t> result(codes.size() / width);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = code_at(id, codes, i);
  return result;
}

/// Rows and columns with mismatches in them, and some others.
Sample sample_of(const Product& product, std::span<const std::int64_t> mismatches) {
  std::set<std::int64_t> rows;
  std::set<std::int64_t> columns;
  const std::int64_t n = product.columns();
  for (const std::int64_t i : spread(static_cast<std::int64_t>(mismatches.size()), kRows * 4)) {
    const std::int64_t at = mismatches[static_cast<std::size_t>(i)];
    if (rows.size() < kRows) rows.insert(at / n);
    if (rows.contains(at / n) && columns.size() < kColumns / 2) columns.insert(at % n);
  }
  for (const std::int64_t column : spread(n, kColumns / 2)) columns.insert(column);
  return {{rows.begin(), rows.end()}, {columns.begin(), columns.end()}};
}

/// Some rows and columns of the sample, each with a mismatch where there are any.
Sample probe_of(const Judge& judge, std::int64_t rows, std::int64_t columns) {
  Sample all;
  std::vector<bool> wrong_columns(static_cast<std::size_t>(columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    bool any = false;
    for (std::int64_t column = 0; column < columns; ++column) {
      if (judge.is_right(static_cast<std::size_t>(row * columns + column))) continue;
      any = true;
      wrong_columns[static_cast<std::size_t>(column)] = true;
    }
    if (any) all.rows.push_back(row);
  }
  for (std::int64_t column = 0; column < columns; ++column)
    if (wrong_columns[static_cast<std::size_t>(column)]) all.columns.push_back(column);
  const auto some = [](const std::vector<std::int64_t>& from) {
    std::vector<std::int64_t> chosen;
    for (const std::int64_t i : spread(static_cast<std::int64_t>(from.size()), kProbeSide))
      chosen.push_back(from[static_cast<std::size_t>(i)]);
    return chosen;
  };
  return {some(all.rows), some(all.columns)};
}

/// Puts every mistake that a product can have before a judge. Each is computed on a few elements
/// first, and on the sample if it explains some of their mismatches.
class ProductHypotheses {
 public:
  ProductHypotheses(const Product& product, const Sample& sample, const Product& sampled,
                    Judge& judge, int threads)
      : product_(product),
        sample_(sample),
        sampled_(sampled),
        judge_(judge),
        threads_(threads),
        probe_(probe_of(judge, sampled.rows(), sampled.columns())),
        probed_(take(sampled, probe_)) {}

  void run(const std::vector<float>& golden) {
    casts(golden);
    scales();
    places_of_c();
    operands();
    promotions();
    accumulators();
    for (const int parts : {2, 4, 8, 16})
      add(fmt::format("split_k_{}", parts),
          fmt::format("K split in {} parts, summed in FP32 in order", parts),
          [=](const Product& p) { return compute_split_k(p, parts); });
  }

 private:
  using Result = std::optional<std::vector<float>>;

  /// `output` gives the wrong result of the elements of a product, or nothing.
  void add(const std::string& name, const std::string& text,
           const std::function<Result(const Product&)>& output) {
    const Result few = output(probed_);
    if (!few) return;
    if (!plausible(*few)) return judge_.dismiss();
    consider(name, text, *output(sampled_));
  }
  /// A product that went wrong, of these elements or of whichever are asked for.
  void add(const std::string& name, const std::string& text, const Product& wrong) {
    if (!plausible(compute(take(wrong, probe_), threads_))) return judge_.dismiss();
    consider(name, text, compute(wrong, threads_));
  }
  void whole(const std::string& name, const std::string& text,
             const std::optional<Product>& wrong) {
    if (wrong) add(name, text, take(*wrong, sample_));
  }

  [[nodiscard]] std::vector<std::uint32_t> codes_of(const std::vector<float>& output) const {
    return words(product_.output.format, cast_output(output, product_.output, threads_));
  }
  void consider(const std::string& name, const std::string& text,
                const std::vector<float>& output) {
    judge_.consider(name, text, codes_of(output));
  }
  /// Whether it explains enough of the mismatches that were looked at first.
  [[nodiscard]] bool plausible(const std::vector<float>& few) const {
    const std::vector<std::uint32_t> codes = codes_of(few);
    std::size_t mismatches = 0;
    std::size_t explained = 0;
    std::size_t at = 0;
    for (const std::int64_t row : probe_.rows)
      for (const std::int64_t column : probe_.columns) {
        const auto place = static_cast<std::size_t>(row * sampled_.columns() + column);
        const std::uint32_t code = codes[at++];
        if (judge_.is_right(place)) continue;
        ++mismatches;
        explained += judge_.explains(place, code) ? 1 : 0;
      }
    return explained > 0 &&
           static_cast<double>(explained) >= kProbeShare * static_cast<double>(mismatches);
  }

  void casts(const std::vector<float>& golden) {
    for (const CastMistake& mistake :
         cast_mistakes(product_.output.format, product_.output.policy)) {
      std::vector<std::uint32_t> codes(golden.size());
      std::transform(golden.begin(), golden.end(), codes.begin(), mistake.code);
      judge_.consider(mistake.name, mistake.text, codes);
    }
  }

  void scales() {
    for (const auto& [side, letter, text] :
         {std::tuple{Side::a, "a", "A's scale"}, std::tuple{Side::b, "b", "B's scale"},
          std::tuple{Side::both, "a_and_b", "both scales"}}) {
      whole(fmt::format("missing_scale_{}", letter), fmt::format("{} not applied", text),
            without_scales(product_, side));
      whole(fmt::format("doubled_scale_{}", letter), fmt::format("{} applied twice", text),
            with_doubled_scales(product_, side));
      whole(fmt::format("wrong_scale_axis_{}", letter),
            fmt::format("{} read along the wrong axis", text),
            with_transposed_scales(product_, side));
      whole(fmt::format("e8m0_scale_{}_without_requantizing", letter),
            fmt::format("{} rounded up to a power of two (E8M0) under unchanged codes", text),
            with_power_of_two_scales(product_, side));
    }
    whole("swapped_scales", "A's scales on B and B's on A", with_swapped_scales(product_));
    for (const ScaleOrder order : scale_orders()) {
      if (order == product_.problem.scale_order || product_.problem.a_scales.empty()) continue;
      Product other = sampled_;
      other.problem.scale_order = order;
      add(fmt::format("scale_order_{}", to_string(order)),
          fmt::format("scales applied in the order {}", to_string(order)), other);
    }
  }

  void places_of_c() {
    const GemmProblem& p = sampled_.problem;
    if (p.c == nullptr) return;
    for (const CPlacement place : possible_c_placements(p)) {
      if (place == c_placement(p)) continue;
      Product other = sampled_;
      other.problem.c_enters = place;
      add(fmt::format("c_in_{}", to_string(place)),
          fmt::format("C entered elsewhere: as c_enters={}", to_string(place)), other);
    }
    Product other = sampled_;
    other.problem.c = nullptr;
    add("missing_c", "C left out", other);
  }

  void operands() {
    whole("fnuz_inputs", "FNUZ/FN mix-up: the codes were read with the other bias",
          with_fnuz_codes(product_));
    whole("transposed_b", "B read in the other memory order", with_transposed_b(product_));
    if (const std::optional<Product> flushed = with_flushed_inputs(sampled_))
      add("flushed_input_subnormals", "subnormal operands read as zeros", *flushed);
    const GemmProblem& p = sampled_.problem;
    const std::int64_t tile = p.promotion_interval > 0 ? p.promotion_interval : 128;
    if (p.a.k <= tile) return;
    const std::int64_t last = (p.a.k - 1) / tile * tile;
    add("dropped_last_k_tile", fmt::format("the terms from {} on left out", last),
        without_terms(sampled_, last, p.a.k));
    add("dropped_first_k_tile", fmt::format("the first {} terms left out", tile),
        without_terms(sampled_, 0, tile));
  }

  void promotions() {
    add("missing_promotion", "the first promotion does not happen", compute_missing_promotion);
    const GemmProblem& p = sampled_.problem;
    const bool in_blocks = ScaleLookup(p.a_scales, p.a).varies_along_k() ||
                           ScaleLookup(p.b_scales, p.b).varies_along_k();
    for (const std::int64_t interval : {0, 32, 64, 128, 256, 512, 1024}) {
      const bool possible = interval % p.model.terms == 0 && interval < p.a.k;
      if (in_blocks || interval == p.promotion_interval || !possible) continue;
      Product other = sampled_;
      other.problem.promotion_interval = interval;
      other.problem.c_enters = c_placement(p);
      if (interval == 0 && p.c_enters == CPlacement::promoted_sum)
        other.problem.c_enters = CPlacement::epilogue;
      add(interval == 0 ? "no_promotion" : fmt::format("promotion_{}", interval),
          interval == 0 ? "no promotion to FP32 at all"
                        : fmt::format("promotion to FP32 every {} terms", interval),
          other);
    }
  }

  void accumulators() {
    std::vector<AccumulatorModel> seen{product_.problem.model};
    for (const InstructionModel& model : instruction_models()) {
      const bool known = std::find(seen.begin(), seen.end(), model.accumulator) != seen.end();
      if (known || !stands_beside(model, product_)) continue;
      seen.push_back(model.accumulator);
      const Product other = with_accumulator(sampled_, model.accumulator);
      if (other.problem.promotion_interval != sampled_.problem.promotion_interval) continue;
      add(fmt::format("accumulator_{}", model.name),
          fmt::format("accumulated as {} does", model.name), other);
    }
  }

  const Product& product_;
  const Sample& sample_;
  const Product& sampled_;
  Judge& judge_;
  int threads_;
  Sample probe_;  ///< rows and columns of `sampled_`
  Product probed_;
};

std::vector<ErrorBudget> budgets_of(const Product& product, int threads) {
  std::vector<ErrorBudget> budgets(product.size());
  FirstError error;
#pragma omp parallel for schedule(dynamic) num_threads(team_size(threads))
  for (std::size_t i = 0; i < budgets.size(); ++i)
    error.guard([&] {
      const auto at = static_cast<std::int64_t>(i);
      budgets[i] = error_budget(product, at / product.columns(), at % product.columns());
    });
  error.rethrow();
  return budgets;
}

float scaled(float x, std::span<const float> scale, std::size_t i) {
  return canonical(x * scale[scale.size() == 1 ? 0 : i]);
}

}  // namespace

Diagnosis diagnose(const Product& product, std::span<const std::byte> got,
                   std::span<const std::int64_t> mismatches, int threads, Closeness closeness) {
  if (mismatches.empty()) return {};
  return diagnose(product, got, sample_of(product, mismatches), threads, closeness);
}

Diagnosis diagnose(const Product& product, std::span<const std::byte> got, const Sample& sample,
                   int threads, Closeness closeness) {
  const FloatEnvironment environment;
  const Product sampled = take(product, sample);
  const FormatId id = product.output.format;
  const std::vector<float> golden = compute(sampled, threads);
  std::vector<std::uint32_t> got_codes;
  for (const std::int64_t row : sample.rows)
    for (const std::int64_t column : sample.columns)
      got_codes.push_back(
          code_at(id, got, static_cast<std::size_t>(row * product.columns() + column)));
  Judge judge(
      product.output, words(id, cast_output(golden, product.output, threads)), std::move(got_codes),
      closeness == Closeness::budget ? budgets_of(sampled, threads) : std::vector<ErrorBudget>{});
  ProductHypotheses(product, sample, sampled, judge, threads).run(golden);
  return judge.finish();
}

Diagnosis diagnose_cast(const CastSpec& spec, std::span<const float> x,
                        std::span<const float> scale, std::span<const std::byte> got) {
  const FloatEnvironment environment;
  const std::vector<std::uint32_t> got_codes = words(spec.format, got);
  require(got_codes.size() == x.size(), "got", fmt::format("{} codes, as x", x.size()),
          fmt::format("{}", got_codes.size()));
  require(scale.size() == 1 || scale.size() == x.size(), "scale",
          fmt::format("1 or {} values", x.size()), fmt::format("{}", scale.size()));
  const auto codes_of = [&](const std::function<std::uint32_t(std::size_t)>& code) {
    std::vector<std::uint32_t> codes(x.size());
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = code(i);
    return codes;
  };
  const auto cast = cast_as(spec.format, spec.policy);
  Judge judge({spec.format, spec.policy},
              codes_of([&](std::size_t i) { return cast(scaled(x[i], scale, i)); }), got_codes);
  for (const CastMistake& mistake : cast_mistakes(spec.format, spec.policy))
    judge.consider(mistake.name, mistake.text,
                   codes_of([&](std::size_t i) { return mistake.code(scaled(x[i], scale, i)); }));
  const bool unit = std::all_of(scale.begin(), scale.end(), [](float s) { return s == 1.0F; });
  if (unit) return judge.finish();
  const auto s = [&](std::size_t i) { return scale[scale.size() == 1 ? 0 : i]; };
  judge.consider("missing_scale", "the scale not applied",
                 codes_of([&](std::size_t i) { return cast(x[i]); }));
  judge.consider("doubled_scale", "the scale applied twice",
                 codes_of([&](std::size_t i) { return cast(x[i] * s(i) * s(i)); }));
  judge.consider("inverted_scale", "divided by the scale instead of multiplied",
                 codes_of([&](std::size_t i) { return cast(x[i] / s(i)); }));
  judge.consider("divided_by_the_inverse", "divided by 1 / scale, which rounds differently",
                 codes_of([&](std::size_t i) { return cast(x[i] / (1.0F / s(i))); }));
  return judge.finish();
}

}  // namespace fp8lab

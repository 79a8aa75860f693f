#include "fp8lab/reveal/reveal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/product/product.hpp"

namespace fp8lab {
namespace {

constexpr int kFreshCalls = 4;

float rounded_to_operand(FormatId id, double value) {
  const Format& f = format(id);
  const auto x = static_cast<float>(value);
  return static_cast<float>(round_trip(f, kNvidiaSatfinite, x));
}

/// Operands of one call: normal ones, and ones of many magnitudes.
std::vector<float> fresh(FormatId id, std::int64_t count, const RandomStream& random, bool wide) {
  const Format& f = format(id);
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    double value = random.normal(at);
    if (wide) {
      const int span = std::min(12, static_cast<int>(std::ilogb(f.max_finite())) + 3);
      value = std::ldexp(
          value, static_cast<int>(random.below(at, static_cast<std::uint64_t>(span))) - span / 2);
    }
    values.push_back(rounded_to_operand(id, value));
  }
  return values;
}

std::vector<Probe> fresh_calls(const ProbeShape& shape, std::uint64_t seed) {
  std::vector<Probe> calls;
  for (int i = 0; i < kFreshCalls; ++i) {
    const RandomStream a(seed, fmt::format("reveal a {}", i));
    const RandomStream b(seed, fmt::format("reveal b {}", i));
    calls.push_back({fresh(shape.a_format, shape.m * shape.k, a, i % 2 == 1),
                     fresh(shape.b_format, shape.n * shape.k, b, i % 2 == 1)});
  }
  return calls;
}

std::vector<float> product_of(const AccumulatorModel& model, std::int64_t promotion,
                              const SplitK& split, const ProbeShape& shape, const std::byte* a,
                              const std::byte* b) {
  Product product;
  product.problem.model = model;
  product.problem.a = {shape.a_format, a, shape.m, shape.k, shape.k, 1};
  product.problem.b = {shape.b_format, b, shape.n, shape.k, shape.k, 1};
  product.problem.promotion_interval = promotion;
  product.split = split;
  validate(product.problem, product.sum_count());
  validate_split(product);
  return compute_sums(product, 0);
}

bool same(float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); }

/// Fresh outputs that the unit gives; fewer than none where the library cannot compute it.
std::int64_t equal_outputs(const Revealed& r, const UnitCandidate& unit,
                           std::span<const Probe> calls, std::span<const float> outputs) {
  std::int64_t equal = 0;
  std::size_t at = 0;
  for (const Probe& call : calls) {
    std::vector<std::byte> a;
    std::vector<std::byte> b;
    append_words(r.shape.a_format, call.a, a);
    append_words(r.shape.b_format, call.b, b);
    const std::vector<float> d = product_of(unit.model, r.structure->promotion_interval,
                                            r.structure->split, r.shape, a.data(), b.data());
    for (const float value : d)
      equal += same(rounded_output(unit.rounded_to, value), outputs[at++]) ? 1 : 0;
  }
  return equal;
}

/// The parameters of one unit as text.
std::string definition(const Revealed& r, const UnitCandidate& unit) {
  return definition_of(unit.model, r.shape.a_format, r.shape.b_format);
}

/// With scales of 1 a block-scaled unit is the fused one of its parameters.
AccumulatorModel under_unit_scales(AccumulatorModel model) {
  if (model.kind == AccumulationKind::scaled_dot_product)
    model.kind = AccumulationKind::fused_dot_product;
  return model;
}

/// Units of registered instructions first, in the registry's order; then simple ones. Block-scaled
/// instructions are named too, behind the others, and are no candidates: kernels have no scales.
std::vector<UnitCandidate> in_order(const Revealed& r, const std::vector<UnitCandidate>& found,
                                    std::vector<std::string>& instructions) {
  std::vector<UnitCandidate> ordered;
  std::set<std::string> definitions;
  std::map<std::string, int> limits;  // of units whose limit is not known
  for (const UnitCandidate& unit : found) {
    definitions.insert(definition(r, unit));
    if (unit.limits_up_to) limits[definition(r, unit)] = *unit.limits_up_to;
  }
  const auto fits = [&](AccumulatorModel model) {
    model.zero_sign = ZeroSign::kept;  // as in all that were found: outputs are compared as numbers
    if (definitions.contains(definition(r, {model, {}}))) return true;
    const int limit = model.min_alignment_exponent;
    model.min_alignment_exponent = kNoMinAlignmentExponent;
    const auto at = limits.find(definition(r, {model, {}}));
    return at != limits.end() && limit <= at->second;
  };
  std::vector<std::string> scaled;
  for (const InstructionModel& known : instruction_models()) {
    if (known.a_format != r.shape.a_format || known.b_format != r.shape.b_format) continue;
    if (!takes_formats(known.accumulator, r.shape.a_format, r.shape.b_format)) continue;
    const AccumulatorModel plain = under_unit_scales(known.accumulator);
    if (!fits(plain)) continue;
    if (plain == known.accumulator) {
      instructions.emplace_back(known.name);
      ordered.push_back({known.accumulator, found.front().rounded_to});
    } else {
      scaled.emplace_back(known.name);
    }
  }
  instructions.insert(instructions.end(), scaled.begin(), scaled.end());
  ordered.insert(ordered.end(), found.begin(), found.end());
  return ordered;
}

std::string values_text(const std::set<std::string>& texts, const std::set<int>& numbers) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : ", ") + text;
  for (auto at = numbers.begin(); at != numbers.end();) {
    auto end = at;
    int last = *at;
    while (++end != numbers.end() && *end == last + 1) last = *end;
    out += out.empty() ? "" : ", ";
    out += last == *at ? fmt::format("{}", last) : fmt::format("{} .. {}", *at, last);
    at = end;
  }
  return out;
}

/// Each parameter of the chosen unit, and its values in all units of that kind that were found.
std::vector<RevealedParameter> parameters(const Revealed& r, const AccumulatorModel& chosen,
                                          const std::vector<UnitCandidate>& found) {
  std::vector<RevealedParameter> all{{"kind", std::string(to_string(chosen.kind)), {}, true}};
  InstructionModel holder{"", r.shape.a_format, r.shape.b_format, chosen, Standing::definition, ""};
  std::set<std::string> kinds;
  for (const UnitCandidate& unit : found) kinds.insert(std::string(to_string(unit.model.kind)));
  all[0].possible = values_text(kinds, {});
  all[0].certain = kinds.size() == 1;
  for (const std::string_view name : parameters_that_matter(chosen)) {
    if (name == "a_format" || name == "b_format") continue;
    const AccumulatorParameter& parameter = find_accumulator_parameter(name);
    holder.accumulator = chosen;
    RevealedParameter one{std::string(name), parameter.get(holder), {}, true};
    std::set<std::string> texts;
    std::set<int> numbers;
    std::optional<int> limit;
    for (const UnitCandidate& unit : found) {
      if (unit.model.kind != chosen.kind) continue;
      holder.accumulator = unit.model;
      const std::string text = parameter.get(holder);
      if (name == "min_alignment_exponent" && unit.limits_up_to)
        limit = std::min(limit.value_or(*unit.limits_up_to), *unit.limits_up_to);
      const bool number = text.find_first_not_of("-0123456789") == std::string::npos;
      if (number)
        numbers.insert(std::stoi(text));
      else
        texts.insert(text);
    }
    if (limit) texts = {fmt::format("none or any up to {}", *limit)};
    // Outputs are compared as numbers, to which both zeros are equal.
    if (name == "zero_sign")
      for (const ZeroSign sign : {ZeroSign::kept, ZeroSign::positive})
        texts.emplace(to_string(sign));
    one.possible = values_text(texts, numbers);
    one.certain = texts.size() + numbers.size() == 1 && one.possible == one.value;
    all.push_back(std::move(one));
  }
  return all;
}

/// A large product and others that each addition loses: a sum that keeps them elsewhere shows them.
Probe compensation_probe(const ProbeShape& shape, const OrderScale& scale) {
  const PowerProducts powers(shape.a_format, shape.b_format);
  const auto k = static_cast<std::size_t>(shape.k);
  Probe probe{std::vector<float>(k), std::vector<float>(k)};
  constexpr int kBelowHalfUlp = 25;
  for (std::size_t at = 0; at < k; ++at) {
    const int exponent = at == 0 ? scale.big : std::max(scale.big - kBelowHalfUlp, scale.small);
    std::tie(probe.a[at], probe.b[at]) = powers.factors(exponent);
  }
  return probe;
}

void choose_unit(Revealed& r, const std::vector<UnitCandidate>& found,
                 std::span<const Probe> fresh_operands, std::span<const float> fresh_outputs) {
  r.checked = static_cast<std::int64_t>(fresh_outputs.size());
  if (found.empty()) {
    r.failure = "the order is known, but no unit of a known kind gives these outputs";
    return;
  }
  r.rounded_to = found.front().rounded_to;
  const std::vector<UnitCandidate> ordered = in_order(r, found, r.instructions);
  constexpr std::size_t kMostTried = 48;
  // Some of all, where there are many. `r.instructions` also names those that are no candidates.
  const std::size_t stride = (ordered.size() + kMostTried - 1) / kMostTried;
  const std::size_t registered = ordered.size() - found.size();
  std::int64_t best = -1;
  const UnitCandidate* chosen = nullptr;
  for (std::size_t i = 0; i < ordered.size() && best < r.checked;
       i += i < registered ? 1 : stride) {
    const std::int64_t equal = equal_outputs(r, ordered[i], fresh_operands, fresh_outputs);
    if (equal > best) {
      best = equal;
      chosen = &ordered[i];
    }
  }
  r.equal = best;
  r.definition = definition(r, *chosen);
  const auto place = static_cast<std::size_t>(chosen - ordered.data());
  if (place >= registered) r.instructions.clear();
  r.model = r.instructions.empty() ? r.definition : r.instructions[place];
  r.parameters = parameters(r, chosen->model, found);
  if (r.equal < r.checked)
    r.failure = fmt::format("{} of {} fresh outputs differ from the model's", r.checked - r.equal,
                            r.checked);
}

}  // namespace

Revealed reveal(const ProbeShape& shape, const ProbeKernel& kernel, std::uint64_t seed) {
  const FloatEnvironment environment;
  ProbeRunner runner(shape, kernel);
  Revealed r;
  r.shape = shape;
  const std::vector<Probe> fresh_operands = fresh_calls(shape, seed);
  std::vector<float> fresh_outputs;
  const std::optional<OrderScale> scale =
      find_order_scale(runner, fresh_operands, fresh_outputs, r.order.failure);
  const auto finish = [&] {
    r.output = runner.output();
    r.rounds = runner.rounds();
    r.probes = runner.probes();
    if (r.failure.empty()) r.failure = r.order.failure;
    return r;
  };
  if (!scale) return finish();
  r.order = reveal_order(runner, *scale);
  if (!r.order.found()) {
    r.order.failure = "not a tree of additions: " + r.order.failure;
    return finish();
  }
  r.structure = structure_of(r.order.tree);
  const SumStructure structure = r.structure.value_or(SumStructure{});
  const OrderCheck check = order_check(shape, *scale, seed);
  const UnitProbes unit = r.structure ? unit_probes(shape, structure, *scale, seed) : UnitProbes{};
  std::vector<Probe> probes = check.probes;
  probes.push_back(compensation_probe(shape, *scale));
  probes.insert(probes.end(), unit.probes.begin(), unit.probes.end());
  const std::vector<float> outputs = runner.run(probes);
  const auto of_check = std::span(outputs).first(check.probes.size());
  const auto of_unit = std::span(outputs).subspan(check.probes.size() + 1);
  const bool exact = r.structure && structure.step == StepShape::exact;
  if (!exact) r.contradictions = contradictions(check, r.order.tree, *scale, of_check);
  if (r.contradictions > 0) {
    r.order.failure = r.failure = fmt::format(
        "not a tree of additions: {} of {} pairs of terms meet at another place than in the tree",
        r.contradictions, check.pairs.size());
    return finish();
  }
  if (!r.structure) {
    r.failure = "the order is known, but no promoted or split chain of a unit's steps has it";
    return finish();
  }
  choose_unit(r, units_of(shape, structure, unit, of_unit, runner.output()), fresh_operands,
              fresh_outputs);
  const float compensated = outputs[check.probes.size()];
  const bool one_by_one = structure.step == StepShape::fused && structure.terms == 1;
  if (!r.failure.empty() && one_by_one && compensated > std::ldexp(1.0F, scale->big))
    r.order.failure = r.failure = fmt::format(
        "not a tree of additions: terms that are lost in an addition reappear later (2^{} and {} "
        "terms of 2^{} gave {:.9g}), as in a compensated (Kahan) sum",
        scale->big, shape.k - 1, std::max(scale->big - 25, scale->small), compensated);
  return finish();
}

ProbeKernel kernel_of_model(const std::string& model, std::int64_t promotion_interval,
                            const SplitK& split, FormatId output) {
  const AccumulatorModel accumulator = find_instruction_model(model).accumulator;
  return [=](const ProbeCalls& calls) {
    ProbeOutputs outputs{{}, output};
    const ProbeShape shape{calls.m, calls.n, calls.k, calls.a_format, calls.b_format};
    const std::size_t a_size = calls.a.size() / static_cast<std::size_t>(calls.calls);
    const std::size_t b_size = calls.b.size() / static_cast<std::size_t>(calls.calls);
    for (std::size_t i = 0; i < static_cast<std::size_t>(calls.calls); ++i)
      for (const float value : product_of(accumulator, promotion_interval, split, shape,
                                          calls.a.data() + i * a_size, calls.b.data() + i * b_size))
        outputs.d.push_back(rounded_output(output, value));
    return outputs;
  };
}

}  // namespace fp8lab

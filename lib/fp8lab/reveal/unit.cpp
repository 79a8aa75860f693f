#include "fp8lab/reveal/unit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {
namespace {

constexpr std::array kRoundings{RoundingMode::toward_zero,  RoundingMode::nearest_even,
                                RoundingMode::nearest_away, RoundingMode::nearest_toward_zero,
                                RoundingMode::upward,       RoundingMode::downward};
constexpr int kMostAlignmentBits = 64;
constexpr int kHalfFractionBits = 10;
constexpr int kFloatFractionBits = 23;

bool has(const AccumulatorModel& model, std::string_view parameter) {
  const std::vector<std::string_view> names = parameters_that_matter(model);
  return std::find(names.begin(), names.end(), parameter) != names.end();
}

using Use = std::function<void(const AccumulatorModel&)>;

void for_alignment(AccumulatorModel model, const Use& use) {
  for (int f = 1; f <= kMostAlignmentBits; ++f) {
    model.alignment_fraction_bits = f;
    use(model);
  }
}

void for_roundings(AccumulatorModel model, const Use& use) {
  for (const RoundingMode mode : kRoundings) {
    model.rounding = mode;
    use(model);
  }
}

void for_sum_bits(AccumulatorModel model, const Use& use) {
  for (int bits = 1; bits <= kFloatFractionBits; ++bits) {
    model.output_fraction_bits = bits;
    for_roundings(model, use);
  }
}

/// FP32 sums of any bits, and FP16 ones with both readings of a subnormal c.
void for_sums(AccumulatorModel model, const Use& use) {
  model.output_format = FormatId::f32;
  model.half_c_exponent = HalfCExponent::stored;
  for_sum_bits(model, use);
  model.output_format = FormatId::f16;
  model.output_fraction_bits = kHalfFractionBits;
  for (const HalfCExponent half : {HalfCExponent::stored, HalfCExponent::widened}) {
    model.half_c_exponent = half;
    if (half == HalfCExponent::stored || has(model, "half_c_exponent")) for_roundings(model, use);
  }
}

void for_fused(AccumulatorModel model, const Use& use) {
  for (const ProductExponent exponent : {ProductExponent::stored, ProductExponent::normalized}) {
    model.product_exponent = exponent;
    for_alignment(model, [&](const AccumulatorModel& m) { for_sums(m, use); });
  }
}

void for_two_stage(AccumulatorModel model, const Use& use) {
  for (int bits = 1; bits <= 40; ++bits) {
    model.second_stage_fraction_bits = bits;
    for_alignment(model, use);
  }
}

AccumulatorModel of_kind(AccumulationKind kind, std::int64_t terms) {
  for (const AccumulatorKind& one : accumulator_kinds())
    if (one.kind == kind) {
      AccumulatorModel model = find_instruction_model(one.instruction).accumulator;
      if (has(model, "terms")) model.terms = static_cast<int>(terms);
      model.min_alignment_exponent = kNoMinAlignmentExponent;
      return model;
    }
  return {};
}

void for_sequential(const Use& use) {
  AccumulatorModel model = of_kind(AccumulationKind::sequential, 1);
  for (int bits = -1; bits <= kFloatFractionBits; ++bits) {
    model.product_fraction_bits = bits;
    for_sum_bits(model, use);
  }
}

/// All units of the structure's shape, without a lower limit of alignment.
void for_units(const SumStructure& structure, std::int64_t k, const Use& use) {
  const std::int64_t terms = structure.terms;
  if (terms > 256 && !(structure.step == StepShape::exact && terms >= k)) return;
  const auto make = [&](AccumulationKind kind) { return of_kind(kind, terms); };
  if (structure.step == StepShape::exact && terms >= k) use(make(AccumulationKind::exact));
  if (structure.step == StepShape::exact && terms <= 256) {
    use(make(AccumulationKind::exact_dot_product));
    for_fused(make(AccumulationKind::fused_dot_product), use);
  } else if (structure.step == StepShape::pairs) {
    use(make(AccumulationKind::flushed_pairwise_sum));
    // Halves of two products each have the same tree.
    AccumulatorModel model = make(AccumulationKind::fp16_halves);
    model.halves_order = HalvesOrder::separate;
    if (terms == 4) for_fused(model, use);
  } else if (structure.step == StepShape::halves_chained ||
             structure.step == StepShape::halves_separate) {
    AccumulatorModel model = make(AccumulationKind::fp16_halves);
    model.halves_order =
        structure.step == StepShape::halves_chained ? HalvesOrder::chained : HalvesOrder::separate;
    if (terms % 4 == 0) for_fused(model, use);
  } else if (structure.step == StepShape::fused) {
    if (terms == 1) {
      use(make(AccumulationKind::float32));
      use(make(AccumulationKind::fused_multiply_add));
      for_sequential(use);
    } else {
      for_two_stage(make(AccumulationKind::two_stage_dot_product), use);
      for_two_stage(make(AccumulationKind::even_odd_dot_product), use);
    }
    for_fused(make(AccumulationKind::fused_dot_product), use);
  }
}

/// Unpacked operands of each probe, and its output.
class Judge {
 public:
  Judge(const ProbeShape& shape, const UnitProbes& probes, std::span<const float> outputs)
      : a_format_(shape.a_format), b_format_(shape.b_format), outputs_(outputs) {
    const auto unpacked = [&](FormatId id, const std::vector<float>& values) {
      std::vector<Unpacked> out;
      for (const std::int64_t place : probes.places)
        out.push_back(unpack(
            format(id), encode(format(id), kNvidiaNosat, values[static_cast<std::size_t>(place)])));
      return out;
    };
    for (const Probe& probe : probes.probes) {
      a_.push_back(unpacked(shape.a_format, probe.a));
      b_.push_back(unpacked(shape.b_format, probe.b));
    }
  }

  /// Whether the unit gives all outputs of [begin, end). A probe that refuted the one before is
  /// tried first: the next one is often wrong there too.
  [[nodiscard]] bool fits(const AccumulatorModel& model, FormatId rounded_to, std::size_t begin,
                          std::size_t end) const {
    if (last_ >= begin && last_ < end && !gives(model, rounded_to, last_)) return false;
    for (std::size_t i = begin; i < end; ++i)
      if (!gives(model, rounded_to, i)) {
        last_ = i;
        return false;
      }
    return true;
  }

  /// Whether there is such a unit, for these operands.
  [[nodiscard]] bool takes(const AccumulatorModel& model) const {
    try {
      validate(model);
    } catch (const Error&) {
      return false;
    }
    return takes_formats(model, a_format_, b_format_);
  }
  [[nodiscard]] std::size_t size() const { return a_.size(); }

 private:
  [[nodiscard]] bool gives(const AccumulatorModel& model, FormatId rounded_to,
                           std::size_t i) const {
    const float d = rounded_output(rounded_to, dot_product(model, a_[i], b_[i]));
    return d == outputs_[i] || (std::isnan(d) && std::isnan(outputs_[i]));
  }

  FormatId a_format_;
  FormatId b_format_;
  std::span<const float> outputs_;
  std::vector<std::vector<Unpacked>> a_;
  std::vector<std::vector<Unpacked>> b_;
  mutable std::size_t last_ = 0;
};

constexpr int kLowestLimit = -170;
constexpr int kHighestLimit = 100;

/// The unit if it gives all outputs, and then the highest lower limit of alignment that changes
/// none; else the limits with which it does.
void add_with_limits(const Judge& judge, const UnitCandidate& candidate, std::size_t high,
                     std::vector<UnitCandidate>& found) {
  const bool limited = has(candidate.model, "min_alignment_exponent");
  const auto fits = [&](int limit) {
    AccumulatorModel model = candidate.model;
    model.min_alignment_exponent = limit;
    return judge.fits(model, candidate.rounded_to, high, judge.size()) &&
           judge.fits(model, candidate.rounded_to, 0, high);
  };
  if (judge.fits(candidate.model, candidate.rounded_to, high, judge.size())) {
    found.push_back(candidate);
    if (!limited || !fits(kLowestLimit)) return;
    // A higher limit cuts no less.
    int low = kLowestLimit;
    int above = kHighestLimit + 1;
    while (above - low > 1) {
      const int middle = (low + above) / 2;
      (fits(middle) ? low : above) = middle;
    }
    found.back().limits_up_to = low;
    return;
  }
  if (!limited) return;
  for (int e = kLowestLimit; e <= kHighestLimit; ++e)
    if (fits(e)) {
      found.push_back(candidate);
      found.back().model.min_alignment_exponent = e;
    }
}

}  // namespace

float rounded_output(FormatId rounded_to, float value) {
  if (rounded_to == FormatId::f32) return value;
  const Format& f = format(rounded_to);
  return static_cast<float>(decode(f, encode(f, kNvidiaNosat, value)));
}

std::vector<UnitCandidate> units_of(const ProbeShape& shape, const SumStructure& structure,
                                    const UnitProbes& probes, std::span<const float> outputs,
                                    FormatId output) {
  const FloatEnvironment environment;
  const Judge judge(shape, probes, outputs);
  std::vector<FormatId> roundings{output};
  if (output == FormatId::f32) roundings = {FormatId::f32, FormatId::bf16, FormatId::f16};
  for (const FormatId rounded_to : roundings) {
    std::vector<UnitCandidate> found;
    for_units(structure, shape.k, [&](const AccumulatorModel& model) {
      if (judge.takes(model) && judge.fits(model, rounded_to, 0, probes.high))
        add_with_limits(judge, {model, rounded_to}, probes.high, found);
    });
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace fp8lab

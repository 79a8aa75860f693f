#include "tool/candidates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <set>
#include <type_traits>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/accumulate/halves.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/cast/cast.hpp"
#include "tool/pack_cases.hpp"

namespace fp8lab::cuda {
namespace {

/// A value as the unit's sums hold it.
float as_sum(const AccumulatorModel& model, float value) {
  if (model.output_format != FormatId::f16) return value;
  const std::uint32_t code = encode(format(FormatId::f16), kNvidiaNosat, value);
  return static_cast<float>(decode(format(FormatId::f16), code));
}

/// The sum of an ordinary addition, as the chip's FADD or HADD2 gives it.
float add_nearest(const AccumulatorModel& model, float c, float sum) {
  const float total = c + sum;
  return std::isnan(total) ? std::bit_cast<float>(kCanonicalNan) : as_sum(model, total);
}

/// Where term `place` of the order stands in an instruction of `terms`, `steps` steps long.
std::size_t source_of(TermOrder order, std::size_t place, std::size_t terms, std::size_t steps) {
  if (order == TermOrder::by_pairs)
    return static_cast<std::size_t>(
        term_of_halves(static_cast<int>(place), static_cast<int>(terms)));
  const std::size_t length = terms / steps;
  return place % length * steps + place / length;
}

std::vector<std::uint32_t> ordered(const std::vector<std::uint32_t>& codes, TermOrder order,
                                   std::size_t terms, std::size_t steps) {
  if (order == TermOrder::in_turn) return codes;
  std::vector<std::uint32_t> result(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i)
    result[i] = codes[i / terms * terms + source_of(order, i % terms, terms, steps)];
  return result;
}

std::uint8_t code_of_one(ScaleFormat scale) { return scale == ScaleFormat::ue8m0 ? 0x7f : 0x38; }

/// The elements of B that a sparse instruction takes if the metadata say 0 and 1 for every group.
std::vector<std::uint32_t> first_of_groups(const std::vector<std::uint32_t>& b, FormatId id) {
  std::vector<std::uint32_t> taken(b.size(), format(id).max_finite_code());
  for (std::size_t i = 0; i < b.size(); ++i) {
    const auto place =
        static_cast<std::size_t>(sparse_place(static_cast<int>(i / 2), static_cast<int>(i % 2)));
    if (place < 2) taken[i / 2 * 2 + place] = b[i];
  }
  return taken;
}

/// The case that an instruction sees which does not do `what`.
VectorCase without(Unheeded what, const ProbedInstruction& probe, VectorCase one) {
  if (what == Unheeded::scales || what == Unheeded::scale_a)
    std::ranges::fill(one.scales_a, code_of_one(probe.scales->format));
  if (what == Unheeded::scales || what == Unheeded::scale_b)
    std::ranges::fill(one.scales_b, code_of_one(probe.scales->format));
  if (what == Unheeded::negation)
    for (std::uint32_t& code : one.a) code ^= format(probe.a_format).sign_mask();
  if (what == Unheeded::metadata) one.b = first_of_groups(one.b, probe.b_format);
  return one;
}

bool is_fused(const AccumulatorModel& model) {
  return model.kind == AccumulationKind::fused_dot_product;
}

class Builder {
 public:
  explicit Builder(const ProbedInstruction& probe) : probe_(probe) {}

  /// Adds a candidate unless there is an equal one.
  void add(const std::string& name, const AccumulatorModel& model, UseOfC c, TermOrder order,
           Unheeded unheeded = Unheeded::nothing) {
    if (!takes_formats(model, probe_.a_format, probe_.b_format)) return;
    if (model.output_format != wanted_output_) return;
    if (probe_.scales &&
        !unit_of(model.kind)
             .takes_scales(model, magnitude_format(probe_.scales->format).id, probe_.scales->block))
      return;
    const std::string key =
        fmt::format("{} {} {} {}", definition_of(model, probe_.a_format, probe_.b_format),
                    static_cast<int>(c), static_cast<int>(order), static_cast<int>(unheeded));
    if (!seen_.insert(key).second) return;
    std::string text = name.empty() ? definition_of(model, probe_.a_format, probe_.b_format) : name;
    constexpr std::array<const char*, 3> kUses{"", ", c ignored", ", c added apart"};
    constexpr std::array<const char*, 3> kOrders{"", ", terms interleaved over its steps",
                                                 ", terms by pairs"};
    text += kUses[static_cast<std::size_t>(c)];
    text += kOrders[static_cast<std::size_t>(order)];
    constexpr std::array<const char*, 6> kUnheeded{"",
                                                   ", scales ignored",
                                                   ", scales of A ignored",
                                                   ", scales of B ignored",
                                                   ", negation ignored",
                                                   ", metadata ignored"};
    text += kUnheeded[static_cast<std::size_t>(unheeded)];
    candidates_.push_back({std::move(text), model, c, order, unheeded});
  }

  /// The same with c and order as the model has them, then every other way.
  void add_ways(const std::string& name, const AccumulatorModel& model) {
    for (const UseOfC c : {UseOfC::in_the_step, UseOfC::ignored, UseOfC::added_apart}) {
      add(name, model, c, TermOrder::in_turn);
      if (!is_fused(model) || model.terms >= probe_.terms()) continue;
      for (const TermOrder order : {TermOrder::striped, TermOrder::by_pairs})
        if (order != TermOrder::by_pairs || probe_.terms() % 4 == 0) add(name, model, c, order);
    }
  }

  /// Fused steps: F, terms, the output's bits and the rounding in every combination, without a
  /// lower limit and with the base's; then each other limit and output alone.
  void add_grid(const AccumulatorModel& base) {
    const bool half = base.output_format == FormatId::f16;
    const int own = base.output_fraction_bits;
    const std::set<int> outputs = half ? std::set<int>{own} : std::set<int>{13, 23, own};
    for (const int terms : {4, 8, 16, 32})
      for (int bits = 8; terms <= probe_.terms() && bits <= 30; ++bits)
        for (const int output : outputs)
          for (const int floor : {base.min_alignment_exponent, kNoMinAlignmentExponent}) {
            AccumulatorModel model = base;
            model.terms = terms;
            model.alignment_fraction_bits = bits;
            model.output_fraction_bits = output;
            model.min_alignment_exponent = floor;
            add_ways("", model);
            model.rounding = model.rounding == RoundingMode::toward_zero
                                 ? RoundingMode::nearest_even
                                 : RoundingMode::toward_zero;
            add("", model, UseOfC::in_the_step, TermOrder::in_turn);
          }
    for (int output = 8; !half && output <= 23; ++output) {
      AccumulatorModel model = base;
      model.output_fraction_bits = output;
      add_ways("", model);
    }
    for (int floor = -150; floor <= -10; ++floor) {
      AccumulatorModel model = base;
      model.min_alignment_exponent = floor;
      add("", model, UseOfC::in_the_step, TermOrder::in_turn);
    }
    AccumulatorModel model = base;
    model.half_c_exponent = base.half_c_exponent == HalfCExponent::stored ? HalfCExponent::widened
                                                                          : HalfCExponent::stored;
    if (half) add_ways("", model);
    model = base;
    model.zero_sign = base.zero_sign == ZeroSign::kept ? ZeroSign::positive : ZeroSign::kept;
    add_ways("", model);
    model = base;
    model.product_exponent = ProductExponent::normalized;
    add_ways("", model);
  }

  /// Units with block scales: F, the output's bits and the lower limit.
  void add_scaled_grid(const AccumulatorModel& base) {
    for (int bits = 8; bits <= 40; ++bits)
      for (const int output : {13, 14, 22, base.output_fraction_bits})
        for (const int floor : {base.min_alignment_exponent, kNoMinAlignmentExponent}) {
          AccumulatorModel model = base;
          model.alignment_fraction_bits = bits;
          model.output_fraction_bits = output;
          model.min_alignment_exponent = floor;
          add_ways("", model);
          model.rounding = model.rounding == RoundingMode::toward_zero ? RoundingMode::nearest_even
                                                                       : RoundingMode::toward_zero;
          add("", model, UseOfC::in_the_step, TermOrder::in_turn);
        }
  }

  std::vector<Candidate> build() {
    const InstructionModel held_to = probe_.instruction();
    wanted_output_ = held_to.accumulator.output_format;
    add(std::string(held_to.name), held_to.accumulator, UseOfC::in_the_step, TermOrder::in_turn);
    for (const Unheeded what : {Unheeded::scales, Unheeded::scale_a, Unheeded::scale_b,
                                Unheeded::negation, Unheeded::metadata})
      if (asks_for(probe_, what))
        add(std::string(held_to.name), held_to.accumulator, UseOfC::in_the_step, TermOrder::in_turn,
            what);
    for (const InstructionModel& known : instruction_models())
      add_ways(std::string(known.name), known.accumulator);
    if (probe_.scales) {
      add_scaled_grid(held_to.accumulator);
      return std::move(candidates_);
    }
    AccumulatorModel fused = held_to.accumulator;
    if (!is_fused(fused))
      fused = find_instruction_model(wanted_output_ == FormatId::f16 ? "sm90.mma.f16.f16"
                                                                     : "sm90.wgmma.e4m3")
                  .accumulator;
    add_grid(fused);
    return std::move(candidates_);
  }

 private:
  const ProbedInstruction& probe_;
  FormatId wanted_output_ = FormatId::f32;
  std::set<std::string> seen_;
  std::vector<Candidate> candidates_;
};

}  // namespace

std::vector<Candidate> candidates_of(const ProbedInstruction& probe) {
  return Builder(probe).build();
}

bool asks_for(const ProbedInstruction& probe, Unheeded what) {
  const auto named = [&](std::string_view part) {
    return probe.name.find(part) != std::string_view::npos;
  };
  switch (what) {
    case Unheeded::nothing:
      return true;
    case Unheeded::negation:
      return named(".negated_");
    case Unheeded::metadata:
      return named(".sp.");
    default:
      return probe.scales.has_value();
  }
}

std::uint32_t result_of(const Candidate& candidate, const ProbedInstruction& probe,
                        const VectorCase& one) {
  if (candidate.c == UseOfC::in_the_step && candidate.order == TermOrder::in_turn &&
      candidate.unheeded == Unheeded::nothing)
    return std::bit_cast<std::uint32_t>(result_of(candidate.model, probe, one));
  const auto terms = static_cast<std::size_t>(probe.terms());
  const auto steps = terms / static_cast<std::size_t>(candidate.model.terms);
  VectorCase all = without(candidate.unheeded, probe, one);
  all.a = ordered(all.a, candidate.order, terms, steps);
  all.b = ordered(all.b, candidate.order, terms, steps);
  if (candidate.c == UseOfC::in_the_step)
    return std::bit_cast<std::uint32_t>(result_of(candidate.model, probe, all));
  // Chained instructions pass their sums on through c.
  float c = as_sum(candidate.model, std::bit_cast<float>(one.c));
  const std::size_t scales =
      probe.scales ? terms / static_cast<std::size_t>(probe.scales->block) : 0;
  for (std::size_t step = 0; step < all.a.size() / terms; ++step) {
    const auto part = [step](const auto& codes, std::size_t count) {
      const auto first = codes.begin() + static_cast<std::ptrdiff_t>(step * count);
      return std::decay_t<decltype(codes)>(first, first + static_cast<std::ptrdiff_t>(count));
    };
    VectorCase single;
    single.a = part(all.a, terms);
    single.b = part(all.b, terms);
    single.scales_a = part(all.scales_a, scales);
    single.scales_b = part(all.scales_b, scales);
    const float sum = result_of(candidate.model, probe, single);
    c = candidate.c == UseOfC::ignored ? sum : add_nearest(candidate.model, c, sum);
  }
  return std::bit_cast<std::uint32_t>(c);
}

}  // namespace fp8lab::cuda

// What a chip does otherwise must be named: every deviation of a table, planted in the simulated
// tensor core of every probe of every chip to which it applies, goes through the probe's kernel,
// the judge and the search for a winner. Where a share is wanted, one probe of each deviation is
// drawn.

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/core/random.hpp"
#include "simulated_judge.hpp"
#include "sweep_share.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

namespace {

bool is_fused(const ProbedInstruction& probe) {
  return probe.instruction().accumulator.kind == AccumulationKind::fused_dot_product;
}

/// Whether sums become zero often enough for a run to show their sign. Of FP8 of two types only a
/// sum of exactly -2^-25 does, and of BF16 and TF32 on Ampere and Ada a few in a million do.
bool loses_small_sums(const ProbedInstruction& probe) {
  const double smallest =
      format(probe.a_format).min_subnormal() * format(probe.b_format).min_subnormal();
  const InstructionModel& model = probe.instruction();
  const FormatId output = model.accumulator.output_format;
  const bool rare =
      output == FormatId::f32 && (model.name.starts_with("sm80") || model.name.starts_with("sm89"));
  return !probe.scales && !rare && smallest < 0.5 * format(output).min_subnormal();
}

/// A unit that differs from the predicted one by one parameter.
using Change = std::function<void(Candidate&)>;

struct Deviation {
  std::string what;
  bool (*applies)(const ProbedInstruction& probe);
  Change change;
  Unheeded unheeded = Unheeded::nothing;
  /// What the tool's text must hold, made of the planted model.
  std::string (*named)(const AccumulatorModel& model);
  int batches = 2;  ///< of `kTileOutputs` outputs that show it
};

RoundingMode other(RoundingMode rounding) {
  return rounding == RoundingMode::toward_zero ? RoundingMode::nearest_even
                                               : RoundingMode::toward_zero;
}

template <Unheeded kWhat>
Deviation not_done(std::string (*named)(const AccumulatorModel&)) {
  return {named({}), [](const ProbedInstruction& probe) { return asks_for(probe, kWhat); },
          [](Candidate&) {}, kWhat, named};
}

std::vector<Deviation> deviations() {
  using Model = AccumulatorModel;
  return {
      {"another F", [](const ProbedInstruction& probe) { return probe.halves == Halves::none; },
       [](Candidate& unit) {
         // FP16 sums do not show the last bits of a wide alignment.
         int& bits = unit.model.alignment_fraction_bits;
         bits = unit.model.output_format == FormatId::f16 && bits > 13 ? 12 : bits - 1;
       },
       Unheeded::nothing,
       [](const Model& model) { return fmt::format("F={}", model.alignment_fraction_bits); }},
      {"another rounding", is_fused,
       [](Candidate& unit) { unit.model.rounding = other(unit.model.rounding); }, Unheeded::nothing,
       [](const Model& model) { return fmt::format("round={}", to_string(model.rounding)); }},
      {"another width of sums",
       [](const ProbedInstruction& probe) {
         return is_fused(probe) && probe.instruction().accumulator.output_format == FormatId::f32;
       },
       [](Candidate& unit) {
         // Fewer than a sum can have: more would give the same sums.
         unit.model.output_fraction_bits = unit.model.output_fraction_bits == 13 ? 11 : 13;
       },
       Unheeded::nothing,
       [](const Model& model) { return fmt::format("M={}", model.output_fraction_bits); }},
      {"steps of half as many terms",
       [](const ProbedInstruction& probe) {
         return is_fused(probe) && !probe.scales && probe.instruction().accumulator.terms >= 8;
       },
       [](Candidate& unit) { unit.model.terms /= 2; }, Unheeded::nothing,
       [](const Model& model) { return fmt::format("terms={}", model.terms); }},
      {"terms interleaved over two steps",
       [](const ProbedInstruction& probe) {
         return is_fused(probe) && !probe.scales && probe.instruction().accumulator.terms >= 8 &&
                probe.instruction().accumulator.terms == probe.terms();
       },
       [](Candidate& unit) {
         unit.model.terms /= 2;
         unit.order = TermOrder::striped;
       },
       Unheeded::nothing, [](const Model&) { return std::string("terms interleaved"); }},
      {"another sign of zero", loses_small_sums,
       [](Candidate& unit) {
         unit.model.zero_sign =
             unit.model.zero_sign == ZeroSign::kept ? ZeroSign::positive : ZeroSign::kept;
       },
       Unheeded::nothing,
       [](const Model& model) { return fmt::format("zero_sign={}", to_string(model.zero_sign)); },
       32},
      {"c ignored", [](const ProbedInstruction&) { return true; },
       [](Candidate& unit) { unit.c = UseOfC::ignored; }, Unheeded::nothing,
       [](const Model&) { return std::string("c ignored"); }},
      {"c added apart", [](const ProbedInstruction& probe) { return probe.halves == Halves::none; },
       [](Candidate& unit) { unit.c = UseOfC::added_apart; }, Unheeded::nothing,
       [](const Model&) { return std::string("c added apart"); }},
      {"halves not chained",
       [](const ProbedInstruction& probe) { return probe.halves == Halves::chained; },
       [](Candidate& unit) { unit.model.halves_order = HalvesOrder::separate; }, Unheeded::nothing,
       [](const Model&) { return std::string("separate"); }},
      not_done<Unheeded::scales>([](const Model&) { return std::string("scales ignored"); }),
      not_done<Unheeded::scale_a>([](const Model&) { return std::string("scales of A ignored"); }),
      not_done<Unheeded::scale_b>([](const Model&) { return std::string("scales of B ignored"); }),
      not_done<Unheeded::negation>([](const Model&) { return std::string("negation ignored"); }),
      not_done<Unheeded::metadata>([](const Model&) { return std::string("metadata ignored"); }),
  };
}

struct OnChip {
  ProbedInstruction probe;
  int capability;
};

std::vector<OnChip> probes_of_all_chips() {
  std::vector<OnChip> all;
  for (const int capability : {80, 89, 90, 100, 120})
    for (const ProbedInstruction& probe : instructions_of({capability, 13000}))
      all.push_back({probe, capability});
  return all;
}

/// What the tool says, and beside it what a registered unit that it names is.
std::string with_definition(const CheckRow& row, const ProbedInstruction& probe) {
  constexpr std::string_view kBefore = "explained by ";
  std::string name =
      row.note.substr(std::min(row.note.find(kBefore) + kBefore.size(), row.note.size()));
  name = name.substr(0, name.find_first_of(", "));
  for (const InstructionModel& known : instruction_models())
    if (known.name == name)
      return row.note + ": " + definition_of(known.accumulator, probe.a_format, probe.b_format);
  return row.note;
}

void check_named(const OnChip& one, const Deviation& deviation) {
  Planted chip{one.probe, as_predicted(one.probe), deviation.unheeded};
  deviation.change(chip.unit);
  const CheckRow row = judge(chip, 1, deviation.batches);
  const std::string wanted = deviation.named(chip.unit.model);
  INFO(one.probe.name << " on " << one.capability << ", " << wanted << ": " << row.note);
  CHECK(row.mismatches > 0);
  CHECK_THAT(row.note, contains("explained by "));
  CHECK_THAT(with_definition(row, one.probe), contains(wanted));
}

/// All, or one that is drawn.
template <typename Item>
std::vector<Item> drawn(const SweepShare& share, std::string_view name, std::vector<Item> items) {
  if (!share.is_part() || items.empty()) return items;
  return {items[RandomStream(share.draw(), std::string(name)).below(0, items.size())]};
}

}  // namespace

TEST_CASE("a simulated chip that does as predicted agrees", "[cuda][long]") {
  const SweepShare share;
  for (const OnChip& one : drawn(share, "as predicted", probes_of_all_chips())) {
    const CheckRow row = judge({one.probe, as_predicted(one.probe)}, 2, 8);
    INFO(one.probe.name << " on " << one.capability << ": " << row.note);
    CHECK(row.mismatches == 0);
    CHECK(row.cases == 2ull * 8 * kTileOutputs);
    CHECK(row.note.empty());
  }
}

TEST_CASE("every deviation that is planted in a simulated chip is named", "[cuda][long]") {
  const SweepShare share;
  for (const Deviation& deviation : deviations()) {
    std::vector<OnChip> all = probes_of_all_chips();
    std::erase_if(all, [&](const OnChip& one) { return !deviation.applies(one.probe); });
    REQUIRE(!all.empty());
    for (const OnChip& one : drawn(share, deviation.what, std::move(all)))
      check_named(one, deviation);
  }
}

// FP8 mma.sync as chips without it compute it: by FP16 halves.

#include "device_on_host.hpp"

#include "cuda/device_load.cuh"
#include "cuda/prediction.hpp"

#include <algorithm>
#include <bit>
#include <vector>

#include "catch.hpp"
#include "cuda/emulated_model.hpp"
#include "cuda/probes/instructions.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/vectors/cases.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "golden/recordings.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

namespace {

std::vector<VectorCase> cases_of(FormatId a, FormatId b, int terms, CaseKind kind) {
  InstructionModel model = find_instruction_model("sm90.mma.e4m3");
  model.a_format = a;
  model.b_format = b;
  std::vector<VectorCase> cases;
  for (std::uint64_t i = 0; i < kTile; ++i) {
    // Half of them around the cuts of FP8 on tensor cores, half around those of FP16.
    if (i == kTile / 2) model.accumulator = find_instruction_model("sm90.mma.f16").accumulator;
    cases.push_back(generate_case(model, terms, kind, 11, i));
  }
  return cases;
}

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

}  // namespace

TEST_CASE("tiles, single cases and the device's judge agree on FP8 by halves", "[cuda]") {
  struct Setup {
    FormatId a, b;
    bool half_output;
    Halves halves = Halves::chained;
  };
  constexpr int kSteps = 3;
  for (const Setup& s :
       {Setup{FormatId::e4m3fn, FormatId::e4m3fn, false},
        Setup{FormatId::e4m3fn, FormatId::e5m2, false},
        Setup{FormatId::e4m3fn, FormatId::e4m3fn, false, Halves::separate},
        Setup{FormatId::e5m2, FormatId::e4m3fn, true, Halves::separate},
        Setup{FormatId::e5m2, FormatId::e5m2, true}, Setup{FormatId::e4m3fn, FormatId::e5m2, true},
        Setup{FormatId::e5m2, FormatId::e4m3fn, true}})
    for (const CaseKind kind : {CaseKind::random, CaseKind::adversarial, CaseKind::special}) {
      const Prediction prediction = prediction_by_halves(s.halves, s.a, s.b, s.half_output);
      const auto cases = cases_of(s.a, s.b, 32 * kSteps, kind);
      const TileBatch batch = executed_batch(prediction, pack_tiles(cases, s.a, s.b, kSteps));
      REQUIRE(batch.steps == 2 * kSteps);
      const std::vector<float> tile = library_results(batch, prediction, 0, 1);
      const EmulatedModel model = emulated_model(prediction.accumulator);
      const EmulatedFormat f16 = emulated_format(FormatId::f16);
      const auto row_bytes = static_cast<std::size_t>(batch.steps * kStepBytes);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < tile.size(); ++i) {
        const VectorCase one = case_of_output(cases, i);
        const float judged =
            output_by_integers(model, f16, f16, batch.a.data() + i / kTile * row_bytes,
                               batch.b.data() + i % kTile * row_bytes, 32 * kSteps, s.halves,
                               std::bit_cast<float>(one.c));
        if (bits(tile[i]) != bits(judged)) ++wrong;
        if (i % 7 == 0 && bits(tile[i]) != predicted(prediction, one)) ++wrong;
      }
      INFO(format(s.a).name << " " << format(s.b).name << (s.half_output ? " FP16 " : " binary32 ")
                            << to_string(kind));
      CHECK(wrong == 0);
    }
}

// Two implementations: this one takes the tensor core's own steps apart.
TEST_CASE("halves are the library's models", "[cuda]") {
  for (const char* name : {"sm90.mma.e4m3", "sm90.mma.e4m3.f16", "sm90.mma.e4m3.separate",
                           "sm90.mma.e4m3.f16.separate"}) {
    const AccumulatorModel& model = find_instruction_model(name).accumulator;
    const bool half = model.output_format == FormatId::f16;
    const Halves halves =
        model.halves_order == HalvesOrder::chained ? Halves::chained : Halves::separate;
    for (const FormatId a : {FormatId::e4m3fn, FormatId::e5m2})
      for (const FormatId b : {FormatId::e4m3fn, FormatId::e5m2})
        for (const CaseKind kind : {CaseKind::random, CaseKind::adversarial, CaseKind::special}) {
          const Prediction prediction = prediction_by_halves(halves, a, b, half);
          std::size_t wrong = 0;
          for (const VectorCase& one : cases_of(a, b, 96, kind))
            if (predicted(prediction, one) !=
                bits(dot_product(model, a, one.a, b, one.b, std::bit_cast<float>(one.c))))
              ++wrong;
          INFO(name << " " << format(a).name << " " << format(b).name << " " << to_string(kind));
          CHECK(wrong == 0);
        }
  }
}

TEST_CASE("the order of the halves and the place of c decide bits", "[cuda]") {
  const Prediction prediction =
      prediction_by_halves(Halves::chained, FormatId::e4m3fn, FormatId::e4m3fn, false);
  std::size_t separate = 0;
  std::size_t other_order = 0;
  std::size_t c_within = 0;
  std::size_t native = 0;
  for (const VectorCase& one :
       cases_of(FormatId::e4m3fn, FormatId::e4m3fn, 32, CaseKind::adversarial)) {
    const std::uint32_t expected = predicted(prediction, one);
    Prediction apart = prediction;
    apart.halves = Halves::separate;
    if (predicted(apart, one) != expected) ++separate;
    VectorCase swapped = one;
    for (std::size_t k = 0; k < 32; k += 4)
      for (std::vector<std::uint32_t>* codes : {&swapped.a, &swapped.b}) {
        const auto at = codes->begin() + static_cast<std::ptrdiff_t>(k);
        std::swap_ranges(at, at + 2, at + 2);
      }
    if (predicted(prediction, swapped) != expected) ++other_order;
    const auto c = std::bit_cast<float>(one.c);
    const AccumulatorModel& wide = prediction.accumulator;
    if (bits(dot_product(wide, FormatId::e4m3fn, one.a, FormatId::e4m3fn, one.b, c)) != expected)
      ++c_within;
    const AccumulatorModel& narrow = find_instruction_model("sm90.wgmma.e4m3").accumulator;
    if (bits(dot_product(narrow, FormatId::e4m3fn, one.a, FormatId::e4m3fn, one.b, c)) != expected)
      ++native;
  }
  CHECK(separate > 0);
  CHECK(other_order > 0);
  CHECK(c_within > 0);
  CHECK(native > 0);
}

TEST_CASE("a probe's prediction is assumed where the model is another instruction's", "[cuda]") {
  constexpr FormatId kE4 = FormatId::e4m3fn;
  constexpr FormatId kE5 = FormatId::e5m2;
  const AccumulatorModel& half = find_instruction_model("sm90.wgmma.e5m2.f16").accumulator;
  const auto standing = [](std::string_view model) {
    return find_instruction_model(model).standing;
  };

  const ProbedInstruction own{"wgmma.m64n64k32.f32.e4m3.e4m3.shared", "sm90.wgmma.e4m3", kE4, kE4};
  CHECK(standing(own.model) != Standing::assumed);
  CHECK(own.standing() == standing(own.model));
  const ProbedInstruction unmixed{"wgmma.m64n64k32.f16.e5m2.e5m2.shared", "sm90.wgmma.e5m2.f16",
                                  kE5, kE5};
  CHECK(standing(unmixed.model) != Standing::assumed);
  CHECK(unmixed.standing() == standing(unmixed.model));

  ProbedInstruction mixed{"wgmma.m64n64k32.f16.e5m2.e4m3.shared", "sm90.wgmma.e5m2.f16", kE5, kE4};
  CHECK(mixed.standing() == Standing::assumed);
  CHECK(mixed.instruction().b_format == kE4);
  CHECK(mixed.prediction().accumulator == half);
  CHECK(mixed.prediction().a_format == kE5);
  CHECK(mixed.prediction().b_format == kE4);
  mixed.name = "mma.m16n8k32.f16.e5m2.e4m3";
  CHECK(mixed.standing() == Standing::assumed);
  ProbedInstruction mma = unmixed;
  mma.name = "mma.m16n8k32.f16.e5m2.e5m2";
  CHECK(mma.standing() == Standing::assumed);

  mixed.model = "sm90.mma.e5m2.f16";
  mixed.halves = Halves::chained;
  const AccumulatorModel by_halves = mixed.prediction().accumulator;
  CHECK(by_halves.output_format == FormatId::f16);
  CHECK(by_halves.alignment_fraction_bits ==
        find_instruction_model("sm90.mma.f16").accumulator.alignment_fraction_bits);
  CHECK(ProbedInstruction{own.name, own.model, kE4, kE4, Halves::chained}.standing() ==
        Standing::assumed);
}

// Neither Hopper nor sm_100 has FP8 mma.sync: their recordings are those of the halves.
TEST_CASE("FP8 mma.sync beside the project replays by chained halves", "[cuda][silicon]") {
  int files = 0;
  const auto recordings = recordings_beside();
  for (const auto& [name, file] : recordings) {
    const bool by_halves =
        file.model.starts_with("sm90.mma.") || file.model.starts_with("sm100.mma.");
    if (!by_halves || format(file.a_format).storage_bits != 8) continue;
    INFO(name);
    ++files;
    const Prediction right = prediction_by_halves(Halves::chained, file.a_format, file.b_format,
                                                  file.model.ends_with(".f16"));
    Prediction mutant = right;
    mutant.accumulator.alignment_fraction_bits = 13;
    std::size_t mismatches = 0;
    std::size_t of_mutant = 0;
    for (const VectorCase& one : file.cases) {
      if (predicted(right, one) != one.d) ++mismatches;
      if (predicted(mutant, one) != one.d) ++of_mutant;
    }
    CHECK(mismatches == 0);
    CHECK(of_mutant > 0);
  }
  if (!recordings.empty()) CHECK(files > 0);
}

#include "fp8lab/vectors/cases.hpp"

#include <fmt/format.h>

#include <bit>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/vectors/replay.hpp"

using namespace fp8lab;

namespace {

struct Mutant {
  std::string name;
  AccumulatorModel model;
};

/// Whether the inputs have products so small that the limit of the alignment cuts them.
bool reaches_limit(const InstructionModel& model) {
  const auto lowest = [](FormatId id) {
    const Format& f = format(id);
    return f.min_exponent() - f.mantissa_bits;
  };
  const AccumulatorModel& m = model.accumulator;
  return m.min_alignment_exponent - m.alignment_fraction_bits >
         lowest(model.a_format) + lowest(model.b_format);
}

/// The wrong models that generated cases must tell from the right one. Left out are
/// those that are no different: an alignment that never loses a bit cannot lose
/// one fewer, and an FP16 output has its own width.
std::vector<Mutant> mutants_of(const InstructionModel& instruction) {
  constexpr int kLosesNothing = 40;
  const AccumulatorModel& right = instruction.accumulator;
  std::vector<Mutant> mutants;
  const auto add = [&](std::string name, auto change) {
    mutants.push_back({std::move(name), right});
    change(mutants.back().model);
  };
  if (right.alignment_fraction_bits < kLosesNothing) {
    add("one alignment bit fewer", [](AccumulatorModel& m) { --m.alignment_fraction_bits; });
    add("product normalisation",
        [](AccumulatorModel& m) { m.product_exponent = ProductExponent::normalized; });
  }
  if (right.output_format == FormatId::f32)
    add("one output bit fewer", [](AccumulatorModel& m) { --m.output_fraction_bits; });
  add("the other rounding", [](AccumulatorModel& m) {
    m.rounding = m.rounding == RoundingMode::toward_zero ? RoundingMode::nearest_even
                                                         : RoundingMode::toward_zero;
  });
  add("half the terms", [](AccumulatorModel& m) { m.terms /= 2; });
  if (right.kind == AccumulationKind::fp16_halves)
    add("the other order of halves", [](AccumulatorModel& m) {
      m.halves_order =
          m.halves_order == HalvesOrder::chained ? HalvesOrder::separate : HalvesOrder::chained;
    });
  if (reaches_limit(instruction)) {
    add("a limit one higher", [](AccumulatorModel& m) { ++m.min_alignment_exponent; });
    add("a limit one lower", [](AccumulatorModel& m) { --m.min_alignment_exponent; });
  }
  return mutants;
}

bool is_hardware(const InstructionModel& model) {
  return model.accumulator.kind == AccumulationKind::fused_dot_product ||
         model.accumulator.kind == AccumulationKind::fp16_halves;
}

}  // namespace

TEST_CASE("adversarial cases tell every hardware model from its mutants", "[verify]") {
  for (const InstructionModel& model : instruction_models()) {
    // Products of FP6 and FP4 have so few bits that hardly one is cut.
    const bool narrow =
        format(model.a_format).code_bits() < 8 || format(model.b_format).code_bits() < 8;
    if (!is_hardware(model) || narrow) continue;
    const VectorFile file = generate_cases(model, CaseKind::adversarial, 2600, 7);
    CHECK(replay(file, model.accumulator).mismatches == 0);
    for (const Mutant& mutant : mutants_of(model)) {
      const ReplayReport report = replay(file, mutant.model);
      INFO(model.name << ", mutant: " << mutant.name << ": " << report.mismatches << " of "
                      << report.cases << " cases differ, expected at least 5");
      CHECK(report.mismatches >= 5);
    }
  }
}

TEST_CASE("cases are the same with every compiler", "[verify]") {
  std::uint64_t sum = 0xcbf29ce484222325u;  // FNV-1a
  const auto add = [&](std::uint64_t value) { sum = (sum ^ value) * 0x100000001b3u; };
  for (const char* name : {"sm70.mma.f16", "sm90.wgmma.e4m3", "sm100.mma.e5m2.f16",
                           "sm100.tcgen05.mxf4nvf4", "gfx942.mfma.bf8.fp8"})
    for (const CaseKind kind : {CaseKind::random, CaseKind::adversarial, CaseKind::special})
      for (const VectorCase& one :
           generate_cases(find_instruction_model(name), kind, 400, 11).cases) {
        for (const std::uint32_t code : one.a) add(code);
        for (const std::uint32_t code : one.b) add(code);
        for (const std::uint8_t code : one.scales_a) add(code);
        for (const std::uint8_t code : one.scales_b) add(code);
        add(one.c);
      }
  CHECK(sum == 0xc09a0fd1b91db443u);
}

TEST_CASE("cases of units of every family are the same with every compiler", "[verify]") {
  std::string sums;
  for (const char* name :
       {"sm70.mma.f16.f16", "sm75.mma.f16", "sm80.mma.f16", "sm80.mma.bf16", "sm80.mma.tf32",
        "sm89.mma.e4m3.e5m2", "sm90.mma.e4m3.f16", "sm90.wgmma.tf32", "sm90.wgmma.f16.f16",
        "sm100.tcgen05.mxf8f6f4.e2m3", "sm120.mma.mxf8f6f4.e4m3.e2m1", "gfx908.mfma.bf16",
        "gfx90a.mfma.f16", "gfx942.mfma.fp8", "gfx942.mfma.xf32", "exact", "sequential14.rz"}) {
    std::uint64_t sum = 0xcbf29ce484222325u;  // FNV-1a
    const auto add = [&](std::uint64_t value) { sum = (sum ^ value) * 0x100000001b3u; };
    for (const CaseKind kind : {CaseKind::random, CaseKind::adversarial, CaseKind::special})
      for (const VectorCase& one :
           generate_cases(find_instruction_model(name), kind, 130, 23).cases) {
        for (const std::uint32_t code : one.a) add(code);
        for (const std::uint32_t code : one.b) add(code);
        for (const std::uint8_t code : one.scales_a) add(code);
        for (const std::uint8_t code : one.scales_b) add(code);
        add(one.c);
        add(one.d);
      }
    sums += fmt::format("{}: {:016x}\n", name, sum);
  }
  CHECK(sums ==
        "sm70.mma.f16.f16: f1ff95ca541f8898\n"
        "sm75.mma.f16: bb4ea8e54d4bbe7b\n"
        "sm80.mma.f16: e4cc7647b73e97e5\n"
        "sm80.mma.bf16: 76153460858e9027\n"
        "sm80.mma.tf32: 6a73a8b92a67c7be\n"
        "sm89.mma.e4m3.e5m2: e3c81a9941c5728d\n"
        "sm90.mma.e4m3.f16: f0eac8647d89ebc1\n"
        "sm90.wgmma.tf32: 6d33a7fd0de902df\n"
        "sm90.wgmma.f16.f16: a28eb6b40c056083\n"
        "sm100.tcgen05.mxf8f6f4.e2m3: 6c9b7f17409a72b4\n"
        "sm120.mma.mxf8f6f4.e4m3.e2m1: c0d659c450acaeff\n"
        "gfx908.mfma.bf16: 84d69da2a3fd3233\n"
        "gfx90a.mfma.f16: 28debcd6cb65f99e\n"
        "gfx942.mfma.fp8: 3ddf41b5f65aa267\n"
        "gfx942.mfma.xf32: a52bdf73c4ee87d0\n"
        "exact: 459e2e3b300ec2dc\n"
        "sequential14.rz: 199d7b67302b6ee9\n");
}

TEST_CASE("a case depends on its seed and index alone", "[verify]") {
  const InstructionModel& model = find_instruction_model("sm90.wgmma.e4m3");
  for (const CaseKind kind : {CaseKind::random, CaseKind::adversarial, CaseKind::special}) {
    const VectorFile file = generate_cases(model, kind, 40, 3);
    const VectorCase again = generate_case(model, 32, kind, 3, 39);
    CHECK(again.a == file.cases[39].a);
    CHECK(again.b == file.cases[39].b);
    CHECK(again.c == file.cases[39].c);
    CHECK(generate_case(model, 32, kind, 4, 39).a != again.a);
  }
}

TEST_CASE("random and adversarial operands are finite codes, special ones also not", "[verify]") {
  for (const InstructionModel& model : instruction_models()) {
    const auto count_specials = [&](CaseKind kind) {
      std::size_t count = 0;
      for (const VectorCase& one : generate_cases(model, kind, 130, 5).cases) {
        for (const std::uint32_t code : one.a)
          if (!unpack(format(model.a_format), code).is_finite()) ++count;
        for (const std::uint32_t code : one.b)
          if (!unpack(format(model.b_format), code).is_finite()) ++count;
        if ((one.c & 0x7f800000u) == 0x7f800000u) ++count;
      }
      return count;
    };
    INFO(model.name);
    CHECK(count_specials(CaseKind::random) == 0);
    CHECK(count_specials(CaseKind::adversarial) == 0);
    // Of formats without special values c alone has them.
    const bool in_operands = format(model.a_format).has_nan() || format(model.b_format).has_nan();
    CHECK(count_specials(CaseKind::special) > (in_operands ? 20U : 12U));
  }
}

TEST_CASE("generated files replay with 0 mismatches after a trip through text", "[verify]") {
  for (const InstructionModel& model : instruction_models()) {
    for (const CaseKind kind : {CaseKind::random, CaseKind::adversarial, CaseKind::special}) {
      std::stringstream text;
      write_vectors(text, generate_cases(model, kind, 39, 11, 2 * model.accumulator.terms));
      const ReplayReport report = replay(read_vectors(text, "generated"));
      const std::string first = report.shown.empty() ? "" : describe(report.shown[0]);
      INFO(model.name << " " << to_string(kind) << " " << first);
      CHECK(report.cases == 39);
      CHECK(report.mismatches == 0);
    }
  }
}

TEST_CASE("all ones stick at 2^14 under 13 alignment bits", "[verify]") {
  InstructionModel model = find_instruction_model("sm90.wgmma.e4m3");
  VectorFile file{std::string(model.name), model.a_format, model.b_format, 32768, {}, {{}}};
  file.cases[0].a.assign(32768, 0x38);
  file.cases[0].b.assign(32768, 0x38);
  fill_results(file, model.accumulator);
  CHECK(std::bit_cast<float>(file.cases[0].d) == 16384.0F);
}

TEST_CASE("a generated file says the model, the kind and the seed of its cases", "[verify]") {
  for (const char* name : {"sm90.wgmma.e4m3.e5m2", "sm70.mma.f16", "sm100.tcgen05.mxf4nvf4"})
    for (const CaseKind kind : {CaseKind::random, CaseKind::adversarial, CaseKind::special})
      for (const int terms : {0, 1, 3, 96}) {
        const InstructionModel& model = find_instruction_model(name);
        if (scales_of_cases(model) && terms % 32 != 0) continue;  // whole blocks
        const VectorFile file = generate_cases(model, kind, 2, 12, terms);
        INFO(name << " " << to_string(kind) << " " << terms);
        CHECK(file.model == name);
        CHECK(file.a_format == model.a_format);
        CHECK(file.b_format == model.b_format);
        CHECK(file.output_format == model.accumulator.output_format);
        CHECK(file.terms == (terms == 0 ? model.accumulator.terms : terms));
        CHECK(file.header.at("kind") == to_string(kind));
        CHECK(file.header.at("seed") == "12");
        REQUIRE(file.cases.size() == 2);
        CHECK(file.cases[1].a.size() == static_cast<std::size_t>(file.terms));
        CHECK(file.cases[1].b.size() == static_cast<std::size_t>(file.terms));
        if (file.terms > 3) CHECK(file.cases[0].a != file.cases[1].a);
      }
  for (const char* kind : {"random", "adversarial", "special"})
    CHECK(to_string(find_case_kind(kind)) == kind);
  CHECK(generate_cases(find_instruction_model("exact"), CaseKind::random, 0, 1).cases.empty());
}

TEST_CASE("bad arguments of the generator are named", "[verify]") {
  const InstructionModel& model = find_instruction_model("exact");
  CHECK_THROWS_WITH(find_case_kind("nasty"), contains("kind: expected random, adversarial"));
  CHECK_THROWS_WITH(generate_cases(model, CaseKind::random, 1, 1, 40000),
                    contains("terms: expected 0 .. 32768, got 40000"));
  CHECK_THROWS_AS(generate_case(model, 0, CaseKind::random, 1, 0), Error);
}

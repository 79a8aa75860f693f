// Accumulators that users define: what they mean, what is refused, and which parameters matter.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

const InstructionModel& find(std::string_view text) { return find_instruction_model(text); }

/// Bits of d for many chains of two steps of `step` terms, with exponents close and far, signs and
/// zeros.
std::vector<std::uint32_t> results(const InstructionModel& m, int step, int chains) {
  const RandomStream random{7, "definitions"};
  const Format& a = format(m.a_format);
  const Format& b = format(m.b_format);
  const auto terms = static_cast<std::size_t>(2 * step + 3);
  std::vector<std::uint32_t> all;
  std::uint64_t at = 0;
  const auto code = [&](const Format& f) {
    const std::uint32_t word = random.bits32(at++);
    const std::uint32_t sign = (word >> 31) != 0 ? f.sign_mask() : 0;
    const std::uint32_t magnitude = (word & 0xffffu) % (f.max_finite_code() + 1);
    // Every other chain has few binades, so that sums are long and round often.
    const std::uint32_t narrow = f.max_finite_code() / 2 + (word & 0xffffu) % 64;
    return sign | ((at / (2 * terms + 1)) % 2 == 0 ? magnitude : narrow % f.max_finite_code());
  };
  for (int chain = 0; chain < chains; ++chain) {
    std::vector<std::uint32_t> x(terms);
    std::vector<std::uint32_t> y(terms);
    for (std::size_t i = 0; i < terms; ++i) {
      x[i] = code(a);
      y[i] = code(b);
    }
    const std::uint32_t word = random.bits32(at++);
    // Among them subnormal FP16 numbers, and sums that cancel most of c.
    const float c = std::ldexp(static_cast<float>(static_cast<std::int32_t>(word)),
                               static_cast<int>(word % 61) - 71);
    const float d = dot_product(m.accumulator, m.a_format, x, m.b_format, y, c);
    all.push_back(std::bit_cast<std::uint32_t>(d));
  }
  return all;
}

}  // namespace

TEST_CASE("A definition is its base with other parameters", "[accumulate][definition]") {
  const InstructionModel& hopper = find("sm90.wgmma.e4m3");
  const InstructionModel& mine =
      find("mine=fused:terms=16,F=12,M=11,rounding=nearest_even,e_min=-6");
  AccumulatorModel expected = hopper.accumulator;
  expected.terms = 16;
  expected.alignment_fraction_bits = 12;
  expected.output_fraction_bits = 11;
  expected.rounding = RoundingMode::nearest_even;
  expected.min_alignment_exponent = -6;
  CHECK(mine.accumulator == expected);
  CHECK(mine.name == "mine=fused:terms=16,F=12,M=11,rounding=nearest_even,e_min=-6");
  CHECK(mine.standing == Standing::definition);
  CHECK(mine.source == "defined by the user from fused");
  // What the base replays, another accumulator does not.
  CHECK(!hopper.evidence.empty());
  CHECK(mine.evidence.empty());
  CHECK(find("sm90.wgmma.e4m3:F=14").evidence.empty());
  CHECK(find("sm90.wgmma.e4m3:F=14").vendor == hopper.vendor);
  CHECK(find("x=gfx942.mfma.f16:S=32").vendor == Vendor::amd);
  CHECK(mine.a_format == FormatId::e4m3fn);

  CHECK(find("sm90.wgmma.e4m3:F=14").accumulator.alignment_fraction_bits == 14);
  CHECK(find("x=sm100.mma.bf16").accumulator == find("sm100.mma.bf16").accumulator);
  CHECK(find("sm90.mma.f16:e_min=none").accumulator.min_alignment_exponent ==
        kNoMinAlignmentExponent);
  CHECK(find("fused:a=e5m2,b_format=e4m3").b_format == FormatId::e4m3fn);
  CHECK(find("sequential").accumulator == find("sequential14.rne").accumulator);
  // FP16 outputs have FP16's fraction bits; who leaves them says how many follow.
  CHECK(find("fused:output=f16").accumulator.output_fraction_bits == 10);
  CHECK(find("sm90.wgmma.e4m3.f16:output=f32,M=23").accumulator.output_fraction_bits == 23);
}

TEST_CASE("One text is one model, from any thread", "[accumulate][definition]") {
  const std::string text = "threads=fused:terms=8";
  std::vector<const InstructionModel*> found(8);
  std::vector<std::thread> threads;
  threads.reserve(found.size());
  for (const InstructionModel*& one : found)
    threads.emplace_back([&one, text] { one = &defined_model(text); });
  for (std::thread& thread : threads) thread.join();
  for (const InstructionModel* one : found) CHECK(one == found.front());
  CHECK(&find(text) == found.front());
  CHECK(&defined_model("other=fused:terms=8") != found.front());
}

TEST_CASE("What cannot be is refused, with the parameter and what it may be",
          "[accumulate][definition]") {
  const std::vector<std::pair<std::string, std::string>> refused{
      {"fused:terms=300", "terms: expected 1 .. 256, got 300"},
      {"fused:terms=0", "terms: expected 1 .. 256, got 0"},
      {"fused:F=65", "alignment_fraction_bits: expected 1 .. 64, got 65"},
      {"fused:F=1e1", "alignment_fraction_bits: expected an integer, got '1e1'"},
      {"fused:F=99999999999", "alignment_fraction_bits: expected an integer, got '99999999999'"},
      {"fused:M=24", "output_fraction_bits: expected 1 .. 23, got 24"},
      {"fused:e_min=-301", "min_alignment_exponent: expected -300 .. 100, got -301"},
      {"fused:e_min=-1024", "min_alignment_exponent: expected -300 .. 100, or none, got -1024"},
      {"fused:rounding=up", "got 'up'"},
      {"fused:rounding=stochastic", "rounding: expected a deterministic mode, got stochastic"},
      {"fused:output=bf16", "output_format: expected f32 or f16, got bf16"},
      {"fused:output=f17", "output_format: expected a format (`fp8lab list formats`), got 'f17'"},
      {"fused:bits=3", "parameter: expected one of terms, alignment_fraction_bits (F), "},
      {"fused:F=13,alignment_fraction_bits=12",
       "alignment_fraction_bits: expected to be given once, got twice, as F too"},
      {"fused:P=3", "product_fraction_bits: expected one of terms, "},
      {"fused:output=f16,M=11",
       "output_fraction_bits: expected nothing: an f16 output has 10 fraction bits"},
      {"sm90.wgmma.e4m3.f16:output=f32",
       "output_fraction_bits: expected a value, since sm90.wgmma.e4m3.f16 has f16 output"},
      {"fma_pairs:terms=4", "terms: expected 2 (multiply_add_pairs), got 4"},
      {"rounded_pairs:terms=1", "terms: expected 2 (rounded_pairs), got 1"},
      {"fma_chains:chains=9", "chains: expected 1 to 8 (multiply_add_chains), got 9"},
      {"fma_chains:subnormals=none", "subnormals: expected "},
      {"arm.bfdot:pair_rounding=odd", "pair_rounding: expected "},
      {"scaled_rounded_sum:terms=5", "terms: expected 1, 2, 4, 8, 16 or 32: parts of the block"},
      {"scaled_rounded_sum:a=e2m1", "a: expected e4m3fn or e5m2 (scaled_rounded_sum), got e2m1"},
      {"exact:F=3", "expected one of a_format, b_format, the parameters of exact"},
      {"halves:terms=6", "terms: expected a multiple of 4 (fp16_halves), got 6"},
      {"flushed_pairwise_sum:terms=3", "terms: expected 2 or 4 (flushed_pairwise_sum), got 3"},
      {"two_stage:S=41", "second_stage_fraction_bits: expected 1 .. 40, got 41"},
      {"scaled:terms=16", "terms: expected 32, as one scale covers (scaled_dot_product), got 16"},
      {"scaled_group:takes_ue4m3_per_32=1", "takes_ue4m3_per_32: expected true or false, got '1'"},
      {"halves:a=f16", "a: expected an 8-bit format whose values FP16 has (fp16_halves), got f16"},
      {"fused:b=f32", "b: expected a tensor-core input format, got f32"},
      {"fsed:F=13", "base: expected an instruction (`fp8lab list models`), or one of fused_dot_"},
      {"exact=fused:F=13", "name: expected a name that no instruction or kind has, got 'exact'"},
      {"halves=fused:F=13", "name: expected a name that no instruction or kind has"},
      {"mine=other=fused", "expected [NAME=]BASE[:PARAMETER=VALUE,...]"}};
  for (const auto& [text, reason] : refused) {
    INFO(text);
    CHECK_THROWS_WITH(find(text), contains(reason) && contains("model"));
    if (text.find("=other") == std::string::npos)
      CHECK_THROWS_WITH(find(text), contains("model " + text + ": "));
  }
  CHECK_THROWS_WITH(find("sm91.wgmma.e4m3"), contains("or a definition such as"));
}

TEST_CASE("The serial form gives every registered model again", "[accumulate][definition]") {
  std::set<std::string> texts;
  for (const InstructionModel& model : instruction_models()) {
    const std::string text = definition_of(model.accumulator, model.a_format, model.b_format);
    INFO(model.name << " as " << text);
    const InstructionModel& again = defined_model(text);
    CHECK(again.accumulator == model.accumulator);
    CHECK(again.a_format == model.a_format);
    CHECK(again.b_format == model.b_format);
    CHECK(definition_of(again.accumulator, again.a_format, again.b_format) == text);
    texts.insert(text);
  }
  CHECK(texts.size() > 30);
}

TEST_CASE("The parameters of a kind are those on which its results depend",
          "[accumulate][definition]") {
  // Changes that every kind would show if it had the parameter.
  const std::vector<std::pair<std::string_view, std::vector<std::string>>> changes{
      {"terms", {"2", "4", "8", "1"}},
      {"alignment_fraction_bits", {"5", "9"}},
      {"output_fraction_bits", {"7", "12"}},
      {"rounding", {"upward", "toward_zero", "nearest_even"}},
      {"min_alignment_exponent", {"40"}},
      {"output_format", {"f16", "f32"}},
      {"product_exponent", {"normalized"}},
      {"product_fraction_bits", {"2"}},
      {"half_c_exponent", {"widened"}},
      {"zero_sign", {"kept", "positive"}},
      {"halves_order", {"separate"}},
      {"second_stage_fraction_bits", {"6"}},
      {"chains", {"1", "4"}},
      {"pair_rounding", {"nearest_even", "to_odd"}}};
  constexpr int kChains = 400;
  std::vector<std::string> bases;
  for (const AccumulatorKind& one : accumulator_kinds()) bases.emplace_back(one.instruction);
  bases.insert(bases.end(), {"sm90.wgmma.e4m3.f16", "sm90.mma.e4m3.f16", "sm70.mma.f16.f16",
                             "arm.fdot.e4m3.f16", "x86.tmmultf32ps", "x86.top2bf16ps"});
  for (const std::string& base : bases) {
    const InstructionModel& model = find(base);
    const int terms = model.accumulator.terms;
    // Coarser too: some rules show where few bits are kept, and some where many are.
    InstructionModel coarse = model;
    coarse.accumulator.alignment_fraction_bits = 8;
    const std::vector<std::string_view> names = parameters_that_matter(model.accumulator);
    const std::vector<std::uint32_t> usual = results(model, terms, kChains);
    const std::vector<std::uint32_t> usual_coarse = results(coarse, terms, kChains);
    for (const auto& [name, values] : changes) {
      INFO(base << ", " << to_string(model.accumulator.kind) << ": " << name);
      const bool listed = std::find(names.begin(), names.end(), name) != names.end();
      bool differs = false;
      bool allowed = false;
      for (const std::string& text : values) {
        InstructionModel changed = model;
        find_accumulator_parameter(name).set(changed, name, text);
        if (changed.accumulator == model.accumulator) continue;
        try {
          validate(changed.accumulator);
        } catch (const Error&) {
          continue;  // this kind allows one value alone, perhaps
        }
        allowed = true;
        differs = differs || results(changed, terms, kChains) != usual;
        if (name == "alignment_fraction_bits") continue;
        changed.accumulator.alignment_fraction_bits = 8;
        differs = differs || results(changed, terms, kChains) != usual_coarse;
      }
      // A subnormal FP16 c that decides the alignment and loses bits is not among these cases, nor
      // a sum that rounds to zero.
      const bool rare = name == "half_c_exponent" || name == "zero_sign";
      if (!rare) CHECK(differs == (listed && allowed));
      if (rare) CHECK(!differs);
    }
  }
}

TEST_CASE("A file holds definitions by name", "[accumulate][definition]") {
  ModelBook book;
  book.add_toml("mine.toml", R"(
    [accumulator.narrow]
    base = "sm90.wgmma.e4m3"
    F = 10
    rounding = "nearest_even"
    [accumulator.narrower]
    base = "narrow"
    alignment_fraction_bits = 8
    [accumulator.plain]
    base = "fp32"
  )");
  CHECK(book.definitions() ==
        std::vector<std::string>{"narrow=sm90.wgmma.e4m3:F=10,rounding=nearest_even",
                                 "narrower=sm90.wgmma.e4m3:alignment_fraction_bits=8,"
                                 "rounding=nearest_even",
                                 "plain=fp32"});
  CHECK(book.resolve("narrow") == book.definitions()[0]);
  CHECK(book.resolve("exact") == "exact");
  CHECK(book.resolve("sm89.mma.e4m3:F=3") == "sm89.mma.e4m3:F=3");
  CHECK(book.resolve("x=narrow:F=7") == "x=sm90.wgmma.e4m3:F=7,rounding=nearest_even");
  CHECK(book.resolve("narrow:alignment_fraction_bits=7") ==
        "narrow=sm90.wgmma.e4m3:alignment_fraction_bits=7,rounding=nearest_even");
  CHECK(find(book.resolve("narrower")).accumulator.alignment_fraction_bits == 8);

  book.add_json("more.json",
                R"({"accumulator": {"fp16ish": {"base": "narrow", "output": "f16", "terms": 8}}})");
  const AccumulatorModel& last = find(book.resolve("fp16ish")).accumulator;
  CHECK(last.terms == 8);
  CHECK(last.output_format == FormatId::f16);
  CHECK(last.alignment_fraction_bits == 10);
}

TEST_CASE("A file that is none of definitions is refused", "[accumulate][definition]") {
  const std::vector<std::pair<std::string, std::string>> refused{
      {"", "f.toml: expected [accumulator.NAME]"},
      {"x = 1",
       "f.toml: expected [accumulator.NAME] with base = \"BASE\" and PARAMETER = VALUE "
       "lines, got 'x'"},
      {"[accumulator]", "got no definition"},
      {"[accumulator]\nmine = 3", "got accumulator.mine"},
      {"[accumulator.mine]\nF = 3", "mine.base: expected an instruction or a kind, got none"},
      {"[accumulator.mine]\nbase = \"fused\"\nF = 99",
       "f.toml: [accumulator.mine]: model mine=fused:F=99: alignment_fraction_bits: expected 1 .. "
       "64, got 99"},
      {"[accumulator.mine]\nbase = \"fused\"\nF = [1, 2]", "f.toml: [accumulator.mine]"},
      {"[accumulator.exact]\nbase = \"fused\"", "name: expected a name that no instruction"},
      {"[accumulator.a]\nbase = \"b\"\n[accumulator.b]\nbase = \"fused\"", "got 'b'"},
      {"[accumulator.\"a b\"]\nbase = \"fused\"", "f.toml: [accumulator.a b]"},
      {"[accumulator.mine\n", "f.toml:1:"}};
  for (const auto& [text, reason] : refused) {
    INFO(text);
    ModelBook book;
    CHECK_THROWS_WITH(book.add_toml("f.toml", text), contains(reason));
  }
  for (const std::string text :
       {"", "[]", "{}", R"({"accumulator": 1})", R"({"accumulator": {}})",
        R"({"accumulator": {"a": 1}})", R"({"accumulator": [{"base": "fused"}]})",
        R"({"accumulator": {"a": {"base": "fused"}}, "b": 1})"}) {
    INFO(text);
    ModelBook book;
    CHECK_THROWS_WITH(book.add_json("f.json", text), contains("f.json: expected {\"accumulator\""));
  }
  ModelBook book;
  book.add_toml("f.toml", "[accumulator.mine]\nbase = \"fused\"");
  CHECK_THROWS_WITH(book.add_toml("g.toml", "[accumulator.mine]\nbase = \"fused\""),
                    contains("g.toml: [accumulator.mine]: name: expected each name once"));
}

TEST_CASE("Each number of a definition has a least and a largest value",
          "[accumulate][definition]") {
  struct Limits {
    std::string base;  ///< up to the parameter
    std::string name;
    int low, high;
    bool has_none = false;
  };
  for (const Limits& one :
       {Limits{"fused:terms=", "terms", 1, 256}, Limits{"two_stage:terms=", "terms", 1, 256},
        Limits{"fused:F=", "alignment_fraction_bits", 1, 64},
        Limits{"two_stage:F=", "alignment_fraction_bits", 1, 40},
        Limits{"even_odd:F=", "alignment_fraction_bits", 1, 40},
        Limits{"scaled:F=", "alignment_fraction_bits", 1, 64},
        Limits{"fused:M=", "output_fraction_bits", 1, 23},
        Limits{"sequential:M=", "output_fraction_bits", 1, 23},
        Limits{"sequential:P=", "product_fraction_bits", -1, 23},
        Limits{"fused:e_min=", "min_alignment_exponent", -300, 100, true},
        Limits{"scaled_group:e_min=", "min_alignment_exponent", -300, 100, true},
        Limits{"two_stage:S=", "second_stage_fraction_bits", 1, 40},
        Limits{"even_odd:S=", "second_stage_fraction_bits", 1, 40}}) {
    for (const int value : {one.low, one.high}) {
      INFO(one.base << value);
      CHECK_NOTHROW(find(one.base + std::to_string(value)));
    }
    for (const int value : {one.low - 1, one.high + 1}) {
      const std::string text = one.base + std::to_string(value);
      INFO(text);
      CHECK_THROWS_WITH(
          find(text),
          contains("model " + text + ": " + one.name + ": expected " + std::to_string(one.low) +
                   " .. " + std::to_string(one.high) + ", got " + std::to_string(value)));
    }
    if (one.has_none)
      CHECK(find(one.base + "none").accumulator.min_alignment_exponent == kNoMinAlignmentExponent);
  }
}

TEST_CASE("What is refused is said word for word", "[accumulate][definition]") {
  const auto reason = [](const std::string& text) -> std::string {
    return test::message_of([&] { (void)find(text); }, "nothing");
  };
  CHECK(reason("exact:F=3") ==
        "model exact:F=3: alignment_fraction_bits: expected one of a_format, b_format, the "
        "parameters of exact, got a value");
  CHECK(reason("sm90.wgmma.e4m3.f16:P=3") ==
        "model sm90.wgmma.e4m3.f16:P=3: product_fraction_bits: expected one of terms, "
        "alignment_fraction_bits, rounding, min_alignment_exponent, output_format, "
        "product_exponent, half_c_exponent, zero_sign, a_format, b_format, the parameters of "
        "fused_dot_product with f16 output, got a value");
  CHECK(reason("sm90.wgmma.e4m3:half_c_exponent=widened") ==
        "model sm90.wgmma.e4m3:half_c_exponent=widened: half_c_exponent: expected one of terms, "
        "alignment_fraction_bits, rounding, min_alignment_exponent, output_format, "
        "product_exponent, output_fraction_bits, zero_sign, a_format, b_format, the parameters of "
        "fused_dot_product, got a value");
  CHECK(reason("sm90.wgmma.e4m3.f16:M=9") ==
        "model sm90.wgmma.e4m3.f16:M=9: output_fraction_bits: expected nothing: an f16 output has "
        "10 fraction bits, got a value");
  CHECK(reason("fused:bits=3") ==
        "model fused:bits=3: parameter: expected one of terms, alignment_fraction_bits (F), "
        "output_fraction_bits (M), rounding (round), min_alignment_exponent (e_min), output_format "
        "(output), product_exponent, product_fraction_bits (P), half_c_exponent, zero_sign, "
        "halves_order, second_stage_fraction_bits (S), takes_ue4m3_per_32, chains, "
        "subnormals, pair_rounding, a_format (a), b_format (b), got 'bits'");
  CHECK(reason("fsed:F=13") ==
        "model fsed:F=13: base: expected an instruction (`fp8lab list models`), or one of "
        "fused_dot_product, sequential, float32, exact, fp16_halves, exact_dot_product, "
        "flushed_pairwise_sum, two_stage_dot_product, even_odd_dot_product, fused_multiply_add, "
        "scaled_dot_product, scaled_group_dot_product, multiply_add_pairs, multiply_add_chains, "
        "rounded_sum, scaled_rounded_sum, rounded_pairs, got 'fsed'");
  CHECK(reason("halves=fused:F=13") ==
        "model halves=fused:F=13: name: expected a name that no instruction or kind has, got "
        "'halves'");
  CHECK(
      reason("fused:alignment_fraction_bits=13,F=12") ==
      "model fused:alignment_fraction_bits=13,F=12: alignment_fraction_bits: expected to be given "
      "once, got twice, as F too");
  CHECK(reason("fused:e_min=1.5") ==
        "model fused:e_min=1.5: min_alignment_exponent: expected an integer, or none, got '1.5'");
  CHECK(
      reason("scaled:output=f16") ==
      "model scaled:output=f16: output_format: expected one of terms, alignment_fraction_bits, "
      "output_fraction_bits, rounding, min_alignment_exponent, zero_sign, a_format, b_format, the "
      "parameters of scaled_dot_product with f16 output, got a value");
  CHECK(reason("scaled_group:terms=32") ==
        "model scaled_group:terms=32: terms: expected 64 (scaled_group_dot_product), got 32");
  CHECK(reason("even_odd:a=f16") ==
        "model even_odd:a=f16: a: expected a format of at most 8 bits (even_odd_dot_product), got "
        "f16");
  CHECK(reason("scaled:b=bf16") ==
        "model scaled:b=bf16: b: expected a format of at most 8 bits (scaled_dot_product), got "
        "bf16");
  CHECK(reason("scaled_group:b=e4m3fn") ==
        "model scaled_group:b=e4m3fn: b: expected e2m1 (scaled_group_dot_product), got e4m3fn");
  CHECK(reason("fma:a=bf16") == "model fma:a=bf16: a: expected f32 (fused_multiply_add), got bf16");
  CHECK(reason("fused:a=e8m13") ==
        "model fused:a=e8m13: a: expected a tensor-core input format, got e8m13");
  CHECK(reason("fused:a=e9m9") ==
        "model fused:a=e9m9: a_format: expected a format (`fp8lab list formats`), got 'e9m9'");
}

TEST_CASE("A file of definitions is refused where it is wrong, and says why",
          "[accumulate][definition]") {
  const auto reason = [](auto add, const std::string& text) -> std::string {
    return test::message_of(
        [&] {
          ModelBook book;
          (book.*add)("f", text);
        },
        "nothing");
  };
  const auto toml = [&](const std::string& text) { return reason(&ModelBook::add_toml, text); };
  const auto json = [&](const std::string& text) { return reason(&ModelBook::add_json, text); };
  // The line, then the column.
  CHECK_THAT(toml("\n\n[accumulator.mine]\nbase = \"fused\"\n      F = = 3"), contains("f:5:11: "));
  CHECK(toml("[accumulator.mine]\nbase = \"fused\"\nF = 0") ==
        "f: [accumulator.mine]: model mine=fused:F=0: alignment_fraction_bits: expected 1 .. 64, "
        "got 0");
  CHECK(toml("[accumulator.mine]\nF = 3") ==
        "mine.base: expected an instruction or a kind, got none");
  const std::string form =
      R"(f: expected {"accumulator": {"NAME": {"base": "BASE", "PARAMETER": VALUE}}}, got )";
  CHECK(json("{") == form + "no JSON");
  CHECK(json("") == form + "no JSON");
  CHECK(json("[]") == form + "another form");
  CHECK(json(R"({"accumulator": {}})") == form + "another form");
  CHECK(json(R"({"accumulators": {"a": {"base": "fused"}}})") == form + "another form");
  CHECK(json(R"({"accumulator": {"a": {"base": "fused"}}, "b": 1})") == form + "another form");
  CHECK(json(R"({"accumulator": {"a": {"base": "fused"}, "b": 2}})") == form + "b: no object");
  CHECK(
      json(R"({"accumulator": {"a": {"base": "fused", "F": 1.5}}})") ==
      "f: [accumulator.a]: model a=fused:F=1.5: alignment_fraction_bits: expected an integer, got "
      "'1.5'");
  CHECK(json(R"({"accumulator": {"a": {"base": "fused"}, "a": {"base": "fused"}}})") ==
        "f: the key 'a' appears twice");

  ModelBook book;
  book.add_json("f", R"({"accumulator": {"one": {"base": "scaled_group", "F": 30,
                        "takes_ue4m3_per_32": true}, "two": {"base": "one", "M": 9}}})");
  CHECK(book.definitions() ==
        std::vector<std::string>{"one=scaled_group:F=30,takes_ue4m3_per_32=true",
                                 "two=scaled_group:F=30,takes_ue4m3_per_32=true,M=9"});
  CHECK(book.resolve("two:M=7,F=31") == "two=scaled_group:F=31,takes_ue4m3_per_32=true,M=7");
}

TEST_CASE("A chain of definitions takes time in proportion to its length",
          "[accumulate][definition]") {
  // Each is based on the one before. 8000 took 20 seconds when each was searched for.
  std::string text = "[accumulator.m0]\nbase = \"fused\"\nF = 13\n";
  constexpr int kLength = 8000;
  for (int i = 1; i < kLength; ++i)
    text += fmt::format("[accumulator.m{}]\nbase = \"m{}\"\nF = {}\n", i, i - 1, 1 + i % 30);
  const auto begin = std::chrono::steady_clock::now();
  ModelBook book;
  book.add_toml("chain", text);
  CHECK(book.resolve("m7999") == "m7999=fused:F=20");
  CHECK(book.resolve("m0:M=9") == "m0=fused:F=13,M=9");
  CHECK(book.definitions().size() == kLength);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  CHECK(taken.count() < 5.0);
}

TEST_CASE("Each parameter of a definition is read and written in its own field",
          "[accumulate][definition]") {
  struct Change {
    std::string_view name, alias, text;
  };
  constexpr Change kChanges[] = {{"terms", "", "17"},
                                 {"alignment_fraction_bits", "F", "19"},
                                 {"output_fraction_bits", "M", "21"},
                                 {"rounding", "round", "upward"},
                                 {"min_alignment_exponent", "e_min", "-77"},
                                 {"output_format", "output", "f16"},
                                 {"product_exponent", "", "normalized"},
                                 {"product_fraction_bits", "P", "5"},
                                 {"half_c_exponent", "", "widened"},
                                 {"zero_sign", "", "positive"},
                                 {"halves_order", "", "separate"},
                                 {"second_stage_fraction_bits", "S", "37"},
                                 {"takes_ue4m3_per_32", "", "true"},
                                 {"chains", "", "5"},
                                 {"subnormals", "", "flushed_results"},
                                 {"pair_rounding", "", "to_odd"},
                                 {"a_format", "a", "e2m3"},
                                 {"b_format", "b", "e3m2"}};
  REQUIRE(accumulator_parameters().size() == std::size(kChanges));
  const InstructionModel base = find("fused");
  InstructionModel all = base;
  for (const Change& change : kChanges) {
    INFO(change.name);
    const AccumulatorParameter& parameter = find_accumulator_parameter(change.name);
    CHECK(parameter.alias == change.alias);
    if (!change.alias.empty()) CHECK(&find_accumulator_parameter(change.alias) == &parameter);
    InstructionModel changed = base;
    parameter.set(changed, change.name, change.text);
    for (const Change& other : kChanges) {
      const AccumulatorParameter& read = find_accumulator_parameter(other.name);
      CHECK(read.get(changed) ==
            (other.name == change.name ? std::string(change.text) : read.get(base)));
    }
    parameter.set(all, change.name, change.text);
  }
  AccumulatorModel expected = base.accumulator;
  expected.terms = 17;
  expected.alignment_fraction_bits = 19;
  expected.output_fraction_bits = 21;
  expected.rounding = RoundingMode::upward;
  expected.min_alignment_exponent = -77;
  expected.output_format = FormatId::f16;
  expected.product_exponent = ProductExponent::normalized;
  expected.product_fraction_bits = 5;
  expected.half_c_exponent = HalfCExponent::widened;
  expected.zero_sign = ZeroSign::positive;
  expected.halves_order = HalvesOrder::separate;
  expected.second_stage_fraction_bits = 37;
  expected.takes_ue4m3_per_32 = true;
  expected.chains = 5;
  expected.subnormals = Subnormals::flushed_results;
  expected.pair_rounding = PairRounding::to_odd;
  CHECK(all.accumulator == expected);
  CHECK(all.a_format == FormatId::e2m3);
  CHECK(all.b_format == FormatId::e3m2);
}

TEST_CASE("The parameters by which a model is known are all its fields",
          "[accumulate][definition]") {
  const auto text_of = [](const AccumulatorModel& m) {
    std::string all;
    for (const ModelParameter& one : parameters_of(m))
      all += std::string(one.name) + "=" + one.text + " ";
    return all;
  };
  AccumulatorModel m = find("gfx942.mfma.f16").accumulator;
  m.terms = 17;
  m.alignment_fraction_bits = 19;
  m.output_fraction_bits = 21;
  m.rounding = RoundingMode::upward;
  m.output_format = FormatId::f16;
  m.product_exponent = ProductExponent::normalized;
  m.product_fraction_bits = 5;
  m.min_alignment_exponent = -77;
  m.half_c_exponent = HalfCExponent::widened;
  m.zero_sign = ZeroSign::positive;
  m.halves_order = HalvesOrder::separate;
  m.second_stage_fraction_bits = 37;
  CHECK(text_of(m) ==
        "kind=two_stage_dot_product terms=17 alignment_fraction_bits=19 output_fraction_bits=21 "
        "rounding=upward product_fraction_bits=5 output_format=f16 product_exponent=normalized "
        "min_alignment_exponent=-77 half_c_exponent=widened zero_sign=positive "
        "halves_order=separate second_stage_fraction_bits=37 ");
  m = find("sm120.mma.mxf4nvf4").accumulator;
  CHECK(text_of(m) ==
        "kind=scaled_group_dot_product terms=64 alignment_fraction_bits=35 output_fraction_bits=23 "
        "rounding=toward_zero product_fraction_bits=-1 output_format=f32 product_exponent=stored "
        "min_alignment_exponent=-139 half_c_exponent=stored zero_sign=positive "
        "halves_order=chained takes_ue4m3_per_32=true ");
  m.takes_ue4m3_per_32 = false;
  m.min_alignment_exponent = kNoMinAlignmentExponent;
  CHECK_THAT(text_of(m),
             contains("min_alignment_exponent=-1024 ") && contains("takes_ue4m3_per_32=false "));
  CHECK_THAT(text_of(find("x86.tmmultf32ps").accumulator),
             contains("terms=16 ") && contains(" chains=1 subnormals=flushed_results "));
  CHECK_THAT(text_of(find("arm.bfdot").accumulator), contains(" pair_rounding=to_odd "));
}

TEST_CASE("Models that differ in the sign of zero alone are told from all others",
          "[accumulate][definition]") {
  const AccumulatorModel kept = find("sm90.mma.bf16:zero_sign=kept").accumulator;
  const AccumulatorModel positive = find("sm90.mma.bf16").accumulator;
  CHECK(equal_but_for_zero_sign(kept, positive));
  CHECK(equal_but_for_zero_sign(positive, kept));
  CHECK(equal_but_for_zero_sign(kept, kept));
  for (const char* other : {"sm90.mma.bf16:F=24", "sm90.mma.bf16:e_min=-132", "sm90.mma.tf32"}) {
    INFO(other);
    CHECK_FALSE(equal_but_for_zero_sign(kept, find(other).accumulator));
    CHECK_FALSE(equal_but_for_zero_sign(find(other).accumulator, positive));
  }
}

TEST_CASE("What has the form of a definition is told from an instruction's name",
          "[accumulate][definition]") {
  for (const char* text : {"fused", "sequential", "float32", "scaled_group", "fp16_halves",
                           "a=exact", "exact:a=e5m2", "sm90.wgmma.e4m3:F=3", "="})
    CHECK(is_definition(text));
  // "exact" is an instruction and a kind.
  for (const char* text : {"exact", "fp32", "sm90.wgmma.e4m3", "nothing", ""})
    CHECK_FALSE(is_definition(text));
}

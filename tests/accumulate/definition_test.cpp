// Accumulators that users define: what they mean, what is refused, and which parameters matter.

#include <algorithm>
#include <bit>
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
      {"second_stage_fraction_bits", {"6"}}};
  constexpr int kChains = 400;
  std::vector<std::string> bases;
  for (const AccumulatorKindBase& one : accumulator_kinds()) bases.emplace_back(one.instruction);
  bases.insert(bases.end(), {"sm90.wgmma.e4m3.f16", "sm90.mma.e4m3.f16", "sm70.mma.f16.f16"});
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
      for (const std::string& text : values) {
        InstructionModel changed = model;
        find_accumulator_parameter(name).set(changed, name, text);
        if (changed.accumulator == model.accumulator) continue;
        try {
          validate(changed.accumulator);
        } catch (const Error&) {
          continue;  // this kind allows one value alone
        }
        differs = differs || results(changed, terms, kChains) != usual;
        if (name == "alignment_fraction_bits") continue;
        changed.accumulator.alignment_fraction_bits = 8;
        differs = differs || results(changed, terms, kChains) != usual_coarse;
      }
      const bool one_value = name == "terms" && traits_of(model.accumulator).takes_scales;
      // A subnormal FP16 c that decides the alignment and loses bits is not among these cases, nor
      // a sum that rounds to zero.
      const bool rare = name == "half_c_exponent" || name == "zero_sign";
      if (!rare) CHECK(differs == (listed && !one_value));
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

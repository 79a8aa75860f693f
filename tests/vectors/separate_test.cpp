#include "fp8lab/vectors/separate.hpp"

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <utility>

#include "catch.hpp"
#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/vectors/reduce.hpp"
#include "fp8lab/vectors/replay.hpp"

using namespace fp8lab;

TEST_CASE("separate: every two accumulators that read the same formats", "[verify][separate]") {
  for (const InstructionModel& first : instruction_models())
    for (const InstructionModel& second : instruction_models()) {
      const bool same_formats =
          first.a_format == second.a_format && first.b_format == second.b_format;
      // Without scales a block-scaled instruction is its unscaled neighbour.
      const bool scaled =
          traits_of(first.accumulator).takes_scales != traits_of(second.accumulator).takes_scales;
      if (!same_formats || scaled) continue;
      // These two differ in what scales they take, not in what they give for them.
      if (first.name.ends_with(".mxf4nvf4") && first.name != second.name) continue;
      INFO(first.name << " from " << second.name);
      const Separation found = separate(first, second, 3, 1);
      if (first.accumulator == second.accumulator) {
        CHECK(found.file.cases.empty());
        CHECK(found.tried == 0);
        continue;
      }
      REQUIRE(found.file.cases.size() == 3);
      CHECK(replay(found.file).mismatches == 0);
      CHECK(replay(found.file, std::string(second.name)).mismatches == 3);
      // A later case may have none: c alone tells units that flush it from others.
      CHECK(live_terms(found.file.cases[0]) <=
            std::max(live_terms(found.file.cases[1]), std::size_t{1}));
    }
}

TEST_CASE("separate: a definition reads the formats of the other model", "[verify][separate]") {
  const Separation found =
      separate(find_instruction_model("exact"), find_instruction_model("sm80.mma.bf16"), 2, 1);
  CHECK(found.file.a_format == FormatId::bf16);
  CHECK(replay(found.file, find_instruction_model("sm80.mma.bf16").accumulator).mismatches == 2);
  const Separation turned = separate(find_instruction_model("sm89.mma.e4m3.e5m2"),
                                     find_instruction_model("fused:F=12"), 2, 1);
  CHECK(turned.file.a_format == FormatId::e4m3fn);
  CHECK(turned.file.b_format == FormatId::e5m2);
  CHECK(turned.file.model == "sm89.mma.e4m3.e5m2");
  CHECK(turned.file.header.at("separates_from") == "fused:F=12");
  CHECK(replay(turned.file, find_instruction_model("fused:F=12").accumulator).mismatches == 2);
}

TEST_CASE("separate: terms are those of the longer step, or 32 of two without",
          "[verify][separate]") {
  const auto terms = [](const char* first, const char* second, int given = 0) {
    return separate(find_instruction_model(first), find_instruction_model(second), 1, 9, given)
        .file.terms;
  };
  CHECK(terms("fused:terms=5", "fused:terms=7") == 7);
  CHECK(terms("fused:terms=7", "fused:terms=5") == 7);
  CHECK(terms("fp32", "fused:terms=2,F=9") == 2);
  CHECK(terms("fp32", "sequential14.rz") == 32);
  CHECK(terms("fp32", "sequential14.rz", 3) == 3);
  const Separation half =
      separate(find_instruction_model("sm80.mma.f16.f16"), find_instruction_model("exact"), 2, 9);
  CHECK(half.file.output_format == FormatId::f16);
  CHECK(half.file.header.at("seed") == "9");
  CHECK(half.file.cases.size() == 2);
}

TEST_CASE("separate: what cannot be compared or found is said", "[verify][separate]") {
  CHECK_THROWS_WITH(separate(find_instruction_model("sm90.mma.e4m3"),
                             find_instruction_model("sm90.mma.e5m2"), 1, 1),
                    contains("read the same formats"));
  // c + one product is rounded once, to nearest even, by both.
  const Separation none =
      separate(find_instruction_model("fp32"), find_instruction_model("exact"), 1, 1, 1, 500);
  CHECK(none.file.cases.empty());
  CHECK(none.tried == 500);
}

TEST_CASE("separate: the sign of zero is tried by every eighth case, of a small product",
          "[verify][separate]") {
  int pairs = 0;
  for (const char* operands : {"f16.f16", "bf16", "tf32"})
    for (const char* hopper : {"sm90.mma.", "sm90.wgmma."})
      for (const char* blackwell : {"sm100.mma.", "sm100.tcgen05.", "sm120.mma."}) {
        const InstructionModel& one = find_instruction_model(std::string(hopper) + operands);
        const InstructionModel& other =
            find_instruction_model(std::string(blackwell) + operands + ":zero_sign=kept");
        REQUIRE(equal_but_for_zero_sign(one.accumulator, other.accumulator));
        for (const bool turned : {false, true})
          for (const std::size_t count : {1U, 4U}) {
            const Separation found =
                turned ? separate(other, one, count, 1) : separate(one, other, count, 1);
            INFO(one.name << " and " << other.name << ", turned " << turned << ", " << count);
            CHECK(found.tried == 8 * count);
            REQUIRE(found.file.cases.size() == count);
            for (const VectorCase& each : found.file.cases) {
              CHECK(live_terms(each) == 1);
              CHECK((each.d & 0x7fffffffU) == 0);
            }
            ++pairs;
          }
      }
  CHECK(pairs == 72);
}

TEST_CASE("separate: files are the same with every compiler", "[verify][separate]") {
  std::uint64_t sum = 0xcbf29ce484222325U;  // FNV-1a
  std::string tried;
  for (const auto& [first, second] : {std::pair{"sm90.wgmma.e4m3", "sm100.mma.e4m3"},
                                      {"sm89.mma.e4m3", "sm90.wgmma.e4m3"},
                                      {"sm90.mma.e4m3.f16", "sm90.mma.e4m3.f16.separate"},
                                      {"exact", "fp32"},
                                      {"sm80.mma.bf16", "sm90.mma.bf16"},
                                      {"gfx942.mfma.fp8", "exact"},
                                      {"sm100.tcgen05.mxf8f6f4.e4m3", "sm120.mma.mxf8f6f4.e4m3"},
                                      {"sm70.mma.f16", "sm75.mma.f16"},
                                      {"fused:F=12", "fused:F=13"}}) {
    const Separation found =
        separate(find_instruction_model(first), find_instruction_model(second), 7, 5);
    tried += std::to_string(found.file.cases.size()) + " of " + std::to_string(found.tried) + "; ";
    std::ostringstream text;
    write_vectors(text, found.file);
    for (const char letter : text.str())
      sum = (sum ^ static_cast<unsigned char>(letter)) * 0x100000001b3U;
  }
  CHECK(tried == "7 of 9; 7 of 19; 7 of 70; 7 of 22; 7 of 39; 7 of 50; 0 of 0; 7 of 11; 7 of 19; ");
  CHECK(sum == 0xeb936398655da6fbU);
}

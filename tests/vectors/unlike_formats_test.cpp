// Files, replays and reductions of cases whose operands have unlike formats.

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/vectors/cases.hpp"
#include "fp8lab/vectors/reduce.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "fp8lab/vectors/vector_files.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

constexpr const char* kUnlikeModels[] = {"sm90.wgmma.e4m3.e5m2", "sm90.wgmma.e5m2.e4m3",
                                         "gfx942.mfma.bf8.fp8", "sm100.tcgen05.mxf8f6f4.e4m3.e2m1",
                                         "sm100.tcgen05.mxf8f6f4.e2m1.e4m3"};

}  // namespace

TEST_CASE("unlike formats: every form of a file holds each operand's codes, and no others",
          "[io]") {
  const TemporaryFolder folder("unlike_formats");
  for (const char* name : kUnlikeModels) {
    const InstructionModel& model = find_instruction_model(name);
    VectorFile file = generate_cases(model, CaseKind::random, 5, 3, 7);
    for (std::size_t i = 0; i < 7; ++i) {
      // The largest codes: one operand's may be too large for the other.
      file.cases[2].a[i] = (std::uint32_t{1} << format(model.a_format).code_bits()) - 2;
      file.cases[2].b[i] = (std::uint32_t{1} << format(model.b_format).code_bits()) - 2;
    }
    fill_results(file, model.accumulator);
    for (const char* ending : {"txt", "npz", "safetensors", "jsonl"}) {
      INFO(name << " " << ending);
      const auto path = folder / fmt::format("{}.{}", name, ending);
      save_vectors(path, file);
      const VectorFile read = load_vectors(path);
      CHECK(read.a_format == model.a_format);
      CHECK(read.b_format == model.b_format);
      REQUIRE(read.cases.size() == 5);
      for (std::size_t i = 0; i < 5; ++i) {
        CHECK(read.cases[i].a == file.cases[i].a);
        CHECK(read.cases[i].b == file.cases[i].b);
        CHECK(read.cases[i].c == file.cases[i].c);
        CHECK(read.cases[i].d == file.cases[i].d);
      }
      CHECK(replay(read).mismatches == 0);
      // A code of one bit more is refused, of the operand that it is in.
      for (const bool of_a : {false, true}) {
        const FormatId id = of_a ? model.a_format : model.b_format;
        if (format(id).code_bits() == 8 || std::string_view(ending) == "txt") continue;
        VectorFile wrong = file;
        (of_a ? wrong.cases[3].a : wrong.cases[3].b)[4] = 0x15;
        save_vectors(path, wrong);
        const std::string said = test::message_of([&] { (void)load_vectors(path); });
        CHECK_THAT(said, contains("0x15 is not a code of e2m1 (4 bits)"));
        const bool line = std::string_view(ending) == "jsonl";
        CHECK_THAT(said, contains(line ? fmt::format(":5: '{}'", of_a ? "a" : "b") : "case 4"));
      }
    }
  }
}

TEST_CASE("unlike formats: a mismatch shows each operand in its own format", "[io]") {
  for (const char* name : kUnlikeModels) {
    const InstructionModel& model = find_instruction_model(name);
    VectorFile file = generate_cases(model, CaseKind::random, 3, 4, 2);
    file.cases[1].line = 9;
    const VectorCase right = file.cases[1];
    file.cases[1].d ^= 0x00100000U;
    const ReplayReport report = replay(file);
    CHECK(report.cases == 3);
    CHECK(report.mismatches == 1);
    REQUIRE(report.shown.size() == 1);
    const auto operand = [](const char* letter, FormatId id,
                            const std::vector<std::uint32_t>& codes) {
      const Format& f = format(id);
      const int digits = (f.code_bits() + 3) / 4;
      return fmt::format("  {} ({}):\n    {:0{}x} {:.6g}   {:0{}x} {:.6g}\n", letter, f.name,
                         codes[0], digits, decode(f, codes[0]), codes[1], digits,
                         decode(f, codes[1]));
    };
    const auto number = [](const char* what, std::uint32_t bits) {
      return fmt::format("  {:<9}{:08x} {:.9g}\n", what, bits, decode(format(FormatId::f32), bits));
    };
    const auto scale = [&](const char* letter, const std::vector<std::uint8_t>& codes) {
      if (!file.scales) return std::string();
      REQUIRE(codes.size() == 1);
      return fmt::format("  scales of {} (ue8m0):   {:02x} {:.6g}\n", letter, codes[0],
                         std::ldexp(1.0, codes[0] - 127));
    };
    CHECK(describe(report.shown[0]) ==
          "line 9:\n" + operand("a", model.a_format, right.a) +
              operand("b", model.b_format, right.b) + scale("a", right.scales_a) +
              scale("b", right.scales_b) + number("c", right.c) +
              number("expected", right.d ^ 0x00100000U) + number("got", right.d));
  }
}

TEST_CASE("unlike formats: a reduction moves each operand toward 1 and + of its own format",
          "[verify]") {
  for (const auto& [a, b] : {std::pair{FormatId::e4m3fn, FormatId::e5m2},
                             {FormatId::e5m2, FormatId::e4m3fn},
                             {FormatId::e2m1, FormatId::e4m3fn},
                             {FormatId::e5m2fnuz, FormatId::f16}}) {
    const auto one_of = [](FormatId id) {
      const Format& f = format(id);
      return static_cast<std::uint32_t>(f.bias) << f.mantissa_bits;
    };
    const auto large = [](FormatId id) {
      const Format& f = format(id);
      return f.sign_mask() | (f.magnitude_mask() - (std::uint32_t{1} << f.mantissa_bits));
    };
    VectorCase start;
    start.a.assign(5, large(a));
    start.b.assign(5, large(b));
    start.c = 0xc1234567;
    INFO(format(a).name << " and " << format(b).name);
    // The term's operands may not be zero; nothing else counts.
    const auto alive = [](const VectorCase& one) { return one.a[3] != 0 && one.b[3] != 0; };
    const VectorCase least = reduce_case(start, a, b, alive).smallest;
    CHECK(least.a == std::vector<std::uint32_t>{0, 0, 0, one_of(a), 0});
    CHECK(least.b == std::vector<std::uint32_t>{0, 0, 0, one_of(b), 0});
    CHECK(least.c == 0);
    // A negative product: the sign goes to A.
    const auto negative = [&, a = a, b = b](const VectorCase& one) {
      return alive(one) &&
             ((one.a[3] & format(a).sign_mask()) != 0) != ((one.b[3] & format(b).sign_mask()) != 0);
    };
    start.a[3] &= ~format(a).sign_mask();
    const VectorCase signs = reduce_case(start, a, b, negative).smallest;
    CHECK(signs.a[3] == (one_of(a) | format(a).sign_mask()));
    CHECK(signs.b[3] == one_of(b));
    // Each stops where the failure needs it to.
    const std::uint32_t least_a = one_of(a) + (std::uint32_t{1} << format(a).mantissa_bits);
    const std::uint32_t least_b = one_of(b) + (std::uint32_t{1} << format(b).mantissa_bits);
    const auto stays = [&, a = a, b = b](const VectorCase& one) {
      return (one.a[3] & format(a).magnitude_mask()) >= least_a &&
             (one.b[3] & format(b).magnitude_mask()) >= least_b;
    };
    const VectorCase kept = reduce_case(start, a, b, stays).smallest;
    CHECK(kept.a[3] == least_a);
    CHECK(kept.b[3] == least_b);
  }
}

#include "fp8lab/vectors/recording.hpp"

#include <fstream>
#include <sstream>
#include <string>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "io/temporary_file.hpp"

using namespace fp8lab;

namespace {

const RecordingPlan kPlan{"sm90.mma.e4m3", FormatId::e4m3fn, FormatId::e5m2, 64, 9, {30, 40, 20}};

std::string recorded() {
  std::vector<VectorCase> cases = planned_cases(kPlan);
  VectorFile file{kPlan.model, kPlan.a_format, kPlan.b_format, kPlan.terms, {}, std::move(cases)};
  fill_results(file, find_instruction_model(kPlan.model).accumulator);
  std::ostringstream out;
  write_recording(out, kPlan, file.cases, {{"gpu", "none: results of the model"}});
  return out.str();
}

}  // namespace

TEST_CASE("a recording replays with its inputs generated again", "[verify]") {
  const TemporaryFile file(recorded());
  const VectorFile read = read_cases(file.path());
  CHECK(read.cases.size() == 90);
  CHECK(read.a_format == FormatId::e4m3fn);
  CHECK(read.b_format == FormatId::e5m2);
  CHECK(read.header.at("gpu") == "none: results of the model");
  CHECK(replay(read).mismatches == 0);
  AccumulatorModel mutant = find_instruction_model(kPlan.model).accumulator;
  mutant.rounding = RoundingMode::nearest_even;
  CHECK(replay(read, mutant).mismatches > 0);
}

TEST_CASE("a recording's header says the plan, a format that both operands have once", "[verify]") {
  const auto header_of = [](FormatId a, FormatId b) {
    RecordingPlan plan = kPlan;
    plan.a_format = a;
    plan.b_format = b;
    plan.counts = {3, 1, 2};
    std::vector<VectorCase> cases = planned_cases(plan);
    CHECK(cases.size() == 6);
    for (std::size_t i = 0; i < cases.size(); ++i) cases[i].d = static_cast<std::uint32_t>(10 + i);
    std::ostringstream out;
    write_recording(out, plan, cases, {{"gpu", "G"}, {"date", "D"}});
    const std::string text = out.str();
    const std::size_t inputs = text.find("# inputs: ");
    const std::string digits = text.substr(inputs + 10, 16);
    CHECK(std::stoull(digits, nullptr, 16) == checksum_of_inputs(cases));
    CHECK(text.substr(inputs + 26) ==
          "\n# date: D\n# gpu: G\n0000000a\n0000000b\n0000000c\n0000000d\n0000000e\n0000000f\n");
    const TemporaryFile file(text);
    const VectorFile read = read_cases(file.path());
    CHECK((read.a_format == a && read.b_format == b && read.terms == 64));
    CHECK(read.model == "sm90.mma.e4m3");
    REQUIRE(read.cases.size() == 6);
    CHECK((read.cases[5].d == 15 && read.cases[5].line == 17));
    return text.substr(0, inputs);
  };
  const std::string start = "# fp8lab recording 1\n# model: sm90.mma.e4m3\n# input: ";
  const std::string end = "\n# terms: 64\n# seed: 9\n# random: 3\n# adversarial: 1\n# special: 2\n";
  CHECK(header_of(FormatId::e4m3fn, FormatId::e5m2) == start + "e4m3fn e5m2" + end);
  CHECK(header_of(FormatId::e5m2, FormatId::e4m3fn) == start + "e5m2 e4m3fn" + end);
  CHECK(header_of(FormatId::e4m3fn, FormatId::e4m3fn) == start + "e4m3fn" + end);
}

TEST_CASE("one changed result is one mismatch, at its line", "[verify]") {
  std::string text = recorded();
  text[text.size() - 2] = text[text.size() - 2] == '0' ? '1' : '0';
  const TemporaryFile file(text);
  const ReplayReport report = replay(read_cases(file.path()));
  REQUIRE(report.mismatches == 1);
  CHECK(report.shown[0].line == 100);  // ten lines of header, 90 results
}

TEST_CASE("vector files are read as before", "[verify]") {
  std::ostringstream out;
  write_vectors(out, generate_cases(find_instruction_model("exact"), CaseKind::random, 5, 1));
  const TemporaryFile file(out.str());
  CHECK(read_cases(file.path()).cases.size() == 5);
}

TEST_CASE("broken recordings are refused with file, line and reason", "[verify]") {
  const std::string good = recorded();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const auto check = [](const std::string& text, const std::string& message) {
    const TemporaryFile file(text);
    CHECK_THROWS_WITH(read_cases(file.path()), contains(message));
  };
  check(with("# seed: 9", "# seed: 8"),
        "the generator gives inputs that differ from the recorded ones");
  check(with("# terms: 64", "# terms: 0"), "terms: expected 1 .. 2^15, got 0");
  check(with("# terms: 64", "# terms: 32769"), "terms: expected 1 .. 2^15, got 32769");
  check(with("# terms: 64", "# terms: 32768"), "the generator gives inputs that differ");
  check(with("# terms: 64", "# terms: -64"), "terms: expected a number in base 10, got '-64'");
  check(with("# seed: 9", "# seed: 9 "), "seed: expected a number in base 10, got '9 '");
  check(with("# random: 30", "# random: 10000001"), "random: expected at most 10000000");
  check(with("# random: 30", "# random: 31"), "expected 91 results, got 90");
  check(with("# random: 30", "# random: 29"), "the generator gives inputs that differ");
  check(with("# seed: 9", "# sed: 9"), "missing header line '# seed: ...'");
  check(with("# special: 20", "# special: x"), "special: expected a number in base 10, got 'x'");
  check(good.substr(0, good.size() - 9), "expected 90 results, got 89");
  check(good + "00000000\n", "expected 90 results, got more");
  check(good.substr(0, good.size() - 1), "truncated");
  check(with("sm90.mma.e4m3", "sm91.mma.e4m3"), "'sm91.mma.e4m3'");
  // The last result, of seven digits and of nine, and of no digits.
  const std::string but_one = good.substr(0, good.size() - 9);
  check(but_one + "0000000\n", ":100: expected 8 hex digits, got '0000000'");
  check(but_one + "000000000\n", ":100: expected 8 hex digits, got '000000000'");
  check(but_one + "0000000g\n", ":100: d: expected a number in base 16, got '0000000g'");
  check(but_one + "\n", ":100: expected 8 hex digits, got ''");
  check(with("# random: 30", "# random: 10000000"), "expected 10000060 results, got 90");
  check(with("# adversarial: 40", "# adversarial: 10000001"),
        "adversarial: expected at most 10000000, got 10000001");
  check(with("# inputs: ", "# inputs: x"), "inputs: expected a number in base 16, got 'x");
  check(with("# special: 20", "# special: "), "special: expected a number in base 10, got ''");
  check(with("e4m3fn e5m2", "e4m3fn e9m9"), "'e9m9'");
  // Without a newline at its end a header alone has no result.
  check(good.substr(0, good.find("\n# gpu") + 1), ":9: expected 90 results, got 0");
}

TEST_CASE("a recording has at most 2^29 terms in all its cases", "[verify]") {
  const auto said = [](int cases, int terms) {
    std::string text =
        "# fp8lab recording 1\n# model: exact\n# input: e4m3fn\n# terms: " + std::to_string(terms) +
        "\n# seed: 1\n# random: " + std::to_string(cases) +
        "\n# adversarial: 0\n# special: 0\n# inputs: 0\n";
    for (int i = 0; i < cases; ++i) text += "00000000\n";
    const TemporaryFile file(text);
    try {
      (void)read_cases(file.path());
    } catch (const Error& error) {
      return std::string(error.what()).substr(file.path().string().size());
    }
    return std::string("accepted");
  };
  CHECK(said(16385, 32768) == ":10: expected at most 536870912 terms in all cases, got 536903680");
  CHECK_THAT(said(3, 32768), contains("the generator gives inputs that differ from the recorded") &&
                                 contains("recorded 0"));
}

TEST_CASE("lines of a recording's header that are no key say nothing", "[verify]") {
  std::string text = recorded();
  text.insert(text.find("# seed"), "#\n# a comment\n#: none\n# note: a: b\n");
  const TemporaryFile file(text);
  const VectorFile read = read_cases(file.path());
  CHECK(read.header.at("note") == "a: b");
  CHECK(read.cases.size() == 90);
  CHECK(read.cases[0].line == 15);
  CHECK(read.cases[89].line == 104);
}

TEST_CASE("a recording is replayed as its instruction was executed", "[verify]") {
  const InstructionModel& chained = find_instruction_model("sm90.mma.e4m3.f16");
  VectorFile file = generate_cases(chained, CaseKind::adversarial, 600, 3);
  file.header["executed"] = "as separate FP16 halves";
  const std::size_t others = replay(file).mismatches;
  CHECK(others >= 20);
  fill_results(file, find_instruction_model("sm90.mma.e4m3.f16.separate").accumulator);
  CHECK(replay(file).mismatches == 0);
  CHECK(replay(file).model == "sm90.mma.e4m3.f16");
  // A model that is named is taken as it is registered.
  CHECK(replay(file, "sm90.mma.e4m3.f16").mismatches == others);
  file.header["executed"] = "as chained FP16 halves";
  CHECK(replay(file).mismatches == others);
  file.header["executed"] = "as one instruction";
  CHECK_THROWS_WITH(replay(file), contains("executed: expected what sm90.mma.e4m3.f16 is, FP16"));
  file.header["executed"] = "by hand";
  CHECK_THROWS_WITH(replay(file), contains("executed: expected one of as one instruction"));
  file = generate_cases(find_instruction_model("sm90.wgmma.e4m3"), CaseKind::random, 5, 3);
  file.header["executed"] = "as one instruction";
  CHECK(replay(file).mismatches == 0);
  file.header["executed"] = "as chained FP16 halves";
  CHECK_THROWS_WITH(replay(file), contains("one instruction (fused_dot_product)"));
}

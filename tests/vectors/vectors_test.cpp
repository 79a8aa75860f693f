#include "fp8lab/vectors/vectors.hpp"

#include <algorithm>
#include <sstream>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

const std::string kHeader =
    "# fp8lab vectors 1\n# model: sm90.wgmma.e4m3\n# input: e4m3\n# terms: 2\n";

VectorFile parse(const std::string& text) {
  std::istringstream in(text);
  return read_vectors(in, "vectors.txt");
}

}  // namespace

TEST_CASE("a vector file reads, replays and writes back to the same bytes", "[io]") {
  // 1 * 2 + 1 * 0.5 + c = 3.5
  const std::string text = kHeader + "# gpu: none\n3838 4030 3f800000 40600000\n";
  const VectorFile file = parse(text);
  REQUIRE(file.cases.size() == 1);
  CHECK(file.cases[0].a == std::vector<std::uint32_t>{0x38, 0x38});
  CHECK(file.cases[0].line == 6);
  CHECK(file.header.at("gpu") == "none");
  CHECK(replay(file).mismatches == 0);

  std::ostringstream out;
  write_vectors(out, file);
  std::string expected = text;
  expected.replace(expected.find("e4m3\n# terms"), 4, "e4m3fn");
  CHECK(out.str() == expected);
}

TEST_CASE("TF32 is read from binary32 words, whose low bits are ignored", "[io]") {
  const std::string header =
      "# fp8lab vectors 1\n# model: sm80.mma.tf32\n# input: tf32\n# terms: 1\n";
  const VectorFile file = parse(header + "3f801fff 40000000 00000000 40000000\n");
  CHECK(file.cases[0].a[0] == 0x3f801fffU >> 13);
  CHECK(replay(file).mismatches == 0);
}

TEST_CASE("mixed inputs name both formats", "[io]") {
  const std::string header =
      "# fp8lab vectors 1\n# model: sm90.wgmma.e4m3.e5m2\n# input: e4m3 e5m2\n# terms: 1\n";
  const VectorFile file = parse(header + "38 3c 00000000 3f800000\n");
  CHECK(file.b_format == FormatId::e5m2);
  CHECK(replay(file).mismatches == 0);
}

TEST_CASE("a mismatch is counted and described in hex and decoded", "[io]") {
  const ReplayReport report = replay(parse(kHeader + "3838 4030 3f800000 40600001\n"));
  CHECK(report.mismatches == 1);
  const std::string text = describe(report.shown.at(0));
  CHECK_THAT(text,
             contains("line 5") && contains("40600001") && contains("40600000") && contains("3.5"));
}

TEST_CASE("of many mismatches the first twenty are shown and all are counted", "[io]") {
  for (const std::size_t wrong : {1U, 19U, 20U, 21U, 22U, 40U}) {
    std::string text = kHeader;
    for (std::size_t i = 0; i < 2 * wrong; ++i)  // every other one is right
      text += i % 2 == 0 ? "3838 4030 3f800000 40600000\n" : "3838 4030 3f800000 40600001\n";
    const ReplayReport report = replay(parse(text));
    INFO(wrong);
    CHECK(report.cases == 2 * wrong);
    CHECK(report.mismatches == wrong);
    REQUIRE(report.shown.size() == std::min<std::size_t>(wrong, 20));
    for (std::size_t i = 0; i < report.shown.size(); ++i) {
      CHECK(report.shown[i].line == 6 + 2 * static_cast<int>(i));
      CHECK(report.shown[i].expected == 0x40600001);
      CHECK(report.shown[i].got == 0x40600000);
    }
  }
}

TEST_CASE("malformed vector files are refused with file, line and reason", "[io]") {
  const std::string good = "3838 4030 3f800000 40600000\n";
  const auto message = [](const std::string& text) {
    return test::message_of([&] { replay(parse(text)); }, "no error");
  };
  CHECK_THAT(message(""), contains("vectors.txt:1: empty file"));
  CHECK_THAT(message("3838\n"), contains("vectors.txt:1: expected '# fp8lab vectors 1'"));
  CHECK_THAT(message("# fp8lab vectors 1\n# input: e4m3\n# terms: 2\n" + good),
             contains("missing header line '# model: ...'"));
  CHECK_THAT(message("# fp8lab vectors 1\n# model: sm90.wgmma.e4m3\n# input: e4m3\n" + good),
             contains("missing header line '# terms: ...'"));
  CHECK_THAT(message(kHeader), contains("no cases"));
  CHECK_THAT(
      message(kHeader + "38 4030 3f800000 40600000\n"),
      contains("vectors.txt:5: field a: expected 2 elements of e4m3fn = 4 hex digits, got 2"));
  CHECK_THAT(message(kHeader + "38zz 4030 3f800000 40600000\n"),
             contains("field a: expected hex digits, got 'zz'"));
  CHECK_THAT(message(kHeader + "3838 4030 3f8000 40600000\n"),
             contains("field c: expected 8 hex digits, got 6"));
  CHECK_THAT(message(kHeader + "3838 4030 3f800000\n"), contains("expected 4 fields"));
  CHECK_THAT(message(kHeader + good + "3838 4030 3f8"), contains("vectors.txt:6: truncated"));
  CHECK_THAT(message(kHeader + good + "3838 4030 3f800000 40600000"), contains("truncated"));
  CHECK_THAT(message(kHeader + good + "\n" + good), contains("vectors.txt:6: expected 4 fields"));
  std::string other = kHeader;
  other.replace(other.find("wgmma"), 5, "wmma");
  CHECK_THAT(message(other + good), contains("'sm90.wmma.e4m3'"));
  other = kHeader;
  other.replace(other.find("e4m3\n# terms"), 4, "e9m9");
  CHECK_THAT(message(other + good), contains("header 'input'") && contains("'e9m9'"));
  other = kHeader;
  other.replace(other.find("e4m3\n# terms"), 4, "e4m3 e5m2 e4m3");
  CHECK_THAT(
      message(other + good),
      contains("header 'input': expected one format, or those of a and b, got 'e4m3 e5m2 e4m3'"));
  other = kHeader;
  other.replace(other.find("terms: 2"), 8, "terms: x");
  CHECK_THAT(message(other + good), contains("header 'terms'"));
  CHECK_THROWS_WITH(read_vectors("no/such/file.txt"), contains("cannot read: No such file"));
}

TEST_CASE("lines of a header that are no key and blanks between fields say nothing", "[io]") {
  const std::string good = "3838 4030 3f800000 40600000\n";
  std::string text = kHeader + "#\n# \n# a plain comment\n#: none\n# : none\n#k: short\n" + good;
  text += "  3838  4030   3f800000 40600000  \n";
  const VectorFile file = parse(text);
  REQUIRE(file.cases.size() == 2);
  CHECK(file.cases[0].line == 11);
  CHECK(file.cases[1].line == 12);
  CHECK(file.header.size() == 3);
  CHECK(file.cases[0].a == file.cases[1].a);
  CHECK(file.cases[1].d == 0x40600000);
  // The value of a key may hold a colon.
  CHECK(parse(kHeader + "# note: a: b\n" + good).header.at("note") == "a: b");
}

TEST_CASE("a vector file has 1 to 2^20 terms, and the messages say which field is short", "[io]") {
  const auto message = [](const std::string& terms) {
    return test::message_of([&] {
      (void)parse("# fp8lab vectors 1\n# model: m\n# input: e4m3\n# terms: " + terms +
                  "\n38 40 3f800000 40600000\n");
    });
  };
  CHECK(message("1") == "accepted");
  CHECK(message("1048576") ==
        "vectors.txt:5: field a: expected 1048576 elements of e4m3fn = 2097152 hex digits, got 2");
  for (const char* terms : {"0", "-1", "1048577", "1e3", "", "1 ", "99999999999"})
    CHECK(message(terms) ==
          "vectors.txt:4: header 'terms': expected a number from 1 to 2^20, got '" +
              std::string(terms) + "'");
}

TEST_CASE("a byte that is no code of a narrow format is refused where it stands", "[io]") {
  const auto message = [](const std::string& input, const std::string& operands) {
    return test::message_of([&] {
      (void)parse("# fp8lab vectors 1\n# model: m\n# input: " + input + "\n# terms: 3\n" +
                  operands + " 00000000 00000000\n");
    });
  };
  CHECK(message("e2m1", "0f0f0f 0f0f0f") == "accepted");
  CHECK(message("e2m1", "0f0f10 0f0f0f") ==
        "vectors.txt:5: field a: element 2: 0x10 is not a code of e2m1 (4 bits)");
  CHECK(message("e4m3 e2m3", "ffffff 3f3f3f") == "accepted");
  CHECK(message("e4m3 e2m3", "ffffff 3f403f") ==
        "vectors.txt:5: field b: element 1: 0x40 is not a code of e2m3 (6 bits)");
}

TEST_CASE("a mismatch in words: every code with its digits and its value", "[io]") {
  const auto described = [](const std::string& text) {
    VectorFile file = parse(text);
    const ReplayReport report = replay(file);
    REQUIRE(report.shown.size() == 1);
    return describe(report.shown[0]);
  };
  CHECK(described("# fp8lab vectors 1\n# model: sm100.tcgen05.mxf4nvf4\n# input: e2m1\n"
                  "# terms: 18\n# scales: ue4m3 16\n"
                  "020202020202020202020202020202020002 020202020202020202020202020202020f0b "
                  "38b0 4001 3f800000 3f800000\n") ==
        "line 6:\n"
        "  a (e2m1):\n"
        "    2 1   2 1   2 1   2 1   2 1   2 1   2 1   2 1\n"
        "    2 1   2 1   2 1   2 1   2 1   2 1   2 1   2 1\n"
        "    0 0   2 1\n"
        "  b (e2m1):\n"
        "    2 1   2 1   2 1   2 1   2 1   2 1   2 1   2 1\n"
        "    2 1   2 1   2 1   2 1   2 1   2 1   2 1   2 1\n"
        "    f -6   b -1.5\n"
        "  scales of a (ue4m3):   38 1   b0 0.5\n"
        "  scales of b (ue4m3):   40 2   01 0.00195312\n"
        "  c        3f800000 1\n"
        "  expected 3f800000 1\n"
        "  got      4203fe80 32.9985352\n");
  CHECK(described("# fp8lab vectors 1\n# model: sm80.mma.tf32\n# input: tf32\n# terms: 1\n"
                  "3f801fff c0000000 00000000 40000000\n") ==
        "line 5:\n  a (tf32):\n    1fc00 1\n  b (tf32):\n    60000 -2\n"
        "  c        00000000 0\n  expected 40000000 2\n  got      c0000000 -2\n");
  CHECK(described("# fp8lab vectors 1\n# model: sm90.mma.bf16\n# input: bf16\n# terms: 1\n"
                  "3f80 0f80 80000000 00000000\n")
            .substr(0, 64) ==
        "line 5:\n  a (bf16):\n    3f80 1\n  b (bf16):\n    0f80 1.26218e-29\n");
}

TEST_CASE("how an instruction was executed has a text each way", "[io]") {
  CHECK(executed_name(std::nullopt) == "as one instruction");
  CHECK(executed_name(HalvesOrder::chained) == "as chained FP16 halves");
  CHECK(executed_name(HalvesOrder::separate) == "as separate FP16 halves");
  CHECK_FALSE(find_executed("as one instruction").has_value());
  CHECK(find_executed("as chained FP16 halves") == HalvesOrder::chained);
  CHECK(find_executed("as separate FP16 halves") == HalvesOrder::separate);
}

TEST_CASE("a model of another storage width refuses a file, whatever its name", "[io]") {
  const VectorFile file = parse(kHeader + "3838 4030 3f800000 40600000\n");
  CHECK(replay(file, "sm89.mma.e5m2").cases == 1);
  for (const auto& [model, reads] :
       {std::pair{"sm80.mma.bf16", "bf16"}, std::pair{"sm80.mma.tf32", "tf32"}})
    CHECK_THROWS_WITH(replay(file, model),
                      "model: expected one for 8-bit inputs, as the file holds e4m3fn, got " +
                          std::string(model) + " (" + reads + ")");
}

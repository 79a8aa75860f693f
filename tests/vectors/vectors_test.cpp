#include "fp8lab/vectors/vectors.hpp"

#include <algorithm>
#include <sstream>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/vectors/replay.hpp"

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
    try {
      replay(parse(text));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
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
  other.replace(other.find("terms: 2"), 8, "terms: x");
  CHECK_THAT(message(other + good), contains("header 'terms'"));
  CHECK_THROWS_WITH(read_vectors("no/such/file.txt"), contains("cannot read: No such file"));
}

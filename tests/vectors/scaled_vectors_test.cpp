// Vector files with block scales, NaN of any bits, and FP16 outputs.

#include <sstream>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/npz.hpp"
#include "fp8lab/vectors/reduce.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "fp8lab/vectors/vector_files.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

std::string header(const std::string& lines, const std::string& terms = "20") {
  return "# fp8lab vectors 1\n# model: sm100.tcgen05.mxf4nvf4\n# input: e2m1\n# terms: " + terms +
         "\n" + lines;
}

std::string repeated(int count, const std::string& text) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

/// 20 elements in blocks of 16 and 4.
const std::string kOperands = repeated(20, "02") + " " + repeated(20, "0f") + " ";

VectorFile parse(const std::string& text) {
  std::istringstream in(text);
  return read_vectors(in, "v.txt");
}

std::string message(const std::string& text) {
  return test::message_of([&] { (void)parse(text); });
}

void check_same_cases(const VectorFile& expected, const VectorFile& got) {
  CHECK(got.scales == expected.scales);
  CHECK(got.any_nan == expected.any_nan);
  CHECK(got.output_format == expected.output_format);
  REQUIRE(got.cases.size() == expected.cases.size());
  for (std::size_t i = 0; i < got.cases.size(); ++i) {
    CHECK(got.cases[i].a == expected.cases[i].a);
    CHECK(got.cases[i].b == expected.cases[i].b);
    CHECK(got.cases[i].scales_a == expected.cases[i].scales_a);
    CHECK(got.cases[i].scales_b == expected.cases[i].scales_b);
    CHECK(got.cases[i].c == expected.cases[i].c);
    CHECK(got.cases[i].d == expected.cases[i].d);
  }
}

}  // namespace

TEST_CASE("block scales: a vector file reads and writes back to the same bytes", "[io]") {
  const std::string text =
      header("# nan: any\n# scales: ue4m3 16\n") + kOperands + "38b8 7f01 3f800000 7fffffff\n";
  const VectorFile file = parse(text);
  REQUIRE(file.scales.has_value());
  CHECK(file.scales->format == ScaleFormat::ue4m3);
  CHECK(file.scales->block == 16);
  CHECK(file.any_nan);
  REQUIRE(file.cases.size() == 1);
  CHECK(file.cases[0].a == std::vector<std::uint32_t>(20, 2));
  CHECK(file.cases[0].scales_a == std::vector<std::uint8_t>{0x38, 0xb8});
  CHECK(file.cases[0].scales_b == std::vector<std::uint8_t>{0x7f, 0x01});
  CHECK(file.cases[0].c == 0x3f800000);
  std::ostringstream out;
  write_vectors(out, file);
  CHECK(out.str() == text);
}

TEST_CASE("block scales: every form of a vector file holds them", "[io]") {
  const TemporaryFolder folder("scaled_vectors");
  VectorFile file =
      parse(header("# nan: any\n# scales: ue8m0 16\n") + kOperands +
            "7f80 00ff 3f800000 7fffffff\n" + kOperands + "0102 0304 00000000 40490fdb\n");
  file.header["kind"] = "by hand";
  for (const char* name : {"v.txt", "v.npz", "v.safetensors", "v.jsonl", "v.npz.jsonl",
                           "v.safetensors.npz", "v.jsonl.safetensors", "v.npz.txt"}) {
    INFO(name);
    save_vectors(folder / name, file);
    const VectorFile read = load_vectors(folder / name);
    check_same_cases(file, read);
    CHECK(read.header.at("kind") == "by hand");
  }
  file.cases[1].scales_b.pop_back();
  for (const char* name : {"w.txt", "w.npz", "w.safetensors", "w.jsonl"})
    CHECK_THROWS_WITH(save_vectors(folder / name, file),
                      contains("scales_b: expected 2 scales per case, got 1"));
}

TEST_CASE("block scales: bad headers, columns and lengths are refused", "[io]") {
  const std::string scales = "# scales: ue4m3 16\n";
  const std::string good = kOperands + "3838 3838 00000000 00000000\n";
  CHECK(message(header(scales) + good) == "accepted");
  for (const char* value : {"ue4m3", "ue4m3 8", "e4m3 16", "ue4m3 16 2", "ue8m0 sixteen"})
    CHECK_THAT(
        message(header("# scales: " + std::string(value) + "\n# gpu: none\n") + good),
        contains("v.txt:5: header 'scales': expected a format, ue8m0 or ue4m3, and a block") &&
            contains("got '" + std::string(value) + "'"));
  CHECK_THAT(message(header(scales) + kOperands + "00000000 00000000\n"),
             contains("v.txt:6: expected 6 fields 'a b sa sb c d', got 4"));
  CHECK_THAT(message(header("") + good), contains("v.txt:5: expected 4 fields 'a b c d', got 6"));
  CHECK_THAT(message(header(scales) + kOperands + "3838 38 00000000 00000000\n"),
             contains("v.txt:6: field sb: expected 2 scales of ue4m3 = 4 hex digits, got 2"));
  CHECK_THAT(message(header("# scales: ue4m3 32\n") + good),
             contains("field sa: expected 1 scale of ue4m3 = 2 hex digits, got 4"));
  CHECK_THAT(message(header(scales) + kOperands + "38g8 3838 00000000 00000000\n"),
             contains("field sa: expected hex digits, got 'g8'"));
  CHECK_THAT(message(header("# nan: some\n" + scales) + good),
             contains("v.txt:5: header 'nan': expected 'any', got 'some'"));
  CHECK_THAT(message(header("# output: bf16\n" + scales) + good),
             contains("v.txt:5: header 'output': expected f16 or f32, got 'bf16'"));
}

TEST_CASE("block scales: arrays and lines without them are refused", "[io]") {
  const TemporaryFolder folder("scaled_vectors_wrong");
  const std::string start = R"({"input": "e2m1", "model": "m", "scales": "ue8m0 16", "terms": "2"})"
                            "\n"
                            R"({"a": [1, 2], "b": [3, 4], "c": 0, "d": 0, "sa": [127])";
  const auto line = [&](const std::string& rest) {
    write_text(folder / "v.jsonl", start + rest + "}\n");
    return test::message_of([&] { (void)load_vectors(folder / "v.jsonl"); });
  };
  CHECK(line(R"(, "sb": [0])") == "accepted");
  CHECK_THAT(line(""), contains(":2: 'sb': expected 1 scale codes, 0 to 255, got none"));
  CHECK_THAT(line(R"(, "sb": [256])"),
             contains("'sb': expected 1 scale codes") && contains("[256]"));
  CHECK_THAT(line(R"(, "sb": [1, 2])"), contains("'sb': expected 1 scale codes"));

  const std::vector<std::uint8_t> codes(2, 1);
  const std::vector<std::uint32_t> bits(1);
  const std::string text = R"({"input": "e2m1", "model": "m", "scales": "ue8m0 16", "terms": "2"})";
  write_npz(folder / "v.npz",
            {{"a", view_of(ElementType::u8, {1, 2}, std::span(codes))},
             {"b", view_of(ElementType::u8, {1, 2}, std::span(codes))},
             {"sa", view_of(ElementType::u8, {1, 2}, std::span(codes))},
             {"sb", view_of(ElementType::u8, {1, 2}, std::span(codes))},
             {"c", view_of(ElementType::f32, {1}, std::span(bits))},
             {"d", view_of(ElementType::f32, {1}, std::span(bits))},
             {"header", view_of(ElementType::u8, {static_cast<std::int64_t>(text.size())},
                                std::span<const char>(text))}});
  CHECK_THROWS_WITH(load_vectors(folder / "v.npz"),
                    contains("sa: expected row-major u8 [1, 1], got u8 [1, 2]"));
}

TEST_CASE("a model without block scales refuses a file with them", "[io]") {
  VectorFile file = parse(
      "# fp8lab vectors 1\n# model: sm90.wgmma.e4m3\n# input: e4m3\n"
      "# terms: 1\n# scales: ue8m0 32\n38 38 7f 7f 00000000 3f800000\n");
  CHECK_THROWS_WITH(replay(file), contains("sm90.wgmma.e4m3, which uses no scales"));
  CHECK_THROWS_WITH(replay(file, find_instruction_model("exact").accumulator),
                    contains("uses no scales"));
}

TEST_CASE("a NaN matches any NaN only where the file says so", "[io]") {
  const std::string start =
      "# fp8lab vectors 1\n# model: sm90.wgmma.e4m3\n# input: e4m3\n# terms: 1\n";
  const std::string nan = "7f 38 00000000 7fc00000\n";
  const std::string number = "7f 38 00000000 7f800000\n";
  CHECK(replay(parse(start + nan)).mismatches == 1);
  CHECK(replay(parse(start + "# nan: any\n" + nan)).mismatches == 0);
  CHECK(replay(parse(start + "# nan: any\n" + number)).mismatches == 1);
  CHECK(replay(parse(start + "# nan: any\n38 38 00000000 7fc00000\n")).mismatches == 1);
}

TEST_CASE("FP16 outputs read as binary32 bits and as FP16 bits", "[io]") {
  const std::string start =
      "# fp8lab vectors 1\n# model: sm80.mma.f16.f16\n# input: f16\n# terms: 1\n"
      "# output: f16 (free words)\n";
  const VectorFile file = parse(start +
                                "3c00 4200 00000000 40400000\n3c00 4200 3c00 4400\n"
                                "3c00 0001 0000 0001\n7e00 3c00 00000000 7fff\n"
                                "7e00 3c00 00000000 7fffe000\n");
  CHECK(file.output_format == FormatId::f16);
  CHECK(file.cases[1].c == 0x3f800000);
  CHECK(file.cases[1].d == 0x40800000);
  CHECK(file.cases[2].d == 0x33800000);
  CHECK(replay(file).mismatches == 0);
  CHECK(replay(parse(start + "7e00 3c00 00000000 7fc00000\n")).mismatches == 1);

  for (const char* wrong : {"40401000", "33000000", "47800000", "33c00000"})
    CHECK_THAT(message(start + "3c00 4200 00000000 " + wrong + "\n"),
               contains("v.txt:6: field d: expected an FP16 value in binary32 bits, got " +
                        std::string(wrong)));
  CHECK_THAT(message(start + "3c00 4200 000000 40400000\n"),
             contains("field c: expected 8 hex digits, or 4 of an FP16 code, got 6"));
}

TEST_CASE("block scales: a case reduces to scales of 1.0", "[io]") {
  VectorCase failing;
  failing.a = {2, 2};
  failing.b = {2, 4};
  failing.scales_a = {0x85, 0x90};
  failing.scales_b = {0x7f, 0x60};
  const auto fails = [](const VectorCase& one) { return one.scales_b[1] < 0x70; };
  const VectorCase smallest =
      reduce_case(failing, FormatId::e2m1, FormatId::e2m1, fails, 20000, ScaleFormat::ue8m0)
          .smallest;
  CHECK(smallest.scales_a == std::vector<std::uint8_t>{0x7f, 0x7f});
  CHECK(smallest.scales_b == std::vector<std::uint8_t>{0x7f, 0x6f});
  CHECK(live_terms(smallest) == 0);
}

TEST_CASE("scale codes: UE4M3 has no sign, UE8M0 no zero", "[formats]") {
  const auto value = [](ScaleFormat scale, std::uint8_t code) {
    const Unpacked u = unpack_scale(scale, code);
    CHECK_FALSE(u.negative);
    return u;
  };
  CHECK(value(ScaleFormat::ue4m3, 0x7f).value_class == ValueClass::nan);
  CHECK(value(ScaleFormat::ue4m3, 0xff).value_class == ValueClass::nan);
  CHECK(value(ScaleFormat::ue4m3, 0x80).value_class == ValueClass::zero);
  CHECK(value(ScaleFormat::ue4m3, 0xb8).significand == 8);
  CHECK(value(ScaleFormat::ue4m3, 0xb8).exponent == 0);
  CHECK(value(ScaleFormat::ue4m3, 0x81).exponent == -6);
  CHECK(value(ScaleFormat::ue8m0, 0xff).value_class == ValueClass::nan);
  CHECK(value(ScaleFormat::ue8m0, 0x00).exponent == -127);
  CHECK(value(ScaleFormat::ue8m0, 0x80).exponent == 1);
  CHECK(value(ScaleFormat::ue8m0, 0x80).significand == 1);
  CHECK(find_scale_format("ue4m3") == ScaleFormat::ue4m3);
  CHECK_THROWS_WITH(find_scale_format("e4m3"), contains("ue8m0"));
}

TEST_CASE("what an output line says behind the format stays in every form", "[io]") {
  const TemporaryFolder folder("output_words");
  const std::string text =
      "# fp8lab vectors 1\n# model: sm80.mma.f16.f16\n# input: f16\n# terms: 1\n"
      "# output: f16 (free words)\n3c00 4200 00000000 40400000\n";
  VectorFile file = parse(text);
  std::ostringstream out;
  write_vectors(out, file);
  CHECK(out.str() == text);
  for (const char* name : {"v.txt", "v.npz", "v.safetensors", "v.jsonl"}) {
    INFO(name);
    save_vectors(folder / name, file);
    const VectorFile read = load_vectors(folder / name);
    CHECK(read.header.at("output") == "f16 (free words)");
    check_same_cases(file, read);
  }
  // Where nothing says it, the format alone does; and for binary32 nothing.
  file.header.erase("output");
  std::ostringstream plain;
  write_vectors(plain, file);
  CHECK_THAT(plain.str(), contains("\n# output: f16\n"));
  file.output_format = FormatId::f32;
  std::ostringstream wide;
  write_vectors(wide, file);
  CHECK(wide.str().find("output") == std::string::npos);
}

TEST_CASE("FP16 outputs: both sides of each limit of a value", "[io]") {
  const auto accepted = [](const std::string& d) {
    return message(
               "# fp8lab vectors 1\n# model: sm80.mma.f16.f16\n# input: f16\n# terms: 1\n"
               "# output: f16\n3c00 4200 00000000 " +
               d + "\n") == "accepted";
  };
  // Zeros, the smallest value, infinities, NaN, the largest value, the last place of 1 and of
  // 2^-14.
  for (const char* d :
       {"00000000", "80000000", "33800000", "b3800000", "7f800000", "ff800000", "7fc00001",
        "477fe000", "3f802000", "38802000", "387fc000", "34000000", "34400000", "0001", "ffff"})
    CHECK((accepted(d) ? std::string(d) : "refused") == d);
  for (const char* d : {"33000000", "477ff000", "47800000", "3f801000", "38801000", "387fe000",
                        "34200000", "00000001", "00800000", "7f000000"})
    CHECK((accepted(d) ? "accepted" : std::string(d)) == d);
}

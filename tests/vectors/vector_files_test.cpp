#include "fp8lab/vectors/vector_files.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/npz.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/vectors/cases.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

void check_same(const VectorFile& expected, const VectorFile& got) {
  CHECK(got.model == expected.model);
  CHECK(got.a_format == expected.a_format);
  CHECK(got.b_format == expected.b_format);
  CHECK(got.terms == expected.terms);
  CHECK(got.header.at("kind") == expected.header.at("kind"));
  REQUIRE(got.cases.size() == expected.cases.size());
  for (std::size_t i = 0; i < got.cases.size(); ++i) {
    INFO("case " << i);
    CHECK(got.cases[i].a == expected.cases[i].a);
    CHECK(got.cases[i].b == expected.cases[i].b);
    CHECK(got.cases[i].c == expected.cases[i].c);
    CHECK(got.cases[i].d == expected.cases[i].d);
  }
}

std::string message(const std::filesystem::path& path) {
  return test::message_of([&] { (void)load_vectors(path); });
}

}  // namespace

TEST_CASE("vector files: every form holds the same cases", "[io]") {
  const TemporaryFolder folder("vector_files");
  for (const char* model : {"sm90.wgmma.e4m3", "sm90.wgmma.e4m3.e5m2", "sm80.mma.f16",
                            "sm80.mma.bf16", "sm80.mma.tf32"}) {
    const VectorFile file = generate_cases(find_instruction_model(model), CaseKind::special, 40, 3);
    for (const char* name : {"v.txt", "v.npz", "v.safetensors", "v.jsonl"}) {
      INFO(model << " " << name);
      save_vectors(folder / name, file);
      const VectorFile read = load_vectors(folder / name);
      check_same(file, read);
      CHECK(replay(read).mismatches == 0);
      CHECK(replay(read).cases == 40);
    }
  }
}

TEST_CASE("vector files: arrays that are not what the header says are refused", "[io]") {
  const TemporaryFolder folder("vector_files_wrong");
  const std::vector<std::uint8_t> codes(6, 0x38);
  const std::vector<std::uint32_t> bits(3);
  const auto write = [&](const std::string& header, std::int64_t terms, ElementType c_type) {
    write_npz(folder / "v.npz",
              {{"a", view_of(ElementType::u8, {6 / terms, terms}, std::span(codes))},
               {"b", view_of(ElementType::u8, {6 / terms, terms}, std::span(codes))},
               {"c", view_of(c_type, {3}, std::span(bits))},
               {"d", view_of(ElementType::f32, {3}, std::span(bits))},
               {"header", view_of(ElementType::u8, {static_cast<std::int64_t>(header.size())},
                                  std::span<const char>(header))}});
    return message(folder / "v.npz");
  };
  const auto header = [](const std::string& input, const std::string& terms) {
    return R"({"model": "sm90.wgmma.e4m3", "input": ")" + input + R"(", "terms": ")" + terms +
           "\"}";
  };
  CHECK(write(header("e4m3", "2"), 2, ElementType::f32) == "accepted");
  CHECK_THAT(write(header("e4m3", "3"), 2, ElementType::f32), contains("a: expected row-major u8"));
  CHECK_THAT(write(header("e4m3", "2"), 3, ElementType::f32), contains("[3, 2], got u8 [2, 3]"));
  CHECK_THAT(write(header("f16", "2"), 2, ElementType::f32), contains("expected row-major u16"));
  CHECK_THAT(write(header("e4m3", "2"), 2, ElementType::u32),
             contains("c: expected row-major f32"));
  CHECK_THAT(write(header("e2m1", "2"), 2, ElementType::f32),
             contains("0x38 is not a code of e2m1"));
  CHECK_THAT(write(header("e4m3", "0"), 2, ElementType::f32), contains("terms"));
  CHECK_THAT(write(header("e9m9", "2"), 2, ElementType::f32), contains("input"));
  CHECK_THAT(write("{}", 2, ElementType::f32), contains("lacks 'model'"));
  CHECK_THAT(write("{\"a\": 1}", 2, ElementType::f32), contains("expected a string"));
  CHECK_THAT(write("[", 2, ElementType::f32), contains("expected a JSON object"));
}

TEST_CASE("vector files: lines that are not cases are refused with their number", "[io]") {
  const TemporaryFolder folder("vector_files_lines");
  const std::string header = R"({"input": "e4m3", "model": "sm90.wgmma.e4m3", "terms": "2"})";
  const auto with = [&](const std::string& lines) {
    write_text(folder / "v.jsonl", header + "\n" + lines);
    return message(folder / "v.jsonl");
  };
  const std::string good = R"({"a": [56, 56], "b": [0, 8], "c": 0, "d": 4290772992})";
  CHECK(with(good + "\n") == "accepted");
  CHECK_THAT(with(""), contains("no cases"));
  CHECK_THAT(with(good), contains(":2: truncated"));
  CHECK_THAT(with(good + "\n{}\n"), contains(":3: 'a': expected 2 storage codes"));
  CHECK_THAT(with("nonsense\n"), contains(":2: expected a JSON object"));
  CHECK_THAT(with(R"({"a": [56, 256], "b": [0, 8], "c": 0, "d": 0})"
                  "\n"),
             contains("0x100 is not a code of e4m3fn"));
  CHECK_THAT(with(R"({"a": [56, -1], "b": [0, 8], "c": 0, "d": 0})"
                  "\n"),
             contains("expected codes >= 0"));
  CHECK_THAT(with(R"({"a": [56, 1], "b": [0, 8], "c": 1.5, "d": 0})"
                  "\n"),
             contains("'c': expected the bits"));
  write_text(folder / "v.jsonl", good + "\n");
  CHECK_THAT(message(folder / "v.jsonl"), contains(":1: 'a': expected a string"));
}

TEST_CASE("vector files: a case of arrays is named by its number from 1", "[io]") {
  const TemporaryFolder folder("vector_files_places");
  const auto write = [&](std::vector<std::uint8_t> a, std::vector<std::uint8_t> b, bool fortran,
                         const std::string& input, std::vector<std::int64_t> d_shape,
                         ElementType header_type) {
    const std::string header =
        R"({"model": "sm90.wgmma.e4m3", "terms": "2", "input": ")" + input + "\"}";
    const std::vector<std::uint32_t> bits{0, 1, 0x3f800000};
    const auto size = static_cast<std::int64_t>(header.size());
    TensorView a_view = view_of(ElementType::u8, {3, 2}, std::span<const std::uint8_t>(a));
    a_view.fortran_order = fortran;
    const auto of = [&](std::vector<std::int64_t> shape) {
      const auto count = static_cast<std::size_t>(element_count(shape, "d"));
      return view_of(ElementType::f32, std::move(shape),
                     std::span<const std::uint32_t>(bits).first(count));
    };
    write_npz(folder / "v.npz",
              {{"a", a_view},
               {"b", view_of(ElementType::u8, {3, 2}, std::span<const std::uint8_t>(b))},
               {"c", of({3})},
               {"d", of(std::move(d_shape))},
               {"header", view_of(header_type, {size}, std::span<const char>(header))}});
    std::string said = message(folder / "v.npz");
    const std::string name = (folder / "v.npz").string() + ": ";
    return said.starts_with(name) ? said.substr(name.size()) : said;
  };
  const std::vector<std::uint8_t> good{1, 2, 3, 4, 5, 6};
  const ElementType u8 = ElementType::u8;
  CHECK(write(good, good, false, "e2m1", {3}, u8) == "accepted");
  const VectorFile read = load_vectors(folder / "v.npz");
  REQUIRE(read.cases.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(read.cases[i].line == static_cast<int>(i) + 1);
    CHECK(read.cases[i].a == std::vector<std::uint32_t>{static_cast<std::uint32_t>(2 * i + 1),
                                                        static_cast<std::uint32_t>(2 * i + 2)});
  }
  CHECK(write({1, 2, 3, 16, 5, 6}, good, false, "e2m1", {3}, u8) ==
        "case 2: 0x10 is not a code of e2m1 (4 bits)");
  CHECK(write(good, {1, 2, 3, 4, 5, 64}, false, "e4m3 e3m2", {3}, u8) ==
        "case 3: 0x40 is not a code of e3m2 (6 bits)");
  CHECK(write(good, good, true, "e2m1", {3}, u8) ==
        "a: expected row-major u8 [3, 2], got u8 [3, 2] in Fortran order");
  CHECK(write(good, good, false, "e2m1", {1, 3}, u8) == "d: expected one number per case");
  CHECK(write(good, good, false, "e2m1", {2}, u8) ==
        "a: expected row-major u8 [2, 2], got u8 [3, 2]");
  CHECK(write(good, good, false, "e2m1", {0}, u8) ==
        "a: expected row-major u8 [0, 2], got u8 [3, 2]");
}

TEST_CASE("vector files: narrow formats and FP16 outputs in every form", "[io]") {
  const TemporaryFolder folder("vector_files_narrow");
  for (const auto& [a, b] :
       {std::pair{FormatId::e2m3, FormatId::e3m2}, std::pair{FormatId::e3m2, FormatId::e2m3},
        std::pair{FormatId::e2m1, FormatId::e4m3fn},
        std::pair{FormatId::e4m3fnuz, FormatId::e5m2fnuz}}) {
    VectorFile file{"m", a, b, 3, {{"kind", "by hand"}}, {}};
    file.cases.push_back({{1, 5, 9}, {2, 6, 10}, 3, 4});
    file.cases.push_back({{11, 12, 13}, {14, 15, 1}, 5, 6});
    for (const char* name : {"v.txt", "v.npz", "v.safetensors", "v.jsonl"}) {
      INFO(format(a).name << " " << format(b).name << " " << name);
      save_vectors(folder / name, file);
      check_same(file, load_vectors(folder / name));
    }
    const SafetensorsFile typed(folder / "v.safetensors");
    const auto has_type = [](FormatId id) { return format(id).code_bits() == 8; };
    CHECK((typed.find("a").type == ElementType::u8) == !has_type(a));
    CHECK((typed.find("b").type == ElementType::u8) == !has_type(b));
  }
  // An output that is no FP16 value is refused in every form, at its case.
  VectorFile file{"m", FormatId::f16, FormatId::f16, 1, {{"kind", "by hand"}}, {}};
  file.output_format = FormatId::f16;
  file.cases.push_back({{0x3c00}, {0x4200}, 0, 0x40400000});
  file.cases.push_back({{0x3c00}, {0x4200}, 0, 0x40401000});
  const std::string reason = "d: expected an FP16 value in binary32 bits, got 40401000";
  for (const auto& [name, place] :
       {std::pair{"w.npz", ": case 2: "}, std::pair{"w.safetensors", ": case 2: "},
        std::pair{"w.jsonl", ":3: "}}) {
    save_vectors(folder / name, file);
    CHECK(message(folder / name) == (folder / name).string() + place + reason);
  }
}

TEST_CASE("vector files: numbers of a line that are too large are refused", "[io]") {
  const TemporaryFolder folder("vector_files_numbers");
  const auto said = [&](const std::string& input, const std::string& fields) {
    write_text(folder / "v.jsonl",
               R"({"model": "m", "terms": "1", "input": ")" + input + "\"}\n{" + fields + "}\n");
    const std::string text = message(folder / "v.jsonl");
    const std::string name = (folder / "v.jsonl").string() + ":2: ";
    return text.starts_with(name) ? text.substr(name.size()) : text;
  };
  const std::string bits = R"(, "c": 0, "d": 0)";
  CHECK(said("tf32", R"("a": [4294967295], "b": [0])" + bits) == "accepted");
  CHECK(said("tf32", R"("a": [4294967296], "b": [0])" + bits) ==
        "'a': 0x100000000 is not a code of tf32 (19 bits)");
  CHECK(said("tf32", R"("a": [0], "b": [18446744073709551615])" + bits) ==
        "'b': 0xffffffffffffffff is not a code of tf32 (19 bits)");
  CHECK(said("bf16", R"("a": [65535], "b": [65535])" + bits) == "accepted");
  CHECK(said("bf16", R"("a": [65535], "b": [65536])" + bits) ==
        "'b': 0x10000 is not a code of bf16 (16 bits)");
  CHECK(said("e4m3", R"("a": [1], "b": [1, 2])" + bits) == "'b': expected 1 storage codes");
  CHECK(said("e4m3", R"("a": 1, "b": [1])" + bits) == "'a': expected 1 storage codes");
  CHECK(said("e4m3", R"("a": [1.0], "b": [1])" + bits) == "'a': expected codes >= 0");
  const std::string number = ": expected the bits of a binary32 number, 0 to 2^32 - 1";
  const std::string operands = R"("a": [1], "b": [1], )";
  CHECK(said("e4m3", operands + R"("c": 4294967295, "d": 4294967295)") == "accepted");
  CHECK(load_vectors(folder / "v.jsonl").cases.at(0).line == 2);
  CHECK(said("e4m3", operands + R"("c": 4294967296, "d": 0)") == "'c'" + number);
  CHECK(said("e4m3", operands + R"("c": 0, "d": 4294967296)") == "'d'" + number);
  CHECK(said("e4m3", operands + R"("c": -1, "d": 0)") == "'c'" + number);
  CHECK(said("e4m3", operands + R"("c": 0)") == "'d'" + number);
}

TEST_CASE("vector files: lines of JSON are read from .jsonl alone", "[io]") {
  const TemporaryFolder folder("vector_files_endings");
  for (const char* ending : {".json", ".jsonl", ".jsonl.txt", ".JSONL"}) {
    const std::filesystem::path path = folder / fmt::format("v{}", ending);
    write_text(path,
               "{\"model\": \"m\", \"terms\": \"1\", \"input\": \"e4m3\"}\n"
               "{\"a\": [1], \"b\": [1], \"c\": 0, \"d\": 0}\n");
    INFO(path);
    CHECK((message(path) == "accepted") == (std::string_view(ending) == ".jsonl"));
  }
}

TEST_CASE("vector files: every field of a line is refused for every value that is not its own",
          "[io]") {
  const TemporaryFolder folder("vector_files_values");
  const std::map<std::string, std::string> good{{"a", "[56, 57]"}, {"b", "[8, 9]"},
                                                {"c", "0"},        {"d", "1065353216"},
                                                {"sa", "[127]"},   {"sb", "[0]"}};
  const auto said = [&](const std::string& field, const std::string& value) {
    std::string line;
    for (const auto& [key, text] : good)
      line += (line.empty() ? "{\"" : ", \"") + key + "\": " + (key == field ? value : text);
    write_text(folder / "v.jsonl",
               R"({"model": "m", "terms": "2", "input": "e4m3", "scales": "ue8m0 32"})"
               "\n" +
                   line + "}\n");
    const std::string text = message(folder / "v.jsonl");
    const std::string name = (folder / "v.jsonl").string() + ":2: ";
    return text.starts_with(name) ? text.substr(name.size()) : text;
  };
  for (const auto& [field, value] : good) CHECK(said(field, value) == "accepted");
  const std::vector<std::string> others{
      "null", "true",       "\"56\"", "\"5657\"",     "-1",
      "1.5",  "4294967296", "{}",     R"({"x": 56})", R"({"x": 56, "y": 57})",
      "[]",   "[1, 2, 3]"};
  for (const std::string& value : others) {
    INFO(value);
    for (const char* field : {"a", "b"})
      CHECK(said(field, value) == fmt::format("'{}': expected 2 storage codes", field));
    for (const char* field : {"c", "d"})
      CHECK(said(field, value) ==
            fmt::format("'{}': expected the bits of a binary32 number, 0 to 2^32 - 1", field));
    std::string dense;
    for (const char letter : value)
      if (letter != ' ') dense += letter;
    for (const char* field : {"sa", "sb"})
      CHECK(said(field, value) ==
            fmt::format("'{}': expected 1 scale codes, 0 to 255, got {}", field, dense));
  }
  for (const char* item : {"null", "true", "\"1\"", "-1", "1.0", "[1]", "{}"}) {
    INFO(item);
    for (const char* field : {"a", "b"})
      CHECK(said(field, fmt::format("[1, {}]", item)) ==
            fmt::format("'{}': expected codes >= 0", field));
    for (const char* field : {"sa", "sb"})
      CHECK(said(field, fmt::format("[{}]", item)) ==
            fmt::format("'{}': expected 1 scale codes, 0 to 255, got [{}]", field, item));
  }
  for (const char* field : {"sa", "sb"}) {
    CHECK(said(field, "[255]") == "accepted");
    CHECK(said(field, "[256]") ==
          fmt::format("'{}': expected 1 scale codes, 0 to 255, got [256]", field));
  }
}

TEST_CASE("that any NaN is right is written by whoever made the cases, to each kind of file",
          "[io]") {
  const TemporaryFolder folder("any_nan");
  for (const bool any : {true, false})
    for (const char* name : {"v.txt", "v.jsonl", "v.npz", "v.safetensors"}) {
      VectorFile file;  // without a header of a file that it was read from
      file.model = "sm90.wgmma.e4m3";
      file.a_format = file.b_format = FormatId::e4m3fn;
      file.terms = 2;
      file.any_nan = any;
      file.cases.push_back({{0x7f, 0x38}, {0x38, 0x38}, 0, 0x7fc00000, 1});
      INFO(name);
      save_vectors(folder / name, file);
      CHECK(load_vectors(folder / name).any_nan == any);
    }
}

TEST_CASE("a line of a header comes once", "[io]") {
  const TemporaryFolder folder("twice");
  const std::string head =
      "# fp8lab vectors 1\n# model: sm90.wgmma.e4m3\n# input: e4m3\n# terms: 2\n";
  const std::string row = "3838 4030 3f800000 40600000\n";
  for (const auto& [line, said] :
       {std::pair{"# model: sm89.mma.e4m3\n",
                  "v.txt:5: a second header line '# model: ...', after line 2"},
        {"# terms: 2\n", "v.txt:5: a second header line '# terms: ...', after line 4"},
        {"# note: a\n# note: b\n", "v.txt:6: a second header line '# note: ...', after line 5"}}) {
    write_text(folder / "v.txt", head + line + row);
    CHECK_THROWS_WITH(load_vectors(folder / "v.txt"), contains(said));
  }
  write_text(folder / "v.txt", head + "# a comment\n# a comment\n" + row);
  CHECK(load_vectors(folder / "v.txt").cases.size() == 1);
}

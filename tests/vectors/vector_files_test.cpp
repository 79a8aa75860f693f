#include "fp8lab/vectors/vector_files.hpp"

#include <cmath>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/npz.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/vectors/cases.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "io/temporary.hpp"

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
  try {
    (void)load_vectors(path);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
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

#include <fmt/format.h>

#include <sstream>
#include <string>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/vectors/vector_files.hpp"
#include "io/temporary.hpp"

using namespace fp8lab;

namespace {

constexpr std::string_view kText =
    "# fp8lab vectors 1\n# model: sm90.wgmma.e4m3\n# input: e4m3fn\n# terms: 2\n# gpu: none\n"
    "3838 4030 3f800000 40600000\nc040 3030 00000000 bfc00000\n";

VectorFile parse(const std::string& text) {
  std::istringstream in(text);
  return read_vectors(in, "vectors.txt");
}

}  // namespace

TEST_CASE("a saved vector file says its checksum, and any changed bit is refused", "[io]") {
  const TemporaryFolder folder("vectors");
  save_vectors(folder / "v.txt", parse(std::string(kText)));
  const std::string text = read_file(folder / "v.txt");
  CHECK(text == fmt::format("{}# crc32: {}\n", kText, crc32_text(kText)));
  const VectorFile again = load_vectors(folder / "v.txt");
  CHECK(again.cases.size() == 2);
  CHECK(again.header.at("gpu") == "none");
  CHECK_FALSE(again.header.contains("crc32"));
  for (std::size_t i = 0; i < 8 * text.size(); ++i) {
    std::string changed = text;
    changed[i / 8] = static_cast<char>(changed[i / 8] ^ 1 << i % 8);
    INFO("bit " << i % 8 << " of byte " << i / 8);
    CHECK_THROWS_AS(parse(changed), Error);
  }
}

TEST_CASE("a checksum of a vector file is its last line and of its own bytes", "[io]") {
  const std::string text(kText);
  const auto with_sum = [](const std::string& of) {
    return fmt::format("{}# crc32: {}\n", of, crc32_text(of));
  };
  CHECK(parse(text).cases.size() == 2);  // none: of a pipe, or of an older version
  CHECK(parse(with_sum(text)).cases.size() == 2);
  for (const char* returns : {"\r", "\r\r\r"}) {
    std::string dos;
    for (const char c : text) {
      if (c == '\n') dos += returns;
      dos.push_back(c);
    }
    const VectorFile file = parse(with_sum(dos));
    CHECK(file.cases.size() == 2);
    CHECK(file.header == parse(text).header);
  }
  std::string changed = with_sum(text);
  changed[text.size() - 2] = '1';
  CHECK_THROWS_WITH(parse(changed), contains("vectors.txt:8: crc32: expected ") &&
                                        contains("the file was changed"));
  CHECK_THROWS_WITH(parse(with_sum(text) + "3838 4030 3f800000 40600000\n"),
                    contains("vectors.txt:9: text after the checksum"));
}

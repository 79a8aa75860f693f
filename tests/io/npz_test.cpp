#include "fp8lab/io/npz.hpp"

#include <array>
#include <cstring>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

struct Sample {
  std::array<float, 6> values{1, 2, 3, 4, 5, 6};
  std::array<std::uint8_t, 3> codes{0x38, 0xc0, 0x7f};

  [[nodiscard]] std::vector<NamedTensor> tensors() const {
    return {{"values", view_of(ElementType::f32, {2, 3}, std::span<const float>(values))},
            {"codes", view_of(ElementType::e4m3fn, {3}, std::span<const std::uint8_t>(codes))},
            {"empty", view_of(ElementType::f32, {0, 4}, std::span<const float>())}};
  }
};

/// A zip archive of empty members with these names, as no writer of arrays would make it.
std::string archive_of(const std::vector<std::string>& names) {
  const auto number = [](std::size_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
    return text;
  };
  std::string members;
  std::string directory;
  for (const std::string& name : names) {
    const std::string head = number(10, 2) + std::string(20, '\0') + number(name.size(), 2);
    directory +=
        "PK\1\2" + number(10, 2) + head + std::string(12, '\0') + number(members.size(), 4) + name;
    members += "PK\3\4" + head + std::string(2, '\0') + name;
  }
  return members + directory + "PK\5\6" + std::string(4, '\0') + number(names.size(), 2) +
         number(names.size(), 2) + number(directory.size(), 4) + number(members.size(), 4) +
         std::string(2, '\0');
}

std::string message_of(const std::filesystem::path& file) {
  return test::message_of([&] {
    const NpzFile archive(file);
    for (const std::string& name : archive.names()) (void)archive.read(name);
  });
}

}  // namespace

TEST_CASE("npz: a round trip keeps every tensor, and the same tensors give the same bytes",
          "[io]") {
  const TemporaryFolder folder("npz_round_trip");
  write_npz(folder / "a.npz", Sample().tensors());
  write_npz(folder / "b.npz", Sample().tensors());
  CHECK(read_text(folder / "a.npz") == read_text(folder / "b.npz"));
  CHECK(folder.files() == 2);
  const std::string text = read_text(folder / "a.npz");
  const std::string first_of_january_1980{"\0\0\x21\0", 4};  // time and day, as zip has them
  for (const auto& [mark, at] :
       {std::pair<std::string, std::size_t>{"PK\3\4", 10}, {"PK\1\2", 12}}) {
    int members = 0;
    for (std::size_t i = text.find(mark); i != std::string::npos; i = text.find(mark, i + 1)) {
      INFO("member " << ++members << ", byte " << i + at);
      CHECK(text.substr(i + at, 4) == first_of_january_1980);
    }
    CHECK(members == 3);
  }
  const NpzFile file(folder / "a.npz");
  CHECK(file.names() == std::vector<std::string>{"values", "codes", "empty"});
  const NpzTensor values = file.read("values");
  CHECK(values.tensor.shape == std::vector<std::int64_t>{2, 3});
  CHECK(to_float(values.tensor) == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(file.read("codes").tensor.type == ElementType::u8);
  CHECK(to_float(file.read("codes", ElementType::e4m3fn).tensor)[1] == -2.0F);
  CHECK(file.read("empty").tensor.size() == 0);
  CHECK_THROWS_WITH(file.read("nothing"), contains("'nothing'") && contains("values, codes"));
}

TEST_CASE("npz: what cannot be written leaves the old file", "[io]") {
  const TemporaryFolder folder("npz_refused");
  write_npz(folder / "a.npz", Sample().tensors());
  const std::string before = read_text(folder / "a.npz");
  auto tensors = Sample().tensors();
  tensors[1].name = "values";
  CHECK_THROWS_WITH(write_npz(folder / "a.npz", tensors), contains("a unique name"));
  tensors[1].name = "../values";
  CHECK_THROWS_WITH(write_npz(folder / "a.npz", tensors), contains("without '/'"));
  tensors[1].name = "codes";
  tensors[1].tensor.shape = {4};
  CHECK_THROWS_WITH(write_npz(folder / "a.npz", tensors), contains("4 bytes"));
  CHECK_THROWS_AS(write_npz(folder / "none/a.npz", Sample().tensors()), Error);
  CHECK(read_text(folder / "a.npz") == before);
  CHECK(folder.files() == 1);
}

TEST_CASE("npz: what is no archive says so", "[io]") {
  const TemporaryFolder folder("npz_bad");
  write_text(folder / "a.npz", "");
  CHECK_THAT(message_of(folder / "a.npz"), contains("a.npz") && contains("not a readable .npz"));
  write_text(folder / "a.npz", "\x93NUMPY and so on");
  CHECK_THAT(message_of(folder / "a.npz"), contains("not a readable .npz"));
  CHECK_THAT(message_of(folder / "none.npz"), contains("not a readable .npz"));
}

TEST_CASE("npz: members have names, each its own, and are arrays", "[io]") {
  const TemporaryFolder folder("npz_names");
  const auto said = [&](const std::vector<std::string>& names) {
    write_text(folder / "a.npz", archive_of(names));
    return message_of(folder / "a.npz");
  };
  CHECK_THAT(said({"a.npy", ".npy"}), contains("'.npy': expected NAME.npy members"));
  CHECK_THAT(said({"a.npy", "npy"}), contains("'npy': expected NAME.npy members"));
  CHECK_THAT(said({"a.txt"}), contains("'a.txt': expected NAME.npy members"));
  CHECK(said({"a.npy", "b.npy", "a.npy"}) != "accepted");
  write_text(folder / "a.npz", archive_of({"a.npy", "b.npy"}));
  CHECK(NpzFile(folder / "a.npz").names() == std::vector<std::string>{"a", "b"});
}

TEST_CASE("npz: a changed byte of the data is found by its checksum", "[io]") {
  const TemporaryFolder folder("npz_crc");
  write_npz(folder / "a.npz", Sample().tensors());
  std::string text = read_text(folder / "a.npz");
  const std::array<float, 2> searched{3, 4};
  const std::size_t at =
      text.find(std::string(reinterpret_cast<const char*>(searched.data()), sizeof searched));
  REQUIRE(at != std::string::npos);
  text[at + 1] = static_cast<char>(text[at + 1] ^ 1);
  write_text(folder / "a.npz", text);
  CHECK_THAT(message_of(folder / "a.npz"), contains("'values'") && contains("damaged"));
}

TEST_CASE("npz: a member's sizes in the headers are what is there", "[io]") {
  const TemporaryFolder folder("npz_sizes");
  write_npz(folder / "ok.npz", Sample().tensors());
  const std::string whole = read_text(folder / "ok.npz");
  const std::size_t local = whole.find("PK\3\4");
  const std::size_t central = whole.find("PK\1\2");
  std::uint32_t size = 0;
  std::memcpy(&size, whole.data() + central + 24, sizeof size);
  const auto said = [&](std::uint32_t claimed, std::vector<std::size_t> places) {
    std::string text = whole;
    for (const std::size_t at : places) std::memcpy(text.data() + at, &claimed, sizeof claimed);
    write_text(folder / "a.npz", text);
    return message_of(folder / "a.npz");
  };
  const std::vector<std::size_t> unpacked{local + 22, central + 24};
  CHECK(said(size, unpacked) == "accepted");
  CHECK_THAT(said(0x7fffffff, unpacked),
             contains("'values': the header gives 2147483647 bytes in") &&
                 contains("packed bytes, which is impossible"));
  for (const std::uint32_t claimed : {size - 1, size + 1, std::uint32_t{0}}) {
    INFO(claimed << " bytes for " << size);
    CHECK_THAT(said(claimed, unpacked), contains("'values': damaged"));
  }
}

TEST_CASE("npz: no truncated or mutated file is read past its end", "[io]") {
  const TemporaryFolder folder("npz_fuzz");
  write_npz(folder / "ok.npz", Sample().tensors());
  const std::string good = read_text(folder / "ok.npz");
  for (std::size_t length = 0; length < good.size(); length += 7) {
    write_text(folder / "cut.npz", good.substr(0, length));
    INFO("cut to " << length << " of " << good.size() << " bytes");
    CHECK(message_of(folder / "cut.npz") != "accepted");
  }
  const RandomStream random(1, "npz_fuzz");
  int rejected = 0;
  for (std::uint64_t trial = 0; trial < 500; ++trial) {
    std::string text = good;
    text[random.below(2 * trial, good.size())] =
        static_cast<char>(random.below(2 * trial + 1, 256));
    write_text(folder / "mutated.npz", text);
    if (message_of(folder / "mutated.npz") != "accepted") ++rejected;
  }
  CHECK(rejected > 250);
}

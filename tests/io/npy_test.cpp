#include "fp8lab/io/npy.hpp"

#include <array>
#include <numeric>
#include <span>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/io/files.hpp"
#include "io/temporary.hpp"
#include "io/temporary_file.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

std::vector<float> count_up(std::size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

/// A version 1.0 file with this header text and data.
std::string npy(const std::string& header, const std::string& data) {
  std::string text = "\x93NUMPY";
  text += '\1';
  text += '\0';
  text += static_cast<char>(header.size() & 0xff);
  text += static_cast<char>(header.size() >> 8);
  return text + header + data;
}

std::string literal(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
}

}  // namespace

TEST_CASE("npy: a round trip keeps bytes, shape and type", "[io]") {
  const TemporaryFolder folder("npy_round_trip");
  const std::vector<float> values = count_up(12);
  for (const auto& shape :
       std::vector<std::vector<std::int64_t>>{{12}, {3, 4}, {2, 2, 3}, {0, 4}}) {
    const auto count = static_cast<std::size_t>(element_count(shape, "shape"));
    const std::span<const float> part(values.data(), count);
    write_npy(folder / "a.npy", view_of(ElementType::f32, shape, part));
    const NpyFile file(folder / "a.npy");
    INFO(shape_text(shape));
    CHECK(file.tensor().shape == shape);
    CHECK(file.tensor().type == ElementType::f32);
    CHECK(to_float(file.tensor()) == std::vector<float>(part.begin(), part.end()));
    CHECK((read_text(folder / "a.npy").size() - count * 4) % 64 == 0);
  }
  CHECK(folder.files() == 1);
}

TEST_CASE("npy: a scalar has no dimensions", "[io]") {
  const TemporaryFolder folder("npy_scalar");
  const std::array<float, 1> value{2.5F};
  write_npy(folder / "s.npy", view_of(ElementType::f32, {}, std::span<const float>(value)));
  CHECK(to_float(NpyFile(folder / "s.npy").tensor()) == std::vector<float>{2.5F});
}

TEST_CASE("npy: Fortran order is read in row-major order", "[io]") {
  const TemporaryFolder folder("npy_fortran");
  const std::vector<float> columns{1, 4, 2, 5, 3, 6};  // [[1, 2, 3], [4, 5, 6]]
  TensorView view = view_of(ElementType::f32, {2, 3}, std::span<const float>(columns));
  view.fortran_order = true;
  write_npy(folder / "f.npy", view);
  CHECK(to_float(NpyFile(folder / "f.npy").tensor()) == count_up(6));

  const std::vector<float> cube{0, 4, 2, 6, 1, 5, 3, 7};
  view = view_of(ElementType::f32, {2, 2, 2}, std::span<const float>(cube));
  view.fortran_order = true;
  CHECK(to_float(view) == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("npy: every element type is read", "[io]") {
  const TemporaryFolder folder("npy_types");
  const auto read = [&](const std::string& descr, const std::string& data,
                        std::optional<ElementType> type = std::nullopt) {
    write_text(folder / "t.npy", npy(literal(descr, "(2,)"), data));
    return to_float(NpyFile(folder / "t.npy", type).tensor());
  };
  const std::vector<float> expected{1.0F, -2.0F};
  CHECK(read("<f2", std::string("\x00\x3c\x00\xc0", 4)) == expected);
  CHECK(read("<f4", std::string("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8)) == expected);
  CHECK(read("<f8", std::string("\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\xc0", 16)) == expected);
  CHECK(read("<V2", std::string("\x80\x3f\x00\xc0", 4), ElementType::bf16) == expected);
  CHECK(read("<u2", std::string("\x80\x3f\x00\xc0", 4), ElementType::bf16) == expected);
  CHECK(read("|u1", "\x38\xc0", ElementType::e4m3fn) == expected);
  CHECK(read("|u1", "\x3c\xc0", ElementType::e5m2) == expected);
  CHECK(read("|u1", std::string("\x01\xff", 2)) == std::vector<float>{1.0F, 255.0F});
  CHECK(read("|i1", std::string("\x01\xfe", 2)) == expected);
  CHECK(read("|u1", "\x7f\x80", ElementType::e8m0fnu) == std::vector<float>{1.0F, 2.0F});
}

TEST_CASE("npy: files that cannot be read say why", "[io]") {
  const TemporaryFolder folder("npy_bad");
  const std::string data(16, '\0');
  const auto message = [&](const std::string& text,
                           std::optional<ElementType> type = std::nullopt) -> std::string {
    write_text(folder / "bad.npy", text);
    return test::message_of([&] { NpyFile file(folder / "bad.npy", type); });
  };
  CHECK_THAT(message(npy(literal("|V1", "(16,)"), data)),
             contains("bad.npy") && contains("opaque bytes") && contains("x.view(np.uint8)"));
  CHECK_THAT(message(npy(literal("|V1", "(16,)"), data), ElementType::e4m3fn),
             contains("x.view(np.uint8)"));
  CHECK_THAT(message(npy(literal("<V2", "(8,)"), data)), contains("name the dtype (bf16)"));
  CHECK_THAT(message(npy(literal("<V2", "(8,)"), data), ElementType::f32),
             contains("name the dtype (bf16)"));
  CHECK_THAT(message(npy(literal("<f4", "(4,)"), data), ElementType::bf16),
             contains("cannot be read as bf16"));
  CHECK_THAT(message(npy(literal(">f4", "(4,)"), data)), contains("big endian"));
  CHECK_THAT(message(npy(literal("|O", "(4,)"), data)), contains("pickled"));
  CHECK_THAT(message(npy(literal("<c8", "(2,)"), data)), contains("not supported"));
  CHECK_THAT(message(npy(literal("<f4", "(5,)"), data)), contains("truncated"));
  CHECK_THAT(message(npy(literal("<f4", "(3,)"), data)), contains("too long"));
  CHECK_THAT(message(npy(literal("<f4", "(-4,)"), data)), contains("expected a dimension"));
  CHECK_THAT(message(npy(literal("<f4", "(99999999999999999999,)"), data)),
             contains("expected a dimension"));
  CHECK_THAT(message(npy(literal("<f4", "(4611686018427387904, 4)"), data)),
             contains("at most 2^62 elements"));
  CHECK_THAT(
      message(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }", data)),
      contains("structured"));
  CHECK_THAT(message(npy("{'descr': '<f4', 'descr': '<f4', 'shape': (4,), }", data)),
             contains("appears twice"));
  CHECK_THAT(message(npy("{'descr': '<f4', 'shape': (4,), }", data)),
             contains("expected the keys"));
  CHECK_THAT(message("NUMPY"), contains("not an .npy file"));
  CHECK_THAT(message(""), contains("not an .npy file"));
  std::string version = npy(literal("<f4", "(4,)"), data);
  version[6] = '\3';
  CHECK_THAT(message(version), contains("got 3.0"));
  CHECK(message(npy(literal("<f4", "(4,)"), data)) == "accepted");
  CHECK_THROWS_WITH(NpyFile(folder / "none.npy"),
                    contains("none.npy") && contains("cannot be opened"));
  CHECK_THROWS_WITH(NpyFile(std::filesystem::temp_directory_path()), contains("it is a folder"));
}

TEST_CASE("npy: no truncated or mutated file is read past its end", "[io]") {
  const TemporaryFolder folder("npy_fuzz");
  const std::vector<float> values = count_up(6);
  write_npy(folder / "ok.npy", view_of(ElementType::f32, {2, 3}, std::span<const float>(values)));
  const std::string good = read_text(folder / "ok.npy");
  for (std::size_t length = 0; length < good.size(); ++length) {
    write_text(folder / "cut.npy", good.substr(0, length));
    INFO("cut to " << length << " of " << good.size() << " bytes");
    CHECK_THROWS_AS(NpyFile(folder / "cut.npy"), Error);
  }
  const RandomStream random(1, "npy_fuzz");
  int rejected = 0;
  for (std::uint64_t trial = 0; trial < 2000; ++trial) {
    std::string text = good;
    for (std::uint64_t change = 0; change < 1 + trial % 3; ++change)
      text[random.below(8 * trial + 2 * change, 80)] =
          static_cast<char>(random.below(8 * trial + 2 * change + 1, 256));
    write_text(folder / "mutated.npy", text);
    try {
      const NpyFile file(folder / "mutated.npy");
      (void)to_float(file.tensor());  // whatever it says now, it stays inside the file
    } catch (const Error&) {
      ++rejected;
    }
  }
  CHECK(rejected > 1000);
}

TEST_CASE("npy: a failed write leaves the old file and nothing else", "[io]") {
  const TemporaryFolder folder("npy_atomic");
  const std::vector<float> values = count_up(3);
  const TensorView view = view_of(ElementType::f32, {3}, std::span<const float>(values));
  write_npy(folder / "a.npy", view);
  const std::string before = read_text(folder / "a.npy");
  TensorView wrong = view;
  wrong.shape = {4};
  CHECK_THROWS_WITH(write_npy(folder / "a.npy", wrong), contains("16 bytes"));
  CHECK_THROWS_AS(write_file(folder / "a.npy",
                             [](std::ostream& out) {
                               out << "half";
                               throw Error("no more");
                             }),
                  Error);
  CHECK(read_text(folder / "a.npy") == before);
  CHECK(folder.files() == 1);
  CHECK_THROWS_WITH(write_npy(folder / "no_such_folder/a.npy", view), contains("cannot write"));
}

TEST_CASE("npy: a header of more than 255 bytes has two bytes of length", "[io]") {
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }";
  header.resize(0x33b, ' ');
  const std::string text = npy(header + "\n", "abc");
  const TensorView view = parse_npy(std::as_bytes(std::span(text)), "long", std::nullopt);
  CHECK(view.shape == std::vector<std::int64_t>{3});
  REQUIRE(view.bytes.size() == 3);
  CHECK(static_cast<char>(view.bytes[0]) == 'a');
  CHECK(static_cast<char>(view.bytes[2]) == 'c');
}

TEST_CASE("a file of one byte has it", "[io]") {
  const TemporaryFile file("a");
  CHECK(MappedFile(file.path()).bytes().size() == 1);
}

// What is wrong with files, word for word.

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/io/npz.hpp"
#include "fp8lab/io/operand.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

constexpr std::array<std::uint8_t, 6> kSixCodes{0x38, 0x40, 0x44, 0xb8, 0x00, 0x7e};
constexpr std::array<float, 6> kSixFloats{1, 2, 3, -1, 0, 448};

TensorView six_codes(ElementType type, std::vector<std::int64_t> shape = {2, 3}) {
  return view_of(type, std::move(shape), std::span<const std::uint8_t>(kSixCodes));
}

std::string numpy_file(const std::string& header, std::size_t bytes) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size());
  text += '\0';
  return text + header + std::string(bytes, '\0');
}

std::string tensors_file(const std::string& header, std::size_t bytes) {
  std::string text(8, '\0');
  text[0] = static_cast<char>(header.size());
  return text + header + std::string(bytes, '\0');
}

}  // namespace

TEST_CASE("operands: what is wrong with a file or its name, word for word", "[io]") {
  const TemporaryFolder folder("operand_words");
  const auto said = [&](const std::string& name, std::optional<ElementType> type = {}) {
    return message_in(folder.path(), [&] { (void)load_operand((folder / name).string(), type); });
  };
  const auto with_sidecar = [&](const std::string& text, std::optional<ElementType> type = {}) {
    write_text(folder / "x.bin.json", text);
    return said("x.bin", type);
  };
  const std::string example = R"({"dtype": "e4m3fn", "shape": [64, 128]})";
  write_text(folder / "x.bin", "123456");
  CHECK(said("x.bin") == fmt::format("~/x.bin: neither .npy, .npz nor .safetensors; for raw data "
                                     "write {} to ~/x.bin.json",
                                     example));
  CHECK(with_sidecar(R"({"dtype": "u8"})") ==
        fmt::format("~/x.bin: neither .npy, .npz nor .safetensors; for raw data write {} to "
                    "~/x.bin.json",
                    example));
  CHECK(with_sidecar(R"({"shape": [6]})") ==
        "~/x.bin.json: no dtype; write \"dtype\": \"e4m3fn\" or give `dtype`");
  CHECK(with_sidecar("[6]") == fmt::format("~/x.bin.json: expected an object like {}", example));
  const std::string key(50, 'k');
  CHECK(with_sidecar(fmt::format(R"({{"dtype": "u8", "{}": 1}})", key)) ==
        fmt::format("~/x.bin.json: unknown or wrong '{}'; expected an object like {}",
                    key.substr(0, 40), example));
  CHECK(with_sidecar(R"({"dtype": 8, "shape": [6]})") ==
        fmt::format("~/x.bin.json: unknown or wrong 'dtype'; expected an object like {}", example));
  CHECK(with_sidecar(R"({"dtype": "u8", "shape": [2, 4]})") ==
        "~/x.bin: has 6 bytes, but ~/x.bin.json says u8 [2, 4] = 8 elements of 1 byte");
  CHECK(with_sidecar(R"({"dtype": "e4m3fn", "shape": [3]})", ElementType::f32) ==
        "~/x.bin: has 6 bytes, but ~/x.bin.json says f32 [3] = 3 elements of 4 bytes");
  CHECK(with_sidecar(R"({"dtype": "e2m1x2", "shape": [10]})") ==
        "~/x.bin: has 6 bytes, but ~/x.bin.json says e2m1x2 [10] = 10 elements of 4 bits");
  CHECK(with_sidecar(R"({"dtype": "e2m1x2", "shape": [12]})") == "accepted");
  CHECK(with_sidecar(R"({"dtype": "e2m3x4", "shape": [8]})") == "accepted");
  write_text(folder / "x.pth", "");
  CHECK(said("x.pth") ==
        "~/x.pth: PyTorch's pickled files are not read; save with safetensors.torch.save_file");
  CHECK(said("none.npz") == "~/none.npz: cannot be opened: No such file or directory");
  const std::array<float, 6>& floats = kSixFloats;
  write_safetensors(folder / "a.safetensors",
                    {{"f", view_of(ElementType::f32, {6}, std::span<const float>(floats))},
                     {"u", six_codes(ElementType::u8)}});
  CHECK(said("a.safetensors:f", ElementType::bf16) ==
        "~/a.safetensors: holds f32, which contradicts `dtype=bf16`; leave that out");
  CHECK(said("a.safetensors:u", ElementType::bf16) ==
        "~/a.safetensors: holds u8, which contradicts `dtype=bf16`; leave that out");
  CHECK(said("a.safetensors:u", ElementType::e5m2) == "accepted");
  write_text(folder / "b.npy", "");
  CHECK(said("b.npy:b") == "~/b.npy: a .npy file has no names; leave out ':NAME'");
}

TEST_CASE("npz: what is wrong with an archive, word for word", "[io]") {
  const TemporaryFolder folder("npz_words");
  const auto said = [&](const std::string& file, std::string_view name) {
    return message_in(folder.path(), [&] { (void)NpzFile(folder / file).read(name); });
  };
  write_text(folder / "no.npz", "no archive");
  CHECK(said("no.npz", "a") == "~/no.npz: not a readable .npz file: Not a zip archive");
  write_npz(folder / "a.npz", {{"a", six_codes(ElementType::u8)}});
  CHECK(said("a.npz", "a") == "accepted");
  CHECK(said("a.npz", "b") == "~/a.npz: tensor: expected one of a, got 'b'");
  std::string bytes = read_text(folder / "a.npz");
  const std::size_t data = bytes.find(std::string("\x38\x40\x44", 3));
  REQUIRE(data != std::string::npos);
  bytes[data] = '\x39';
  write_text(folder / "b.npz", bytes);
  CHECK(said("b.npz", "a") == "~/b.npz: member 'a': damaged: CRC error");
  const auto written = [&](const std::vector<NamedTensor>& tensors) {
    return message_in(folder.path(), [&] { write_npz(folder / "w.npz", tensors); });
  };
  const TensorView one = six_codes(ElementType::u8);
  CHECK(written({{"", one}}) == "tensor name: expected a unique name without '/', got ''");
  CHECK(written({{"a/b", one}}) == "tensor name: expected a unique name without '/', got 'a/b'");
  CHECK(written({{"a", one}, {"b", one}, {"a", one}}) ==
        "tensor name: expected a unique name without '/', got 'a'");
  CHECK(folder.files() == 3);
}

TEST_CASE("npy: packed codes are stored row by row, and said to be", "[io]") {
  const TemporaryFolder folder("npy_words");
  const auto said = [&](const std::string& order, const std::string& shape) {
    write_text(folder / "x.npy",
               numpy_file(fmt::format("{{'descr': '|u1', 'fortran_order': {}, 'shape': {}, }}\n",
                                      order, shape),
                          6));
    return message_in(folder.path(), [&] {
      (void)load_operand((folder / "x.npy").string(), ElementType::e2m1x2);
    });
  };
  CHECK(said("False", "(2, 3)") == "accepted");
  CHECK(said("True", "(6,)") == "accepted");
  CHECK(said("True", "(2, 3)") ==
        "~/x.npy: expected row-major order of e2m1x2 (save np.ascontiguousarray(x)), got Fortran "
        "order");
}

TEST_CASE("safetensors: what is wrong with a file as a whole, word for word", "[io]") {
  const TemporaryFolder folder("safetensors_words");
  const auto said = [&](const std::string& text) {
    write_text(folder / "x.safetensors", text);
    return message_in(folder.path(), [&] { SafetensorsFile file(folder / "x.safetensors"); });
  };
  const std::string whole =
      tensors_file(R"({"a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}})", 3);
  CHECK(said(whole) == "accepted");
  CHECK(said(whole.substr(0, 7)) == "~/x.safetensors: truncated: no header length");
  CHECK(said(std::string("\x01\xe1\xf5\x05\0\0\0\0", 8)) ==
        "~/x.safetensors: a header of 100000001 bytes; at most 100000000 are allowed");
  CHECK(said(std::string("\x00\xe1\xf5\x05\0\0\0\0", 8)) ==
        "~/x.safetensors: truncated: a header of 100000000 bytes in a file of 8");
  CHECK(said(tensors_file("[]", 0)) == "~/x.safetensors: header does not start with '{'");
  for (const char* metadata : {"1", "[]", R"({"a": 1})", R"({"a": "b", "c": null})"})
    CHECK(said(tensors_file(fmt::format(R"({{"__metadata__": {}}})", metadata), 0)) ==
          "~/x.safetensors: __metadata__: expected an object of strings");
  CHECK(said(tensors_file(R"({"__metadata__": {"a": "b"}})", 0)) == "accepted");

  const auto written = [&](std::size_t size, const std::string& name, std::uint64_t offset) {
    return message_in(folder.path(), [&] {
      SafetensorsWriter out(folder / "y.safetensors", {{"a", ElementType::u8, {2, 3}}}, {});
      out.write(name, offset, std::as_bytes(std::span(kSixCodes)).first(size));
      out.commit();
    });
  };
  CHECK(written(6, "a", 0) == "accepted");
  CHECK(written(6, "b", 0) == "~/y.safetensors: expected a tensor of its header, got b");
  CHECK(written(5, "a", 1) == "~/y.safetensors: expected all bytes of its tensors, got 1 fewer");
  CHECK(written(6, "a", 1) == "tensor 'a': expected at most 6 bytes, got 6 from 1 on");
  CHECK(written(0, "a", 7) == "tensor 'a': expected at most 6 bytes, got 0 from 7 on");
}

TEST_CASE("files: what cannot be read or named, word for word", "[io]") {
  const TemporaryFolder folder("file_words");
  const auto read = [&](const std::filesystem::path& path) {
    return message_in(folder.path(), [&] { (void)read_file(path); });
  };
  CHECK(read(folder / "none") == "~/none: cannot read: No such file or directory");
  CHECK(read(folder.path()) == "~: cannot read: it is a folder");
  CHECK(read("/dev/zero") ==
        "/dev/zero: cannot read: not a regular file (a pipe can be read as /dev/stdin)");
  const auto named = [&](std::string_view name) {
    return message_in(folder.path(), [&] { require_file_name("table", name); });
  };
  CHECK(named("a.b-c_9") == "accepted");
  for (const char* name : {"", ".a", "a/b", "a b"})
    CHECK(named(name) ==
          fmt::format("table: expected letters, digits, '-', '_' and inner dots, got '{}'", name));
  CHECK(message_in(folder.path(), [&] { make_writable_folder(""); }) ==
        "folder: expected the name of a folder, got ''");
  CHECK(message_in(folder.path(), [&] {
          write_file(folder / "failed", [](std::ostream& out) { out.setstate(std::ios::failbit); });
        }) == "~/failed: cannot write: the stream failed");
  CHECK(folder.files() == 0);
}

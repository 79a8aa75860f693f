// FP4 and FP6 codes in every kind of file.

#include <cstdint>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/npy.hpp"
#include "fp8lab/io/npz.hpp"
#include "fp8lab/io/operand.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/tensors/packed.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

/// [2, 4] codes, all below 16.
const std::vector<std::uint8_t> kCodes{1, 15, 0, 7, 2, 4, 9, 3};

TensorView codes(ElementType type) {
  return view_of(type, {2, 4}, std::span<const std::uint8_t>(kCodes));
}

std::vector<std::uint8_t> bytes_of(const TensorView& tensor) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(tensor.bytes.data());
  return {data, data + tensor.bytes.size()};
}

std::string message_of(const std::filesystem::path& name,
                       std::optional<ElementType> dtype = std::nullopt) {
  return test::message_of([&] { (void)load_operand(name.string(), dtype); });
}

}  // namespace

TEST_CASE("packed files: saved codes come back, one a byte", "[io]") {
  const TemporaryFolder folder("packed_files");
  for (const ElementType type : {ElementType::e2m1, ElementType::e2m3, ElementType::e3m2})
    for (const std::string name : {"x.npy", "x.npz", "x.safetensors"}) {
      INFO(to_string(type) << " " << name);
      save_tensor(folder / name, "x", codes(type));
      const Operand got = load_operand((folder / name).string());
      CHECK(got.tensor().type == type);
      CHECK(got.tensor().shape == std::vector<std::int64_t>{2, 4});
      CHECK(bytes_of(got.tensor()) == kCodes);
    }
}

TEST_CASE("packed files: .safetensors holds them without gaps", "[io]") {
  const TemporaryFolder folder("packed_safetensors");
  save_tensor(folder / "x.safetensors", "x", codes(ElementType::e2m1));
  const SafetensorsFile fp4(folder / "x.safetensors");
  CHECK(fp4.find("x").type == ElementType::e2m1x2);
  CHECK(bytes_of(fp4.find("x")) == std::vector<std::uint8_t>{0xf1, 0x70, 0x42, 0x39});
  CHECK(to_float(fp4.find("x")) == std::vector<float>{0.5F, -6, 0, 6, 1, 2, -0.5F, 1.5F});
  save_tensor(folder / "y.safetensors", "y", codes(ElementType::e3m2));
  const SafetensorsFile fp6(folder / "y.safetensors");
  CHECK(fp6.find("y").type == ElementType::e3m2x4);
  CHECK(fp6.find("y").bytes.size() == 6);
  const std::vector<std::uint8_t> three{1, 2, 3};
  const TensorView odd = view_of(ElementType::e2m1, {3}, std::span<const std::uint8_t>(three));
  CHECK_THROWS_WITH(save_tensor(folder / "z.safetensors", "z", odd), contains("a multiple of 2"));
  CHECK_NOTHROW(save_tensor(folder / "z.npy", "z", odd));
}

TEST_CASE("packed files: uint8 is one code or two, as it is said", "[io]") {
  const TemporaryFolder folder("packed_uint8");
  const std::vector<std::uint8_t> two{0xf1, 0x70, 0x42, 0x39};
  const TensorView bytes = view_of(ElementType::u8, {2, 2}, std::span<const std::uint8_t>(two));
  write_npy(folder / "x.npy", bytes);
  write_npz(folder / "x.npz", {{"x", bytes}});
  write_safetensors(folder / "x.safetensors", {{"x", bytes}});
  write_text(folder / "x.bin", std::string(reinterpret_cast<const char*>(two.data()), 4));
  write_text(folder / "x.bin.json", R"({"dtype": "float4_e2m1fn_x2", "shape": [2, 4]})");
  for (const std::string name : {"x.npy", "x.npz", "x.safetensors", "x.bin"}) {
    INFO(name);
    const std::string path = (folder / name).string();
    const Operand got = load_operand(path, ElementType::e2m1x2);
    CHECK(got.tensor().type == ElementType::e2m1);
    CHECK(got.tensor().shape == std::vector<std::int64_t>{2, 4});
    CHECK(bytes_of(got.tensor()) == kCodes);
  }
  write_npy(folder / "one.npy", codes(ElementType::u8));
  CHECK(bytes_of(load_operand((folder / "one.npy").string(), ElementType::e2m1).tensor()) ==
        kCodes);
  save_tensor(folder / "packed.npy", "x", {ElementType::e2m1x2, {2, 4}, bytes.bytes, false});
  CHECK(bytes_of(load_operand((folder / "packed.npy").string()).tensor()) == kCodes);
}

TEST_CASE("packed files: what does not fit is refused", "[io]") {
  const TemporaryFolder folder("packed_bad");
  const std::vector<std::uint8_t> bytes(8, 0x11);
  const TensorView u8 = view_of(ElementType::u8, {2, 4}, std::span<const std::uint8_t>(bytes));
  write_npy(folder / "x.npy", u8);
  CHECK_THAT(message_of(folder / "x.npy", ElementType::e2m3x4), contains("divisible by 3"));
  TensorView turned = u8;
  turned.fortran_order = true;
  write_npy(folder / "f.npy", turned);
  CHECK_THAT(message_of(folder / "f.npy", ElementType::e2m1x2), contains("row-major"));
  write_text(folder / "x.bin", "12345678");
  write_text(folder / "x.bin.json", R"({"dtype": "e2m1x2", "shape": [2, 4]})");
  CHECK_THAT(message_of(folder / "x.bin"), contains("8 elements of 4 bits"));
  save_tensor(folder / "x.safetensors", "x", codes(ElementType::e2m1));
  CHECK_THAT(message_of(folder / "x.safetensors", ElementType::e4m3fn), contains("contradicts"));
  CHECK(message_of(folder / "x.safetensors", ElementType::e2m1) == "accepted");
}

#include "fp8lab/io/operand.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/npy.hpp"
#include "fp8lab/io/npz.hpp"
#include "fp8lab/io/safetensors.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"

using namespace fp8lab;

namespace {

constexpr std::array<std::uint8_t, 6> kCodes{0x38, 0x40, 0x44, 0xb8, 0x00, 0x7e};
constexpr std::array<float, 6> kFloats{1, 2, 3, -1, 0, 448};

TensorView codes(ElementType type = ElementType::e4m3fn) {
  return view_of(type, {2, 3}, std::span<const std::uint8_t>(kCodes));
}

std::string message_of(const std::filesystem::path& name,
                       std::optional<ElementType> dtype = std::nullopt) {
  return test::message_of([&] { (void)load_operand(name.string(), dtype); });
}

}  // namespace

TEST_CASE("operand: every kind of file gives the same tensor", "[io]") {
  const TemporaryFolder folder("operand_kinds");
  write_npy(folder / "x.npy", codes());
  write_npz(folder / "x.npz", {{"x", codes()}});
  write_safetensors(folder / "x.safetensors", {{"x", codes()}});
  write_text(folder / "x.bin", std::string(reinterpret_cast<const char*>(kCodes.data()), 6));
  write_text(folder / "x.bin.json", R"({"dtype": "e4m3fn", "shape": [2, 3]})");
  const ElementType e4m3fn = ElementType::e4m3fn;
  for (const auto& [name, dtype] : std::vector<std::pair<std::string, std::optional<ElementType>>>{
           {"x.npy", e4m3fn},
           {"x.npz", e4m3fn},
           {"x.npz:x", e4m3fn},
           {"x.safetensors", std::nullopt},
           {"x.safetensors:x", e4m3fn},
           {"x.bin", std::nullopt}}) {
    INFO(name);
    const Operand operand = load_operand((folder / name).string(), dtype);
    CHECK(operand.tensor().type == e4m3fn);
    CHECK(operand.tensor().shape == std::vector<std::int64_t>{2, 3});
    CHECK(to_float(operand.tensor()) == std::vector<float>(kFloats.begin(), kFloats.end()));
    operand.release(operand.tensor().bytes);
    CHECK(to_float(operand.tensor())[5] == 448.0F);
  }
}

TEST_CASE("operand: a folder's name may hold the ending of another kind of file", "[io]") {
  const TemporaryFolder folder("operand_endings");
  for (const char* ending : {".npz", ".safetensors", ".npy"})
    for (const char* packed : {".npz", ".safetensors"}) {
      const std::filesystem::path inner = folder / fmt::format("a{}:b", ending);
      std::filesystem::create_directories(inner);
      save_tensor(inner / fmt::format("x{}", packed), "x", codes());
      const std::string name = (inner / fmt::format("x{}:x", packed)).string();
      INFO(name);
      CHECK(load_operand(name, ElementType::e4m3fn).tensor().shape ==
            std::vector<std::int64_t>{2, 3});
    }
}

TEST_CASE("operand: a sidecar beside a .npy names its codes", "[io]") {
  const TemporaryFolder folder("operand_sidecar");
  for (const std::string name : {"q.npy", "q.npz"}) {
    INFO(name);
    save_tensor(folder / name, "q", codes(ElementType::e5m2));
    CHECK(load_operand((folder / name).string()).tensor().type == ElementType::e5m2);
    CHECK(load_operand((folder / name).string(), ElementType::e4m3fn).tensor().type ==
          ElementType::e4m3fn);
  }
  save_tensor(folder / "q.npy", "q",
              view_of(ElementType::f32, {6}, std::span<const float>(kFloats)));
  CHECK(load_operand((folder / "q.npy").string()).tensor().type == ElementType::f32);
  write_text(folder / "q.npy.json", R"({"shape": [5]})");
  CHECK_THAT(message_of(folder / "q.npy"), contains("[5] disagrees with the file's [6]"));
}

TEST_CASE("operand: a sidecar's shape is the file's, not one of as many elements", "[io]") {
  const TemporaryFolder folder("operand_sidecar_shape");
  write_npy(folder / "x.npy", codes());
  const std::vector<NamedTensor> tensors{{"x", codes()}};
  write_npz(folder / "x.npz", tensors);
  for (const std::string file : {"x.npy", "x.npz"})
    for (const std::string shape :
         {"[2, 3]", "[3, 2]", "[6]", "[2, 3, 1]", "[1, 2, 3]", "[2, 4]"}) {
      INFO(file << " " << shape);
      write_text(folder / (file + ".json"), fmt::format(R"({{"shape": {}}})", shape));
      const std::string message = message_of(folder / file, ElementType::e4m3fn);
      if (shape == "[2, 3]")
        CHECK(message == "accepted");
      else
        CHECK_THAT(message, contains(shape + " disagrees with the file's [2, 3]"));
    }
}

TEST_CASE("operand: FNUZ codes in every kind of file", "[io]") {
  const TemporaryFolder folder("operand_fnuz");
  // Bias 8 for 7: every value is half of E4M3FN's; 0x7e is 224.
  const std::vector<float> values{0.5F, 1, 1.5F, -0.5F, 0, 224};
  for (const std::string name : {"q.npy", "q.npz", "q.safetensors"}) {
    INFO(name);
    save_tensor(folder / name, "q", codes(ElementType::e4m3fnuz));
    const Operand own = load_operand((folder / name).string());
    CHECK(own.tensor().type == ElementType::e4m3fnuz);
    CHECK(to_float(own.tensor()) == values);
  }
  write_npy(folder / "raw.npy", codes(ElementType::u8));
  for (const ElementType type : {ElementType::e4m3fnuz, ElementType::e5m2fnuz}) {
    const std::string raw = (folder / "raw.npy").string();
    CHECK(load_operand(raw, type).tensor().type == type);
    CHECK(format_of(type) == find_format(to_string(type)).id);
    CHECK(element_type_of(*format_of(type)) == type);
  }
  CHECK(find_element_type("float8_e5m2fnuz") == ElementType::e5m2fnuz);
  write_text(folder / "raw.npy.json", R"({"dtype": "e5m2fnuz"})");
  CHECK(to_float(load_operand((folder / "raw.npy").string()).tensor())[0] == 0.25F);
}

TEST_CASE("operand: what is wrong is said with the way out", "[io]") {
  const TemporaryFolder folder("operand_bad");
  CHECK_THAT(message_of(folder / "none.npy"), contains("none.npy: cannot be opened"));
  CHECK_THAT(message_of(folder / "none.npz"), contains("none.npz: cannot be opened"));
  CHECK_THAT(message_of(folder / "none.bin"), contains("none.bin: cannot be opened"));
  write_text(folder / "x.bin", "123456");
  CHECK_THAT(message_of(folder / "x.bin"), contains("x.bin.json") && contains("\"dtype\""));
  write_text(folder / "x.bin.json", R"({"shape": [2, 3]})");
  CHECK_THAT(message_of(folder / "x.bin"), contains("give `dtype`"));
  CHECK(message_of(folder / "x.bin", ElementType::u8) == "accepted");
  CHECK_THAT(message_of(folder / "x.bin", ElementType::f32), contains("6 elements of 4 bytes"));
  for (const auto& [sidecar, reason] : std::vector<std::pair<std::string, std::string>>{
           {"{", "not JSON"},
           {"[]", "expected an object"},
           {R"({"dtype": "e9m9", "shape": [6]})", "'e9m9'"},
           {R"({"dtype": 4, "shape": [6]})", "'dtype'"},
           {R"({"dtype": "u8", "shape": [6], "order": "F"})", "'order'"},
           {R"({"dtype": "u8", "shape": [-6]})", "integers from 0"},
           {R"({"dtype": "u8", "shape": [4611686018427387904, 4]})", "at most 2^62"},
           {R"({"dtype": "u8", "shape": [7]})", "has 6 bytes"}}) {
    write_text(folder / "x.bin.json", sidecar);
    INFO(sidecar);
    CHECK_THAT(message_of(folder / "x.bin"), contains(reason));
  }
  write_text(folder / "x.pt", "");
  CHECK_THAT(message_of(folder / "x.pt"), contains("safetensors.torch.save_file"));
  write_safetensors(folder / "two.safetensors", {{"a", codes()}, {"b", codes()}});
  CHECK_THAT(message_of(folder / "two.safetensors"), contains(":NAME") && contains("a, b"));
  CHECK_THAT(message_of(folder / "two.safetensors:c"), contains("one of a, b"));
  CHECK_THAT(message_of(folder / "two.safetensors:a", ElementType::f32),
             contains("leave that out"));
  write_npy(folder / "y.npy", codes());
  CHECK_THAT(message_of(folder / "y.npy:y"), contains("has no names"));
}

TEST_CASE("operand: of the names to choose from the first twenty are said", "[io]") {
  const TemporaryFolder folder("operand_names");
  const std::array<float, 1> value{1.0F};
  const TensorView one = view_of(ElementType::f32, {1}, std::span<const float>(value));
  for (const std::size_t count : {2U, 19U, 20U, 21U, 40U}) {
    std::vector<NamedTensor> tensors;
    std::string expected;
    for (std::size_t i = 0; i < count; ++i) {
      tensors.push_back({fmt::format("t{}", 10 + i), one});
      if (i < 20) expected += (i == 0 ? "" : ", ") + tensors.back().name;
    }
    write_npz(folder / "x.npz", tensors);
    write_safetensors(folder / "x.safetensors", tensors);
    for (const char* name : {"x.npz", "x.safetensors"}) {
      const std::string file = (folder / name).string();
      CHECK(message_of(folder / name) ==
            fmt::format("{}: holds {} tensors; name one as {}:NAME, NAME one of {}", file, count,
                        file, expected));
    }
  }
}

TEST_CASE("operand: a sidecar's shape has up to 64 sizes up to 2^62", "[io]") {
  const TemporaryFolder folder("operand_shape");
  write_text(folder / "x.bin", "1");
  const auto with_shape = [&](const std::string& shape) {
    write_text(folder / "x.bin.json", fmt::format(R"({{"dtype": "u8", "shape": {}}})", shape));
    return message_of(folder / "x.bin");
  };
  const auto ones = [](std::size_t count) {
    return fmt::format("[{}]", fmt::join(std::vector<int>(count, 1), ", "));
  };
  CHECK(with_shape("[]") == "accepted");
  CHECK(with_shape(ones(64)) == "accepted");
  CHECK_THAT(with_shape(ones(65)), contains("shape: expected at most 64 dimensions, got 65"));
  CHECK_THAT(with_shape("[4611686018427387904]"), contains("has 1 byte,"));
  for (const char* size : {"4611686018427387905", "18446744073709551615", "-1", "1.0", "\"1\""})
    CHECK_THAT(with_shape(fmt::format("[{}]", size)),
               contains(fmt::format("shape: expected integers from 0 to 2^62, got {}", size)));
  for (const char* shape : {"1", "{}", "null", "\"[1]\""})
    CHECK_THAT(with_shape(shape), contains("shape: expected a list of integers"));
}

TEST_CASE("operand: an output that cannot be written is refused", "[io]") {
  const TemporaryFolder folder("operand_save");
  CHECK_THROWS_WITH(require_savable(folder / "d.txt"), contains(".safetensors"));
  CHECK_THROWS_WITH(require_savable(folder / "none/d.npy"),
                    contains("a file in an existing folder"));
  CHECK_NOTHROW(require_savable("d.npz"));
  save_tensor(folder / "d.safetensors", "d", codes());
  CHECK(folder.files() == 1);
}

TEST_CASE("operand: a name of a tensor stands behind the last ending of a file", "[io]") {
  const TemporaryFolder folder("operand_colons");
  const std::vector<std::int64_t> shape{2, 3};
  for (const std::string ending : {".npz", ".safetensors"}) {
    const std::filesystem::path inner = folder / ("in" + ending + ":out");
    std::filesystem::create_directory(inner);
    const std::vector<NamedTensor> tensors{{"t", codes()}, {"u" + ending, codes()}};
    if (ending == ".npz")
      write_npz(inner / "a.npz", tensors);
    else
      write_safetensors(inner / "a.safetensors", tensors);
    for (const NamedTensor& one : tensors) {
      const std::string name = (inner / ("a" + ending)).string() + ":" + one.name;
      INFO(name);
      CHECK(load_operand(name, ElementType::e4m3fn).tensor().shape == shape);
    }
    CHECK_THAT(message_of((inner / ("a" + ending)).string() + ":s"), contains(", got 's'"));
  }
  // With nothing before it, it is no ending.
  for (const char* name : {".npz:x", ".npy:x", ".safetensors:x"})
    CHECK_THAT(message_of(name), contains(std::string(name) + ": cannot be opened"));
}

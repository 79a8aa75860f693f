#include <fmt/format.h>

#include <array>
#include <vector>

#include "bindings.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::python {
namespace {

using Any = nb::ndarray<nb::ro, nb::device::cpu>;

/// DLPack type codes, with the ones that DLPack 1.1 added for eight bits and fewer.
std::string_view format_of(nb::dlpack::dtype type, std::string_view argument) {
  constexpr std::uint8_t kSigned = 0;
  constexpr std::uint8_t kUnsigned = 1;
  constexpr std::uint8_t kFloat = 2;
  constexpr std::uint8_t kBfloat = 4;
  struct Known {
    std::uint8_t code;
    std::uint8_t bits;
    std::uint16_t lanes;
    std::string_view name;
  };
  constexpr std::array kKnown{Known{kFloat, 16, 1, "f16"},    Known{kFloat, 32, 1, "f32"},
                              Known{kFloat, 64, 1, "f64"},    Known{kBfloat, 16, 1, "bf16"},
                              Known{kUnsigned, 8, 1, "u8"},   Known{kUnsigned, 16, 1, "u16"},
                              Known{kUnsigned, 32, 1, "u32"}, Known{kUnsigned, 64, 1, "u64"},
                              Known{kSigned, 8, 1, "i8"},     Known{kSigned, 16, 1, "i16"},
                              Known{kSigned, 32, 1, "i32"},   Known{kSigned, 64, 1, "i64"},
                              Known{10, 8, 1, "e4m3fn"},      Known{11, 8, 1, "e4m3fnuz"},
                              Known{12, 8, 1, "e5m2"},        Known{13, 8, 1, "e5m2fnuz"},
                              Known{14, 8, 1, "e8m0fnu"},     Known{17, 4, 2, "e2m1x2"}};
  for (const Known& one : kKnown)
    if (one.code == type.code && one.bits == type.bits && one.lanes == type.lanes) return one.name;
  throw Error(argument,
              "a DLPack tensor of floats (64 bits or fewer, FP8, E8M0, pairs of FP4) or integers",
              fmt::format("type code {} of {} bits in {} lanes", type.code, type.bits, type.lanes));
}

/// The same memory as a NumPy array of unsigned words, kept alive by `array`.
template <typename Word>
nb::object view(const Any& array, nb::handle owner) {
  std::vector<std::size_t> shape(array.ndim());
  std::vector<std::int64_t> strides(array.ndim());
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    shape[i] = array.shape(i);
    strides[i] = array.stride(i);
  }
  return nb::cast(nb::ndarray<nb::numpy, const Word>(
      static_cast<const Word*>(array.data()), array.ndim(), shape.data(), owner, strides.data()));
}

nb::tuple from_dlpack(const Any& array, std::string_view argument) {
  const std::string_view name = format_of(array.dtype(), argument);
  const nb::object owner = nb::cast(Any(array));
  switch (array.itemsize()) {
    case 1:
      return nb::make_tuple(view<std::uint8_t>(array, owner), name);
    case 2:
      return nb::make_tuple(view<std::uint16_t>(array, owner), name);
    case 4:
      return nb::make_tuple(view<std::uint32_t>(array, owner), name);
    default:
      return nb::make_tuple(view<std::uint64_t>(array, owner), name);
  }
}

}  // namespace

void bind_arrays(nb::module_& m) {
  m.def("from_dlpack", from_dlpack, "array"_a.noconvert(), "argument"_a,
        "Words of a CPU tensor, without a copy, and the format of its elements.");
}

}  // namespace fp8lab::python

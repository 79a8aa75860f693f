#include <fmt/format.h>

#include <vector>

#include "bindings.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::python {
namespace {

using Any = nb::ndarray<nb::ro, nb::device::cpu>;

/// DLPack type codes, with the ones that DLPack 1.1 added for eight bits.
std::string_view format_of(nb::dlpack::dtype type) {
  constexpr std::uint8_t kUnsigned = 1;
  constexpr std::uint8_t kFloat = 2;
  constexpr std::uint8_t kBfloat = 4;
  if (type.code == kFloat && type.bits == 16) return "f16";
  if (type.code == kFloat && type.bits == 32) return "f32";
  if (type.code == kFloat && type.bits == 64) return "f64";
  if (type.code == kBfloat && type.bits == 16) return "bf16";
  if (type.code == kUnsigned && type.bits == 8) return "u8";
  if (type.code == 10 && type.bits == 8) return "e4m3fn";
  if (type.code == 11 && type.bits == 8) return "e4m3fnuz";
  if (type.code == 12 && type.bits == 8) return "e5m2";
  if (type.code == 13 && type.bits == 8) return "e5m2fnuz";
  if (type.code == 14 && type.bits == 8) return "e8m0fnu";
  throw Error("array", "a DLPack tensor of float32, float16, bfloat16, FP8 or uint8",
              fmt::format("type code {} of {} bits", type.code, type.bits));
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

nb::tuple from_dlpack(const Any& array) {
  const std::string_view name = format_of(array.dtype());
  require(array.dtype().lanes == 1, "array", "one lane an element",
          fmt::format("{}", array.dtype().lanes));
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
  m.def("from_dlpack", from_dlpack, "array"_a.noconvert(),
        "Words of a CPU tensor, without a copy, and the format of its elements.");
}

}  // namespace fp8lab::python

#include "fp8lab/tensors/tensor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <cstring>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/tensors/packed.hpp"

namespace fp8lab {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little endian");

struct ElementTraits {
  std::string_view name;
  std::size_t bits;
};

constexpr std::array<ElementTraits, 24> kTraits{
    {{"f64", 64},    {"f32", 32},     {"f16", 16},     {"bf16", 16}, {"e4m3fn", 8}, {"e5m2", 8},
     {"e8m0fnu", 8}, {"e4m3fnuz", 8}, {"e5m2fnuz", 8}, {"e2m1", 8},  {"e2m3", 8},   {"e3m2", 8},
     {"e2m1x2", 4},  {"e2m3x4", 6},   {"e3m2x4", 6},   {"u8", 8},    {"u16", 16},   {"u32", 32},
     {"u64", 64},    {"i8", 8},       {"i16", 16},     {"i32", 32},  {"i64", 64},   {"bool", 8}}};

const ElementTraits& traits(ElementType type) { return kTraits[static_cast<std::size_t>(type)]; }

struct TypeOfFormat {
  ElementType type;
  FormatId format;
};

constexpr std::array<TypeOfFormat, 11> kTypesOfFormats{{{ElementType::f32, FormatId::f32},
                                                        {ElementType::f16, FormatId::f16},
                                                        {ElementType::bf16, FormatId::bf16},
                                                        {ElementType::e4m3fn, FormatId::e4m3fn},
                                                        {ElementType::e5m2, FormatId::e5m2},
                                                        {ElementType::e8m0fnu, FormatId::e8m0fnu},
                                                        {ElementType::e4m3fnuz, FormatId::e4m3fnuz},
                                                        {ElementType::e5m2fnuz, FormatId::e5m2fnuz},
                                                        {ElementType::e2m1, FormatId::e2m1},
                                                        {ElementType::e2m3, FormatId::e2m3},
                                                        {ElementType::e3m2, FormatId::e3m2}}};

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// Calls `store(position in row-major order, offset of the element in bytes)`.
template <class Store>
void for_each_element(const TensorView& tensor, std::int64_t count, Store&& store) {
  const auto width = static_cast<std::int64_t>(element_bytes(tensor.type));
  if (!tensor.fortran_order || tensor.shape.size() < 2) {
    for (std::int64_t i = 0; i < count; ++i) store(i, i * width);
    return;
  }
  const std::size_t rank = tensor.shape.size();
  std::vector<std::int64_t> index(rank, 0);
  std::vector<std::int64_t> stride(rank, 1);
  for (std::size_t d = 1; d < rank; ++d) stride[d] = stride[d - 1] * tensor.shape[d - 1];
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    store(i, at * width);
    for (std::size_t d = rank; d-- > 0;) {
      at += stride[d];
      if (++index[d] < tensor.shape[d]) break;
      at -= stride[d] * tensor.shape[d];
      index[d] = 0;
    }
  }
}

template <class T>
std::vector<float> convert(const TensorView& tensor, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for_each_element(tensor, count, [&](std::int64_t to, std::int64_t from) {
    values[static_cast<std::size_t>(to)] = static_cast<float>(load<T>(tensor.bytes.data() + from));
  });
  return values;
}

template <class T>
std::vector<float> decode_all(const TensorView& tensor, std::int64_t count, FormatId id) {
  const std::span<const float> table = decode_table(id);
  std::vector<float> values(static_cast<std::size_t>(count));
  for_each_element(tensor, count, [&](std::int64_t to, std::int64_t from) {
    values[static_cast<std::size_t>(to)] = table[load<T>(tensor.bytes.data() + from)];
  });
  return values;
}

/// Codes of fewer than 8 bits, one a byte. Throws `Error` for one with other bits set.
std::vector<float> decode_narrow(const TensorView& tensor, std::int64_t count, FormatId id) {
  require_narrow_codes(id, tensor.bytes, "tensor");
  return decode_all<std::uint8_t>(tensor, count, id);
}

std::vector<float> decode_packed(const TensorView& tensor) {
  const std::vector<std::byte> codes = unpack_codes(tensor);
  return to_float({unpacked(tensor.type), tensor.shape, codes, false});
}

}  // namespace

std::string_view to_string(ElementType type) { return traits(type).name; }

std::size_t element_bits(ElementType type) { return traits(type).bits; }

std::size_t element_bytes(ElementType type) {
  require(!is_packed(type), "type", "elements of whole bytes (unpack them first)", to_string(type));
  return element_bits(type) / 8;
}

std::size_t storage_bytes(ElementType type, std::int64_t count, std::string_view argument) {
  const auto elements = static_cast<std::size_t>(count);
  if (!is_packed(type)) return elements * (element_bits(type) / 8);
  const std::size_t group = element_bits(type) == 4 ? 2 : 4;
  require(elements % group == 0, argument,
          fmt::format("a multiple of {} codes of {}, so that they fill whole bytes", group,
                      to_string(type)),
          fmt::format("{}", count));
  return elements / group * (group * element_bits(type) / 8);
}

ElementType find_element_type(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < kTraits.size(); ++i) {
    if (kTraits[i].name == name) return static_cast<ElementType>(i);
    known += (i == 0 ? "" : ", ") + std::string(kTraits[i].name);
  }
  if (name == "float4_e2m1fn_x2") return ElementType::e2m1x2;
  if (name == "f2") return ElementType::f16;
  if (name == "f4") return ElementType::f32;
  if (name == "f8" || name == "float64") return ElementType::f64;
  try {
    const std::string_view format_name = find_format(name).name;
    for (std::size_t i = 0; i < kTraits.size(); ++i)
      if (kTraits[i].name == format_name) return static_cast<ElementType>(i);
  } catch (const Error&) {  // reported below with the names that files can hold
  }
  throw Error("dtype", "one of " + known, "'" + std::string(name) + "'");
}

std::optional<FormatId> format_of(ElementType type) {
  for (const TypeOfFormat& pair : kTypesOfFormats)
    if (pair.type == type) return pair.format;
  return std::nullopt;
}

ElementType element_type_of(FormatId id) {
  for (const TypeOfFormat& pair : kTypesOfFormats)
    if (pair.format == id) return pair.type;
  throw Error("dtype",
              "f32, f16, bf16, e4m3fn, e5m2, their FNUZ forms, e2m1, e2m3, e3m2 or e8m0fnu",
              format(id).name);
}

std::int64_t element_count(std::span<const std::int64_t> shape, std::string_view argument) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 62;
  require(shape.size() <= kMostDimensions, argument,
          fmt::format("at most {} dimensions", kMostDimensions), fmt::format("{}", shape.size()));
  std::int64_t count = 1;
  for (const std::int64_t dimension : shape) {
    require(dimension >= 0, argument, "dimensions >= 0", shape_text(shape));
    require(dimension == 0 || count <= kLimit / dimension, argument, "at most 2^62 elements",
            shape_text(shape));
    count *= dimension;
  }
  return count;
}

std::int64_t TensorView::size() const { return element_count(shape, "shape"); }

std::vector<float> to_float(const TensorView& tensor) {
  const FloatEnvironment environment;
  const std::int64_t count = tensor.size();
  const std::size_t expected = storage_bytes(tensor.type, count, "tensor");
  require(
      tensor.bytes.size() == expected, "tensor",
      fmt::format("{} bytes for {} {}", expected, to_string(tensor.type), shape_text(tensor.shape)),
      counted(tensor.bytes.size(), "byte"));
  switch (tensor.type) {
    case ElementType::f64:
      return convert<double>(tensor, count);
    case ElementType::f32:
      return convert<float>(tensor, count);
    case ElementType::f16:
      return decode_all<std::uint16_t>(tensor, count, FormatId::f16);
    case ElementType::bf16:
      return decode_all<std::uint16_t>(tensor, count, FormatId::bf16);
    case ElementType::e4m3fn:
      return decode_all<std::uint8_t>(tensor, count, FormatId::e4m3fn);
    case ElementType::e5m2:
      return decode_all<std::uint8_t>(tensor, count, FormatId::e5m2);
    case ElementType::e8m0fnu:
      return decode_all<std::uint8_t>(tensor, count, FormatId::e8m0fnu);
    case ElementType::e4m3fnuz:
      return decode_all<std::uint8_t>(tensor, count, FormatId::e4m3fnuz);
    case ElementType::e5m2fnuz:
      return decode_all<std::uint8_t>(tensor, count, FormatId::e5m2fnuz);
    case ElementType::e2m1:
    case ElementType::e2m3:
    case ElementType::e3m2:
      return decode_narrow(tensor, count, *format_of(tensor.type));
    case ElementType::e2m1x2:
    case ElementType::e2m3x4:
    case ElementType::e3m2x4:
      return decode_packed(tensor);
    case ElementType::u8:
    case ElementType::boolean:
      return convert<std::uint8_t>(tensor, count);
    case ElementType::u16:
      return convert<std::uint16_t>(tensor, count);
    case ElementType::u32:
      return convert<std::uint32_t>(tensor, count);
    case ElementType::u64:
      return convert<std::uint64_t>(tensor, count);
    case ElementType::i8:
      return convert<std::int8_t>(tensor, count);
    case ElementType::i16:
      return convert<std::int16_t>(tensor, count);
    case ElementType::i32:
      return convert<std::int32_t>(tensor, count);
    case ElementType::i64:
      return convert<std::int64_t>(tensor, count);
  }
  return {};
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace fp8lab

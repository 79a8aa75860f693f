#include "fp8lab/tensors/tensor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <cstring>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/formats/definition.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/tensors/packed.hpp"

namespace fp8lab {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little endian");

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

/// The floats that codes of up to 16 bits stand for. Throws `Error` for a code of fewer than 8 bits
/// that has others set.
std::vector<float> decode(const TensorView& tensor, std::int64_t count) {
  const Format& f = format(*format_of(tensor.type));
  if (f.is_padded()) require_narrow_codes(f.id, tensor.bytes, "tensor");
  if (f.bytes() == 2) return decode_all<std::uint16_t>(tensor, count, f.id);
  return decode_all<std::uint8_t>(tensor, count, f.id);
}

std::vector<float> decode_packed(const TensorView& tensor, std::int64_t /*count*/) {
  const std::vector<std::byte> codes = unpack_codes(tensor);
  return to_float({unpacked(tensor.type), tensor.shape, codes, false});
}

struct ElementTraits {
  ElementType type;
  std::string_view name;
  int bits;                        ///< of a stored element
  std::optional<FormatId> format;  ///< of codes and floats that share no bytes
  std::string_view safetensors;    ///< the name in these files; empty: they hold none
  std::vector<float> (*to_float)(const TensorView&, std::int64_t count);
};

template <class T>
constexpr ElementTraits number(ElementType type, std::string_view name,
                               std::string_view safetensors) {
  return {type, name, 8 * sizeof(T), std::nullopt, safetensors, convert<T>};
}
constexpr ElementTraits codes(ElementType type, FormatId id, std::string_view safetensors) {
  const Format& f = format(id);
  return {type, f.name, f.storage_bits, id, safetensors, decode};
}
constexpr ElementTraits packed_codes(ElementType type, std::string_view name, int bits,
                                     std::string_view safetensors) {
  return {type, name, bits, std::nullopt, safetensors, decode_packed};
}

using enum ElementType;

/// One row a type, in the order of the enumerators.
constexpr std::array kElements{
    number<double>(f64, "f64", "F64"),
    ElementTraits{f32, "f32", 32, FormatId::f32, "F32", convert<float>},
    codes(f16, FormatId::f16, "F16"),
    codes(bf16, FormatId::bf16, "BF16"),
    codes(e4m3fn, FormatId::e4m3fn, "F8_E4M3"),
    codes(e5m2, FormatId::e5m2, "F8_E5M2"),
    codes(e8m0fnu, FormatId::e8m0fnu, "F8_E8M0"),
    codes(e4m3fnuz, FormatId::e4m3fnuz, "F8_E4M3FNUZ"),
    codes(e5m2fnuz, FormatId::e5m2fnuz, "F8_E5M2FNUZ"),
    codes(e2m1, FormatId::e2m1, ""),
    codes(e2m3, FormatId::e2m3, ""),
    codes(e3m2, FormatId::e3m2, ""),
    packed_codes(e2m1x2, "e2m1x2", 4, "F4"),
    packed_codes(e2m3x4, "e2m3x4", 6, "F6_E2M3"),
    packed_codes(e3m2x4, "e3m2x4", 6, "F6_E3M2"),
    number<std::uint8_t>(u8, "u8", "U8"),
    number<std::uint16_t>(u16, "u16", "U16"),
    number<std::uint32_t>(u32, "u32", "U32"),
    number<std::uint64_t>(u64, "u64", "U64"),
    number<std::int8_t>(i8, "i8", "I8"),
    number<std::int16_t>(i16, "i16", "I16"),
    number<std::int32_t>(i32, "i32", "I32"),
    number<std::int64_t>(i64, "i64", "I64"),
    number<std::uint8_t>(boolean, "bool", "BOOL"),
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kElements.size(); ++i)
    if (static_cast<std::size_t>(kElements[i].type) != i) return false;
  return true;
}
static_assert(in_order());

/// The first type that stands for a format beyond the built-in table: that of id 0, were it one.
constexpr std::size_t kCodesOfFormats = 256;
static_assert(kElements.size() <= kCodesOfFormats + kFormats.size());

ElementTraits traits(ElementType type) {
  const auto index = static_cast<std::size_t>(type);
  if (index < kElements.size()) return kElements[index];
  return codes(type, static_cast<FormatId>(index - kCodesOfFormats), "");
}

ElementType codes_of_defined(FormatId id) {
  return static_cast<ElementType>(kCodesOfFormats + static_cast<std::size_t>(id));
}

}  // namespace

std::string_view to_string(ElementType type) { return traits(type).name; }

std::size_t element_bits(ElementType type) { return static_cast<std::size_t>(traits(type).bits); }

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

std::string_view safetensors_name(ElementType type) { return traits(type).safetensors; }

std::optional<ElementType> element_type_in_safetensors(std::string_view name) {
  for (const ElementTraits& row : kElements)
    if (!name.empty() && row.safetensors == name) return row.type;
  return std::nullopt;
}

ElementType find_element_type(std::string_view name) {
  for (const ElementTraits& row : kElements)
    if (row.name == name) return row.type;
  if (name == "float4_e2m1fn_x2") return e2m1x2;
  if (name == "f2") return f16;
  if (name == "f4") return f32;
  if (name == "f8" || name == "float64") return f64;
  try {
    const Format& f = find_format(name);
    if (!is_built_in(f.id)) return codes_of_defined(f.id);
    for (const ElementTraits& row : kElements)
      if (row.name == f.name) return row.type;
  } catch (const Error&) {  // reported below with the names that files can hold
    if (is_format_definition(name)) throw;
  }
  throw Error("dtype", "one of " + names_of(kElements), "'" + std::string(name) + "'");
}

std::optional<FormatId> format_of(ElementType type) { return traits(type).format; }

ElementType element_type_of(FormatId id) {
  if (!is_built_in(id)) return codes_of_defined(id);
  std::string known;
  for (const ElementTraits& row : kElements) {
    if (row.format == id) return row.type;
    if (row.format) known.append(known.empty() ? "" : ", ").append(row.name);
  }
  throw Error("dtype", "one of " + known, format(id).name);
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
  return traits(tensor.type).to_float(tensor, count);
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace fp8lab

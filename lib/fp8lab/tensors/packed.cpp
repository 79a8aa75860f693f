#include "fp8lab/tensors/packed.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/tensors/codes.hpp"

namespace fp8lab {
namespace {

struct Pair {
  ElementType one_a_byte;
  ElementType packed;
};

constexpr std::array<Pair, 3> kPairs{{{ElementType::e2m1, ElementType::e2m1x2},
                                      {ElementType::e2m3, ElementType::e2m3x4},
                                      {ElementType::e3m2, ElementType::e3m2x4}}};

/// Codes and bytes of the shortest run that begins and ends with a byte.
struct Group {
  std::int64_t codes = 2;
  std::int64_t bytes = 1;
};

Group group_of(ElementType type) { return element_bits(type) == 4 ? Group{2, 1} : Group{4, 3}; }

void require_packable(const TensorView& tensor, bool is_right_type, std::string_view expected) {
  require(is_right_type, "tensor", expected, to_string(tensor.type));
  require(!tensor.fortran_order || tensor.shape.size() < 2, "tensor", "row-major order",
          "Fortran order");
  const std::size_t bytes = storage_bytes(tensor.type, tensor.size(), "tensor");
  require(tensor.bytes.size() == bytes, "tensor", counted(bytes, "byte"),
          counted(tensor.bytes.size(), "byte"));
}

/// Codes of 4 bits, of which there is an even number; a loop that compilers turn into vectors.
std::vector<std::byte> pack_pairs(std::span<const std::byte> codes) {
  std::vector<std::byte> bytes(codes.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] =
        codes[2 * i] | static_cast<std::byte>(std::to_integer<unsigned>(codes[2 * i + 1]) << 4U);
  return bytes;
}

}  // namespace

ElementType unpacked(ElementType type) {
  for (const Pair& pair : kPairs)
    if (pair.packed == type) return pair.one_a_byte;
  return type;
}

ElementType packed(ElementType type) {
  for (const Pair& pair : kPairs)
    if (pair.one_a_byte == type) return pair.packed;
  return type;
}

std::string elements_text(std::size_t count, ElementType type) {
  const std::size_t bits = element_bits(type);
  return fmt::format("{} of {}", counted(count, "element"),
                     bits % 8 == 0 ? counted(bits / 8, "byte") : counted(bits, "bit"));
}

std::vector<std::byte> unpack_codes(const TensorView& tensor) {
  require_packable(tensor, is_packed(tensor.type), "packed codes (e2m1x2, e2m3x4, e3m2x4)");
  const std::size_t width = element_bits(tensor.type);
  const unsigned mask = (1U << width) - 1;
  std::vector<std::byte> codes(static_cast<std::size_t>(tensor.size()));
  unsigned bits = 0;
  std::size_t have = 0;
  auto next = tensor.bytes.begin();
  for (std::byte& code : codes) {
    if (have < width) {
      bits |= static_cast<unsigned>(*next++) << have;
      have += 8;
    }
    code = static_cast<std::byte>(bits & mask);
    bits >>= width;
    have -= width;
  }
  return codes;
}

std::vector<std::byte> pack_codes(const TensorView& tensor) {
  const ElementType to = packed(tensor.type);
  require_packable(tensor, to != tensor.type, "codes of 4 or 6 bits (e2m1, e2m3, e3m2)");
  require_narrow_codes(*format_of(tensor.type), tensor.bytes, "tensor");
  const std::size_t size = storage_bytes(to, tensor.size(), "tensor");
  if (element_bits(to) == 4) return pack_pairs(tensor.bytes);
  std::vector<std::byte> bytes;
  bytes.reserve(size);
  const std::size_t width = element_bits(to);
  unsigned bits = 0;
  std::size_t have = 0;
  for (const std::byte code : tensor.bytes) {
    bits |= static_cast<unsigned>(code) << have;
    have += width;
    if (have < 8) continue;
    bytes.push_back(static_cast<std::byte>(bits & 0xffU));
    bits >>= 8;
    have -= 8;
  }
  return bytes;
}

namespace {

/// The first word that has one of the bits of `mask`.
template <typename Word>
std::optional<std::size_t> first_with(std::span<const std::byte> words, unsigned mask) {
  const std::size_t count = words.size() / sizeof(Word);
  const auto word = [&](std::size_t i) {
    Word value;
    std::memcpy(&value, words.data() + i * sizeof(Word), sizeof(Word));
    return static_cast<unsigned>(value);
  };
  unsigned all = 0;
  for (std::size_t i = 0; i < count; ++i) all |= word(i);
  if ((all & mask) == 0) return std::nullopt;
  std::size_t at = 0;
  while ((word(at) & mask) == 0) ++at;
  return at;
}

}  // namespace

void require_narrow_codes(FormatId id, std::span<const std::byte> codes,
                          std::string_view argument) {
  const Format& f = format(id);
  const auto width = static_cast<std::size_t>(f.bytes());
  const unsigned above = ~((1U << f.code_bits()) - 1);
  const std::optional<std::size_t> wide =
      width == 1 ? first_with<std::uint8_t>(codes, above) : first_with<std::uint16_t>(codes, above);
  if (!wide) return;
  const std::string packs =
      is_built_in(id) ? fmt::format(" ({} packs them)", to_string(packed(element_type_of(id))))
                      : "";
  throw Error(argument,
              fmt::format("codes of {} bits, one per {}{}", f.code_bits(),
                          width == 1 ? "byte" : "word of 16 bits", packs),
              fmt::format("0x{:0{}x} at {}", code_at(id, codes, *wide), 2 * width, *wide));
}

std::vector<std::int64_t> shape_of_packed(ElementType type, std::span<const std::int64_t> bytes,
                                          std::string_view argument) {
  const Group group = group_of(type);
  require(!bytes.empty() && bytes.back() % group.bytes == 0, argument,
          fmt::format("a last dimension divisible by {}, of bytes that hold {}", group.bytes,
                      to_string(type)),
          shape_text(bytes));
  std::vector<std::int64_t> shape(bytes.begin(), bytes.end());
  shape.back() = shape.back() / group.bytes * group.codes;
  return shape;
}

std::vector<std::int64_t> shape_in_bytes(ElementType type, std::span<const std::int64_t> codes,
                                         std::string_view argument) {
  const Group group = group_of(type);
  require(!codes.empty() && codes.back() % group.codes == 0, argument,
          fmt::format("a last dimension divisible by {} for {}", group.codes, to_string(type)),
          shape_text(codes));
  std::vector<std::int64_t> shape(codes.begin(), codes.end());
  shape.back() = shape.back() / group.codes * group.bytes;
  return shape;
}

}  // namespace fp8lab

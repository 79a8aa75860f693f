#include "fp8lab/tensors/packed.hpp"

#include <array>
#include <cstdint>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"

using namespace fp8lab;

namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

}  // namespace

TEST_CASE("packed codes: the first one is in the lowest bits", "[tensors]") {
  // The layouts as their systems write them, by hand.
  const std::vector<std::byte> fp4 = bytes_of({0x1, 0xf, 0x0, 0x7});
  CHECK(pack_codes({ElementType::e2m1, {2, 2}, fp4, false}) == bytes_of({0xf1, 0x70}));
  // 0b000001, 0b100000, 0b111111, 0b000010: 24 bits 000010'111111'100000'000001.
  const std::vector<std::byte> fp6 = bytes_of({0x01, 0x20, 0x3f, 0x02});
  for (const ElementType type : {ElementType::e2m3, ElementType::e3m2})
    CHECK(pack_codes({type, {4}, fp6, false}) == bytes_of({0x01, 0xf8, 0x0b}));
}

TEST_CASE("packed codes: unpacking gives back what was packed", "[tensors]") {
  const RandomStream stream(7, "packed codes");
  for (const ElementType type : {ElementType::e2m1, ElementType::e2m3, ElementType::e3m2})
    for (const std::int64_t count : {0, 4, 8, 12, 100, 1024}) {
      INFO(to_string(type) << " " << count);
      const unsigned mask = (1U << format(*format_of(type)).code_bits()) - 1;
      std::vector<std::byte> codes;
      for (std::int64_t i = 0; i < count; ++i)
        codes.push_back(
            static_cast<std::byte>(stream.bits32(static_cast<std::uint64_t>(i)) & mask));
      const TensorView view{type, {count}, codes, false};
      const std::vector<std::byte> bytes = pack_codes(view);
      const ElementType to = packed(type);
      CHECK(is_packed(to));
      CHECK(unpacked(to) == type);
      CHECK(bytes.size() == storage_bytes(to, count, "count"));
      const TensorView back{to, {count}, bytes, false};
      CHECK(unpack_codes(back) == codes);
      CHECK(to_float(back) == to_float(view));
    }
}

TEST_CASE("packed codes: values are those of their formats", "[tensors]") {
  std::vector<std::byte> codes;
  for (int code = 0; code < 16; ++code) codes.push_back(static_cast<std::byte>(code));
  const std::vector<float> expected{0,   0.5F,  1,   1.5F,  2,   3,   4,   6,
                                    -0., -0.5F, -1., -1.5F, -2., -3., -4., -6.};
  CHECK(to_float({ElementType::e2m1, {16}, codes, false}) == expected);
  CHECK(format_of(ElementType::e2m1x2) == std::nullopt);
  CHECK(element_type_of(FormatId::e3m2) == ElementType::e3m2);
  CHECK(find_element_type("float4_e2m1fn") == ElementType::e2m1);
  CHECK(find_element_type("float4_e2m1fn_x2") == ElementType::e2m1x2);
  CHECK(find_element_type("float6_e2m3fn") == ElementType::e2m3);
}

TEST_CASE("packed codes: what cannot be packed or unpacked is refused", "[tensors]") {
  const std::vector<std::byte> bad = bytes_of({0x1, 0x10, 0, 0});
  CHECK_THROWS_WITH(pack_codes({ElementType::e2m1, {4}, bad, false}),
                    contains("codes of 4 bits") && contains("0x10 at 1"));
  CHECK_THROWS_WITH(to_float({ElementType::e2m1, {4}, bad, false}), contains("e2m1x2"));
  CHECK_THROWS_WITH(to_float({ElementType::e2m3, {1}, bytes_of({0x40}), false}),
                    contains("codes of 6 bits"));
  const std::vector<std::byte> three = bytes_of({1, 2, 3});
  CHECK_THROWS_WITH(pack_codes({ElementType::e2m1, {3}, three, false}),
                    contains("a multiple of 2"));
  CHECK_THROWS_WITH(pack_codes({ElementType::e3m2, {3}, three, false}),
                    contains("a multiple of 4"));
  CHECK_THROWS_WITH(pack_codes({ElementType::u8, {3}, three, false}), contains("e2m1"));
  CHECK_THROWS_WITH(unpack_codes({ElementType::e2m1x2, {2, 2}, three, false}), contains("2 bytes"));
  CHECK_THROWS_WITH(unpack_codes({ElementType::e2m1, {3}, three, false}), contains("packed"));
  CHECK_THROWS_WITH(unpack_codes({ElementType::e2m1x2, {2, 3}, three, true}),
                    contains("row-major"));
  CHECK_THROWS_WITH(element_bytes(ElementType::e2m1x2), contains("whole bytes"));
  const std::array<std::int64_t, 2> shape{3, 5};
  CHECK(shape_of_packed(ElementType::e2m1x2, shape, "x") == std::vector<std::int64_t>{3, 10});
  CHECK_THROWS_WITH(shape_of_packed(ElementType::e2m3x4, shape, "x"), contains("divisible by 3"));
  CHECK_THROWS_WITH(shape_in_bytes(ElementType::e2m1x2, shape, "x"), contains("divisible by 2"));
}

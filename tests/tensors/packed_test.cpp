#include "fp8lab/tensors/packed.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/tensors/slices.hpp"

using namespace fp8lab;

namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

/// 0, 1, 2 ...
template <class T>
std::vector<T> counted(std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(i);
  return values;
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
  for (const ElementType type : {ElementType::e2m1, ElementType::e2m3, ElementType::e3m2})
    for (int bit = 0; bit < 8; ++bit)
      for (std::size_t at = 0; at < 4; ++at) {
        std::vector<std::byte> codes = bytes_of({1, 2, 3, 4});
        codes[at] |= static_cast<std::byte>(1 << bit);
        const int bits = format(*format_of(type)).code_bits();
        INFO(to_string(type) << ", bit " << bit << " at " << at);
        if (bit < bits)
          CHECK_NOTHROW(pack_codes({type, {4}, codes, false}));
        else
          CHECK_THROWS_WITH(pack_codes({type, {4}, codes, false}),
                            contains("codes of " + std::to_string(bits) + " bits") &&
                                contains(" at " + std::to_string(at)));
      }
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

TEST_CASE("packed codes: shapes in codes and in bytes, there and back", "[tensors]") {
  using Shape = std::vector<std::int64_t>;
  for (const auto& [type, codes, bytes] : {std::tuple{ElementType::e2m1x2, 2, 1},
                                           {ElementType::e2m3x4, 4, 3},
                                           {ElementType::e3m2x4, 4, 3}})
    for (const Shape& before : {Shape{}, Shape{5}, Shape{7, 0, 3}})
      for (std::int64_t last = 0; last <= 24; ++last) {
        Shape shape = before;
        shape.push_back(last);
        INFO(to_string(type) << " " << shape_text(shape));
        Shape other = before;
        if (last % bytes == 0) {
          other.push_back(last / bytes * codes);
          CHECK(shape_of_packed(type, shape, "x") == other);
        } else {
          CHECK_THROWS_WITH(shape_of_packed(type, shape, "x"),
                            "x: expected a last dimension divisible by 3, of bytes that hold " +
                                std::string(to_string(type)) + ", got " + shape_text(shape));
        }
        other = before;
        if (last % codes == 0) {
          other.push_back(last / codes * bytes);
          CHECK(shape_in_bytes(type, shape, "y") == other);
        } else {
          CHECK_THROWS_WITH(shape_in_bytes(type, shape, "y"),
                            "y: expected a last dimension divisible by " + std::to_string(codes) +
                                " for " + std::string(to_string(type)) + ", got " +
                                shape_text(shape));
        }
      }
  CHECK_THROWS_WITH(shape_of_packed(ElementType::e2m1x2, Shape{}, "x"),
                    contains("x: expected a last dimension divisible by 1") && contains("got []"));
  CHECK_THROWS_WITH(shape_in_bytes(ElementType::e3m2x4, Shape{}, "x"),
                    contains("x: expected a last dimension divisible by 4") && contains("got []"));
}

TEST_CASE("codes of one, two and four bytes are read by their places", "[tensors]") {
  std::vector<std::byte> bytes;
  for (int i = 0; i < 24; ++i) bytes.push_back(static_cast<std::byte>(0x31 + 5 * i));
  const auto byte = [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
  for (const FormatId id :
       {FormatId::e4m3fn, FormatId::e2m1, FormatId::f16, FormatId::bf16, FormatId::f32}) {
    const auto width = static_cast<std::size_t>(format(id).storage_bits / 8);
    INFO(format(id).name);
    for (std::size_t i = 0; i < bytes.size() / width; ++i) {
      std::uint32_t expected = 0;
      for (std::size_t b = 0; b < width; ++b) expected |= byte(i * width + b) << (8 * b);
      CHECK(code_at(id, bytes, i) == expected);
    }
    if (id == FormatId::e2m1) continue;
    const std::vector<float> values = decode_codes(id, bytes);
    REQUIRE(values.size() == bytes.size() / width);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint32_t code = code_at(id, bytes, i);
      const float expected =
          id == FormatId::f32 ? std::bit_cast<float>(code) : decode_table(id)[code];
      CHECK(std::bit_cast<std::uint32_t>(values[i]) == std::bit_cast<std::uint32_t>(expected));
    }
  }
}

TEST_CASE("element types: other names, and what has none is refused", "[tensors]") {
  using enum ElementType;
  for (const auto& [name, type] : {std::pair{"float32", f32},
                                   {"float16", f16},
                                   {"bfloat16", bf16},
                                   {"float8_e4m3fn", e4m3fn},
                                   {"float8_e5m2", e5m2},
                                   {"float8_e8m0fnu", e8m0fnu},
                                   {"float8_e4m3fnuz", e4m3fnuz},
                                   {"float8_e5m2fnuz", e5m2fnuz},
                                   {"float4_e2m1fn", e2m1},
                                   {"float6_e2m3fn", e2m3},
                                   {"float6_e3m2fn", e3m2},
                                   {"float4_e2m1fn_x2", e2m1x2},
                                   {"float64", f64},
                                   {"f2", f16},
                                   {"f4", f32},
                                   {"f8", f64}}) {
    INFO(name);
    CHECK(to_string(find_element_type(name)) == to_string(type));
  }
  std::string known;
  for (int i = 0; i <= static_cast<int>(boolean); ++i)
    known += (i == 0 ? "" : ", ") + std::string(to_string(static_cast<ElementType>(i)));
  for (const std::string name : {"", "F32", "f16 ", "e9m9", "tf32"})
    CHECK_THROWS_WITH(find_element_type(name),
                      "dtype: expected one of " + known + ", got '" + name + "'");
  for (const ElementType type :
       {f32, f16, bf16, e4m3fn, e5m2, e8m0fnu, e4m3fnuz, e5m2fnuz, e2m1, e2m3, e3m2}) {
    REQUIRE(format_of(type).has_value());
    CHECK(format(*format_of(type)).name == to_string(type));
    CHECK(element_type_of(*format_of(type)) == type);
  }
  for (const ElementType type :
       {f64, e2m1x2, e2m3x4, e3m2x4, u8, u16, u32, u64, i8, i16, i32, i64, boolean})
    CHECK_FALSE(format_of(type).has_value());
  for (const auto& [type, group] : {std::pair{e2m1x2, 2}, {e2m3x4, 4}, {e3m2x4, 4}})
    for (std::int64_t count = 0; count <= 9; ++count) {
      if (count % group == 0) {
        CHECK(storage_bytes(type, count, "x") ==
              static_cast<std::size_t>(count) * element_bits(type) / 8);
        continue;
      }
      CHECK_THROWS_WITH(storage_bytes(type, count, "x"),
                        "x: expected a multiple of " + std::to_string(group) + " codes of " +
                            std::string(to_string(type)) + ", so that they fill whole bytes, got " +
                            std::to_string(count));
    }
}

TEST_CASE("tensors in Fortran order are read row by row", "[tensors]") {
  const auto read = [](TensorView view) {
    view.fortran_order = true;
    return to_float(view);
  };
  const std::vector<std::uint8_t> bytes = counted<std::uint8_t>(24);
  const std::vector<float> floats = counted<float>(24);
  const std::vector<std::int64_t> wide = counted<std::int64_t>(24);
  const auto views = [&](const std::vector<std::int64_t>& shape, std::size_t count) {
    return std::vector<TensorView>{view_of(ElementType::u8, shape, std::span(bytes).first(count)),
                                   view_of(ElementType::f32, shape, std::span(floats).first(count)),
                                   view_of(ElementType::i64, shape, std::span(wide).first(count))};
  };
  std::vector<float> expected;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k) expected.push_back(static_cast<float>(i + 2 * j + 6 * k));
  for (const TensorView& view : views({2, 3, 4}, 24)) CHECK(read(view) == expected);
  for (const TensorView& view : views({2, 1, 3, 1, 4}, 24)) CHECK(read(view) == expected);
  for (const TensorView& view : views({2, 3}, 6))
    CHECK(read(view) == std::vector<float>{0, 2, 4, 1, 3, 5});
  for (const TensorView& view : views({3, 2}, 6))
    CHECK(read(view) == std::vector<float>{0, 3, 1, 4, 2, 5});
  for (const auto& shape : {std::vector<std::int64_t>{4}, {1, 4}, {4, 1}})
    for (const TensorView& view : views(shape, 4))
      CHECK(read(view) == std::vector<float>{0, 1, 2, 3});
  for (const TensorView& view : views({}, 1)) CHECK(read(view) == std::vector<float>{0});
  for (const TensorView& view : views({2, 0, 3}, 0)) CHECK(read(view).empty());

  TensorView turned = views({2, 3, 4}, 24)[0];
  turned.fortran_order = true;
  const HeldTensor held = row_major(turned);
  CHECK_FALSE(held.view.fortran_order);
  CHECK(to_float(held.view) == expected);
  const TensorView plain = views({2, 3, 4}, 24)[0];
  CHECK(row_major(plain).view.bytes.data() == plain.bytes.data());
}

TEST_CASE("parts of tensors are rows of their first dimension", "[tensors]") {
  using Shape = std::vector<std::int64_t>;
  const std::vector<float> values = counted<float>(24);
  const TensorView tensor = view_of(ElementType::f32, {4, 3, 2}, std::span<const float>(values));
  const TensorView part = slice(tensor, 1, 3);
  CHECK(part.shape == Shape{2, 3, 2});
  CHECK(to_float(part) == std::vector<float>(values.begin() + 6, values.begin() + 18));
  CHECK(slice(tensor, 2, 2).shape == Shape{0, 3, 2});
  CHECK(to_float(slice(tensor, 0, 4)) == values);
  const TensorView last = element(tensor, 3);
  CHECK(last.shape == Shape{3, 2});
  CHECK(to_float(last) == std::vector<float>(values.begin() + 18, values.end()));
  CHECK(element(element(element(tensor, 1), 2), 0).shape.empty());
  CHECK(to_float(element(element(element(tensor, 1), 2), 0)) == std::vector<float>{10});
}

TEST_CASE("parts outside a tensor are refused", "[tensors]") {
  const std::vector<float> values = counted<float>(8);
  const TensorView tensor = view_of(ElementType::f32, {4, 2}, std::span<const float>(values));
  for (const auto& [begin, end] : {std::pair{-1, 2}, {3, 2}, {0, 5}, {5, 5}})
    CHECK_THROWS_WITH(slice(tensor, begin, end),
                      contains("slice: expected a part of the first dimension of [4, 2]"));
  CHECK_NOTHROW(slice(tensor, 4, 4));
  CHECK_THROWS_AS(element(tensor, 4), Error);
  CHECK_THROWS_AS(element(tensor, -1), Error);
  CHECK_THROWS_AS(slice(view_of(ElementType::f32, {}, std::span(values).first(1)), 0, 1), Error);
  CHECK(slice(view_of(ElementType::f32, {0, 2}, std::span(values).first(0)), 0, 0).bytes.empty());
  TensorView short_of = view_of(ElementType::f32, {4, 3}, std::span<const float>(values));
  short_of.fortran_order = true;
  CHECK_THROWS_WITH(row_major(short_of), contains("expected 48 bytes for [4, 3], got 32"));
}

TEST_CASE("F64 that is exact in binary32 is read, and the first that is not is named",
          "[tensors]") {
  const std::vector<double> exact{0.5, -0x1p-149, 0x1.fffffep127,
                                  std::numeric_limits<double>::infinity()};
  CHECK(to_float_exactly(view_of(ElementType::f64, {4}, std::span(exact)), "x") ==
        std::vector<float>{0.5F, -0x1p-149F, std::numeric_limits<float>::max(),
                           std::numeric_limits<float>::infinity()});
  std::vector<double> values{1.0, std::numeric_limits<double>::quiet_NaN(), 2.0, 3.0, 0.1, 1e39};
  TensorView view = view_of(ElementType::f64, {2, 3}, std::span<const double>(values));
  CHECK_THROWS_WITH(
      to_float_exactly(view, "x"),
      contains("x: expected f32") && contains("got 0.10000000000000001, value 4 of [2, 3]"));
  view.fortran_order = true;  // 1, 2, 0.1; NaN, 3, 1e39
  CHECK_THROWS_WITH(to_float_exactly(view, "x"), contains("value 2 of [2, 3]"));
  values[4] = 0.25;
  CHECK_THROWS_WITH(to_float_exactly(view, "x"), contains("value 5 of [2, 3]"));
}

TEST_CASE("integers of every type are read as they are", "[tensors]") {
  const auto read = [](ElementType type, const auto& values) {
    using T = typename std::decay_t<decltype(values)>::value_type;
    return to_integers(view_of(type, {2, 2}, std::span<const T>(values)), "x");
  };
  using Integers = std::vector<std::int64_t>;
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kSmallest = std::numeric_limits<std::int64_t>::min();
  CHECK(read(ElementType::u8, std::vector<std::uint8_t>{0, 1, 128, 255}) ==
        Integers{0, 1, 128, 255});
  CHECK(read(ElementType::i8, std::vector<std::int8_t>{0, 1, -128, 127}) ==
        Integers{0, 1, -128, 127});
  CHECK(read(ElementType::u16, std::vector<std::uint16_t>{0, 1, 32768, 65535}) ==
        Integers{0, 1, 32768, 65535});
  CHECK(read(ElementType::i16, std::vector<std::int16_t>{0, 1, -32768, 32767}) ==
        Integers{0, 1, -32768, 32767});
  CHECK(read(ElementType::u32, std::vector<std::uint32_t>{0, 1, 1U << 31, ~0U}) ==
        Integers{0, 1, 2147483648, 4294967295});
  CHECK(read(ElementType::i32, std::vector<std::int32_t>{0, 1, -2147483647 - 1, 2147483647}) ==
        Integers{0, 1, -2147483648, 2147483647});
  CHECK(read(ElementType::i64, Integers{0, 1, kSmallest, kLargest}) ==
        Integers{0, 1, kSmallest, kLargest});
  const auto largest = static_cast<std::uint64_t>(kLargest);
  CHECK(read(ElementType::u64, std::vector<std::uint64_t>{0, 1, 2, largest}) ==
        Integers{0, 1, 2, kLargest});
  CHECK_THROWS_WITH(read(ElementType::u64, std::vector<std::uint64_t>{0, 1, 2, largest + 1}),
                    contains("x: expected integers below 2^63, got 9223372036854775808"));
  const Integers wide{1, 2, 3, 4};
  TensorView turned = view_of(ElementType::i64, {2, 2}, std::span<const std::int64_t>(wide));
  turned.fortran_order = true;
  CHECK(to_integers(turned, "x") == Integers{1, 3, 2, 4});
  for (const ElementType type : {ElementType::boolean, ElementType::e2m1, ElementType::e4m3fn})
    CHECK_THROWS_WITH(read(type, std::vector<std::uint8_t>(4)), contains("x: expected integers"));
}

TEST_CASE("element types have names and widths of their own", "[tensors]") {
  struct Expected {
    ElementType type;
    const char* name;
    std::size_t bits;
  };
  using enum ElementType;
  for (const Expected& e : {Expected{f64, "f64", 64},          Expected{f32, "f32", 32},
                            Expected{f16, "f16", 16},          Expected{bf16, "bf16", 16},
                            Expected{e4m3fn, "e4m3fn", 8},     Expected{e5m2, "e5m2", 8},
                            Expected{e8m0fnu, "e8m0fnu", 8},   Expected{e4m3fnuz, "e4m3fnuz", 8},
                            Expected{e5m2fnuz, "e5m2fnuz", 8}, Expected{e2m1, "e2m1", 8},
                            Expected{e2m3, "e2m3", 8},         Expected{e3m2, "e3m2", 8},
                            Expected{e2m1x2, "e2m1x2", 4},     Expected{e2m3x4, "e2m3x4", 6},
                            Expected{e3m2x4, "e3m2x4", 6},     Expected{u8, "u8", 8},
                            Expected{u16, "u16", 16},          Expected{u32, "u32", 32},
                            Expected{u64, "u64", 64},          Expected{i8, "i8", 8},
                            Expected{i16, "i16", 16},          Expected{i32, "i32", 32},
                            Expected{i64, "i64", 64},          Expected{boolean, "bool", 8}}) {
    INFO(e.name);
    CHECK(to_string(e.type) == e.name);
    CHECK(find_element_type(e.name) == e.type);
    CHECK(element_bits(e.type) == e.bits);
    CHECK(is_packed(e.type) == (e.bits < 8));
    CHECK(storage_bytes(e.type, 12, "x") == 12 * e.bits / 8);
  }
  // NumPy's names, which count bytes.
  CHECK(find_element_type("f2") == f16);
  CHECK(find_element_type("f4") == f32);
  CHECK(find_element_type("f8") == f64);
  CHECK(find_element_type("float64") == f64);
  CHECK_THROWS_WITH(find_element_type("f3"), contains("dtype: expected one of f64, f32, f16") &&
                                                 contains("i64, bool, got 'f3'"));
}

TEST_CASE("integers and F64 are read to the nearest float", "[tensors]") {
  const auto read = [](ElementType type, const auto& values) {
    using T = typename std::decay_t<decltype(values)>::value_type;
    return to_float(
        view_of(type, {static_cast<std::int64_t>(values.size())}, std::span<const T>(values)));
  };
  using Floats = std::vector<float>;
  CHECK(read(ElementType::u16, std::vector<std::uint16_t>{1, 65535}) == Floats{1.0F, 65535.0F});
  CHECK(read(ElementType::i16, std::vector<std::int16_t>{-1, 32767}) == Floats{-1.0F, 32767.0F});
  CHECK(read(ElementType::u32, std::vector<std::uint32_t>{3, 4294967295U}) == Floats{3, 0x1p32F});
  CHECK(read(ElementType::i32, std::vector<std::int32_t>{-3, 16777217}) == Floats{-3, 0x1p24F});
  CHECK(read(ElementType::u64, std::vector<std::uint64_t>{5, ~std::uint64_t{0}}) ==
        Floats{5, 0x1p64F});
  CHECK(read(ElementType::i64, std::vector<std::int64_t>{-5, 16777219}) == Floats{-5, 16777220});
  CHECK(read(ElementType::boolean, std::vector<std::uint8_t>{0, 1}) == Floats{0, 1});
  CHECK(read(ElementType::f64, std::vector<double>{0.1, 1e39, -0x1p-149}) ==
        Floats{0.1F, std::numeric_limits<float>::infinity(), -0x1p-149F});
  const std::vector<std::uint8_t> three(3);
  CHECK_THROWS_WITH(to_float(view_of(ElementType::u8, {2, 2}, std::span(three))),
                    contains("expected 4 bytes for u8 [2, 2], got 3 bytes"));
}

TEST_CASE("a shape has at most 64 dimensions and 2^62 elements", "[tensors]") {
  const std::int64_t half = std::int64_t{1} << 31;
  const auto count = [](const std::vector<std::int64_t>& shape) {
    return element_count(shape, "x");
  };
  CHECK(count({}) == 1);
  CHECK(count({half, half}) == std::int64_t{1} << 62);
  CHECK_THROWS_WITH(count({half, half, 2}), contains("x: expected at most 2^62 elements"));
  CHECK_THROWS_WITH(count({half, half + 1}), contains("x: expected at most 2^62 elements"));
  CHECK(count({half, half, 0}) == 0);
  CHECK_THROWS_WITH(count({0, -1}), contains("x: expected dimensions >= 0, got [0, -1]"));
  CHECK(count(std::vector<std::int64_t>(64, 1)) == 1);
  CHECK_THROWS_WITH(count(std::vector<std::int64_t>(65, 1)),
                    contains("x: expected at most 64 dimensions, got 65"));
}

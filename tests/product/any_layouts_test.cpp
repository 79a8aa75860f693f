// Scales in every layout, of every type and order, for tiles of every side: each tile has its own.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/product/scale_layouts.hpp"

using namespace fp8lab;

namespace {

/// Bytes of a tensor [rows, columns] in row-major or Fortran order, of which each element is set.
class StoredScales {
 public:
  StoredScales(ElementType type, std::vector<std::int64_t> shape, bool fortran)
      : type_(type),
        shape_(std::move(shape)),
        fortran_(fortran),
        width_(element_bytes(type)),
        bytes_(static_cast<std::size_t>(element_count(shape_, "scales")) * width_,
               type == ElementType::f64 ? std::byte{0} : std::byte{0x7e}) {}

  void set(std::int64_t row, std::int64_t column, std::uint64_t word) {
    const std::int64_t columns = shape_.size() < 2 ? 1 : shape_[1];
    const std::int64_t at = fortran_ ? column * shape_[0] + row : row * columns + column;
    std::memcpy(&bytes_[static_cast<std::size_t>(at) * width_], &word, width_);
  }
  void set_byte(std::int64_t row, std::int64_t column, std::size_t byte, std::uint8_t code) {
    const std::int64_t at = fortran_ ? column * shape_[0] + row : row * shape_[1] + column;
    bytes_[static_cast<std::size_t>(at) * width_ + byte] = static_cast<std::byte>(code);
  }
  [[nodiscard]] TensorView view() const { return {type_, shape_, bytes_, fortran_}; }

 private:
  ElementType type_;
  std::vector<std::int64_t> shape_;
  bool fortran_;
  std::size_t width_;
  std::vector<std::byte> bytes_;
};

std::int64_t ceiling(std::int64_t x, std::int64_t by) { return (x + by - 1) / by; }

/// The code of a tile, of which no two near each other are alike, and what it stands for.
struct TileCode {
  ElementType type;

  [[nodiscard]] bool is_code() const {
    return type == ElementType::e8m0fnu || type == ElementType::e4m3fn;
  }
  [[nodiscard]] std::uint64_t word(std::int64_t row, std::int64_t column) const {
    const std::int64_t number = 7 * row + 31 * column;
    if (type == ElementType::e8m0fnu) return static_cast<std::uint64_t>(100 + number % 51);
    if (type == ElementType::e4m3fn)  // of either sign
      return static_cast<std::uint64_t>(number % 0x7f | (row % 2 == 1 ? 0x80 : 0));
    const auto value = static_cast<float>(1 + number % 61);
    const double wide = static_cast<double>(value);
    std::uint64_t bits = 0;
    if (type == ElementType::f64) std::memcpy(&bits, &wide, 8);
    if (type == ElementType::f32) std::memcpy(&bits, &value, 4);
    if (type == ElementType::f16) bits = encode(format(FormatId::f16), kNvidiaNosat, value);
    if (type == ElementType::bf16) bits = encode(format(FormatId::bf16), kNvidiaNosat, value);
    return bits;
  }
  [[nodiscard]] float value(std::int64_t row, std::int64_t column) const {
    if (!is_code()) return static_cast<float>(1 + (7 * row + 31 * column) % 61);
    const FormatId id = type == ElementType::e8m0fnu ? FormatId::e8m0fnu : FormatId::e4m3fn;
    const auto code = static_cast<std::uint32_t>(word(row, column));
    return std::abs(static_cast<float>(decode(format(id), code)));
  }
  [[nodiscard]] FormatId format_of_codes() const {
    return type == ElementType::e8m0fnu  ? FormatId::e8m0fnu
           : type == ElementType::e4m3fn ? FormatId::e4m3fn
                                         : FormatId::f32;
  }
};

}  // namespace

TEST_CASE("scale layouts: each tile of every grid has its own value, and its format", "[product]") {
  using enum ElementType;
  std::string wrong;
  int looked_at = 0;
  for (const std::int64_t rows : {1, 5, 70, 300})
    for (const std::int64_t columns : {40, 128, 300})
      for (const ScaleTiles named : {ScaleTiles{1, 16}, ScaleTiles{1, 128}, ScaleTiles{3, 32},
                                     ScaleTiles{0, 64}, ScaleTiles{4, 0}, ScaleTiles{0, 0}}) {
        const ScaleTiles tiles{named.rows > 0 ? named.rows : rows,
                               named.columns > 0 ? named.columns : columns};
        const std::int64_t row_tiles = ceiling(rows, tiles.rows);
        const std::int64_t k_tiles = ceiling(columns, tiles.columns);
        const auto look = [&](const TileCode& code, ScaleLayout layout, FormatId id,
                              const TensorView& tensor, const std::optional<ScaleTiles>& given) {
          const ScaleGrid grid = read_scales("scale_a", tensor, layout, given, rows, columns);
          bool right = grid.tiles == tiles && grid.format == id &&
                       grid.values.size() == static_cast<std::size_t>(row_tiles * k_tiles);
          for (std::int64_t i = 0; right && i < row_tiles; ++i)
            for (std::int64_t j = 0; j < k_tiles; ++j)
              right &= grid.values[static_cast<std::size_t>(i * k_tiles + j)] == code.value(i, j);
          ++looked_at;
          if (!right)
            wrong += fmt::format("{} {}, {} x {} in tiles of {} x {}, Fortran {}\n",
                                 to_string(layout), to_string(tensor.type), rows, columns,
                                 named.rows, named.columns, tensor.fortran_order);
        };
        for (const bool fortran : {false, true}) {
          for (const ElementType type : {f64, f32, f16, bf16, e8m0fnu, e4m3fn}) {
            const TileCode code{type};
            const std::int64_t each = 16 / static_cast<std::int64_t>(element_bytes(type));
            const std::int64_t padded = ceiling(row_tiles, each) * each;
            StoredScales plain(type, {row_tiles, k_tiles}, fortran);
            StoredScales turned(type, {k_tiles, row_tiles}, fortran);
            StoredScales wide(type, {k_tiles, padded}, fortran);
            for (std::int64_t i = 0; i < row_tiles; ++i)
              for (std::int64_t j = 0; j < k_tiles; ++j) {
                plain.set(i, j, code.word(i, j));
                turned.set(j, i, code.word(i, j));
                wide.set(j, i, code.word(i, j));
              }
            const FormatId id = code.format_of_codes();
            look(code, ScaleLayout::row_major, id, plain.view(), named);
            look(code, ScaleLayout::column_major, id, turned.view(), named);
            look(code, ScaleLayout::column_major, id, wide.view(), named);
            if (!code.is_code()) continue;
            const std::int64_t high = ceiling(row_tiles, 128) * 128;
            const std::int64_t broad = ceiling(k_tiles, 4) * 4;
            StoredScales blocked(type, {high * broad / 16, 16}, fortran);
            for (std::int64_t i = 0; i < row_tiles; ++i)
              for (std::int64_t j = 0; j < k_tiles; ++j) {
                const std::int64_t block = i / 128 * (broad / 4) + j / 4;
                const std::int64_t line = i % 32;
                const std::int64_t place = i / 32 % 4 * 4 + j % 4;
                blocked.set(block * 32 + line, place, code.word(i, j));
              }
            look(code, ScaleLayout::blocked_128x4, id, blocked.view(), named);
          }
          for (const ElementType type : {i32, u32}) {
            const TileCode code{e8m0fnu};
            const std::int64_t words = ceiling(k_tiles, 4);
            StoredScales packed(type, {row_tiles, words}, fortran);
            StoredScales turned(type, {words, row_tiles}, fortran);
            StoredScales wide(type, {words, ceiling(row_tiles, 4) * 4}, fortran);
            for (std::int64_t i = 0; i < row_tiles; ++i)
              for (std::int64_t j = 0; j < k_tiles; ++j) {
                const auto byte = static_cast<std::size_t>(j % 4);
                const auto word = static_cast<std::uint8_t>(code.word(i, j));
                packed.set_byte(i, j / 4, byte, word);
                turned.set_byte(j / 4, i, byte, word);
                wide.set_byte(j / 4, i, byte, word);
              }
            const FormatId id = FormatId::e8m0fnu;
            look(code, ScaleLayout::packed_ue8m0, id, packed.view(), named);
            look(code, ScaleLayout::packed_ue8m0_column_major, id, turned.view(), named);
            look(code, ScaleLayout::packed_ue8m0_column_major, id, wide.view(), named);
            if (named == ScaleTiles{1, 128})
              look(code, ScaleLayout::packed_ue8m0, id, packed.view(), std::nullopt);
          }
        }
      }
  INFO(wrong.substr(0, 2000));
  CHECK(wrong.empty());
  CHECK(looked_at > 3000);
  // One scale a row, in a list: of any layout that has rows.
  for (const ElementType type : {f32, bf16, e8m0fnu, e4m3fn})
    for (const ScaleLayout layout : {ScaleLayout::row_major, ScaleLayout::column_major}) {
      const TileCode code{type};
      StoredScales list(type, {5}, false);
      for (std::int64_t i = 0; i < 5; ++i) list.set(i, 0, code.word(i, 0));
      const ScaleGrid grid = read_scales("scale_a", list.view(), layout, std::nullopt, 5, 64);
      CHECK(grid.format == code.format_of_codes());
      CHECK(grid.tiles == ScaleTiles{1, 64});
      for (std::int64_t i = 0; i < 5; ++i)
        CHECK(grid.values.at(static_cast<std::size_t>(i)) == code.value(i, 0));
    }
}

TEST_CASE("scale layouts: elements that are no scales are refused in each", "[product]") {
  using enum ElementType;
  const std::string plain =
      "scale_a: expected floats, or E8M0 or UE4M3 codes with a stated format "
      "(`scale_format=e8m0fnu` or e4m3fn, or a sidecar), got ";
  for (const ElementType type :
       {f64,  f32, f16, bf16, e4m3fn, e5m2, e8m0fnu, e4m3fnuz, e5m2fnuz, e2m1,   e2m3,
        e3m2, u8,  u16, u32,  u64,    i8,   i16,     i32,      i64,      boolean}) {
    const StoredScales stored(type, {128, 4}, false);
    const bool floats = type == f64 || type == f32 || type == f16 || type == bf16;
    const bool one_byte = type == e8m0fnu || type == e4m3fn;
    const bool words = type == i32 || type == u32;
    const auto said = [&](ScaleLayout layout, ScaleTiles tiles, std::int64_t rows,
                          std::int64_t columns) -> std::string {
      try {
        (void)read_scales("scale_a", stored.view(), layout, tiles, rows, columns);
      } catch (const std::exception& error) {
        return error.what();
      }
      return "accepted";
    };
    const std::string name(to_string(type));
    INFO(name);
    CHECK(said(ScaleLayout::row_major, {1, 32}, 128, 128) ==
          (floats || one_byte ? "accepted" : plain + name));
    CHECK(said(ScaleLayout::column_major, {32, 1}, 128, 128) ==
          (floats || one_byte ? "accepted" : plain + name));
    CHECK(said(ScaleLayout::blocked_128x4, {1, 32}, 128, 128) ==
          (one_byte ? "accepted"
                    : "scale_a: expected E8M0 or UE4M3 codes with a stated format "
                      "(blocked_128x4), got " +
                          name));
    CHECK(said(ScaleLayout::packed_ue8m0, {1, 32}, 128, 512) ==
          (words ? "accepted"
                 : "scale_a: expected 32-bit integers, each with four E8M0 exponents "
                   "(packed_ue8m0), got " +
                       name));
  }
  // Codes of a blocked layout are as many as its blocks have, no more and no fewer.
  for (const std::int64_t count : {511, 512, 513, 1024}) {
    const StoredScales stored(e8m0fnu, {count}, false);
    std::string said = "accepted";
    try {
      (void)read_scales("scale_a", stored.view(), ScaleLayout::blocked_128x4, std::nullopt, 100,
                        96);
    } catch (const std::exception& error) {
      said = error.what();
    }
    CHECK(said == (count == 512
                       ? "accepted"
                       : fmt::format("scale_a: expected 128 x 4 = 512 codes for tiles of 1x32 "
                                     "(blocked_128x4), got [{}]",
                                     count)));
  }
}

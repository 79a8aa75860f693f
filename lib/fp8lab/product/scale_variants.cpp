#include "fp8lab/product/scale_variants.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab {

ScaleTileGrid scale_grid(const InverseScales& scales, const CodeMatrix& m) {
  ScaleTileGrid grid;
  grid.row_block = scales.row_block;
  grid.k_block = scales.k_block == 0 ? std::max<std::int64_t>(m.k, 1) : scales.k_block;
  grid.rows = ceil_divide(m.rows, grid.row_block);
  grid.columns = ceil_divide(m.k, grid.k_block);
  grid.k = m.k;
  return grid;
}

namespace {

/// Changes one operand's scales: true if any value is another one than before.
using Change = std::function<bool(InverseScales&, const CodeMatrix&, Product&)>;

std::optional<Product> changed(const Product& product, Side side, const Change& change) {
  Product result = product;
  GemmProblem& p = result.problem;
  bool any = false;
  if (side != Side::b && !p.scale_a.empty()) any |= change(p.scale_a, p.a, result);
  if (side != Side::a && !p.scale_b.empty()) any |= change(p.scale_b, p.b, result);
  if (!any) return std::nullopt;
  return result;
}

/// Equal numbers, or both NaN.
bool same(float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); }

/// The grid that a kernel reads through positions.
class MisreadScales {
 public:
  MisreadScales(const InverseScales& scales, const CodeMatrix& m, const ScalePosition& position,
                std::int64_t k_block)
      : scales_(scales),
        grid_(scale_grid(scales, m)),
        position_(position),
        terms_(k_block > 0 ? k_block : grid_.k_block) {}

  /// Appends the scales of a row of tiles; true if any is another one than the right one.
  bool read_row(std::int64_t row, std::vector<float>& values) const {
    bool any = false;
    for (std::int64_t column = 0; column < ceil_divide(grid_.k, terms_); ++column) {
      values.push_back(value(position_(grid_, row, column)));
      any |= !same(values.back(), value(row * grid_.columns + column * terms_ / grid_.k_block));
    }
    return any;
  }
  [[nodiscard]] const ScaleTileGrid& grid() const { return grid_; }

 private:
  [[nodiscard]] float value(std::int64_t at) const {
    if (at == kNoScale) return 1.0F;
    if (at == kScalePadding)
      return scales_.format == FormatId::e8m0fnu ? std::ldexp(1.0F, -127) : 0.0F;
    const std::int64_t last = grid_.rows * grid_.columns - 1;
    return scales_.values[static_cast<std::size_t>(std::clamp<std::int64_t>(at, 0, last))];
  }

  const InverseScales& scales_;
  ScaleTileGrid grid_;
  const ScalePosition& position_;
  std::int64_t terms_;
};

}  // namespace

namespace scale_positions {

ScalePosition moved_along_k(std::int64_t by) {
  return [by](const ScaleTileGrid& grid, std::int64_t row, std::int64_t column) {
    return row * grid.columns + std::clamp<std::int64_t>(column + by, 0, grid.columns - 1);
  };
}

ScalePosition first_of_k() {
  return
      [](const ScaleTileGrid& grid, std::int64_t row, std::int64_t) { return row * grid.columns; };
}

ScalePosition moved_along_rows(std::int64_t by) {
  return [by](const ScaleTileGrid& grid, std::int64_t row, std::int64_t column) {
    return ((row + by) % grid.rows + grid.rows) % grid.rows * grid.columns + column;
  };
}

ScalePosition rows_xor(std::int64_t mask) {
  return [mask](const ScaleTileGrid& grid, std::int64_t row, std::int64_t column) {
    const std::int64_t other = row ^ mask;
    return (other < grid.rows ? other : row) * grid.columns + column;
  };
}

ScalePosition without_column(std::int64_t left_out) {
  return [left_out](const ScaleTileGrid& grid, std::int64_t row, std::int64_t column) {
    return column == left_out ? kNoScale : row * grid.columns + column;
  };
}

ScalePosition tail_as_before() {
  return [](const ScaleTileGrid& grid, std::int64_t row, std::int64_t column) {
    const bool tail = column == grid.columns - 1 && grid.k % grid.k_block != 0;
    return row * grid.columns + (tail ? std::max<std::int64_t>(column - 1, 0) : column);
  };
}

ScalePosition group_along_k(std::int64_t k_block, WiderRows rows) {
  return [=](const ScaleTileGrid& grid, std::int64_t row, std::int64_t column) {
    const std::int64_t group = column * grid.k_block / k_block;
    const std::int64_t first = group * k_block / grid.k_block;
    const std::int64_t each = std::max<std::int64_t>(k_block / grid.k_block, 1);
    switch (rows) {
      case WiderRows::own:
        return row * grid.columns + group;
      case WiderRows::short_:
        return row * ceil_divide(grid.k, k_block) + group;
      case WiderRows::first:
        return row * grid.columns + first;
      case WiderRows::last:
        break;
    }
    return row * grid.columns + std::min(first + each, grid.columns) - 1;
  };
}

ScalePosition narrower_tiles() {
  return [](const ScaleTileGrid& grid, std::int64_t row, std::int64_t column) {
    return row * grid.columns + column;
  };
}

ScalePosition column_major() {
  return [](const ScaleTileGrid& grid, std::int64_t row, std::int64_t column) {
    return column * grid.rows + row;
  };
}

ScalePosition row_major_of_column_major() {
  return [](const ScaleTileGrid& grid, std::int64_t row, std::int64_t column) {
    const std::int64_t at = row * grid.columns + column;
    return at % grid.rows * grid.columns + at / grid.rows;
  };
}

ScalePosition blocked_128x4() {
  return [](const ScaleTileGrid& grid, std::int64_t row, std::int64_t column) {
    return blocked_128x4_position(grid.columns, row, column);
  };
}

ScalePosition row_major_of_blocked_128x4() {
  return [](const ScaleTileGrid& grid, std::int64_t row, std::int64_t column) {
    const std::int64_t at = row * grid.columns + column;
    const std::int64_t wide = ceil_divide(grid.columns, std::int64_t{4});
    const std::int64_t block = at / 512;
    const std::int64_t in_block = at % 512;
    const std::int64_t r = block / wide * 128 + in_block % 16 / 4 * 32 + in_block / 16;
    const std::int64_t c = block % wide * 4 + in_block % 4;
    return r < grid.rows && c < grid.columns ? r * grid.columns + c : kScalePadding;
  };
}

ScalePosition half_tiles_rounded_up() {
  return [](const ScaleTileGrid& grid, std::int64_t row, std::int64_t column) {
    return row * grid.columns + std::min(ceil_divide(column, 2), grid.columns - 1);
  };
}

}  // namespace scale_positions

std::optional<Product> with_scale_values(const Product& product, Side side,
                                         const std::function<float(float)>& of) {
  return changed(product, side, [&](InverseScales& scales, const CodeMatrix&, Product& to) {
    std::vector<float> values(scales.values.begin(), scales.values.end());
    std::transform(values.begin(), values.end(), values.begin(), of);
    const bool any = !std::equal(values.begin(), values.end(), scales.values.begin(), same);
    scales.values = to.keep(std::move(values));
    return any;
  });
}

std::optional<Product> with_scales_read_at(const Product& product, Side side,
                                           const ScalePosition& position) {
  return changed(product, side, [&](InverseScales& scales, const CodeMatrix& m, Product& to) {
    const MisreadScales misread(scales, m, position, 0);
    std::vector<float> values;
    bool any = false;
    for (std::int64_t row = 0; row < misread.grid().rows; ++row)
      any |= misread.read_row(row, values);
    scales.values = to.keep(std::move(values));
    return any;
  });
}

std::optional<Product> take_with_scales_read_at(const Product& product, const Sample& sample,
                                                Side side, const ScalePosition& position,
                                                std::int64_t k_block) {
  Product result = take(product, sample);
  GemmProblem& p = result.problem;
  bool any = false;
  const auto read = [&](const InverseScales& from, const CodeMatrix& m,
                        std::span<const std::int64_t> rows, InverseScales& to) {
    if (from.empty()) return;
    const MisreadScales misread(from, m, position, k_block);
    std::vector<float> values;
    for (const std::int64_t row : rows) any |= misread.read_row(row / from.row_block, values);
    const std::span<const float> kept = result.keep(std::move(values));
    to = to.in_tiles(kept, 1, k_block > 0 ? k_block : to.k_block);
  };
  const GemmProblem& whole = product.problem;
  if (side != Side::b) read(whole.scale_a, whole.a, sample.rows, p.scale_a);
  if (side != Side::a) read(whole.scale_b, whole.b, product.rows_of_b(sample.columns), p.scale_b);
  if (!any) return std::nullopt;
  if (k_block > 0 && !applies_scales(whole))
    p.promotion_interval = std::gcd(p.promotion_interval, k_block);
  return result;
}

std::optional<Product> take_with_scales_of(
    const Product& product, const Sample& sample, Side side, std::int64_t k_block,
    const std::function<float(std::int64_t row, std::int64_t tile)>& scale) {
  Product result = take(product, sample);
  const bool of_a = side == Side::a;
  const GemmProblem& whole = product.problem;
  const InverseScales& from = of_a ? whole.scale_a : whole.scale_b;
  const ScaleLookup lookup(block_level(from), of_a ? whole.a : whole.b);
  std::vector<float> values;
  bool any = false;
  for (const std::int64_t row : of_a ? sample.rows : product.rows_of_b(sample.columns))
    for (std::int64_t k = 0; k < whole.a.k; k += k_block) {
      values.push_back(scale(row, k / k_block));
      any |= !same(values.back(), lookup.at(row, k));
    }
  if (!any) return std::nullopt;
  InverseScales& to = of_a ? result.problem.scale_a : result.problem.scale_b;
  to = to.in_tiles(result.keep(std::move(values)), 1, k_block);
  if (!applies_scales(whole) && k_block < whole.a.k)
    result.problem.promotion_interval = std::gcd(result.problem.promotion_interval, k_block);
  return result;
}

std::optional<Product> with_inverted_scales(const Product& product, Side side) {
  return with_scale_values(product, side, [](float x) { return 1.0F / x; });
}

std::optional<Product> with_rounded_scales(const Product& product, Side side, FormatId id) {
  return with_scale_values(product, side, [id](float x) {
    const Format& f = format(id);
    return static_cast<float>(decode(f, encode(f, kNvidiaNosat, x)));
  });
}

std::optional<Product> with_scales_moved_along_k(const Product& product, Side side,
                                                 std::int64_t by) {
  return with_scales_read_at(product, side, scale_positions::moved_along_k(by));
}

std::optional<Product> with_first_scale_of_k(const Product& product, Side side) {
  return with_scales_read_at(product, side, scale_positions::first_of_k());
}

std::optional<Product> with_scales_moved_along_rows(const Product& product, Side side,
                                                    std::int64_t by) {
  return with_scales_read_at(product, side, scale_positions::moved_along_rows(by));
}

std::optional<Product> with_scale_group_along_k(const Product& product, Side side,
                                                std::int64_t k_block) {
  return with_scales_read_at(
      product, side, scale_positions::group_along_k(k_block, scale_positions::WiderRows::own));
}

std::optional<Product> with_scale_group_along_rows(const Product& product, Side side,
                                                   std::int64_t row_block) {
  return changed(product, side,
                 [row_block](InverseScales& scales, const CodeMatrix& m, Product& of) {
                   const ScaleTileGrid grid = scale_grid(scales, m);
                   if (row_block == grid.row_block || grid.rows < 2) return false;
                   std::vector<float> values;
                   for (std::int64_t row = 0; row < m.rows; ++row)
                     for (std::int64_t column = 0; column < grid.columns; ++column)
                       values.push_back(scales.values[static_cast<std::size_t>(
                           std::min(row / row_block, grid.rows - 1) * grid.columns + column)]);
                   scales = scales.in_tiles(of.keep(std::move(values)), 1, grid.k_block);
                   return true;
                 });
}

}  // namespace fp8lab

#include "fp8lab/product/scale_variants.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {
namespace {

/// A grid of scales over a matrix.
struct Grid {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_block = 0;
  std::int64_t k_block = 0;
};

Grid grid_of(const InverseScales& scales, const CodeMatrix& m) {
  Grid grid;
  grid.row_block = scales.row_block;
  grid.k_block = scales.k_block == 0 ? std::max<std::int64_t>(m.k, 1) : scales.k_block;
  grid.rows = (m.rows + grid.row_block - 1) / grid.row_block;
  grid.columns = (m.k + grid.k_block - 1) / grid.k_block;
  return grid;
}

/// Changes one operand's scales: true if any value is another one than before.
using Change = std::function<bool(InverseScales&, const CodeMatrix&, Product&)>;

std::optional<Product> changed(const Product& product, Side side, const Change& change) {
  Product result = product;
  GemmProblem& p = result.problem;
  bool any = false;
  if (side != Side::b && !p.a_scales.empty()) any |= change(p.a_scales, p.a, result);
  if (side != Side::a && !p.b_scales.empty()) any |= change(p.b_scales, p.b, result);
  if (!any) return std::nullopt;
  return result;
}

/// Value by value.
Change values_to(const std::function<float(float)>& of) {
  return [of](InverseScales& scales, const CodeMatrix&, Product& product) {
    std::vector<float> values(scales.values.begin(), scales.values.end());
    std::transform(values.begin(), values.end(), values.begin(), of);
    const bool any = !std::equal(values.begin(), values.end(), scales.values.begin());
    scales.values = product.keep(std::move(values));
    return any;
  };
}

/// The value of tile (row, column) is the one at `index(grid, row, column)` in memory, at most
/// the last one.
Change taken_from(
    const std::function<std::int64_t(const Grid&, std::int64_t, std::int64_t)>& index) {
  return [index](InverseScales& scales, const CodeMatrix& m, Product& product) {
    const Grid grid = grid_of(scales, m);
    const std::int64_t last = grid.rows * grid.columns - 1;
    std::vector<float> values;
    for (std::int64_t row = 0; row < grid.rows; ++row)
      for (std::int64_t column = 0; column < grid.columns; ++column)
        values.push_back(scales.values[static_cast<std::size_t>(
            std::clamp<std::int64_t>(index(grid, row, column), 0, last))]);
    const bool any = !std::equal(values.begin(), values.end(), scales.values.begin());
    scales.values = product.keep(std::move(values));
    return any;
  };
}

}  // namespace

std::optional<Product> with_inverted_scales(const Product& product, Side side) {
  return changed(product, side, values_to([](float x) { return 1.0F / x; }));
}

std::optional<Product> with_rounded_scales(const Product& product, Side side, FormatId id) {
  return changed(product, side, values_to([id](float x) {
                   const Format& f = format(id);
                   return static_cast<float>(decode(f, encode(f, kNvidiaNosat, x)));
                 }));
}

std::optional<Product> with_scales_moved_along_k(const Product& product, Side side,
                                                 std::int64_t by) {
  return changed(
      product, side, taken_from([by](const Grid& grid, std::int64_t row, std::int64_t column) {
        return row * grid.columns + std::clamp<std::int64_t>(column + by, 0, grid.columns - 1);
      }));
}

std::optional<Product> with_first_scale_of_k(const Product& product, Side side) {
  return changed(product, side, taken_from([](const Grid& grid, std::int64_t row, std::int64_t) {
                   return row * grid.columns;
                 }));
}

std::optional<Product> with_scales_moved_along_rows(const Product& product, Side side,
                                                    std::int64_t by) {
  return changed(product, side,
                 taken_from([by](const Grid& grid, std::int64_t row, std::int64_t column) {
                   return ((row + by) % grid.rows + grid.rows) % grid.rows * grid.columns + column;
                 }));
}

std::optional<Product> with_scale_group_along_k(const Product& product, Side side,
                                                std::int64_t k_block) {
  return changed(product, side,
                 taken_from([k_block](const Grid& grid, std::int64_t row, std::int64_t column) {
                   return row * grid.columns + column * grid.k_block / k_block;
                 }));
}

std::optional<Product> with_scale_group_along_rows(const Product& product, Side side,
                                                   std::int64_t row_block) {
  return changed(
      product, side, [row_block](InverseScales& scales, const CodeMatrix& m, Product& of) {
        const Grid grid = grid_of(scales, m);
        if (row_block == grid.row_block || grid.rows < 2) return false;
        std::vector<float> values;
        for (std::int64_t row = 0; row < m.rows; ++row)
          for (std::int64_t column = 0; column < grid.columns; ++column)
            values.push_back(scales.values[static_cast<std::size_t>(
                std::min(row / row_block, grid.rows - 1) * grid.columns + column)]);
        scales = {of.keep(std::move(values)), 1, grid.k_block, scales.format, scales.tensor_scale};
        return true;
      });
}

}  // namespace fp8lab

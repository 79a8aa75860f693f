#include "fp8lab/product/variants.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/gemm/block_scales.hpp"
#include "fp8lab/gemm/c_placement.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/partial_sums.hpp"

namespace fp8lab {
namespace {

bool touches(Side side, Side one) { return side == Side::both || side == one; }

std::int64_t side_of_tile(const InverseScales& s, const CodeMatrix& m) {
  return s.k_block == 0 ? m.k : s.k_block;
}

/// Both operands' scales changed value by value.
std::optional<Product> map_scales(const Product& product, Side side,
                                  const std::function<float(float)>& change) {
  Product result = product;
  GemmProblem& p = result.problem;
  bool changed = false;
  const auto apply = [&](InverseScales& scales) {
    if (scales.empty()) return;
    std::vector<float> values(scales.values.begin(), scales.values.end());
    std::transform(values.begin(), values.end(), values.begin(), change);
    scales.values = result.keep(std::move(values));
    changed = true;
  };
  if (touches(side, Side::a)) apply(p.scale_a);
  if (touches(side, Side::b)) apply(p.scale_b);
  if (!changed) return std::nullopt;
  return result;
}

float power_of_two_above(float x) {
  if (!std::isfinite(x) || x <= 0.0F) return x;
  int exponent = 0;
  const float fraction = std::frexp(x, &exponent);
  return std::ldexp(1.0F, fraction == 0.5F ? exponent - 1 : exponent);
}

/// Scales of `to`'s rows taken from `from`'s, row by row and round again.
InverseScales borrowed(const InverseScales& from, const CodeMatrix& owner, const CodeMatrix& to,
                       Product& product) {
  const ScaleLookup lookup(block_level(from), owner);
  const std::int64_t k_block = side_of_tile(from, owner);
  std::vector<float> values;
  for (std::int64_t row = 0; row < to.rows; ++row)
    for (std::int64_t k = 0; k < to.k; k += k_block)
      values.push_back(lookup.at(row % owner.rows, k));
  return from.in_tiles(product.keep(std::move(values)), 1, k_block);
}

/// A grid [rows, columns] whose values are read down the columns.
bool transpose_grid(InverseScales& scales, const CodeMatrix& m, Product& product) {
  if (scales.empty()) return false;
  const auto rows = static_cast<std::size_t>((m.rows + scales.row_block - 1) / scales.row_block);
  const std::size_t columns = scales.values.size() / std::max<std::size_t>(rows, 1);
  if (rows < 2 || columns < 2) return false;
  std::vector<float> values(scales.values.size());
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) values[r * columns + c] = scales.values[c * rows + r];
  scales.values = product.keep(std::move(values));
  return true;
}

std::size_t bytes_of(const CodeMatrix& m) {
  return static_cast<std::size_t>(format(m.format).bytes());
}

/// A dense row-major copy whose codes `change(code, k)` may alter.
template <typename Change>
CodeMatrix changed_copy(const CodeMatrix& m, Product& product, const Change& change) {
  const std::size_t width = bytes_of(m);
  auto codes =
      std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(m.rows * m.k) * width);
  const auto* from = static_cast<const std::byte*>(m.data);
  std::byte* to = codes->data();
  for (std::int64_t row = 0; row < m.rows; ++row)
    for (std::int64_t k = 0; k < m.k; ++k, to += width) {
      std::uint32_t word = 0;
      std::memcpy(&word,
                  from + static_cast<std::size_t>(row * m.row_stride + k * m.k_stride) * width,
                  width);
      word = change(word, k);
      std::memcpy(to, &word, width);
    }
  product.owners.push_back(codes);
  return {m.format, codes->data(), m.rows, m.k, m.k, 1};
}

}  // namespace

std::optional<Product> without_scales(const Product& product, Side side) {
  return map_scales(product, side, [](float) { return 1.0F; });
}

std::optional<Product> with_doubled_scales(const Product& product, Side side) {
  return map_scales(product, side, [](float x) { return x * x; });
}

std::optional<Product> with_power_of_two_scales(const Product& product, Side side) {
  return map_scales(product, side, power_of_two_above);
}

std::optional<Product> with_swapped_scales(const Product& product) {
  const GemmProblem& p = product.problem;
  if (p.scale_a.empty() || p.scale_b.empty()) return std::nullopt;
  if (p.scale_a.values.size() == 1 && p.scale_b.values.size() == 1) return std::nullopt;
  if (side_of_tile(p.scale_a, p.a) != side_of_tile(p.scale_b, p.b)) return std::nullopt;
  Product result = product;
  result.problem.scale_a = borrowed(p.scale_b, p.b, p.a, result);
  result.problem.scale_b = borrowed(p.scale_a, p.a, p.b, result);
  return result;
}

std::optional<Product> with_transposed_scales(const Product& product, Side side) {
  Product result = product;
  GemmProblem& p = result.problem;
  bool changed = touches(side, Side::a) && transpose_grid(p.scale_a, p.a, result);
  changed |= touches(side, Side::b) && transpose_grid(p.scale_b, p.b, result);
  if (!changed) return std::nullopt;
  return result;
}

std::optional<Product> with_transposed_b(const Product& product) {
  Product result = product;
  CodeMatrix& b = result.problem.b;
  if (b.rows < 2 || b.k < 2) return std::nullopt;
  const bool k_major = b.k_stride == 1 && b.row_stride == b.k;
  const bool n_major = b.row_stride == 1 && b.k_stride == b.rows;
  if (!k_major && !n_major) return std::nullopt;
  b.row_stride = k_major ? 1 : b.k;
  b.k_stride = k_major ? b.rows : 1;
  return result;
}

std::optional<Product> with_fnuz_codes(const Product& product) {
  Product result = product;
  const std::optional<FormatId> a = fnuz_counterpart(product.problem.a.format);
  const std::optional<FormatId> b = fnuz_counterpart(product.problem.b.format);
  if (!a || !b) return std::nullopt;
  result.problem.a.format = *a;
  result.problem.b.format = *b;
  return result;
}

std::optional<Product> with_flushed_inputs(const Product& product) {
  Product result = product;
  bool any = false;
  const auto flush = [&](CodeMatrix& m) {
    const Format& f = format(m.format);
    m = changed_copy(m, result, [&](std::uint32_t word, std::int64_t) {
      if (unpack(f, code_of_storage(f, word)).value_class != ValueClass::subnormal) return word;
      any = true;
      return std::uint32_t{0};
    });
  };
  flush(result.problem.a);
  flush(result.problem.b);
  if (!any) return std::nullopt;
  return result;
}

Product without_terms(const Product& product, std::int64_t begin, std::int64_t end) {
  Product result = product;
  result.problem.a =
      changed_copy(product.problem.a, result, [&](std::uint32_t word, std::int64_t k) {
        return k >= begin && k < end ? std::uint32_t{0} : word;
      });
  return result;
}

bool stands_beside(const InstructionModel& model, const Product& product) {
  const InstructionModel& own = find_instruction_model(product.model);
  const GemmProblem& p = product.problem;
  GemmProblem under = p;
  under.model = model.accumulator;
  // Scales inside an instruction have no place in another one's product; without them a
  // block-scaled instruction is its unscaled neighbour.
  if (applies_scales(under) != applies_scales(p)) return false;
  if (traits_of(model.accumulator).takes_scales && !applies_scales(p) && &model != &own)
    return false;
  return (model.standing == Standing::definition ||
          (model.a_format == own.a_format && model.b_format == own.b_format)) &&
         takes_formats(model.accumulator, p.a.format, p.b.format);
}

Product with_accumulator(const Product& product, const AccumulatorModel& model) {
  Product result = product;
  GemmProblem& p = result.problem;
  p.model = model;
  if (p.promotion_interval % model.terms == 0) return result;
  p.promotion_interval = 0;
  // Of one sum, added to C: the same.
  if (p.c_enters == CPlacement::promoted_sum) p.c_enters = CPlacement::epilogue;
  return result;
}

std::optional<std::vector<float>> compute_missing_promotion(const Product& product) {
  const FloatEnvironment environment;
  Product refined = product;
  GemmProblem& p = refined.problem;
  const std::int64_t interval = p.promotion_interval;
  if (interval == 0 || p.a.k <= interval || product.split.parts > 1) return std::nullopt;
  const bool inside = applies_scales(p);
  const bool in_blocks = !inside && scaled_in_blocks(p);
  if (!inside) {
    refine_scales(p.scale_a, p.a, interval, refined);
    refine_scales(p.scale_b, p.b, interval, refined);
  }
  const std::int64_t head_end = std::min(2 * interval, p.a.k);

  Product head = take_k(refined, 0, head_end);
  head.problem.promotion_interval = 0;
  drop_outer_scales(head);
  if (enters_at(p, CPlacement::accumulator)) begin_with_c(head, p);
  std::vector<float> sums = compute(head);
  const ScaleLookup a(p.scale_a, p.a);
  const ScaleLookup b(p.scale_b, p.b);
  for (std::int64_t i = 0; i < p.a.rows; ++i)
    for (std::int64_t j = 0; j < p.b.rows; ++j) {
      const std::int64_t at = i * p.b.rows + j;
      float& sum = sums[static_cast<std::size_t>(at)];
      const float c = enters_at(p, CPlacement::promoted_sum) ? p.c[at] : 0.0F;
      if (in_blocks)
        sum = scale_into(p.scale_order, sum, a.at(i, head_end - 1), b.at(j, head_end - 1), c);
      else
        sum = canonical(c + sum);
    }
  if (head_end < p.a.k) {
    Product tail = take_k(refined, head_end, p.a.k);
    if (!in_blocks) drop_outer_scales(tail);
    tail.problem.c = sums.data();
    tail.problem.c_enters =
        gemm_detail::passing_place(gemm_detail::without_unit_scales(tail.problem));
    sums = compute(tail);
  }
  scale_sums(p, sums);
  return finish(product, std::move(sums));
}

std::optional<std::vector<float>> compute_split_k(const Product& product, int parts, int threads) {
  if (applies_scales(product.problem)) return std::nullopt;
  Product split = product;
  split.split = {.parts = parts, .tile = split_tile(product)};
  const std::int64_t tiles = (product.problem.a.k + split.split.tile - 1) / split.split.tile;
  if (parts < 2 || tiles < parts || product.split.parts > 1) return std::nullopt;
  return compute(split, threads);
}

}  // namespace fp8lab

#include "fp8lab/product/term_variants.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/gemm/block_scales.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/partial_sums.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab {
namespace {

std::size_t width_of(FormatId id) { return static_cast<std::size_t>(format(id).bytes()); }

/// A dense matrix [rows, k] of the storage words that `word(row, k)` gives.
CodeMatrix made_of(FormatId id, std::int64_t rows, std::int64_t k, Product& product,
                   const std::function<std::uint32_t(std::int64_t, std::int64_t)>& word) {
  const std::size_t width = width_of(id);
  auto codes = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(rows * k) * width);
  std::byte* to = codes->data();
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t at = 0; at < k; ++at, to += width) {
      const std::uint32_t one = word(row, at);
      std::memcpy(to, &one, width);
    }
  product.owners.push_back(codes);
  return {id, codes->data(), rows, k, k, 1};
}

std::uint32_t word_at(const CodeMatrix& m, std::int64_t row, std::int64_t k) {
  const std::size_t width = width_of(m.format);
  std::uint32_t word = 0;
  std::memcpy(&word,
              static_cast<const std::byte*>(m.data) +
                  static_cast<std::size_t>(row * m.row_stride + k * m.k_stride) * width,
              width);
  return word;
}

CodeMatrix moved(const CodeMatrix& m, std::span<const std::int64_t> rows, std::int64_t by,
                 std::int64_t terms, Product& product) {
  return made_of(m.format, static_cast<std::int64_t>(rows.size()), terms, product,
                 [&](std::int64_t i, std::int64_t k) {
                   const std::int64_t at = rows[static_cast<std::size_t>(i)] * m.k + k + by;
                   return at < 0 || at >= m.rows * m.k ? 0 : word_at(m, at / m.k, at % m.k);
                 });
}

/// What the recipe casts: the element times its scale, or divided by the inverse.
float cast_argument(const RecipeCast& how, float x, std::int64_t row, std::int64_t k) {
  const QuantizedTensor& q = *how.tensor;
  const std::size_t tile = q.tile_of(row, k);
  if (is_two_level(how.rule)) return x / q.total_inverse_scale(tile);
  return scaled_element(how.rule, x, {q.scales[tile], q.inverse_scales[tile]});
}

CodeMatrix recast(const CodeMatrix& m, const RecipeCast& how, const std::vector<float>& original,
                  std::span<const std::int64_t> rows, OtherCast cast, Product& product) {
  const Format& f = format(m.format);
  return made_of(m.format, static_cast<std::int64_t>(rows.size()), m.k, product,
                 [&](std::int64_t i, std::int64_t k) {
                   const std::int64_t row = rows[static_cast<std::size_t>(i)];
                   const float x = original[static_cast<std::size_t>(row * m.k + k)];
                   return cast(f, cast_argument(how, x, row, k));
                 });
}

std::int64_t end_of_block(std::int64_t index, std::int64_t block, std::int64_t k) {
  return std::min((index + 1) * block, k);
}

/// Whether the blocks stand one after the other in the matrix, too.
bool follow_each_other(std::span<const std::int64_t> sources) {
  const auto jumps = [](std::int64_t one, std::int64_t next) { return next != one + 1; };
  return std::ranges::adjacent_find(sources, jumps) == sources.end();
}

CodeMatrix from_blocks(const CodeMatrix& m, std::int64_t block,
                       std::span<const std::int64_t> sources, Product& product) {
  if (!sources.empty() && follow_each_other(sources)) {  // a view: the product keeps the codes
    const std::int64_t begin = sources.front() * block;
    CodeMatrix view = m;
    view.data = static_cast<const std::byte*>(m.data) +
                begin * m.k_stride * static_cast<std::int64_t>(width_of(m.format));
    view.k = end_of_block(sources.back(), block, m.k) - begin;
    return view;
  }
  std::vector<std::int64_t> terms;
  for (const std::int64_t source : sources)
    for (std::int64_t k = source * block; k < end_of_block(source, block, m.k); ++k)
      terms.push_back(k);
  return made_of(m.format, m.rows, static_cast<std::int64_t>(terms.size()), product,
                 [&](std::int64_t row, std::int64_t k) {
                   return word_at(m, row, terms[static_cast<std::size_t>(k)]);
                 });
}

InverseScales from_blocks(const InverseScales& scales, const CodeMatrix& m, std::int64_t block,
                          std::span<const std::int64_t> sources, Product& product) {
  const ScaleLookup lookup(block_level(scales), m);
  if (!lookup.varies_along_k()) {
    InverseScales same = scales;
    same.k_block = 0;
    return same;
  }
  const std::int64_t step = std::min(block, scales.k_block);
  std::vector<float> values;
  for (std::int64_t row = 0; row < m.rows; row += scales.row_block)
    for (const std::int64_t source : sources)
      for (std::int64_t k = source * block; k < end_of_block(source, block, m.k); k += step)
        values.push_back(lookup.at(row, k));
  return scales.in_tiles(product.keep(std::move(values)), scales.row_block, step);
}

float rounded_to(const std::optional<FormatId>& id, float x) {
  if (!id) return x;
  const Format& f = format(*id);
  return static_cast<float>(decode(f, encode(f, kNvidiaNosat, x)));
}

/// The sums of [begin, end) alone, without scales; C only in the accumulator of the first ones.
std::vector<float> sums_of(const Product& product, std::int64_t begin, std::int64_t end) {
  Product part = product;
  drop_outer_scales(part);
  part = take_k(part, begin, end);
  part.problem.promotion_interval = 0;
  const GemmProblem& p = product.problem;
  if (begin == 0 && p.c != nullptr && c_placement(p) == CPlacement::accumulator) {
    part.problem.c = p.c;
    part.problem.c_enters = CPlacement::accumulator;
  }
  return compute(part);
}

}  // namespace

std::optional<FormatId> other_format_of_width(FormatId id) {
  switch (id) {
    case FormatId::e2m3:
      return FormatId::e3m2;
    case FormatId::e3m2:
      return FormatId::e2m3;
    case FormatId::e4m3fn:
      return FormatId::e5m2;
    case FormatId::e5m2:
      return FormatId::e4m3fn;
    case FormatId::e4m3fnuz:
      return FormatId::e5m2fnuz;
    case FormatId::e5m2fnuz:
      return FormatId::e4m3fnuz;
    default:
      return std::nullopt;
  }
}

std::optional<Product> with_codes_read_as(const Product& product, Side side,
                                          std::optional<FormatId> (*as)(FormatId)) {
  Product result = product;
  GemmProblem& p = result.problem;
  const std::optional<FormatId> a = as(p.a.format);
  const std::optional<FormatId> b = as(p.b.format);
  if ((side != Side::b && !a) || (side != Side::a && !b)) return std::nullopt;
  if (side != Side::b) p.a.format = *a;
  if (side != Side::a) p.b.format = *b;
  return result;
}

Product take_with_moved_terms(const Product& product, const Sample& sample, Side side,
                              std::int64_t by) {
  Product result = take(product, sample);
  GemmProblem& p = result.problem;
  if (side != Side::b) p.a = moved(product.problem.a, sample.rows, by, p.a.k, result);
  if (side != Side::a)
    p.b = moved(product.problem.b, product.rows_of_b(sample.columns), by, p.b.k, result);
  return result;
}

std::optional<Product> take_with_longer_rows(const Product& product, const Sample& sample,
                                             std::int64_t k) {
  const GemmProblem& whole = product.problem;
  if (k <= whole.a.k || tile_along_k(whole.scale_a, whole.a) != 0 ||
      tile_along_k(whole.scale_b, whole.b) != 0)
    return std::nullopt;
  Product result = take(product, sample);
  GemmProblem& p = result.problem;
  p.a = moved(whole.a, sample.rows, 0, k, result);
  p.b = moved(whole.b, product.rows_of_b(sample.columns), 0, k, result);
  p.scale_a.k_block = p.scale_b.k_block = 0;  // over all of the longer K
  return result;
}

Product take_with_terms_at(const Product& product, const Sample& sample, Side side,
                           const std::function<std::int64_t(std::int64_t k)>& source) {
  Product result = take(product, sample);
  CodeMatrix& m = side == Side::a ? result.problem.a : result.problem.b;
  m = made_of(m.format, m.rows, m.k, result, [from = m, &source](std::int64_t row, std::int64_t k) {
    const std::int64_t at = source(k);
    return at < 0 || at >= from.k ? 0 : word_at(from, row, at);
  });
  return result;
}

std::optional<Product> take_with_codes_of_rows(
    const Product& product, const Sample& sample, Side side,
    const std::function<std::int64_t(std::int64_t row)>& source) {
  const bool of_a = side == Side::a;
  const CodeMatrix& whole = of_a ? product.problem.a : product.problem.b;
  std::vector<std::int64_t> rows = of_a ? sample.rows : product.rows_of_b(sample.columns);
  for (std::int64_t& row : rows) {
    row = source(row);
    if (row < 0 || row >= whole.rows) return std::nullopt;
  }
  Product result = take(product, sample);
  CodeMatrix& m = of_a ? result.problem.a : result.problem.b;
  m = made_of(m.format, m.rows, m.k, result, [&](std::int64_t i, std::int64_t k) {
    return word_at(whole, rows[static_cast<std::size_t>(i)], k);
  });
  return result;
}

std::optional<Product> take_with_exchanged_nibbles(const Product& product, const Sample& sample,
                                                   Side side) {
  Product result = take(product, sample);
  bool any = false;
  const auto exchange = [&](CodeMatrix& m) {
    if (format(m.format).code_bits() != 4) return;
    any = true;
    m = made_of(m.format, m.rows, m.k, result, [from = m](std::int64_t row, std::int64_t k) {
      return word_at(from, row, (k ^ 1) < from.k ? k ^ 1 : k);
    });
  };
  if (side != Side::b) exchange(result.problem.a);
  if (side != Side::a) exchange(result.problem.b);
  if (!any) return std::nullopt;
  return result;
}

std::optional<Product> take_with_recast_codes(const Product& product, const Sample& sample,
                                              Side side, OtherCast cast) {
  const GemmProblem& whole = product.problem;
  if (!product.a_cast || !product.b_cast || !product.a_original || !product.b_original)
    return std::nullopt;
  Product result = take(product, sample);
  GemmProblem& p = result.problem;
  if (side != Side::b)
    p.a = recast(whole.a, *product.a_cast, *product.a_original, sample.rows, cast, result);
  if (side != Side::a)
    p.b = recast(whole.b, *product.b_cast, *product.b_original, product.rows_of_b(sample.columns),
                 cast, result);
  return result;
}

Product with_k_blocks(const Product& product, std::int64_t block, const BlockSources& sources) {
  Product result = product;
  GemmProblem& p = result.problem;
  const GemmProblem& from = product.problem;
  p.a = from_blocks(from.a, block, sources.a, result);
  p.b = from_blocks(from.b, block, sources.b, result);
  p.scale_a = from_blocks(from.scale_a, from.a, block, sources.scales, result);
  p.scale_b = from_blocks(from.scale_b, from.b, block, sources.scales, result);
  return result;
}

std::vector<std::int64_t> all_k_blocks(std::int64_t k, std::int64_t block) {
  std::vector<std::int64_t> blocks(static_cast<std::size_t>((k + block - 1) / block));
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

std::optional<std::vector<float>> compute_in_intervals(const Product& product,
                                                       const IntervalSums& how) {
  const GemmProblem& p = product.problem;
  if (how.interval <= 0 || how.interval % p.model.terms != 0 || product.split.parts > 1)
    return std::nullopt;
  const GemmProblem outer = gemm_detail::without_unit_scales(p);
  const ScaleLookup a(outer.scale_a, p.a);
  const ScaleLookup b(outer.scale_b, p.b);
  const bool in_blocks = scaled_in_blocks(outer);
  const auto c = [&](CPlacement place, std::int64_t at) {
    return p.c != nullptr && c_placement(p) == place ? p.c[at] : 0.0F;
  };
  std::vector<float> sums(product.sum_count());
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(sums.size()); ++at)
    sums[static_cast<std::size_t>(at)] = c(CPlacement::promoted_sum, at);
  for (std::int64_t k = 0; k < p.a.k; k += how.interval) {
    const std::int64_t end = std::min(k + how.interval, p.a.k);
    const std::int64_t scale_at = how.first_scale ? k : end - 1;
    const std::vector<float> part = sums_of(product, k, end);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::int64_t row = static_cast<std::int64_t>(i) / p.b.rows;
      const std::int64_t column = static_cast<std::int64_t>(i) % p.b.rows;
      const float sum = in_blocks ? scale_into(p.scale_order, part[i], a.at(row, scale_at),
                                               b.at(column, scale_at), sums[i])
                                  : canonical(sums[i] + part[i]);
      sums[i] = rounded_to(how.rounded, sum);
    }
  }
  const bool scaled_last = scaled_as_a_whole(outer);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const float last = c(CPlacement::epilogue, at);
    if (scaled_last)
      sums[i] =
          scale_into(p.scale_order, sums[i], a.at(at / p.b.rows, 0), b.at(at % p.b.rows, 0), last);
    else if (p.c != nullptr && c_placement(p) == CPlacement::epilogue)
      sums[i] = canonical(sums[i] + last);
  }
  return finish(product, std::move(sums));
}

}  // namespace fp8lab

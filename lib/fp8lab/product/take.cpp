// Parts of a product: some rows and columns, some terms.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/product.hpp"

namespace fp8lab {
namespace {

/// Scales of some rows, one a row.
InverseScales take_scales(const InverseScales& scales, const CodeMatrix& m,
                          std::span<const std::int64_t> rows, Product& product) {
  if (scales.empty()) return {};
  const std::int64_t k_block = scales.k_block == 0 ? m.k : scales.k_block;
  const ScaleLookup lookup(block_level(scales), m);
  std::vector<float> values;
  for (const std::int64_t row : rows)
    for (std::int64_t k = 0; k < m.k; k += k_block) values.push_back(lookup.at(row, k));
  return scales.in_tiles(product.keep(std::move(values)), 1, k_block);
}

std::span<const float> take_values(std::span<const float> values,
                                   std::span<const std::int64_t> places, Product& product) {
  if (values.empty()) return values;
  std::vector<float> taken;
  taken.reserve(places.size());
  for (const std::int64_t place : places) taken.push_back(values[static_cast<std::size_t>(place)]);
  return product.keep(std::move(taken));
}

CodeMatrix take_codes(const CodeMatrix& m, std::span<const std::int64_t> rows, Product& product) {
  const auto width = static_cast<std::size_t>(format(m.format).bytes());
  const auto count = static_cast<std::int64_t>(rows.size());
  auto codes =
      std::make_shared<std::vector<std::byte>>(rows.size() * static_cast<std::size_t>(m.k) * width);
  const auto* from = static_cast<const std::byte*>(m.data);
  std::byte* to = codes->data();
  for (const std::int64_t row : rows) {
    const std::byte* at = from + static_cast<std::size_t>(row * m.row_stride) * width;
    if (m.k_stride == 1) {
      to = std::copy_n(at, static_cast<std::size_t>(m.k) * width, to);  // of no terms too
      continue;
    }
    for (std::int64_t k = 0; k < m.k; ++k, to += width)
      std::memcpy(to, at + static_cast<std::size_t>(k * m.k_stride) * width, width);
  }
  product.owners.push_back(codes);
  return {m.format, codes->data(), count, m.k, m.k, 1};
}

InverseScales take_scales_k(const InverseScales& scales, const CodeMatrix& m, std::int64_t begin,
                            std::int64_t end, Product& product) {
  if (scales.empty() || scales.k_block == 0 || scales.k_block >= m.k) return scales;
  require(begin % scales.k_block == 0, "begin", fmt::format("a multiple of {}", scales.k_block),
          fmt::format("{}", begin));
  const ScaleLookup lookup(block_level(scales), m);
  std::vector<float> values;
  for (std::int64_t row = 0; row < m.rows; row += scales.row_block)
    for (std::int64_t k = begin; k < end; k += scales.k_block) values.push_back(lookup.at(row, k));
  return scales.in_tiles(product.keep(std::move(values)), scales.row_block, scales.k_block);
}

void narrow_k(CodeMatrix& m, std::int64_t begin, std::int64_t end) {
  const auto width = static_cast<std::int64_t>(format(m.format).bytes());
  m.data = static_cast<const std::byte*>(m.data) + begin * m.k_stride * width;
  m.k = end - begin;
}

}  // namespace

std::vector<std::int64_t> Product::rows_of_b(std::span<const std::int64_t> of_columns) const {
  std::vector<std::int64_t> result(of_columns.begin(), of_columns.end());
  if (!epilogue.gated()) return result;
  for (const std::int64_t column : of_columns) result.push_back(columns() + column);
  return result;
}

std::vector<std::int64_t> spread(std::int64_t count, std::int64_t most) {
  std::vector<std::int64_t> positions;
  const std::int64_t taken = std::min(count, most);
  for (std::int64_t i = 0; i < taken; ++i)
    positions.push_back(taken == 1 ? 0 : i * (count - 1) / (taken - 1));
  return positions;
}

Product take(const Product& product, const Sample& sample) {
  const GemmProblem& p = product.problem;
  Product result = product;
  result.a_original = result.b_original = nullptr;
  result.a_cast = result.b_cast = nullptr;
  result.signed_scales_a = result.signed_scales_b = {};
  const std::vector<std::int64_t> columns = product.rows_of_b(sample.columns);
  GemmProblem& q = result.problem;
  q.a = take_codes(p.a, sample.rows, result);
  q.b = take_codes(p.b, columns, result);
  q.scale_a = take_scales(p.scale_a, p.a, sample.rows, result);
  q.scale_b = take_scales(p.scale_b, p.b, columns, result);
  const auto elements = [&](const float* c) {
    std::vector<float> taken;
    for (const std::int64_t row : sample.rows)
      for (const std::int64_t column : columns) taken.push_back(c[row * p.b.rows + column]);
    return result.keep(std::move(taken)).data();
  };
  if (p.c != nullptr) q.c = elements(p.c);
  Epilogue& e = result.epilogue;
  if (e.c != nullptr) e.c = elements(e.c);
  e.row_scales = take_values(e.row_scales, sample.rows, result);
  e.column_scales = take_values(e.column_scales, columns, result);
  e.bias = take_values(e.bias, columns, result);
  return result;
}

Product take_k(const Product& product, std::int64_t begin, std::int64_t end) {
  Product result = product;
  result.a_original = result.b_original = nullptr;
  result.a_cast = result.b_cast = nullptr;
  result.split = {};
  result.epilogue = {};
  GemmProblem& p = result.problem;
  p.c = nullptr;
  p.c_enters = CPlacement::unnamed;
  p.scale_a = take_scales_k(p.scale_a, p.a, begin, end, result);
  p.scale_b = take_scales_k(p.scale_b, p.b, begin, end, result);
  narrow_k(p.a, begin, end);
  narrow_k(p.b, begin, end);
  return result;
}

}  // namespace fp8lab

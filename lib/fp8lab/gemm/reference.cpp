#include "fp8lab/gemm/reference.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/core/first_error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab {
namespace gemm_detail {

std::vector<Unpacked> unpack_row(const CodeMatrix& matrix, std::int64_t row) {
  std::vector<Unpacked> values(static_cast<std::size_t>(matrix.k));
  for (std::int64_t k = 0; k < matrix.k; ++k)
    values[static_cast<std::size_t>(k)] = unpack(format(matrix.format), code_at(matrix, row, k));
  return values;
}

CodeMatrix part_of(const CodeMatrix& m, std::int64_t begin, std::int64_t end) {
  const std::int64_t bytes = format(m.format).bytes();
  CodeMatrix part = m;
  part.data = static_cast<const std::byte*>(m.data) + begin * m.k_stride * bytes;
  part.k = std::min(end, m.k) - begin;
  return part;
}

float reference_element(const GemmProblem& p, const ScaleLookup& scale_a,
                        const ScaleLookup& scale_b, std::span<const Unpacked> a,
                        std::span<const Unpacked> b, std::int64_t row, std::int64_t column,
                        const BlockScaleRows& unit_scales) {
  const float c = p.c == nullptr ? 0.0F : p.c[row * p.b.rows + column];
  if (p.a.k == 0) return canonical(c);
  const bool in_blocks = scale_a.varies_along_k() || scale_b.varies_along_k();
  const CPlacement place = c_placement(p);
  const float start = place == CPlacement::accumulator ? c : 0.0F;
  float sum = place == CPlacement::promoted_sum ? c : 0.0F;
  if (p.promotion_interval == 0) {
    sum = dot_product(p.model, a, b, unit_scales.at(row, column, 0, p.a.k), start);
  } else {
    const auto interval = static_cast<std::size_t>(p.promotion_interval);
    for (std::size_t k = 0; k < a.size(); k += interval) {
      const std::size_t count = std::min(interval, a.size() - k);
      const auto at = static_cast<std::int64_t>(k);
      const float partial = dot_product(
          p.model, a.subspan(k, count), b.subspan(k, count),
          unit_scales.at(row, column, at, static_cast<std::int64_t>(count)), k == 0 ? start : 0.0F);
      sum = in_blocks ? scale_into(p.scale_order, partial, scale_a.at(row, at),
                                   scale_b.at(column, at), sum)
                      : canonical(sum + partial);
    }
  }
  const bool c_last = p.c != nullptr && place == CPlacement::epilogue;
  if (scaled(p) && !in_blocks)
    return scale_into(p.scale_order, sum, scale_a.at(row, 0), scale_b.at(column, 0),
                      c_last ? c : 0.0F);
  return canonical(c_last ? sum + c : sum);
}

}  // namespace gemm_detail

void gemm_reference(const GemmProblem& given, std::span<float> d, int threads) {
  using gemm_detail::reference_element;
  using gemm_detail::unpack_row;
  const BlockScaleRows unit_scales = gemm_detail::validated_scales(given, d.size());
  const GemmProblem problem = gemm_detail::without_unit_scales(given);
  const ScaleLookup scale_a(problem.scale_a, problem.a);
  const ScaleLookup scale_b(problem.scale_b, problem.b);
  const std::int64_t m = problem.a.rows;
  const std::int64_t n = problem.b.rows;
  std::vector<std::vector<Unpacked>> b(static_cast<std::size_t>(n));
  for (std::int64_t j = 0; j < n; ++j) b[static_cast<std::size_t>(j)] = unpack_row(problem.b, j);
  FirstError error;
#pragma omp parallel for schedule(dynamic) num_threads(team_size(threads > 0 ? threads : 1))
  for (std::int64_t i = 0; i < m; ++i)
    error.guard([&] {
      const FloatEnvironment environment;
      const std::vector<Unpacked> a = unpack_row(problem.a, i);
      for (std::int64_t j = 0; j < n; ++j)
        d[static_cast<std::size_t>(i * n + j)] = reference_element(
            problem, scale_a, scale_b, a, b[static_cast<std::size_t>(j)], i, j, unit_scales);
    });
  error.rethrow();
}

}  // namespace fp8lab

#include "fp8lab/gemm/transposed.hpp"

#include <utility>
#include <vector>

#include "fp8lab/gemm/run.hpp"

namespace fp8lab::gemm_detail {
namespace {

/// [columns, rows] of a row-major [rows, columns].
void transpose(const float* from, std::int64_t rows, std::int64_t columns, float* to) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
}

}  // namespace

bool runs_turned(const GemmProblem& p) {
  // Up to here a panel is not full, or a block of A is small (docs/lab/gemm.md).
  constexpr std::int64_t kFewColumns = 64;
  constexpr std::int64_t kRowsAColumn = 4;
  // Orders in which the scales of A and of B are alike.
  const bool alike = p.scale_order == ScaleOrder::product_then_fma ||
                     p.scale_order == ScaleOrder::product_then_add;
  const bool ordered = !alike && (!p.scale_a.empty() || !p.scale_b.empty());
  return p.b.rows <= kFewColumns && p.b.rows * kRowsAColumn <= p.a.rows && !ordered;
}

std::string_view gemm_turned(const GemmProblem& problem, std::span<float> d, Target target,
                             int threads) {
  const std::int64_t m = problem.a.rows;
  const std::int64_t n = problem.b.rows;
  GemmProblem turned = problem;
  std::swap(turned.a, turned.b);
  std::swap(turned.scale_a, turned.scale_b);
  std::vector<float> c;
  if (problem.c != nullptr) {
    c.resize(d.size());
    transpose(problem.c, m, n, c.data());
    turned.c = c.data();
  }
  std::vector<float> result(d.size());
  const std::string_view method = run_gemm(turned, result, target, threads);
  transpose(result.data(), n, m, d.data());
  return method;
}

}  // namespace fp8lab::gemm_detail

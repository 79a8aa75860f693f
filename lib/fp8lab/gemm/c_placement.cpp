#include "fp8lab/gemm/c_placement.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "fp8lab/core/parallel.hpp"
#include "fp8lab/gemm/block_scales.hpp"
#include "fp8lab/gemm/reference.hpp"
#include "fp8lab/gemm/run.hpp"
#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab::gemm_detail {
namespace {

/// d[i, j] = change(d[i, j], i, j) in FP32 to nearest.
template <typename Change>
void for_outputs(const GemmProblem& p, std::span<float> d, int threads, const Change& change) {
  const std::int64_t n = p.b.rows;
  parallel_for(p.a.rows, threads, [&](std::int64_t i) {
    for (std::int64_t j = 0; j < n; ++j) {
      float& value = d[static_cast<std::size_t>(i * n + j)];
      value = change(value, i, j);
    }
  });
}

/// The scales of the terms from `begin` on, in tiles of `k_block` terms, which divides theirs.
InverseScales scales_from(const InverseScales& scales, const CodeMatrix& m, std::int64_t begin,
                          std::int64_t k_block, std::vector<float>& values) {
  const ScaleLookup lookup(scales, m);
  if (!lookup.varies_along_k()) return scales.in_tiles(scales.values, scales.row_block, 0);
  for (std::int64_t row = 0; row < m.rows; row += scales.row_block)
    for (std::int64_t k = begin; k < m.k; k += k_block) values.push_back(lookup.at(row, k));
  InverseScales later = scales.in_tiles(values, scales.row_block, k_block);
  later.tensor_scale = 1.0F;  // in the values
  later.after_instruction = true;
  return later;
}

void drop_scales(GemmProblem& p) { p.scale_a = p.scale_b = {}; }

/// All promotion intervals but the first one, added to what `d` holds.
void add_later_intervals(const GemmProblem& p, std::span<float> d, Target target, int threads) {
  const std::int64_t interval = p.promotion_interval;
  const std::vector<float> begun(d.begin(), d.end());
  std::vector<float> a_values;
  std::vector<float> b_values;
  GemmProblem tail = p;
  tail.a = part_of(p.a, interval, p.a.k);
  tail.b = part_of(p.b, interval, p.a.k);
  tail.c = begun.data();
  if (scaled_in_blocks(p)) {
    tail.scale_a = scales_from(p.scale_a, p.a, interval, interval, a_values);
    tail.scale_b = scales_from(p.scale_b, p.b, interval, interval, b_values);
    // Of one interval the scale does not change: it is of the whole sum, which C joins.
    if (!scaled_in_blocks(tail)) tail.promotion_interval = 0;
  } else {
    drop_scales(tail);
  }
  tail.c_enters = passing_place(tail);
  gemm_with_target(tail, d, target, threads);
}

/// C is the instruction's own c: of the first interval, which is computed apart.
std::string_view begin_with_c(const GemmProblem& p, std::span<float> d, Target target,
                              int threads) {
  const bool in_blocks = scaled_in_blocks(p);
  const bool promoted = p.promotion_interval > 0;
  const std::int64_t end = promoted ? std::min(p.promotion_interval, p.a.k) : p.a.k;
  GemmProblem head = p;
  head.a = part_of(p.a, 0, end);
  head.b = part_of(p.b, 0, end);
  head.promotion_interval = 0;
  drop_scales(head);
  const std::string_view method = run_gemm(head, d, target, threads);
  const ScaleLookup a(p.scale_a, p.a);
  const ScaleLookup b(p.scale_b, p.b);
  const auto scale = [&](float sum, std::int64_t i, std::int64_t j) {
    return scale_into(p.scale_order, sum, a.at(i, 0), b.at(j, 0), 0.0F);
  };
  if (in_blocks)
    for_outputs(p, d, threads, scale);
  else if (promoted)
    for_outputs(p, d, threads, [](float sum, auto, auto) { return canonical(0.0F + sum); });
  if (end < p.a.k) add_later_intervals(p, d, target, threads);
  if (scaled(p) && !in_blocks) for_outputs(p, d, threads, scale);
  return method;
}

/// C is added to what the product without it gives.
std::string_view end_with_c(const GemmProblem& p, std::span<float> d, Target target, int threads) {
  GemmProblem without = p;
  without.c = nullptr;
  const std::string_view method = run_gemm(without, d, target, threads);
  const std::int64_t n = p.b.rows;
  for_outputs(p, d, threads, [&](float sum, std::int64_t i, std::int64_t j) {
    return canonical(sum + p.c[i * n + j]);
  });
  return method;
}

}  // namespace

CPlacement passing_place(const GemmProblem& given) {
  const GemmProblem p = without_unit_scales(given);
  if (scaled(p) && !scaled_in_blocks(p)) return CPlacement::epilogue;
  return p.promotion_interval > 0 ? CPlacement::promoted_sum : CPlacement::accumulator;
}

bool enters_in_passing(const GemmProblem& p) {
  return p.c == nullptr || c_placement(p) == passing_place(p);
}

std::string_view gemm_with_c(const GemmProblem& problem, std::span<float> d, Target target,
                             int threads) {
  if (c_placement(problem) != CPlacement::accumulator)
    return end_with_c(problem, d, target, threads);
  if (!applies_scales(problem)) return begin_with_c(problem, d, target, threads);
  gemm_reference(problem, d, threads);
  return kMethodOfReference;
}

}  // namespace fp8lab::gemm_detail

#include "fp8lab/product/partial_sums.hpp"

#include <utility>

#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/gemm/block_scales.hpp"
#include "fp8lab/gemm/c_placement.hpp"
#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab {

void refine_scales(InverseScales& scales, const CodeMatrix& m, std::int64_t k_block,
                   Product& product) {
  if (scales.empty() || !ScaleLookup(scales, m).varies_along_k()) return;
  const ScaleLookup lookup(block_level(scales), m);
  std::vector<float> values;
  for (std::int64_t row = 0; row < m.rows; row += scales.row_block)
    for (std::int64_t k = 0; k < m.k; k += k_block) values.push_back(lookup.at(row, k));
  scales = scales.in_tiles(product.keep(std::move(values)), scales.row_block, k_block);
}

bool enters_at(const GemmProblem& p, CPlacement place) {
  return p.c != nullptr && c_placement(p) == place;
}

void begin_with_c(Product& part, const GemmProblem& whole) {
  if (enters_at(whole, CPlacement::epilogue)) return;
  part.problem.c = whole.c;
  part.problem.c_enters = c_placement(whole);
  // A part with one tile of scales has no promoted sum but its epilogue, which is the same.
  if (part.problem.c_enters == CPlacement::promoted_sum)
    part.problem.c_enters = gemm_detail::passing_place(part.problem);
}

void scale_sums(const GemmProblem& problem, std::vector<float>& sums) {
  const FloatEnvironment environment;
  const GemmProblem p = gemm_detail::without_unit_scales(problem);
  const bool c_last = enters_at(p, CPlacement::epilogue);
  const bool scaled_last = scaled_as_a_whole(p);
  if (!c_last && !scaled_last) return;
  const ScaleLookup a(p.scale_a, p.a);
  const ScaleLookup b(p.scale_b, p.b);
  for (std::int64_t i = 0; i < p.a.rows; ++i)
    for (std::int64_t j = 0; j < p.b.rows; ++j) {
      const std::int64_t at = i * p.b.rows + j;
      float& sum = sums[static_cast<std::size_t>(at)];
      const float c = c_last ? p.c[at] : 0.0F;
      sum = scaled_last ? scale_into(p.scale_order, sum, a.at(i, 0), b.at(j, 0), c)
                        : canonical(sum + c);
    }
}

void drop_outer_scales(Product& product) {
  GemmProblem& p = product.problem;
  const bool inside = applies_scales(p);
  p.scale_a = inside ? block_level(p.scale_a) : InverseScales{};
  p.scale_b = inside ? block_level(p.scale_b) : InverseScales{};
}

}  // namespace fp8lab

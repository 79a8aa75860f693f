#include "fp8lab/identify/shared_sums.hpp"

#include <algorithm>
#include <utility>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/target.hpp"
#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/reference.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/partial_sums.hpp"

namespace fp8lab {
namespace {

using gemm_detail::Combine;

/// One FP32 operation on a row, by the target's kernel or as the reference does it.
void combine(const Combine& c, std::int64_t width) {
  if (const auto* kernels = gemm_detail::kernel_table(current_target()); kernels != nullptr)
    return kernels->sums.combine(c, width);
  for (std::int64_t j = 0; j < width; ++j)
    c.final[j] = c.scale_b == nullptr
                     ? canonical(c.final[j] + c.partial[j])
                     : scale_into(c.order, c.partial[j], c.a_scale, c.scale_b[j], c.final[j]);
}

}  // namespace

bool has_partial_sums(const Product& product, std::span<const NamedAccumulator> accumulators,
                      const Accumulation& one) {
  if (one.promotion_interval == 0) return false;
  return !applies_scales(product_under(product, one, accumulators).problem);
}

PartialSums::PartialSums(const Product& product, std::span<const NamedAccumulator> accumulators,
                         const Accumulation& one)
    : product_(product),
      accumulators_(accumulators),
      rows_(product.problem.a.rows),
      columns_(product.problem.b.rows),
      stride_(ceil_divide(columns_, gemm_detail::kMaxWidth) * gemm_detail::kMaxWidth),
      intervals_(ceil_divide(product.problem.a.k, one.promotion_interval)),
      in_blocks_(scaled_in_blocks(product.problem)) {
  const GemmProblem whole = product_under(product, one, accumulators).problem;
  const ScaleLookup scale_a(whole.scale_a, whole.a);
  const ScaleLookup scale_b(whole.scale_b, whole.b);
  GemmProblem part = whole;
  part.c = nullptr;
  part.c_enters = CPlacement::unnamed;
  part.scale_a = part.scale_b = {};
  part.promotion_interval = 0;
  for (std::int64_t t = 0; t < intervals_; ++t) {
    const std::int64_t begin = t * one.promotion_interval;
    part.a = gemm_detail::part_of(whole.a, begin, begin + one.promotion_interval);
    part.b = gemm_detail::part_of(whole.b, begin, begin + one.promotion_interval);
    partial_.push_back(sums_of(part));
    if (t == 0 && whole.c != nullptr) {
      GemmProblem from_c = part;
      from_c.c = whole.c;
      from_c.c_enters = CPlacement::accumulator;
      first_from_c_ = sums_of(from_c);
    }
    if (!in_blocks_) continue;
    for (std::int64_t i = 0; i < rows_; ++i) a_scales_.push_back(scale_a.at(i, begin));
    for (std::int64_t j = 0; j < stride_; ++j)
      b_scales_.push_back(j < columns_ ? scale_b.at(j, begin) : 1.0F);
  }
}

std::vector<float> PartialSums::sums_of(const GemmProblem& part) const {
  std::vector<float> d(static_cast<std::size_t>(rows_ * columns_));
  gemm_with_target(part, d, current_target(), 1);
  std::vector<float> sums(static_cast<std::size_t>(rows_ * stride_));
  for (std::int64_t i = 0; i < rows_; ++i)
    std::copy_n(d.begin() + i * columns_, columns_, row(sums, i));
  return sums;
}

/// sums += the partial sums of one interval, scaled in that order where scales change along K.
void PartialSums::add(const std::vector<float>& partial, std::int64_t interval, ScaleOrder order,
                      std::vector<float>& sums) const {
  Combine c{.order = order};
  if (in_blocks_) c.scale_b = b_scales_.data() + interval * stride_;
  for (std::int64_t i = 0; i < rows_; ++i) {
    c.partial = partial.data() + i * stride_;
    if (in_blocks_) c.a_scale = a_scales_[static_cast<std::size_t>(interval * rows_ + i)];
    c.final = row(sums, i);
    combine(c, stride_);
  }
}

void PartialSums::add_plain(const std::vector<float>& part, std::vector<float>& sums) const {
  combine({.partial = part.data(), .final = sums.data()}, rows_ * stride_);
}

std::vector<float> PartialSums::sums_of(const Accumulation& one) const {
  const GemmProblem problem = product_under(product_, one, accumulators_).problem;
  const std::int64_t each = ceil_divide(intervals_, std::int64_t{one.split_k});
  std::vector<float> total;
  for (std::int64_t begin = 0; begin < intervals_; begin += each) {
    std::vector<float> sums(static_cast<std::size_t>(rows_ * stride_), 0.0F);
    if (begin == 0 && enters_at(problem, CPlacement::promoted_sum))
      for (std::int64_t i = 0; i < rows_; ++i)
        std::copy_n(problem.c + i * columns_, columns_, row(sums, i));
    // A part of one interval is a product with scales of the whole sum, which is +0 where it is 0.
    const std::int64_t end = std::min(begin + each, intervals_);
    const bool whole = in_blocks_ && end - begin == 1;
    for (std::int64_t t = begin; t < end; ++t) {
      const bool from_c = t == 0 && enters_at(problem, CPlacement::accumulator);
      const std::vector<float>& partial =
          from_c ? first_from_c_ : partial_[static_cast<std::size_t>(t)];
      std::vector<float> changed;
      if (whole)
        for (const float x : partial) changed.push_back(x + 0.0F);
      add(whole ? changed : partial, t, one.scale_order, sums);
    }
    if (begin == 0)
      total = std::move(sums);
    else
      add_plain(sums, total);
  }
  std::vector<float> result;
  result.reserve(static_cast<std::size_t>(rows_ * columns_));
  for (std::int64_t i = 0; i < rows_; ++i)
    result.insert(result.end(), row(total, i), row(total, i) + columns_);
  // Of scales of the whole sum, C in the epilogue comes with them.
  if (enters_at(problem, CPlacement::epilogue) && !scaled_as_a_whole(problem))
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = canonical(result[i] + problem.c[i]);
  return result;
}

}  // namespace fp8lab

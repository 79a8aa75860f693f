#pragma once
// Every kind of matrix unit, each in a file of its name.

#include <algorithm>
#include <span>

#include "fp8lab/accumulate/unit.hpp"

namespace fp8lab::accumulate_detail {

const AccumulatorUnit& fused_dot_product_unit();
const AccumulatorUnit& sequential_unit();
const AccumulatorUnit& float32_unit();
const AccumulatorUnit& exact_unit();
const AccumulatorUnit& fp16_halves_unit();
const AccumulatorUnit& exact_dot_product_unit();
const AccumulatorUnit& flushed_pairwise_sum_unit();
const AccumulatorUnit& two_stage_dot_product_unit();
const AccumulatorUnit& even_odd_dot_product_unit();
const AccumulatorUnit& fused_multiply_add_unit();
const AccumulatorUnit& scaled_dot_product_unit();
const AccumulatorUnit& scaled_group_dot_product_unit();

/// Calls `step` with at most `model.terms` of `items` at a time, at least once.
template <typename T, typename Step>
void for_steps(const AccumulatorModel& model, std::span<T> items, const Step& step) {
  const auto terms = static_cast<std::size_t>(model.terms);
  std::size_t begin = 0;
  do {
    const std::size_t count = std::min(terms, items.size() - begin);
    step(items.subspan(begin, count));
    begin += count;
  } while (begin < items.size());
}

}  // namespace fp8lab::accumulate_detail

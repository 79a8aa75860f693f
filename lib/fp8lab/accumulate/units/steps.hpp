#pragma once
// What the units of this folder share. Each kind is a class in a file of its name, which kinds.cpp
// names.

#include <algorithm>
#include <span>

#include "fp8lab/accumulate/unit.hpp"

namespace fp8lab::accumulate_detail {

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

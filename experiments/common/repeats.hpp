#pragma once
// A measurement repeated over draws: one table of each repeat becomes a table of means with their
// spread, and a table of all draws.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/spread.hpp"
#include "lab/experiment/experiment.hpp"

namespace fp8lab::experiments {

/// The run whose progress is that of a larger one between `from` and `to`.
RunContext part_of(const RunContext& context, double from, double to);

/// The run of repeat number `repeat` of `repeats`: repeat 0 has the run's own seed, others have
/// seeds drawn from it.
RunContext repeat_of(const RunContext& context, std::size_t repeat, std::size_t repeats);

/// `measure(context of the repeat)` of each repeat.
template <typename Measure>
auto measure_repeats(const RunContext& context, std::size_t repeats, const Measure& measure) {
  std::vector<decltype(measure(context))> all;
  for (std::size_t i = 0; i < repeats; ++i) all.push_back(measure(repeat_of(context, i, repeats)));
  return all;
}

/// A figure over the repeats: `figure(repeat)` of each.
template <typename Repeats, typename Figure>
std::vector<double> each_repeat(const Repeats& repeats, const Figure& figure) {
  std::vector<double> values;
  for (const auto& repeat : repeats) values.push_back(figure(repeat));
  return values;
}

/// Its mean.
template <typename Repeats, typename Figure>
double mean_of_repeats(const Repeats& repeats, const Figure& figure) {
  return spread_of(each_repeat(repeats, figure)).mean;
}

/// Of `repeats`, tables of the same columns and as many rows:
/// - the first one with the mean in every column named in `measured`, and after it a column
///   `NAME_spread`, the half width of the interval that holds 99 % of single draws;
/// - `NAME_repeats`: every draw, with the columns that are not measured.
std::vector<Table> join_repeats(std::span<const Table> repeats,
                                const std::vector<std::string_view>& measured);

}  // namespace fp8lab::experiments

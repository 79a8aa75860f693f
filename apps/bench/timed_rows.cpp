#include "apps/bench/timed_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "apps/bench/ceilings.hpp"

namespace fp8lab::cli {
namespace {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return 0.5 * (values[(values.size() - 1) / 2] + values[values.size() / 2]);
}

}  // namespace

double seconds_now(bool processor_time, int threads) {
  if (processor_time)
    return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC) / threads;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void time_rows(std::vector<TimedRow>& rows, const Rounds& rounds, int threads) {
  for (TimedRow& row : rows) row.work();
  for (int round = 0; round < rounds.repetitions; ++round) {
    fmt::print(stderr, "\rround {} of {}", round + 1, rounds.repetitions);
    for (TimedRow& row : rows) {
      const double start = seconds_now(rounds.processor_time, threads);
      row.work();
      row.seconds.push_back(seconds_now(rounds.processor_time, threads) - start);
    }
  }
  fmt::print(stderr, "\n");
}

nlohmann::json report(const std::vector<TimedRow>& rows, std::size_t count) {
  nlohmann::json result = nlohmann::json::array();
  for (const TimedRow& row : rows) {
    const TimedRow& ceiling = rows[row.ceiling];
    std::vector<double> ratios;
    for (std::size_t i = 0; i < row.seconds.size(); ++i)
      ratios.push_back(ceiling.seconds[i] / row.seconds[i]);
    const bench::Timing timing = bench::summarize(row.seconds);
    const double best_ratio = std::ranges::min(ceiling.seconds) / timing.best;
    const auto elements = static_cast<double>(count) * 1e-9;
    result.push_back({{"name", row.name},
                      {"gelements", elements / timing.median},
                      {"best_gelements", elements / timing.best},
                      {"gbs", elements * row.bytes_per_element / timing.median},
                      {"spread", timing.spread},
                      {"ceiling", ceiling.name},
                      {"ratio", median(ratios)},
                      {"best_ratio", best_ratio}});
  }
  return result;
}

}  // namespace fp8lab::cli

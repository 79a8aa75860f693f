#include "apps/bench/ceilings.hpp"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <numeric>
#include <string>
#include <utility>

#include "apps/bench/fma_chain.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::bench {
namespace {

void require_threads(int threads) {
  require(threads >= 1, "threads", "a positive number", std::to_string(threads));
}

}  // namespace

double seconds_of(const std::function<void()>& work, Clock clock, int threads) {
  require_threads(threads);
  const std::clock_t processor = std::clock();
  const auto wall = std::chrono::steady_clock::now();
  work();
  if (clock == Clock::processor)
    return static_cast<double>(std::clock() - processor) / static_cast<double>(CLOCKS_PER_SEC) /
           threads;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count();
}

Timing summarize(std::vector<double> seconds) {
  require(!seconds.empty(), "seconds", "at least one time", "none");
  std::ranges::sort(seconds);
  const std::size_t last = seconds.size() - 1;
  Timing t;
  t.median = 0.5 * (seconds[last / 2] + seconds[(last + 1) / 2]);
  t.best = seconds.front();
  t.spread = (seconds[last * 3 / 4] - seconds[last / 4]) / t.median;
  t.repetitions = static_cast<int>(seconds.size());
  return t;
}

Timing time_work(const std::function<void()>& work, int min_repetitions, double min_seconds,
                 Clock clock, int threads) {
  constexpr int kMaxRepetitions = 1000;
  work();
  std::vector<double> seconds;
  double total = 0.0;
  while (static_cast<int>(seconds.size()) < kMaxRepetitions &&
         (static_cast<int>(seconds.size()) < min_repetitions || total < min_seconds)) {
    seconds.push_back(seconds_of(work, clock, threads));
    total += seconds.back();
  }
  return summarize(std::move(seconds));
}

double measure_fma_rate(int threads, double seconds, Clock clock) {
  require_threads(threads);
  constexpr double kRoundsPerSecond = 2.5e8;  // 12 chains, two a cycle, at 1.5 GHz or more
  const auto rounds = static_cast<long>(std::max(1e4, seconds * kRoundsPerSecond));
  long products = 0;
  const double taken = seconds_of(
      [&] {
        long total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
        total += run_fma_chains(rounds);
        products = total;
      },
      clock, threads);
  return static_cast<double>(products) / taken;
}

double measure_fma_peak(int threads) {
  double peak = 0.0;
  for (int i = 0; i < 100; ++i) peak = std::max(peak, measure_fma_rate(threads, 1e-3));
  return peak;
}

StreamBandwidth measure_stream_bandwidth(int threads, std::size_t bytes, Clock clock) {
  require_threads(threads);
  const std::size_t words = bytes / sizeof(std::uint64_t);
  std::vector<std::uint64_t> source(words, 1);
  std::vector<std::uint64_t> destination(words, 0);
  // Each thread's part of the arrays: [first, second).
  const auto part = [&] {
    const auto index = static_cast<std::size_t>(omp_get_thread_num());
    const auto parts = static_cast<std::size_t>(omp_get_num_threads());
    return std::pair(words * index / parts, words * (index + 1) / parts);
  };
  std::uint64_t sum = 0;
  const Timing read = time_work(
      [&] {
        std::uint64_t total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
        {
          const auto [begin, end] = part();
          total += std::accumulate(source.data() + begin, source.data() + end, std::uint64_t{0});
        }
        sum = total;
      },
      5, 0.1, clock, threads);
  require(sum == words, "stream", "the sum of the array", std::to_string(sum));
  const Timing copy = time_work(
      [&] {
#pragma omp parallel num_threads(threads)
        {
          const auto [begin, end] = part();
          std::memcpy(destination.data() + begin, source.data() + begin,
                      (end - begin) * sizeof(std::uint64_t));
        }
      },
      5, 0.1, clock, threads);
  const auto size = static_cast<double>(words * sizeof(std::uint64_t));
  return {size / read.best, 2.0 * size / copy.best};
}

}  // namespace fp8lab::bench

#include "fp8lab/bench/ceilings.hpp"

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "fp8lab/bench/fma_chain.hpp"
#include "fp8lab/core/error.hpp"

namespace fp8lab::bench {
namespace {

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void require_threads(int threads) {
  require(threads >= 1, "threads", "a positive number", std::to_string(threads));
}

}  // namespace

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

Timing time_work(const std::function<void()>& work, int min_repetitions, double min_seconds) {
  constexpr int kMaxRepetitions = 1000;
  work();
  std::vector<double> seconds;
  double total = 0.0;
  while (static_cast<int>(seconds.size()) < kMaxRepetitions &&
         (static_cast<int>(seconds.size()) < min_repetitions || total < min_seconds)) {
    seconds.push_back(seconds_of(work));
    total += seconds.back();
  }
  return summarize(std::move(seconds));
}

double measure_fma_peak(int threads) {
  require_threads(threads);
  constexpr long kRounds = 200'000;
  long lanes = 0;
  const Timing timing = time_work(
      [&] {
        long total = 0;
#pragma omp parallel num_threads(threads) reduction(+ : total)
        total += run_fma_chains(kRounds);
        lanes = total;
      },
      9, 0.1);
  return static_cast<double>(lanes) / timing.best;
}

StreamBandwidth measure_stream_bandwidth(int threads, std::size_t bytes) {
  require_threads(threads);
  const std::size_t words = bytes / sizeof(std::uint64_t);
  std::vector<std::uint64_t> source(words, 1);
  std::vector<std::uint64_t> destination(words, 0);
  std::uint64_t sum = 0;
  const auto count = static_cast<std::ptrdiff_t>(words);
  const Timing read = time_work(
      [&] {
        std::uint64_t total = 0;
#pragma omp parallel for simd reduction(+ : total) num_threads(threads)
        for (std::ptrdiff_t i = 0; i < count; ++i) total += source[static_cast<std::size_t>(i)];
        sum = total;
      },
      5, 0.1);
  require(sum == words, "stream", "the sum of the array", std::to_string(sum));
  const Timing copy = time_work(
      [&] {
#pragma omp parallel num_threads(threads)
        {
          const auto part = static_cast<std::size_t>(omp_get_thread_num());
          const auto parts = static_cast<std::size_t>(omp_get_num_threads());
          const std::size_t begin = words * part / parts;
          const std::size_t end = words * (part + 1) / parts;
          std::memcpy(destination.data() + begin, source.data() + begin,
                      (end - begin) * sizeof(std::uint64_t));
        }
      },
      5, 0.1);
  const auto size = static_cast<double>(words * sizeof(std::uint64_t));
  return {size / read.best, 2.0 * size / copy.best};
}

}  // namespace fp8lab::bench

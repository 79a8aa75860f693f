#include "apps/bench/ceilings.hpp"

#include <chrono>
#include <ctime>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "apps/bench/fma_chain.hpp"
#include "catch.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;

namespace {

/// Takes so much processor time.
void spin(double seconds) {
  const std::clock_t start = std::clock();
  while (static_cast<double>(std::clock() - start) < seconds * CLOCKS_PER_SEC) {
  }
}

}  // namespace

TEST_CASE("a summary of times has their median, best and quartiles", "[bench]") {
  const bench::Timing t = bench::summarize({5.0, 1.0, 3.0, 2.0, 4.0});
  CHECK(t.median == 3.0);
  CHECK(t.best == 1.0);
  CHECK(t.spread == (4.0 - 2.0) / 3.0);
  CHECK(t.repetitions == 5);
  CHECK(bench::summarize({1.0, 2.0}).median == 1.5);
  CHECK_THROWS_AS(bench::summarize({}), Error);
}

TEST_CASE("work is repeated as often as asked, after one warm-up", "[bench]") {
  int runs = 0;
  CHECK(bench::time_work([&] { ++runs; }, 7, 0.0).repetitions == 7);
  CHECK(runs == 8);
}

TEST_CASE("ceilings are positive figures and refuse zero threads", "[bench]") {
  CHECK(bench::measure_fma_peak(1) > 1e8);
  const bench::StreamBandwidth stream = bench::measure_stream_bandwidth(1, std::size_t{1} << 22);
  CHECK(stream.read > 1e8);
  CHECK(stream.copy > 1e8);
  CHECK_THROWS_WITH(bench::measure_fma_peak(0), contains("threads"));
}

TEST_CASE("a summary of times of any number is that of their order", "[bench]") {
  // The quartiles are the times at a quarter and at three quarters of the last place.
  for (const std::size_t count : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 9U, 12U}) {
    std::vector<double> seconds(count);
    std::iota(seconds.rbegin(), seconds.rend(), 1.0);
    const bench::Timing t = bench::summarize(seconds);
    const std::size_t last = count - 1;
    INFO(count);
    CHECK(t.median == 0.5 * static_cast<double>(count + 1));
    CHECK(t.best == 1.0);
    CHECK(t.spread == static_cast<double>(last * 3 / 4 - last / 4) / t.median);
    CHECK(t.repetitions == static_cast<int>(count));
  }
  CHECK_THROWS_WITH(bench::summarize({}), "seconds: expected at least one time, got none");
}

TEST_CASE("work is repeated until enough time has passed, but not without end", "[bench]") {
  int runs = 0;
  const auto sleep = [&] {
    ++runs;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  const bench::Timing t = bench::time_work(sleep, 1, 0.009);
  CHECK(t.repetitions > 1);
  CHECK(t.repetitions <= 5);
  CHECK(t.best >= 0.002);
  CHECK(runs == t.repetitions + 1);
  const auto nothing = [] {};
  CHECK(bench::time_work(nothing, 1200, 0.0).repetitions == 1000);
  CHECK(bench::time_work(nothing, 1, 1e9).repetitions == 1000);
  CHECK(bench::time_work(nothing, 1, 0.0).repetitions == 1);
}

TEST_CASE("seconds are the wall's, or the processor's over the threads", "[bench]") {
  const auto sleep = [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); };
  CHECK(bench::seconds_of(sleep) >= 0.03);
  CHECK(bench::seconds_of(sleep, bench::Clock::processor) < 0.015);
  const std::function<void()> work = [] { spin(0.02); };
  const double one = bench::seconds_of(work, bench::Clock::processor);
  const double four = bench::seconds_of(work, bench::Clock::processor, 4);
  CHECK(one >= 0.02);
  CHECK(four >= 0.005);
  CHECK(four < 0.6 * one);
  CHECK(bench::seconds_of(work, bench::Clock::wall, 4) >= 0.02);
  const bench::Timing t = bench::time_work(work, 2, 0.0, bench::Clock::processor, 4);
  CHECK(t.best < 0.015);
  for (const int threads : {0, -1})
    CHECK_THROWS_WITH(bench::seconds_of(work, bench::Clock::wall, threads),
                      "threads: expected a positive number, got " + std::to_string(threads));
  CHECK_THROWS_WITH(bench::measure_fma_rate(0, 1e-3), contains("threads: expected a positive"));
  CHECK_THROWS_WITH(bench::measure_stream_bandwidth(0, 4096),
                    contains("threads: expected a positive"));
}

TEST_CASE("a round of FMA chains is twelve FMAs of every lane", "[bench]") {
  const long one = bench::run_fma_chains(1);
  CHECK(one % 12 == 0);
  const long lanes = one / 12;
  CHECK((lanes == 1 || lanes == 4 || lanes == 8 || lanes == 16));
  CHECK(bench::run_fma_chains(1000) == 1000 * one);
  CHECK(bench::run_fma_chains(0) == 0);
}

TEST_CASE("a rate of FMAs is that of their number and time", "[bench]") {
  // So many rounds as seconds ask for, of all threads together.
  const double start = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  const double rate = bench::measure_fma_rate(1, 0.02, bench::Clock::processor);
  const double taken = static_cast<double>(std::clock()) / CLOCKS_PER_SEC - start;
  const double products = static_cast<double>(bench::run_fma_chains(1)) * 0.02 * 2.5e8;
  CHECK(rate >= 0.8 * products / taken);
  CHECK(rate <= 2.0 * products / taken);
}

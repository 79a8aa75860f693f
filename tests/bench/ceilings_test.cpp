#include "fp8lab/bench/ceilings.hpp"

#include "catch.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;

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

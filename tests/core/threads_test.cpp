#include "fp8lab/core/threads.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/parallel.hpp"
#include "fp8lab/gemm/gemm.hpp"

using namespace fp8lab;

namespace {

std::vector<float> threaded_product() {
  constexpr std::int64_t kSize = 64;
  const std::vector<std::uint8_t> codes(static_cast<std::size_t>(kSize * kSize), 0x38);
  GemmProblem problem;
  problem.model = find_instruction_model("sm90.wgmma.e4m3").accumulator;
  problem.a = CodeMatrix::row_major(FormatId::e4m3fn, codes, kSize, kSize);
  problem.b = problem.a;
  std::vector<float> d(codes.size());
  gemm(problem, d, 4);
  return d;
}

}  // namespace

TEST_CASE("a team has the threads that were asked for, within bounds", "[core][threads]") {
  CHECK(team_size(1) == 1);
  CHECK(team_size(3) == 3);
  CHECK(team_size(0) >= 1);
  CHECK(thread_shortage().wanted == 0);
  CHECK_THROWS_WITH(team_size(-1), contains("threads: expected 0 (all) to 4096, got -1"));
  CHECK_THROWS_WITH(team_size(1'000'000), contains("got 1000000"));
  CHECK_THROWS_WITH(team_size(kMostThreads + 1), contains("got 4097"));
  // In a team no thread is started for the answer.
  int within_a_team = 0;
#pragma omp parallel num_threads(2)
#pragma omp single
  within_a_team = team_size(kMostThreads);
  CHECK(within_a_team == kMostThreads);
}

TEST_CASE("a process that was forked after a threaded product computes on", "[core][threads]") {
  const std::vector<float> expected = threaded_product();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const bool same = team_size(4) == 1 && threaded_product() == expected;
    ::_exit(same ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  INFO("status " << status << " (a signal 14 is a product that hung)");
  CHECK(status == 0);
  CHECK(team_size(2) == 2);
}

TEST_CASE("a parallel loop calls each index once, in the default environment", "[core][threads]") {
  std::fesetround(FE_UPWARD);
  for (const int threads : {1, 2, 3})
    for (const std::int64_t count : {0, 1, 2, 7, 100}) {
      INFO(count << " calls on " << threads << " threads");
      std::vector<int> calls(static_cast<std::size_t>(count));
      std::vector<int> others(calls.size());
      std::atomic<int> states = 0;
      std::atomic<int> rounded_up = 0;
      parallel_for(count, threads, [&](std::int64_t i) {
        ++calls[static_cast<std::size_t>(i)];
        if (std::fegetround() != FE_TONEAREST) ++rounded_up;
      });
      parallel_for_with(
          count, threads, [&] { return ++states; },
          [&](const int& state, std::int64_t i) {
            others[static_cast<std::size_t>(i)] += state > 0 ? 1 : 0;
            if (std::fegetround() != FE_TONEAREST) ++rounded_up;
          });
      CHECK(calls == std::vector<int>(calls.size(), 1));
      CHECK(others == std::vector<int>(calls.size(), 1));
      CHECK(states.load() == threads);
      CHECK(rounded_up.load() == 0);
    }
  CHECK(std::fegetround() == FE_UPWARD);
  std::fesetround(FE_TONEAREST);
}

TEST_CASE("the first error of a parallel loop comes out of it, and ends the work",
          "[core][threads]") {
  for (const int threads : {1, 3}) {
    int calls = 0;
    const auto fails = [&](std::int64_t i) {
      if (i < 3) ++calls;
      if (i == 1) throw Error("at 1");
    };
    CHECK_THROWS_WITH(parallel_for(3, threads, fails), "at 1");
    CHECK_THROWS_WITH(
        parallel_for_with(
            3, threads, [] { return 0; }, [&](const int&, std::int64_t i) { fails(i); }),
        "at 1");
    if (threads == 1) CHECK(calls == 4);  // twice 0 and 1
    bool called = false;
    CHECK_THROWS_WITH(parallel_for_with(
                          1, threads, []() -> int { throw Error("no state"); },
                          [&](const int&, std::int64_t) { called = true; }),
                      "no state");
    CHECK_FALSE(called);
  }
}

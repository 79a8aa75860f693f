#include "fp8lab/core/threads.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
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

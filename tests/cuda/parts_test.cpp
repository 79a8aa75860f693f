// Long runs in parts: what throws, crashes, hangs or comes too late costs the others nothing.

#include "cuda/tool/parts.hpp"

#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "catch.hpp"

using namespace fp8lab::cuda;

namespace {

Part passing(const std::string& name) {
  return {name, [name] {
            return std::vector<CheckRow>{{name, 10'000'000'000, 0},
                                         {name + " again", 3, 2, "some \"text\"\n"}};
          }};
}

Part with(const std::string& name, std::function<void()> act) {
  return {name, [act = std::move(act)] {
            act();
            return std::vector<CheckRow>{};
          }};
}

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

TEST_CASE("parts give their rows in order, from another process", "[cuda]") {
  int touched = 0;
  const std::vector<Part> parts{passing("first"), with("silent", [&] { touched = 1; }),
                                passing("second")};
  const std::vector<CheckRow> rows = run_parts(parts, {10.0, 60.0});
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].name == "first");
  CHECK(rows[0].cases == 10'000'000'000);
  CHECK(rows[0].problem.empty());
  CHECK(rows[1].mismatches == 2);
  CHECK(rows[1].problem == "some \"text\"\n");
  CHECK(rows[2].name == "second");
  CHECK(touched == 0);
  CHECK(run_parts_here(parts).size() == 4);
  CHECK(touched == 1);
  CHECK(run_parts({}, {10.0, 60.0}).empty());
}

TEST_CASE("a part that fails costs no other part its result", "[cuda]") {
  const std::vector<Part> parts{
      passing("before"),
      with("throws", [] { throw std::runtime_error("the device is gone"); }),
      passing("between"),
      with("crashes", [] { std::_Exit(7); }),
      with("is killed", [] { kill(getpid(), SIGKILL); }),
      with("hangs", [] { sleep_for(1000.0); }),
      passing("after")};
  const std::vector<CheckRow> rows = run_parts(parts, {0.5, 60.0});
  REQUIRE(rows.size() == 10);
  CHECK(rows[2].name == "throws");
  CHECK(rows[2].problem == "the device is gone");
  CHECK(rows[3].name == "between");
  CHECK(rows[3].problem.empty());
  CHECK(rows[5].name == "crashes");
  CHECK_THAT(rows[5].problem, contains("exit code 7"));
  CHECK(rows[6].name == "is killed");
  CHECK_THAT(rows[6].problem, contains("crashed: Killed"));
  CHECK(rows[7].name == "hangs");
  CHECK_THAT(rows[7].problem, contains("stopped after") && !contains("out of time"));
  CHECK(rows[8].name == "after");
  CHECK_THROWS_WITH(run_parts_here(parts), contains("the device is gone"));
}

TEST_CASE("when the time is over the rest is named and does not run", "[cuda]") {
  const std::vector<Part> parts{passing("quick"), with("slow", [] { sleep_for(1000.0); }),
                                passing("late"), passing("later")};
  const auto start = std::chrono::steady_clock::now();
  const std::vector<CheckRow> rows = run_parts(parts, {100.0, 0.5});
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  REQUIRE(rows.size() == 5);
  CHECK_THAT(rows[2].problem, contains("stopped after") && contains(" s: out of time"));
  CHECK(rows[3].name == "late");
  CHECK_THAT(rows[3].problem, contains("not run"));
  CHECK(rows[4].name == "later");
}

namespace {

/// A process that holds another one, as a driver may: the held one is not reaped by its parent
/// while this one does not let it go.
void be_held(int ready) {
  const pid_t held = getpid();
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  if (fork() == 0) {
    const char answer = ptrace(PTRACE_SEIZE, held, nullptr, nullptr) == 0 ? 'y' : 'n';
    static_cast<void>(!write(ready, &answer, 1));
    sleep_for(6.0);
    _exit(0);
  }
  sleep_for(1000.0);
}

}  // namespace

TEST_CASE("a part that not even SIGKILL ends does not hold the run", "[cuda]") {
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const std::vector<Part> parts{with("stuck", [&] { be_held(ready[1]); }), passing("after")};
  const auto start = std::chrono::steady_clock::now();
  const std::vector<CheckRow> rows = run_parts(parts, {0.5, 60.0, 0.5});
  const auto took = std::chrono::steady_clock::now() - start;
  char answer = '-';
  CHECK(read(ready[0], &answer, 1) == 1);
  close(ready[0]);
  close(ready[1]);
  if (answer != 'y') {
    WARN("this system lets no process hold another: not checked");
    return;
  }
  CHECK(took < std::chrono::seconds(5));
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].name == "stuck");
  CHECK_THAT(rows[0].problem, contains("even after SIGKILL"));
  CHECK(rows[1].name == "after");
  CHECK(rows[1].problem.empty());
}

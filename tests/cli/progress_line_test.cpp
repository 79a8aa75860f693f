// The lines of `--progress` where standard error is no terminal.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

// Its parts are the tool's alone.
#include "apps/cli/progress_bar.cpp"   // NOLINT(bugprone-suspicious-include)
#include "apps/cli/progress_line.cpp"  // NOLINT(bugprone-suspicious-include)
#include "apps/cli/terminal.cpp"       // NOLINT(bugprone-suspicious-include)
#include "catch.hpp"
#include "io/temporary.hpp"

using namespace fp8lab;

namespace {

/// What `tell` prints on standard error, without seconds.
template <class Tell>
std::vector<std::string> told_on_stderr(const Tell& tell) {
  const TemporaryFolder folder("progress_line");
  const std::string path = (folder / "stderr").string();
  std::fflush(stderr);
  const int kept = ::dup(STDERR_FILENO);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ::dup2(file, STDERR_FILENO);
  tell();
  std::fflush(stderr);
  ::dup2(kept, STDERR_FILENO);
  ::close(file);
  ::close(kept);
  std::vector<std::string> lines;
  const std::string text = read_text(folder / "stderr");
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    lines.push_back(line.substr(0, line.rfind(',')));
    at = end + 1;
  }
  return lines;
}

}  // namespace

TEST_CASE("progress is told once a quarter of a step, from its beginning on", "[cli]") {
  const std::vector<std::pair<const char*, double>> steps{
      {"a", 0.0}, {"a", 0.1}, {"a", 0.2499}, {"a", 0.25}, {"a", 0.3}, {"a", 0.75},
      {"a", 0.5}, {"a", 1.0}, {"a", 1.0},    {"b", 0.0},  {"b", 1.0}, {"a", 0.99}};
  const auto tell = [&](bool always) {
    return told_on_stderr([&] {
      cli::ProgressLine line(always);
      const Progress progress = line.teller();
      for (const auto& [step, done] : steps) progress(step, done);
    });
  };
  CHECK(tell(true) == std::vector<std::string>{"fp8lab: a: 0 %", "fp8lab: a: 25 %",
                                               "fp8lab: a: 75 %", "fp8lab: a: 100 %",
                                               "fp8lab: b: 0 %", "fp8lab: b: 100 %",
                                               "fp8lab: a: 75 %"});
  CHECK(tell(false).empty());
}

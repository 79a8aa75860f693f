#include "tool/parts.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"

namespace fp8lab::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kStopped = "stopped after";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string to_line(const std::vector<CheckRow>& rows, const std::string& problem) {
  nlohmann::json message{{"problem", problem}, {"rows", nlohmann::json::array()}};
  for (const CheckRow& row : rows)
    message["rows"].push_back({row.name, row.cases, row.mismatches, row.problem, row.note});
  return message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

/// What ended one part: its rows, or the problem that it had.
struct Outcome {
  std::vector<CheckRow> rows;
  std::string problem;
};

Outcome from_line(const std::string& line) {
  const nlohmann::json message = parse_json<nlohmann::json>(line, "part");
  Outcome outcome{{}, message.at("problem").get<std::string>()};
  for (const nlohmann::json& row : message.at("rows"))
    outcome.rows.push_back({row.at(0).get<std::string>(), row.at(1).get<std::uint64_t>(),
                            row.at(2).get<std::uint64_t>(), row.at(3).get<std::string>(),
                            row.at(4).get<std::string>()});
  return outcome;
}

void write_all(int file, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t wrote = write(file, text.data() + at, text.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) _exit(1);  // nobody listens any more
    at += static_cast<std::size_t>(wrote);
  }
}

/// The child: parts one after the other, a line about each, until one fails.
[[noreturn]] void run_in_child(std::span<const Part> parts, int report, pid_t parent) {
  // Whoever stops the parent must not leave a child behind that holds the device.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  for (const Part& part : parts) {
    std::vector<CheckRow> rows;
    std::string problem;
    try {
      rows = part.run();
    } catch (const std::exception& error) {
      problem = *error.what() != '\0' ? error.what() : "an exception without a text";
    } catch (...) {
      problem = "an exception that is not a std::exception";
    }
    std::fflush(nullptr);
    write_all(report, to_line(rows, problem));
    if (!problem.empty()) break;
  }
  _exit(0);
}

class Child {
 public:
  Child(std::span<const Part> parts, double patience) : patience_(patience) {
    int ends[2];
    if (pipe(ends) != 0) throw Error(fmt::format("pipe: {}", std::strerror(errno)));
    std::fflush(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0) throw Error(fmt::format("fork: {}", std::strerror(errno)));
    if (pid_ == 0) {
      close(ends[0]);
      run_in_child(parts, ends[1], parent);
    }
    close(ends[1]);
    report_ = ends[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    close(report_);
    if (!ended_) end();
  }

  /// The next part's outcome; a problem if the child ended or took longer than `seconds`.
  Outcome next(double seconds) {
    const Clock::time_point start = Clock::now();
    for (;;) {
      const std::size_t newline = text_.find('\n');
      if (newline != std::string::npos) {
        const std::string line = text_.substr(0, newline);
        text_.erase(0, newline + 1);
        return from_line(line);
      }
      const double left = seconds - seconds_since(start);
      pollfd ready{report_, POLLIN, 0};
      const int found =
          left <= 0.0 ? 0 : poll(&ready, 1, static_cast<int>(std::min(left, 3600.0) * 1e3) + 1);
      if (found < 0 && errno == EINTR) continue;
      if (found == 0 && seconds - seconds_since(start) > 0.0) continue;
      if (found <= 0) {
        const std::string how = end();
        const bool left_behind = how.ends_with("abandoned");
        return {{},
                fmt::format("{} {:.3g} s{}{}", kStopped, seconds, left_behind ? "; " : "",
                            left_behind ? how : "")};
      }
      char buffer[4096];
      const ssize_t size = read(report_, buffer, sizeof buffer);
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) return {{}, end()};
      text_.append(buffer, static_cast<std::size_t>(size));
    }
  }

 private:
  /// Ends the child if it has not ended by itself, and says how it did.
  std::string end() {
    ended_ = true;
    int status = 0;
    // A child whose end of the pipe is closed is on its way out; any other is stopped.
    kill(pid_, SIGKILL);
    // One that is stuck in the driver does not even die: it is left behind.
    const Clock::time_point killed = Clock::now();
    for (;;) {
      const pid_t ended = waitpid(pid_, &status, WNOHANG);
      if (ended == pid_) break;
      if (ended < 0 && errno != EINTR) return fmt::format("waitpid: {}", std::strerror(errno));
      if (seconds_since(killed) > patience_)
        return fmt::format("process {} does not end, even after SIGKILL: it is abandoned", pid_);
      usleep(1000);
    }
    if (WIFSIGNALED(status)) return fmt::format("crashed: {}", strsignal(WTERMSIG(status)));
    return fmt::format("ended without a result (exit code {})",
                       WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }

  double patience_;
  pid_t pid_ = -1;
  int report_ = -1;
  bool ended_ = false;
  std::string text_;
};

}  // namespace

std::vector<CheckRow> run_parts(std::span<const Part> parts, const PartLimits& limits) {
  const Clock::time_point start = Clock::now();
  std::vector<CheckRow> rows;
  const auto left = [&] { return limits.total - seconds_since(start); };
  for (std::size_t next = 0; next < parts.size();) {
    if (left() <= 0.0) {
      for (; next < parts.size(); ++next)
        rows.push_back({parts[next].name, 0, 0, "not run: out of time"});
      break;
    }
    Child child(parts.subspan(next), limits.after_kill);
    for (bool alive = true; alive && next < parts.size() && left() > 0.0; ++next) {
      const double rest = left();
      Outcome outcome = child.next(std::min(limits.each, rest));
      if (rest < limits.each && outcome.problem.starts_with(kStopped))
        outcome.problem += ": out of time";
      rows.insert(rows.end(), outcome.rows.begin(), outcome.rows.end());
      alive = outcome.problem.empty();
      if (alive) continue;
      fmt::print(stderr, "{}: {}\n", parts[next].name, outcome.problem);
      rows.push_back({parts[next].name, 0, 0, outcome.problem});
    }
  }
  return rows;
}

std::vector<CheckRow> run_parts_here(std::span<const Part> parts) {
  std::vector<CheckRow> rows;
  for (const Part& part : parts) {
    const std::vector<CheckRow> more = part.run();
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

}  // namespace fp8lab::cuda

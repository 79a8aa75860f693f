#include "progress_line.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

namespace fp8lab::cli {

class ProgressLine::State {
 public:
  explicit State(bool always) : terminal_(isatty(STDERR_FILENO) != 0), always_(always) {}

  void show(std::string_view step, double done) {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - started_).count();
    if (terminal_) {
      if (seconds < 2.0) return;
      if (!bar_ || step != step_) bar_.reset();
      if (!bar_) bar_ = std::make_unique<ProgressBar>(step);
      bar_->show(done, fmt::format("  {:.0f} s", seconds));
      step_ = step;
      return;
    }
    if (!always_) return;
    const int quarter = static_cast<int>(4.0 * done);
    if (step == step_ && quarter <= quarter_) return;
    step_ = step;
    quarter_ = quarter;
    fmt::print(stderr, "fp8lab: {}: {} %, {:.1f} s\n", step, 25 * quarter, seconds);
  }

 private:
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  bool terminal_;
  bool always_;
  std::string step_;
  int quarter_ = -1;
  std::unique_ptr<ProgressBar> bar_;
};

ProgressLine::ProgressLine(bool always) : state_(std::make_shared<State>(always)) {}

Progress ProgressLine::teller() {
  return [state = state_](std::string_view step, double done) { state->show(step, done); };
}

}  // namespace fp8lab::cli

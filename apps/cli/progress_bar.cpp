#include "progress_bar.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "fp8lab/plots/text.hpp"
#include "say.hpp"
#include "terminal.hpp"

namespace fp8lab::cli {

ProgressBar::ProgressBar(std::string_view name, bool speaks)
    : name_(name), terminal_(speaks && isatty(STDERR_FILENO) != 0) {
  if (speaks && !terminal_) say(stderr, "{}: running\n", name_);
}

ProgressBar::~ProgressBar() {
  if (terminal_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::show(double fraction, std::string_view note) {
  if (!terminal_) return;
  const int percent = static_cast<int>(100.0 * std::clamp(fraction, 0.0, 1.0));
  const std::string bar(static_cast<std::size_t>(percent / 4), '=');
  std::string text = fmt::format("{} [{:<25}] {}%", name_, bar, percent);
  // A line that is too long for the terminal would not be drawn over.
  const std::string noted = text + printable(note);
  if (columns_of(noted) < columns_of_terminal(stderr)) text = noted;
  if (text == shown_) return;
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
  shown_ = std::move(text);
}

}  // namespace fp8lab::cli

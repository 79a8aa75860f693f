#include "progress_bar.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "lab/plots/text.hpp"
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
  // A line that is too long for the terminal would not be drawn over: the bar gets shorter first.
  std::string text;
  for (const int width : {25, 10}) {
    const std::string bar(static_cast<std::size_t>(percent * width / 100), '=');
    text = fmt::format("{} [{:<{}}] {}%", name_, bar, width, percent);
    const std::string noted = text + printable(note);
    if (columns_of(noted) >= columns_of_terminal(stderr)) continue;
    text = noted;
    break;
  }
  if (text == shown_) return;
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
  shown_ = std::move(text);
}

}  // namespace fp8lab::cli

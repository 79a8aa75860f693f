#pragma once
// The steps of a long computation as a line on stderr.

#include <memory>

#include "fp8lab/core/progress.hpp"
#include "progress_bar.hpp"

namespace fp8lab::cli {

/// Shows nothing until a computation has taken two seconds: a bar on a terminal; elsewhere, and
/// only where `always`, a line for each step and quarter of it. Never on stdout.
class ProgressLine {
 public:
  explicit ProgressLine(bool always);

  /// What to hand to the library.
  [[nodiscard]] Progress teller();

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace fp8lab::cli

#pragma once
// A long run in parts, each in a process apart from the one that prints the table:
// a part that throws, crashes, hangs or leaves the device unusable (a CUDA context
// does not recover from a faulting kernel) costs the others nothing.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace fp8lab::cuda {

/// One line of the closing table.
struct CheckRow {
  std::string name;
  std::uint64_t cases = 0;
  std::uint64_t mismatches = 0;
  std::string problem = {};  ///< why there is no verdict; empty if there is one
  std::string note = {};     ///< what else is to be said of it
};

struct Part {
  std::string name;
  std::function<std::vector<CheckRow>()> run;
};

struct PartLimits {
  double each = 60.0;    ///< seconds for one part
  double total = 480.0;  ///< seconds for all of them; what has not begun by then does not run
  /// Seconds that a child has to end after SIGKILL. One that is stuck in the driver never does: it
  /// is left behind, named in the row of its part.
  double after_kill = 10.0;
};

/// Runs the parts in order, in a child process that goes on from part to part. A
/// part that does not come to its end gives one row with its name and what
/// happened, and a new child takes up the next. Call it before this process has
/// touched CUDA or started threads: neither survives a fork.
std::vector<CheckRow> run_parts(std::span<const Part> parts, const PartLimits& limits);

/// The same in this process, for debuggers and profilers: an exception ends the run.
std::vector<CheckRow> run_parts_here(std::span<const Part> parts);

}  // namespace fp8lab::cuda

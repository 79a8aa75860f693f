#pragma once
// The number of threads of a parallel region. An OpenMP runtime ends the process if it cannot
// start a thread, and waits forever for missing threads in a forked process. Both cases are
// detected here, before the region.

namespace fp8lab {

inline constexpr int kMostThreads = 4096;

/// The number of threads for a region with `requested` threads (0: as many as OpenMP offers). It
/// is smaller if the system cannot start them, and 1 in a process that was forked after a region
/// of several threads. Throws `Error` for a number outside 0 .. `kMostThreads`, which names
/// OMP_NUM_THREADS if that requests more.
int team_size(int requested);

/// The threads that `team_size` could not provide so far.
struct ThreadShortage {
  int wanted = 0;  ///< 0: none were missing
  int started = 0;
};
ThreadShortage thread_shortage();

}  // namespace fp8lab

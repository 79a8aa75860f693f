#pragma once
// How many threads a parallel region may have. An OpenMP runtime that cannot start a thread
// ends the process, and one whose process was forked waits for threads that are not there:
// both are found here, before the region.

namespace fp8lab {

inline constexpr int kMostThreads = 4096;

/// The threads of a region that was asked for with `requested` of them (0: as many as OpenMP
/// gives). Fewer where the system does not start as many, and 1 in a process that was forked
/// after a region of several. Throws `Error` for a number outside of 0 .. `kMostThreads`, and
/// naming OMP_NUM_THREADS where that is what asks for more.
int team_size(int requested);

/// What `team_size` could not give so far.
struct ThreadShortage {
  int wanted = 0;  ///< 0: nothing was missing
  int started = 0;
};
ThreadShortage thread_shortage();

}  // namespace fp8lab

#pragma once
// The points of a sweep over the processes of an MPI run. Rank 0 sends points
// to ranks that are free, runs points itself, and alone writes the log.
//
// If a rank dies, its unfinished points are lost. Rank 0 runs them again if the
// launcher keeps the other ranks alive (`mpirun --enable-recovery`).

#include "lab/mpi/session.hpp"
#include "lab/sweep/sweep.hpp"

namespace fp8lab::mpi {

/// Rank 0: a `PointRunner` that runs missing points on all ranks, one thread a rank.
/// Adds to `lost_ranks` how many had not answered when all points were done: MPI
/// cannot end as usual then, call `Session::abandon`.
PointRunner points_over_mpi(const Session& session, int& lost_ranks);

/// All other ranks: runs points until rank 0 has no more.
void serve_points(const Session& session, const SweepPlan& plan);

/// Rank 0, where `points_over_mpi` did not run: lets the other ranks end.
void dismiss_ranks(const Session& session);

}  // namespace fp8lab::mpi

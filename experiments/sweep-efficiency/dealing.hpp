#pragma once
// The dealing of a sweep's points over MPI (lab/mpi/points.cpp), simulated event by event:
// one dealer, some points in hand a rank, one writer, and a worker beside the dealer on rank 0.

#include <cstdint>
#include <span>

namespace fp8lab::experiments {

/// What dealing costs, in seconds.
struct Dealing {
  std::int64_t ranks = 1;    ///< with the dealer's own
  std::int64_t in_hand = 2;  ///< points that a rank is given ahead
  double service = 0.0;      ///< a result: reading it, appending it to the log, sending a point
  double deal = 0.0;         ///< sending one of the first points
  double latency = 0.0;      ///< of a message
  double pause = 50e-6;      ///< between two looks of a rank that has nothing to do
};

struct DealingOutcome {
  double makespan = 0.0;     ///< from the first point sent until every rank can end
  double dealer_busy = 0.0;  ///< seconds of it in which the dealer served
  double drain = 0.0;        ///< seconds of it in which no point was left to deal
  std::int64_t run_twice =
      0;  ///< points that rank 0 ran again, for a rank that was silent for long
};

/// Deals points of these costs (seconds of work each, in the order of dealing). A rank's result
/// waits in its hands until the dealer takes it: results are longer than MPI buffers.
DealingOutcome deal_points(const Dealing& dealing, std::span<const double> costs);

/// The shortest makespan that any order of events allows.
double shortest_makespan(const Dealing& dealing, std::span<const double> costs);

}  // namespace fp8lab::experiments

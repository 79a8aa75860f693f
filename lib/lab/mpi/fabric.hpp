#pragma once
// Collectives over the processes of an MPI run. The ranks of an operation are
// divided among the processes in blocks: rank r of N lives in process floor(r P / N)
// of P. Ranks of one process exchange messages in memory, all others through
// MPI; every hop is the user-defined reduction, applied by MPI_Reduce_local.

#include <cstddef>
#include <memory>
#include <span>

#include "lab/mpi/session.hpp"
#include "training/collectives/transport.hpp"

namespace fp8lab::mpi {

/// A fabric over all processes of `session`, which must outlive it. Not
/// concurrent: call its operations from the thread that made the session, in
/// the same order in every process.
std::unique_ptr<Fabric> make_fabric(const Session& session);

/// What MPI_Allreduce may assume about the order of a user-defined reduction.
enum class OperandOrder : bool {
  any,        ///< MPI_Op_create with commute = true
  rank_order  ///< commute = false: ranks 0, 1, ... from left to right, bracketed as MPI likes
};

/// sum of `data` over the processes by MPI_Allreduce with `add_codes` as a
/// user-defined reduction; every process gets it, `wire.bytes` bytes an element.
///
/// What MPI 3.1 promises about the order (section 5.9.1): an operation is assumed
/// associative, and the order of evaluation may use that; with commute = false the
/// operands keep rank order; that the same arguments give the same result is
/// advice to implementors, not a promise. An FP8 sum is commutative and not
/// associative, so the bits are defined for two processes only, and are one of
/// the bracketings for more. That is why `make_fabric` sends its own messages.
void all_reduce_by_mpi(const Session& session, const WireFormat& wire, OperandOrder order,
                       std::span<std::byte> data);

}  // namespace fp8lab::mpi

#pragma once
// The user-defined reduction: `reduce` as an MPI_Op on elements of a wire.

#include <mpi.h>

#include <cstdint>

#include "training/collectives/transport.hpp"

namespace fp8lab::mpi {

/// An MPI_Op and the datatype of its elements, freed together.
class Operation {
 public:
  Operation(const Reduction& reduction, bool commute);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  [[nodiscard]] MPI_Op op() const { return op_; }
  [[nodiscard]] MPI_Datatype element() const { return element_; }

 private:
  MPI_Op op_ = MPI_OP_NULL;
  MPI_Datatype element_ = MPI_DATATYPE_NULL;
};

/// Sums that overflowed in this thread's user-defined reductions so far. MPI
/// hands such a function no context, so the count lives beside it.
std::uint64_t overflowed_so_far();

/// `count` as MPI's int. Throws `Error` for more than it holds.
int mpi_count(std::size_t count);

}  // namespace fp8lab::mpi

#pragma once
// All-reduce and all-gather over a fabric: the steps of `Schedule`, carried out
// by every rank that this process holds. Bits depend on the operation and the
// inputs alone, never on how ranks are dealt to processes.

#include <cstddef>
#include <vector>

#include "fp8lab/collectives/schedule.hpp"
#include "fp8lab/collectives/transport.hpp"

namespace fp8lab {

/// One buffer a hosted rank, in rank order: elements on the wire, in memory order.
using RankBuffers = std::vector<Message>;

struct AllReduce {
  Topology topology = Topology::ring;
  Reduction reduction{};
  int ranks = 1;
  std::size_t elements = 0;
};

/// Reduces in place: afterwards every buffer holds the sum (or maximum) of all
/// ranks' buffers, the same bytes in each. What a NaN, an Inf or an overflow
/// does at a hop is `add_codes`'s to say; one rank, and no elements, change
/// nothing. Every process of the fabric must make the same call. Throws `Error`
/// for bad shapes, and if ranks should end with different bytes.
CollectiveCounts all_reduce(Fabric& fabric, const AllReduce& operation, RankBuffers& buffers);

/// Rank r's buffer holds `elements` elements, of which its own chunk
/// (`chunk_of(elements, ranks, r)`) is filled in; afterwards all of them are.
/// Errors as for `all_reduce`.
CollectiveCounts all_gather(Fabric& fabric, const WireFormat& wire, int ranks, std::size_t elements,
                            RankBuffers& buffers);

/// The largest of the hosted ranks' values over all ranks, by a max all-reduce of
/// one binary32 element a rank: how an amax is shared. NaN values lose.
/// `values`: one a hosted rank. A process that holds none gets 0.
float all_reduce_max(Fabric& fabric, Topology topology, int ranks, const std::vector<float>& values,
                     CollectiveCounts* counts = nullptr);

}  // namespace fp8lab

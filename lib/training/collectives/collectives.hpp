#pragma once
// All-reduce and all-gather over a fabric: the steps of `Schedule` for every rank
// of this process. Bits depend only on the operation and the inputs, not on the
// distribution of ranks to processes.

#include <cstddef>
#include <vector>

#include "training/collectives/schedule.hpp"
#include "training/collectives/transport.hpp"

namespace fp8lab {

/// One buffer per rank of this process, in rank order: wire elements in memory order.
using RankBuffers = std::vector<Message>;

struct AllReduce {
  Topology topology = Topology::ring;
  Reduction reduction{};
  int ranks = 1;
  std::size_t elements = 0;
};

/// Reduces in place: afterwards every buffer has the sum (or maximum) of the buffers
/// of all ranks, with the same bytes. `add_codes` defines NaN, Inf and overflow at a
/// hop. With one rank or no elements nothing changes. Every process of the fabric must
/// make the same call. Throws `Error` for bad shapes, and if ranks end with different
/// bytes.
CollectiveCounts all_reduce(Fabric& fabric, const AllReduce& operation, RankBuffers& buffers);

/// The buffer of rank r has `elements` elements, of which only its chunk
/// (`chunk_of(elements, ranks, r)`) is set; afterwards all are set. Throws `Error`
/// as `all_reduce`.
CollectiveCounts all_gather(Fabric& fabric, const WireFormat& wire, int ranks, std::size_t elements,
                            RankBuffers& buffers);

/// The largest value over all ranks, by a max all-reduce of one binary32 element per
/// rank. Systems share an amax in this way. NaN values are ignored. `values`: one per
/// rank of this process. A process without ranks gets 0.
float all_reduce_max(Fabric& fabric, Topology topology, int ranks, const std::vector<float>& values,
                     CollectiveCounts* counts = nullptr);

}  // namespace fp8lab

// Collectives over MPI against the simulation in one process, bit for bit. Run
// it under mpirun with any number of processes: exit 0 and a count, or the first
// differences and exit 1.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "lab/mpi/fabric.hpp"
#include "lab/mpi/operation.hpp"
#include "lab/mpi/session.hpp"
#include "training/collectives/collectives.hpp"

using namespace fp8lab;

namespace {

struct Tally {
  int rank = 0;
  int cases = 0;
  int failures = 0;

  void expect(bool condition, const std::string& what) {
    ++cases;
    if (condition) return;
    if (++failures <= 20) fmt::print("rank {}: {}\n", rank, what);
  }
};

Message input(const WireFormat& wire, int rank, std::size_t elements) {
  const RandomStream random(3, static_cast<std::uint64_t>(rank));
  std::vector<float> x(elements);
  for (std::size_t i = 0; i < elements; ++i) x[i] = static_cast<float>(random.normal(i));
  Message message(elements * wire.bytes);
  to_wire(wire, x, 60.0F, message);
  return message;
}

RankBuffers inputs(const WireFormat& wire, const RankSpan& span, std::size_t elements) {
  RankBuffers buffers;
  for (int rank = span.first; rank < span.first + span.count; ++rank)
    buffers.push_back(input(wire, rank, elements));
  return buffers;
}

std::string difference(const Message& expected, const Message& got) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (expected[i] != got[i])
      return fmt::format("byte {}: expected {:#04x}, got {:#04x}", i,
                         std::to_integer<int>(expected[i]), std::to_integer<int>(got[i]));
  return "none";
}

bool same(const CollectiveCounts& a, const CollectiveCounts& b) {
  return a.total == b.total && a.busiest_bytes == b.busiest_bytes;
}

void check_all_reduce(Fabric& fabric, const AllReduce& operation, Tally& tally) {
  const WireFormat& wire = operation.reduction.wire;
  RankBuffers expected = inputs(wire, {0, operation.ranks}, operation.elements);
  const CollectiveCounts simulated = all_reduce(in_process_fabric(), operation, expected);
  RankBuffers got = inputs(wire, fabric.hosted(operation.ranks), operation.elements);
  const CollectiveCounts counts = all_reduce(fabric, operation, got);
  const std::string name =
      fmt::format("all-reduce {} {} ranks {} elements {}", to_string(operation.topology), wire.name,
                  operation.ranks, operation.elements);
  for (const Message& buffer : got)
    tally.expect(buffer == expected[0],
                 fmt::format("{}: {}", name, difference(expected[0], buffer)));
  tally.expect(same(counts, simulated),
               fmt::format("{}: {} bytes and {} overflows, simulated {} and {}", name,
                           counts.total.bytes_sent, counts.total.overflowed,
                           simulated.total.bytes_sent, simulated.total.overflowed));
}

void check_all_gather(Fabric& fabric, int ranks, std::size_t elements, Tally& tally) {
  const WireFormat& wire = find_wire_format("bf16");
  const Message whole = input(wire, 0, elements);
  RankBuffers buffers;
  const RankSpan hosted = fabric.hosted(ranks);
  for (int rank = hosted.first; rank < hosted.first + hosted.count; ++rank) {
    const Slice own = chunk_of(elements, ranks, rank);
    Message part(whole.size());
    std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(own.first * wire.bytes),
                own.count * wire.bytes,
                part.begin() + static_cast<std::ptrdiff_t>(own.first * wire.bytes));
    buffers.push_back(std::move(part));
  }
  all_gather(fabric, wire, ranks, elements, buffers);
  for (const Message& buffer : buffers)
    tally.expect(buffer == whole, fmt::format("all-gather ranks {} elements {}: {}", ranks,
                                              elements, difference(whole, buffer)));
}

void check_max(Fabric& fabric, int ranks, Tally& tally) {
  const RankSpan hosted = fabric.hosted(ranks);
  std::vector<float> values;
  for (int rank = hosted.first; rank < hosted.first + hosted.count; ++rank)
    values.push_back(rank == ranks / 2 ? 9.5F : static_cast<float>(rank) / 1000.0F);
  const float largest = all_reduce_max(fabric, Topology::tree, ranks, values);
  tally.expect(largest == (values.empty() ? 0.0F : 9.5F),
               fmt::format("largest of {} ranks: expected 9.5, got {}", ranks, largest));
}

/// Each figure of an outcome is joined in its own way: ranks' own figures are all unlike.
void check_combine(Fabric& fabric, const mpi::Session& session, Tally& tally) {
  const auto of = [](int rank) {
    const auto r = static_cast<std::uint64_t>(rank);
    Outcome outcome;
    outcome.counts.total = {1000 + r, 20 + 3 * r, 5 * r, 7 + r * r};
    outcome.counts.busiest_bytes = rank % 2 == 0 ? 100 + r : 50 - r;
    outcome.digest_min = 900 - r * (r + 1) % 7;
    outcome.digest_max = 2000 + r * 3 % 5;
    return outcome;
  };
  Outcome expected;
  for (int rank = 0; rank < session.size(); ++rank) {
    const Outcome one = of(rank);
    RankCounts& total = expected.counts.total;
    total.bytes_sent += one.counts.total.bytes_sent;
    total.messages_sent += one.counts.total.messages_sent;
    total.additions += one.counts.total.additions;
    total.overflowed += one.counts.total.overflowed;
    expected.counts.busiest_bytes =
        std::max(expected.counts.busiest_bytes, one.counts.busiest_bytes);
    expected.digest_min = std::min(expected.digest_min, one.digest_min);
    expected.digest_max = std::max(expected.digest_max, one.digest_max);
  }
  const Outcome got = fabric.combine(of(session.rank()));
  tally.expect(
      same(got.counts, expected.counts) && got.digest_min == expected.digest_min &&
          got.digest_max == expected.digest_max,
      fmt::format("combined: sent {} {} added {} overflowed {} busiest {} digests {} {}, "
                  "expected {} {} {} {} {} {} {}",
                  got.counts.total.bytes_sent, got.counts.total.messages_sent,
                  got.counts.total.additions, got.counts.total.overflowed, got.counts.busiest_bytes,
                  got.digest_min, got.digest_max, expected.counts.total.bytes_sent,
                  expected.counts.total.messages_sent, expected.counts.total.additions,
                  expected.counts.total.overflowed, expected.counts.busiest_bytes,
                  expected.digest_min, expected.digest_max));
}

/// Ranks are dealt in blocks that differ by one at most, the first to the first process.
void check_hosted(const Fabric& fabric, const mpi::Session& session, Tally& tally) {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    const RankSpan hosted = fabric.hosted(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const bool here = rank >= hosted.first && rank < hosted.first + hosted.count;
      tally.expect(here == (rank * session.size() / ranks == session.rank()),
                   fmt::format("{} ranks: rank {} is {}", ranks, rank, here ? "here" : "not here"));
    }
  }
  tally.expect(!fabric.concurrent(), "concurrent");
}

template <typename Call>
void check_refused(const Call& call, const std::string& message, Tally& tally) {
  std::string got = "nothing";
  try {
    call();
  } catch (const Error& error) {
    got = error.what();
  }
  tally.expect(got == message, fmt::format("expected '{}', got '{}'", message, got));
}

void check_refusals(const mpi::Session& session, Tally& tally) {
  check_refused([] { const mpi::Session second; },
                "mpi: expected one session a process, got a second one", tally);
  constexpr std::size_t kMost = 2147483647;
  tally.expect(mpi::mpi_count(kMost) == 2147483647, "the largest count");
  check_refused([] { mpi::mpi_count(kMost + 1); },
                "message: expected at most 2147483647, got 2147483648", tally);
  for (const WireFormat& wire : kWireFormats) {
    if (wire.format != FormatId::f32)
      check_refused(
          [&] {
            const mpi::Operation max({wire, ReduceOp::max}, true);
          },
          fmt::format("wire: expected f32 for max, got {}", wire.name), tally);
    if (wire.bytes == 1) continue;
    Message odd(wire.bytes + 1);
    check_refused(
        [&] { mpi::all_reduce_by_mpi(session, wire, mpi::OperandOrder::rank_order, odd); },
        fmt::format("data: expected a multiple of {} bytes, got {}", wire.bytes, odd.size()),
        tally);
  }
}

/// All sums of codes first..last in this order, however bracketed.
std::set<std::uint32_t> bracketings(const WireFormat& wire, const std::vector<std::uint32_t>& codes,
                                    std::size_t first, std::size_t last) {
  if (first == last) return {codes[first]};
  std::set<std::uint32_t> sums;
  for (std::size_t middle = first; middle < last; ++middle)
    for (const std::uint32_t left : bracketings(wire, codes, first, middle))
      for (const std::uint32_t right : bracketings(wire, codes, middle + 1, last))
        sums.insert(add_codes(wire, left, right).code);
  return sums;
}

/// MPI's own all-reduce gives one of the bracketings in rank order: of two
/// processes, the only one.
void check_user_operation(const mpi::Session& session, const WireFormat& wire, Tally& tally) {
  constexpr std::size_t kElements = 333;
  RankBuffers all = inputs(wire, {0, session.size()}, kElements);
  Message data = all[static_cast<std::size_t>(session.rank())];
  mpi::all_reduce_by_mpi(session, wire, mpi::OperandOrder::rank_order, data);
  const auto code = [&](const Message& message, std::size_t i) {
    std::uint32_t value = 0;
    std::memcpy(&value, &message[i * wire.bytes], wire.bytes);
    return value;
  };
  for (std::size_t i = 0; i < kElements; ++i) {
    std::vector<std::uint32_t> codes;
    for (const Message& message : all) codes.push_back(code(message, i));
    const std::set<std::uint32_t> allowed = bracketings(wire, codes, 0, codes.size() - 1);
    tally.expect(allowed.contains(code(data, i)),
                 fmt::format("MPI_Allreduce {} element {}: {:#x} is no bracketing", wire.name, i,
                             code(data, i)));
  }
}

int check_everything() {
  const mpi::Session session;
  return session.guard(2, [&] {
    const std::unique_ptr<Fabric> fabric = mpi::make_fabric(session);
    Tally tally{.rank = session.rank()};
    for (const int ranks : {session.size(), 2, 3, 9}) {
      for (const WireFormat& wire : kWireFormats)
        for (const Topology topology : {Topology::ring, Topology::tree, Topology::direct})
          for (const std::size_t elements : {0U, 1U, 3U, 7U, 64U, 1001U})
            check_all_reduce(*fabric, {topology, {wire, ReduceOp::sum}, ranks, elements}, tally);
      for (const std::size_t elements : {0U, 1U, 10U, 1000U})
        check_all_gather(*fabric, ranks, elements, tally);
      check_max(*fabric, ranks, tally);
    }
    // Large enough that MPI no longer buffers a message.
    for (const Topology topology : {Topology::ring, Topology::tree, Topology::direct})
      check_all_reduce(*fabric, {topology, {}, session.size(), 100'000}, tally);
    for (const WireFormat& wire : kWireFormats) check_user_operation(session, wire, tally);
    check_combine(*fabric, session, tally);
    check_hosted(*fabric, session, tally);
    check_refusals(session, tally);
    session.barrier();
    fmt::print("rank {} of {}: cases {} mismatches {}\n", session.rank(), session.size(),
               tally.cases, tally.failures);
    return tally.failures == 0 ? 0 : 1;
  });
}

}  // namespace

int main() { return check_everything(); }

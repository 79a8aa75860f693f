#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "training/collectives/collectives.hpp"
#include "training/collectives/scales.hpp"

using namespace fp8lab;

namespace {

constexpr std::array<Topology, 3> kTopologies{Topology::ring, Topology::tree, Topology::direct};

/// Normal numbers on the wire, one buffer a rank.
RankBuffers inputs(const WireFormat& wire, int ranks, std::size_t elements, float scale = 100.0F) {
  RankBuffers buffers;
  for (int rank = 0; rank < ranks; ++rank) {
    const RandomStream random(11, static_cast<std::uint64_t>(rank));
    std::vector<float> x(elements);
    for (std::size_t i = 0; i < elements; ++i) x[i] = static_cast<float>(random.normal(i));
    Message message(elements * wire.bytes);
    to_wire(wire, x, scale, message);
    buffers.push_back(std::move(message));
  }
  return buffers;
}

std::uint32_t code_at(const WireFormat& wire, const Message& message, std::size_t i) {
  std::uint32_t code = 0;
  std::memcpy(&code, &message[i * wire.bytes], wire.bytes);
  return code;
}

/// What the documentation of `Topology` says, element by element and without schedules.
std::uint32_t expected_sum(const WireFormat& wire, Topology topology, const RankBuffers& buffers,
                           std::size_t i) {
  const int ranks = static_cast<int>(buffers.size());
  const auto own = [&](int rank) {
    return code_at(wire, buffers[static_cast<std::size_t>(rank)], i);
  };
  if (topology == Topology::ring) {
    const std::size_t size = (buffers[0].size() / wire.bytes + buffers.size() - 1) / buffers.size();
    const int chunk = static_cast<int>(i / size);
    std::uint32_t sum = own((chunk + 1) % ranks);
    for (int hop = 2; hop <= ranks; ++hop)
      sum = add_codes(wire, own((chunk + hop) % ranks), sum).code;
    return sum;
  }
  if (topology == Topology::direct) {
    if (ranks == 1) return own(0);
    auto sum = static_cast<float>(decode(format(wire.format), own(0)));
    for (int rank = 1; rank < ranks; ++rank)
      sum += static_cast<float>(decode(format(wire.format), own(rank)));
    return encode(format(wire.format), wire.policy, sum);
  }
  const std::function<std::uint32_t(int)> below = [&](int rank) {
    std::uint32_t sum = own(rank);
    for (int child = 1; child < ranks; ++child)
      if (child < rank && tree_node(child, ranks).parent == rank)
        sum = add_codes(wire, sum, below(child)).code;
    for (int child = 1; child < ranks; ++child)
      if (child > rank && tree_node(child, ranks).parent == rank)
        sum = add_codes(wire, sum, below(child)).code;
    return sum;
  };
  return below(0);
}

}  // namespace

TEST_CASE("all-reduce adds in the documented order", "[collectives]") {
  for (const WireFormat& wire : kWireFormats)
    for (const Topology topology : kTopologies)
      for (const int ranks : {1, 2, 3, 4, 5, 8, 13})
        for (const std::size_t elements : {0U, 1U, 2U, 7U, 64U, 301U}) {
          INFO(fmt::format("{} {} ranks {} elements {}", wire.name, to_string(topology), ranks,
                           elements));
          const RankBuffers before = inputs(wire, ranks, elements);
          RankBuffers after = before;
          const CollectiveCounts counts = all_reduce(
              in_process_fabric(), {topology, {wire, ReduceOp::sum}, ranks, elements}, after);
          for (std::size_t i = 0; i < elements; ++i)
            REQUIRE(fmt::format("{} {:#x}", i, code_at(wire, after[0], i)) ==
                    fmt::format("{} {:#x}", i, expected_sum(wire, topology, before, i)));
          for (const Message& buffer : after) REQUIRE(buffer == after[0]);
          CHECK(counts.total.additions == static_cast<std::uint64_t>(ranks - 1) * elements);
        }
}

TEST_CASE("rounding at every hop makes topologies differ", "[collectives]") {
  const WireFormat& wire = find_wire_format("e4m3fn");
  const auto result = [&](Topology topology) {
    RankBuffers buffers = inputs(wire, 8, 256);
    all_reduce(in_process_fabric(), {topology, {wire, ReduceOp::sum}, 8, 256}, buffers);
    return buffers[0];
  };
  CHECK(result(Topology::ring) != result(Topology::tree));
  CHECK(result(Topology::ring) != result(Topology::direct));
  CHECK(result(Topology::tree) != result(Topology::direct));
}

TEST_CASE("bytes sent are those of the topology", "[collectives]") {
  const WireFormat& wire = find_wire_format("bf16");
  const auto counts = [&](Topology topology, int ranks, std::size_t elements) {
    RankBuffers buffers = inputs(wire, ranks, elements);
    return all_reduce(in_process_fabric(), {topology, {wire, ReduceOp::sum}, ranks, elements},
                      buffers);
  };
  const CollectiveCounts ring = counts(Topology::ring, 4, 100);
  CHECK(ring.busiest_bytes == 2 * 3 * 25 * 2);
  CHECK(ring.total.bytes_sent == 4 * ring.busiest_bytes);
  CHECK(ring.total.messages_sent == 4 * 6);
  CHECK(counts(Topology::ring, 4, 9).total.bytes_sent == 2 * 3 * 9 * 2);  // chunks 3, 3, 3, 0
  const CollectiveCounts tree = counts(Topology::tree, 8, 10);
  CHECK(tree.total.bytes_sent == 2 * 7 * 10 * 2);
  CHECK(tree.busiest_bytes == 3 * 10 * 2);
  const CollectiveCounts direct = counts(Topology::direct, 8, 10);
  CHECK(direct.total.bytes_sent == 2 * 7 * 10 * 2);
  CHECK(direct.busiest_bytes == 7 * 10 * 2);
}

TEST_CASE("overflowing hops are counted", "[collectives]") {
  const WireFormat& wire = find_wire_format("e4m3fn");
  for (const Topology topology : kTopologies) {
    RankBuffers buffers(4, Message(6, std::byte{0x7e}));  // 448 everywhere
    const CollectiveCounts counts =
        all_reduce(in_process_fabric(), {topology, {wire, ReduceOp::sum}, 4, 6}, buffers);
    INFO(to_string(topology));
    CHECK(counts.total.overflowed == (topology == Topology::direct ? 6 : 18));
    CHECK(buffers[3] == Message(6, std::byte{0x7e}));
  }
}

TEST_CASE("the tree is NCCL's", "[collectives]") {
  // The drawing in trees.cc: 14 ranks.
  const std::vector<int> parents{-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12};
  for (int rank = 0; rank < 14; ++rank) {
    INFO(rank);
    CHECK(tree_node(rank, 14).parent == parents[static_cast<std::size_t>(rank)]);
  }
  CHECK(tree_node(12, 14).first_child == 10);
  CHECK(tree_node(12, 14).second_child == 13);
  CHECK(tree_node(12, 13).second_child == -1);
  for (const int ranks : {1, 2, 3, 5, 8, 100, 1024}) {
    int edges = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const TreeNode node = tree_node(rank, ranks);
      for (const int child : {node.first_child, node.second_child}) {
        if (child < 0) continue;
        ++edges;
        CHECK(tree_node(child, ranks).parent == rank);
      }
    }
    CHECK(edges == ranks - 1);
  }
  CHECK(longest_chain(Topology::tree, 2) == 1);
  CHECK(longest_chain(Topology::tree, 4) == 3);
  CHECK(longest_chain(Topology::tree, 1024) <= 20);
  CHECK(longest_chain(Topology::ring, 1024) == 1023);
}

TEST_CASE("all-gather brings every chunk to every rank", "[collectives]") {
  const WireFormat& wire = find_wire_format("e5m2");
  for (const int ranks : {1, 2, 3, 7})
    for (const std::size_t elements : {0U, 1U, 5U, 50U}) {
      INFO(ranks << " ranks, " << elements << " elements");
      const RankBuffers whole = inputs(wire, 1, elements);
      RankBuffers buffers(static_cast<std::size_t>(ranks), Message(elements));
      for (int rank = 0; rank < ranks; ++rank) {
        const Slice own = chunk_of(elements, ranks, rank);
        std::copy_n(whole[0].begin() + static_cast<std::ptrdiff_t>(own.first), own.count,
                    buffers[static_cast<std::size_t>(rank)].begin() +
                        static_cast<std::ptrdiff_t>(own.first));
      }
      const CollectiveCounts counts =
          all_gather(in_process_fabric(), wire, ranks, elements, buffers);
      for (const Message& buffer : buffers) CHECK(buffer == whole[0]);
      CHECK(counts.total.bytes_sent == static_cast<std::uint64_t>(ranks - 1) * elements);
    }
}

TEST_CASE("the largest amax reaches all", "[collectives]") {
  for (const Topology topology : kTopologies) {
    INFO(to_string(topology));
    CollectiveCounts counts;
    CHECK(all_reduce_max(in_process_fabric(), topology, 5, {1.0F, 3.5F, NAN, 0.0F, 2.0F},
                         &counts) == 3.5F);
    CHECK(counts.total.bytes_sent == 2 * 4 * 4);
    CHECK(std::isnan(all_reduce_max(in_process_fabric(), topology, 2, {NAN, NAN})));
    CHECK(all_reduce_max(in_process_fabric(), topology, 3, {1.0F, INFINITY, NAN}) == INFINITY);
    CHECK(all_reduce_max(in_process_fabric(), topology, 1, {7.0F}) == 7.0F);
  }
  std::vector<std::byte> one(2);
  CHECK_THROWS_WITH(reduce({find_wire_format("f16"), ReduceOp::max}, one, one),
                    contains("f32 for max"));
}

TEST_CASE("scales are unified to the smallest", "[collectives]") {
  const WireFormat& wire = find_wire_format("e4m3fn");
  CHECK(unified_scale(std::vector<float>{4.0F, 0.5F, 8.0F}) == 0.5F);
  CHECK(mean_scale(0.5F, 8) == 4.0F);
  // 1.0 at scale 4 is 4.0 = 0x48; at scale 0.5 it is 0.5 = 0x30.
  Message codes(2, std::byte{0x48});
  requantize(wire, codes, 4.0F, 0.5F);
  CHECK(codes == Message(2, std::byte{0x30}));
  // 0x09 = 1.125 2^-6 at 2^-3 of its scale lies below the subnormals' last bit ...
  Message small(1, std::byte{0x09});
  requantize(wire, small, 1.0F, 0.25F);
  CHECK(small == Message(1, std::byte{0x02}));  // ... 2.25 units of 2^-9 round to 2
  CHECK(requantize(wire, small, 1.0F, 0.125F).underflowed == 1);
  CHECK_THROWS_WITH(unified_scale({}), contains("scales"));
  CHECK_THROWS_WITH(unified_scale(std::vector<float>{1.0F, NAN}), contains("scales"));
  CHECK_THROWS_WITH(requantize(find_wire_format("f16"), small, 1.0F, 1.0F), contains("wire"));
  CHECK_THROWS_WITH(requantize(wire, small, 1.0F, 0.0F), contains("scale"));
  CHECK_THROWS_WITH(mean_scale(1.0F, 0), contains("ranks"));
}

TEST_CASE("collectives: bad arguments are named", "[collectives]") {
  RankBuffers two(2, Message(4));
  Fabric& fabric = in_process_fabric();
  CHECK_THROWS_WITH(all_reduce(fabric, {.ranks = 3, .elements = 4}, two),
                    contains("one per rank of this process = 3"));
  CHECK_THROWS_WITH(all_reduce(fabric, {.ranks = 2, .elements = 5}, two), contains("5 bytes"));
  CHECK_THROWS_WITH(all_reduce(fabric, {.ranks = 0, .elements = 5}, two), contains("ranks"));
  CHECK_THROWS_WITH(find_topology("star"), contains("'star'"));
  CHECK_THROWS_WITH(Schedule::all_reduce(Topology::ring, 2, 2, 4), contains("rank"));
}

TEST_CASE("a transport that loses or keeps a message is found out", "[collectives]") {
  const std::unique_ptr<Transport> transport = in_process_fabric().open(2);
  CHECK_THROWS_WITH(transport->wait(), contains("every rank waits"));
  transport->send(0, 1, Message(3));
  CHECK_THROWS_WITH(transport->finish(), contains("never received"));
  Message message;
  CHECK(!transport->try_receive(1, 0, message));
  CHECK(transport->try_receive(0, 1, message));
  CHECK(message.size() == 3);
  transport->finish();
}

TEST_CASE("+0 is above -0 and every NaN is one, whichever rank has it", "[collectives]") {
  const auto bits = [](std::uint32_t a, std::uint32_t b) {
    std::vector<std::byte> in(4);
    std::vector<std::byte> out(4);
    std::memcpy(in.data(), &a, 4);
    std::memcpy(out.data(), &b, 4);
    CHECK(reduce({find_wire_format("f32"), ReduceOp::max}, in, out) == 0);
    std::uint32_t larger = 0;
    std::memcpy(&larger, out.data(), 4);
    return larger;
  };
  for (const auto& [a, b, larger] :
       std::vector<std::array<std::uint32_t, 3>>{{0x00000000, 0x80000000, 0x00000000},
                                                 {0x80000000, 0x80000000, 0x80000000},
                                                 {0x80000000, 0xbf800000, 0x80000000},
                                                 {0x3f800000, 0x3f800001, 0x3f800001},
                                                 {0xffc12345, 0x7fc00000, 0x7fffffff},
                                                 {0xffc12345, 0xbf800000, 0xbf800000},
                                                 {0x7f800000, 0xff800000, 0x7f800000}}) {
    INFO(fmt::format("{:#x} and {:#x}", a, b));
    CHECK(bits(a, b) == larger);
    CHECK(bits(b, a) == larger);
  }
  std::vector<std::byte> four(4);
  std::vector<std::byte> six(6);
  std::vector<std::byte> eight(8);
  const Reduction max{find_wire_format("f32"), ReduceOp::max};
  CHECK_THROWS_WITH(reduce(max, four, eight), contains("in: expected 8 bytes, got 4"));
  CHECK_THROWS_WITH(reduce(max, six, six), contains("in: expected 6 bytes, got 6"));
}

TEST_CASE("the busiest rank may be any, and chunks are as even as they can be", "[collectives]") {
  const WireFormat& wire = find_wire_format("e4m3fn");
  for (const int ranks : {2, 3, 5, 8}) {
    INFO(ranks << " ranks");
    RankBuffers buffers = inputs(wire, ranks, 12);
    // Only rank 0 sends to all in `direct`, and it is the first.
    const CollectiveCounts direct = all_reduce(
        in_process_fabric(), {Topology::direct, {wire, ReduceOp::sum}, ranks, 12}, buffers);
    CHECK(direct.busiest_bytes == 12U * static_cast<std::uint64_t>(ranks - 1));
    CHECK(direct.total.messages_sent == 2U * static_cast<std::uint64_t>(ranks - 1));
    CHECK(direct.total.additions == 12U * static_cast<std::uint64_t>(ranks - 1));
  }
  const auto chunks = [](std::size_t elements, int ranks) {
    std::vector<std::size_t> counts;
    std::size_t next = 0;
    for (int chunk = 0; chunk < ranks; ++chunk) {
      const Slice slice = chunk_of(elements, ranks, chunk);
      CHECK(slice.first == next);
      next += slice.count;
      counts.push_back(slice.count);
    }
    CHECK(next == elements);
    return counts;
  };
  CHECK(chunks(9, 4) == std::vector<std::size_t>{3, 3, 3, 0});
  CHECK(chunks(2, 5) == std::vector<std::size_t>{1, 1, 0, 0, 0});
  CHECK(chunks(0, 2) == std::vector<std::size_t>{0, 0});
  CHECK(chunks(7, 1) == std::vector<std::size_t>{7});
}

TEST_CASE("collectives: each refusal says what was expected, word for word", "[collectives]") {
  RankBuffers two(2, Message(4));
  Fabric& fabric = in_process_fabric();
  const auto refused = [](const auto& call, const std::string& text) {
    CHECK_THROWS_WITH(call(), text);
  };
  refused([&] { all_reduce(fabric, {.ranks = 3, .elements = 4}, two); },
          "buffers: expected one per rank of this process = 3, got 2");
  refused([&] { all_reduce(fabric, {.ranks = 2, .elements = 5}, two); },
          "buffers: expected 5 bytes each, got 4");
  refused([&] { all_reduce(fabric, {.ranks = 0, .elements = 5}, two); },
          "ranks: expected at least 1, got 0");
  refused([&] { find_topology("star"); }, "topology: expected ring, tree or direct, got 'star'");
  refused([&] { Schedule::all_reduce(Topology::ring, 2, 2, 4); }, "rank: expected 0 to 1, got 2");
  refused([&] { Schedule::all_gather(-1, 2, 4); }, "rank: expected 0 to 1, got -1");
  refused([&] { Schedule::all_gather(0, 0, 4); }, "ranks: expected at least 1, got 0");
  refused([&] { mean_scale(1.0F, 0); }, "ranks: expected at least 1, got 0");
  refused([&] { unified_scale({}); }, "scales: expected at least one, got none");
  for (const float bad : {0.0F, -1.0F, INFINITY})
    refused(
        [&] {
          unified_scale(std::vector<float>{1.0F, bad});
        },
        fmt::format("scales: expected positive, finite numbers, got {}", bad));
  Message small(1);
  refused([&] { requantize(find_wire_format("bf16"), small, 1.0F, 1.0F); },
          "wire: expected e4m3fn or e5m2, got bf16");
}

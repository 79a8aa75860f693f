// Ranks in several processes, one after the other: each process gets the messages that the others
// would have sent, and must send its own. Without MPI, so that every process can be looked at.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "message_of.hpp"
#include "training/collectives/collectives.hpp"

using namespace fp8lab;

namespace {

/// All messages of an operation, by sender and receiver.
using Letters = std::map<std::pair<int, int>, std::vector<Message>>;

/// All ranks, or some: what others send comes from `known`, what is sent is kept in `sent`.
class WatchedFabric final : public Fabric {
 public:
  WatchedFabric(RankSpan hosted, Letters known) : hosted_(hosted), known_(std::move(known)) {}
  [[nodiscard]] RankSpan hosted(int) const override { return hosted_; }
  std::unique_ptr<Transport> open(int) override { return std::make_unique<Watched>(*this); }
  Outcome combine(const Outcome& local) override {
    own_part = local;
    return whole ? *whole : local;
  }
  [[nodiscard]] bool concurrent() const override { return false; }

  Letters sent;
  Outcome own_part;
  std::optional<Outcome> whole;  ///< what all processes have together
  bool spoils = false;           ///< the last byte that a rank gets

 private:
  class Watched final : public Transport {
   public:
    explicit Watched(WatchedFabric& fabric) : fabric_(fabric) {}
    void send(int from, int to, std::span<const std::byte> data) override {
      fabric_.sent[{from, to}].emplace_back(data.begin(), data.end());
      fabric_.known_[{from, to}].emplace_back(data.begin(), data.end());
    }
    bool try_receive(int from, int to, Message& message) override {
      const std::vector<Message>& queue = fabric_.known_[{from, to}];
      std::size_t& next = next_[{from, to}];
      if (next == queue.size()) return false;
      message = queue[next++];
      if (fabric_.spoils && to == 1) message.back() ^= std::byte{1};
      return true;
    }
    void wait() override { throw Error("collective: nothing to wait for"); }
    void finish() override {}

   private:
    WatchedFabric& fabric_;
    std::map<std::pair<int, int>, std::size_t> next_;
  };

  RankSpan hosted_;
  Letters known_;
};

RankBuffers drawn_buffers(int ranks, std::size_t bytes) {
  const RandomStream random(3, "processes");
  RankBuffers buffers;
  for (int rank = 0; rank < ranks; ++rank) {
    Message message;
    for (std::size_t i = 0; i < bytes; ++i)
      message.push_back(
          static_cast<std::byte>(random.below(static_cast<std::uint64_t>(rank) * bytes + i, 0x78)));
    buffers.push_back(std::move(message));
  }
  return buffers;
}

std::string text_of_counts(const RankCounts& c) {
  return fmt::format("{} bytes, {} messages, {} additions, {} overflowed", c.bytes_sent,
                     c.messages_sent, c.additions, c.overflowed);
}

}  // namespace

TEST_CASE("each process sends, adds and ends as the ranks that it hosts", "[collectives]") {
  constexpr int kRanks = 5;
  constexpr std::size_t kElements = 13;
  for (const char* name : {"e4m3fn", "bf16"})
    for (int kind = 0; kind < 4; ++kind) {  // three topologies, and a gathering
      const WireFormat& wire = find_wire_format(name);
      const auto run = [&](Fabric& fabric, RankBuffers& buffers) {
        if (kind == 3) return all_gather(fabric, wire, kRanks, kElements, buffers);
        return all_reduce(fabric,
                          {static_cast<Topology>(kind), {wire, ReduceOp::sum}, kRanks, kElements},
                          buffers);
      };
      const RankBuffers before = drawn_buffers(kRanks, kElements * wire.bytes);
      RankBuffers whole = before;
      WatchedFabric all({0, kRanks}, {});
      const CollectiveCounts counts = run(all, whole);
      for (const int first : {0, 1, 2, 3, 4})
        for (int count = 0; first + count <= kRanks; ++count) {
          const auto is_ours = [&](int rank) { return rank >= first && rank < first + count; };
          Letters others;
          Letters own;
          for (const auto& [ends, messages] : all.sent)
            (is_ours(ends.first) ? own : others)[ends] = messages;
          WatchedFabric process({first, count}, others);
          RankBuffers part(before.begin() + first, before.begin() + first + count);
          process.whole = all.own_part;
          CHECK(run(process, part).busiest_bytes == counts.busiest_bytes);
          const CollectiveCounts& here = process.own_part.counts;
          INFO(name << ", operation " << kind << ", ranks " << first << " to " << first + count);
          CHECK(part == RankBuffers(whole.begin() + first, whole.begin() + first + count));
          CHECK(process.sent == own);
          std::map<int, std::uint64_t> bytes;
          RankCounts sums;
          for (const auto& [ends, messages] : own)
            for (const Message& message : messages) {
              bytes[ends.first] += message.size();
              sums.bytes_sent += message.size();
              ++sums.messages_sent;
            }
          std::uint64_t busiest = 0;
          for (const auto& [rank, sum] : bytes) busiest = std::max(busiest, sum);
          CHECK(here.busiest_bytes == busiest);
          CHECK(here.total.bytes_sent == sums.bytes_sent);
          CHECK(here.total.messages_sent == sums.messages_sent);
          if (count == kRanks) CHECK(text_of_counts(here.total) == text_of_counts(counts.total));
          // No rank: the digests are those of nothing, which any other digest replaces.
          CHECK((process.own_part.digest_min <= process.own_part.digest_max) == (count > 0));
          if (count > 0) CHECK(process.own_part.digest_min == all.own_part.digest_min);
          const std::string refused = test::message_of([&] {
            RankBuffers more = part;
            more.emplace_back(kElements * wire.bytes);
            run(process, more);
          });
          CHECK(refused ==
                fmt::format("buffers: expected one per rank of this process = {}, got {}", count,
                            count + 1));
        }
    }
}

TEST_CASE("ranks that end with different bytes are an error of the operation", "[collectives]") {
  const WireFormat& wire = find_wire_format("e4m3fn");
  for (const int ranks : {2, 3, 4}) {
    WatchedFabric fabric({0, ranks}, {});
    fabric.spoils = true;
    RankBuffers buffers = drawn_buffers(ranks, 5);
    CHECK_THROWS_WITH(
        all_reduce(fabric, {Topology::tree, {wire, ReduceOp::sum}, ranks, 5}, buffers),
        fmt::format("all_reduce: the {} ranks ended with different bytes", ranks));
    buffers = drawn_buffers(ranks, 5);
    WatchedFabric other({0, ranks}, {});
    other.spoils = true;
    CHECK_THROWS_WITH(all_gather(other, wire, ranks, 5, buffers),
                      fmt::format("all_gather: the {} ranks ended with different bytes", ranks));
  }
}

TEST_CASE("a message of another size than its slice is refused", "[collectives]") {
  for (const std::size_t size : {2U, 4U}) {
    WatchedFabric fabric({0, 1}, {{{1, 0}, {Message(size)}}});
    RankBuffers buffers = drawn_buffers(1, 3);
    CHECK_THROWS_WITH(all_reduce(fabric, {Topology::direct, {}, 2, 3}, buffers),
                      fmt::format("message: expected 3 bytes, got {}", size));
  }
}

TEST_CASE("a mailbox keeps the order of each pair of ranks, and all buffers", "[collectives]") {
  Mailbox mailbox;
  const auto letter = [](int number) {
    return Message(static_cast<std::size_t>(number), static_cast<std::byte>(number));
  };
  Message message;
  CHECK(mailbox.empty());
  for (int round = 0; round < 3; ++round) {
    // Pairs that differ in one end, or that are turned round.
    for (const auto& [from, to] : {std::pair{0, 1}, {1, 0}, {0, 2}, {2, 1}})
      for (int i = 0; i < 3; ++i)
        mailbox.put(from, to, letter(100 * round + 10 * from + 3 * to + i));
    for (int i = 0; i < 3; ++i)
      for (const auto& [from, to] : {std::pair{2, 1}, {0, 2}, {1, 0}, {0, 1}}) {
        CHECK_FALSE(mailbox.empty());
        REQUIRE(mailbox.take(from, to, message));
        CHECK(message == letter(100 * round + 10 * from + 3 * to + i));
      }
    CHECK(mailbox.empty());
    CHECK_FALSE(mailbox.take(0, 1, message));
    CHECK_FALSE(mailbox.take(1, 2, message));
    CHECK(mailbox.buffer(static_cast<std::size_t>(round) + 2).size() ==
          static_cast<std::size_t>(round) + 2);
  }
}

TEST_CASE("the longest chain of additions of each topology", "[collectives]") {
  for (int ranks = 1; ranks <= 40; ++ranks) {
    INFO(ranks << " ranks");
    CHECK(longest_chain(Topology::ring, ranks) == ranks - 1);
    CHECK(longest_chain(Topology::direct, ranks) == (ranks == 1 ? 0 : 1));
    // In the tree a rank adds its children one after the other: each waits for all before it.
    const auto of = [&](const auto& self, int rank) -> int {
      int done = 0;
      std::vector<int> children;
      for (int child = rank - 1; child > 0; --child)
        if (tree_node(child, ranks).parent == rank) children.push_back(child);
      for (int child = rank + 1; child < ranks; ++child)
        if (tree_node(child, ranks).parent == rank) children.push_back(child);
      for (const int child : children) done = std::max(done, self(self, child)) + 1;
      return done;
    };
    CHECK(longest_chain(Topology::tree, ranks) == of(of, 0));
  }
}

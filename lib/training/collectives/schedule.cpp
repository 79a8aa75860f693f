#include "training/collectives/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 3> kNames{"ring", "tree", "direct"};

int chain_at(int rank, int ranks) {
  const TreeNode node = tree_node(rank, ranks);
  int chain = 0;
  for (const int child : {node.first_child, node.second_child})
    if (child >= 0) chain = std::max(chain, chain_at(child, ranks)) + 1;
  return chain;
}

}  // namespace

std::string_view to_string(Topology topology) { return kNames[static_cast<std::size_t>(topology)]; }

Topology find_topology(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Topology>(i);
  throw Error("topology", "ring, tree or direct", "'" + std::string(name) + "'");
}

Slice chunk_of(std::size_t elements, int ranks, int chunk) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t size = (elements + n - 1) / n;
  const std::size_t first = std::min(elements, size * static_cast<std::size_t>(chunk));
  return {first, std::min(size, elements - first)};
}

TreeNode tree_node(int rank, int ranks) {
  int bit = 1;  // the lowest set bit of the rank; for rank 0 the first power of two >= ranks
  while (bit < ranks && (rank & bit) == 0) bit <<= 1;
  if (rank == 0) return {.second_child = ranks > 1 ? bit >> 1 : -1};
  TreeNode node;
  node.parent = (rank ^ bit) | (bit << 1);
  if (node.parent >= ranks) node.parent = rank ^ bit;
  int reach = bit >> 1;
  if (reach == 0) return node;
  node.first_child = rank - reach;
  while (reach > 0 && rank + reach >= ranks) reach >>= 1;
  if (reach > 0) node.second_child = rank + reach;
  return node;
}

int longest_chain(Topology topology, int ranks) {
  if (topology == Topology::ring) return ranks - 1;
  if (topology == Topology::direct) return ranks > 1 ? 1 : 0;
  return chain_at(0, ranks);
}

Schedule::Schedule(int rank, int ranks, std::size_t elements)
    : rank_(rank), ranks_(ranks), elements_(elements) {
  require(ranks >= 1, "ranks", "at least 1", fmt::format("{}", ranks));
  require(rank >= 0 && rank < ranks, "rank", fmt::format("0 to {}", ranks - 1),
          fmt::format("{}", rank));
}

Schedule Schedule::all_reduce(Topology topology, int rank, int ranks, std::size_t elements) {
  Schedule schedule(rank, ranks, elements);
  if (ranks == 1) return schedule;
  if (topology == Topology::tree) schedule.add_tree();
  if (topology == Topology::direct) schedule.add_direct();
  if (topology == Topology::ring) {
    schedule.reducing_steps_ = 2 * static_cast<std::size_t>(ranks - 1);
    schedule.ring_steps_ = 2 * schedule.reducing_steps_;
  }
  return schedule;
}

Schedule Schedule::all_gather(int rank, int ranks, std::size_t elements) {
  Schedule schedule(rank, ranks, elements);
  schedule.ring_steps_ = 2 * static_cast<std::size_t>(ranks - 1);
  return schedule;
}

Step Schedule::operator[](std::size_t index) const {
  if (ring_steps_ == 0) return steps_[index];
  // Round s of the reduction sends chunk r - 1 - s and adds chunk r - 2 - s; of
  // the gathering it sends chunk r - s and copies chunk r - 1 - s.
  const bool reducing = index < reducing_steps_;
  const bool sends = index % 2 == 0;
  const auto round = static_cast<int>((reducing ? index : index - reducing_steps_) / 2);
  const int behind = round + (reducing ? 1 : 0) + (sends ? 0 : 1);
  const int chunk = (rank_ + 2 * ranks_ - behind) % ranks_;
  const Slice slice = chunk_of(elements_, ranks_, chunk);
  if (sends) return {Step::Kind::send, (rank_ + 1) % ranks_, slice};
  return {reducing ? Step::Kind::add : Step::Kind::copy, (rank_ + ranks_ - 1) % ranks_, slice};
}

void Schedule::add_tree() {
  const TreeNode node = tree_node(rank_, ranks_);
  const Slice all{0, elements_};
  const std::array<int, 2> children{node.first_child, node.second_child};
  for (const int child : children)
    if (child >= 0) steps_.push_back({Step::Kind::add, child, all});
  if (node.parent >= 0) {
    steps_.push_back({Step::Kind::send, node.parent, all});
    steps_.push_back({Step::Kind::copy, node.parent, all});
  }
  for (const int child : children)
    if (child >= 0) steps_.push_back({Step::Kind::send, child, all});
}

void Schedule::add_direct() {
  const Slice all{0, elements_};
  if (rank_ != 0) {
    steps_ = {{Step::Kind::send, 0, all}, {Step::Kind::copy, 0, all}};
    return;
  }
  for (int rank = 1; rank < ranks_; ++rank) steps_.push_back({Step::Kind::accumulate, rank, all});
  steps_.push_back({Step::Kind::narrow, 0, all});
  for (int rank = 1; rank < ranks_; ++rank) steps_.push_back({Step::Kind::send, rank, all});
}

}  // namespace fp8lab

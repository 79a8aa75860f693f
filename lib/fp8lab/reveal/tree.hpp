#pragma once
// In which order a kernel sums: a tree whose leaves are the places of K, and whose nodes are
// additions of two or, in a fused step, of more terms.

#include <cstdint>
#include <string>
#include <vector>

namespace fp8lab {

struct SumTree {
  std::int64_t leaf = -1;         ///< a place of K; -1: a node
  bool exact = false;             ///< a node whose sum loses nothing of any of its terms
  std::vector<SumTree> children;  ///< of a node, by their first leaf

  static SumTree of_leaf(std::int64_t leaf) { return {leaf, false, {}}; }
  /// A node; what has one child is that child. Children are put in order of their first leaf.
  static SumTree node(std::vector<SumTree> children, bool exact = false);

  [[nodiscard]] bool is_leaf() const { return leaf >= 0; }
  [[nodiscard]] std::int64_t first_leaf() const;
  [[nodiscard]] std::int64_t leaves() const;

  friend bool operator==(const SumTree&, const SumTree&) = default;
};

/// Leaves below the lowest node that holds both; 0 where one of them is not in the tree.
std::int64_t leaves_of_both(const SumTree& tree, std::int64_t i, std::int64_t j);

/// Nested parentheses in the order of K, `((0-31) 32-63)`: `0-31` are the leaves 0 to 31 as terms
/// of one node, `0-30:2` every second one. Exact nodes are in brackets.
std::string text_of(const SumTree& tree);

/// The same with equal parts said once, as an outline: one line a kind of node, the root first.
std::string compact_text_of(const SumTree& tree);

}  // namespace fp8lab

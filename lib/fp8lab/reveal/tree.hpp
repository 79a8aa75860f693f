#pragma once
// The order of a sum as a tree. Its leaves are the places of K. Its nodes are additions of two
// terms, or of more in a fused step.

#include <cstdint>
#include <string>
#include <vector>

namespace fp8lab {

struct SumTree {
  std::int64_t leaf = -1;         ///< a place of K; -1: a node
  bool exact = false;             ///< a node whose sum is exact
  std::vector<SumTree> children;  ///< children of a node, by their first leaf

  static SumTree of_leaf(std::int64_t leaf) { return {leaf, false, {}}; }
  /// A node, or its child if there is only one. Sorts children by their first leaf.
  static SumTree node(std::vector<SumTree> children, bool exact = false);

  [[nodiscard]] bool is_leaf() const { return leaf >= 0; }
  [[nodiscard]] std::int64_t first_leaf() const;
  [[nodiscard]] std::int64_t leaves() const;

  friend bool operator==(const SumTree&, const SumTree&) = default;
};

/// The number of leaves below the lowest node that contains both; 0 if one is not in the tree.
std::int64_t leaves_of_both(const SumTree& tree, std::int64_t i, std::int64_t j);

/// Nested parentheses in the order of K, `((0-31) 32-63)`: `0-31` are the leaves 0 to 31 as terms
/// of one node, `0-30:2` every second leaf. Exact nodes are in brackets.
std::string text_of(const SumTree& tree);

/// The same as an outline without repetition of equal parts: one line per kind of node, root first.
std::string compact_text_of(const SumTree& tree);

}  // namespace fp8lab

#pragma once
// What a tree says of a kernel: which kind of steps its unit takes, and how their chains are cut
// and added. Each structure that the library can compute has a tree; one of them is the kernel's,
// or none.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/product/split_k.hpp"
#include "fp8lab/reveal/tree.hpp"

namespace fp8lab {

enum class StepShape : std::uint8_t {
  fused,           ///< c and `terms` products are terms of one node
  exact,           ///< `terms` products exactly, then c; with all of K as terms: one exact sum
  halves_chained,  ///< products with k mod 4 < 2 in one node, the others and its sum in one, then c
  halves_separate,  ///< both halves in a node of their own, added, then c
  pairs,            ///< pairs of products, pairs of these, then c
};
std::string_view to_string(StepShape shape);

struct SumStructure {
  StepShape step = StepShape::fused;
  std::int64_t terms = 1;  ///< products a step; 1: one after the other
  std::int64_t promotion_interval = 0;
  SplitK split{};

  /// Places of the first chain, whose sum starts from zero, in order.
  [[nodiscard]] std::vector<std::int64_t> chain(std::int64_t k) const;
  /// A sentence.
  [[nodiscard]] std::string text(std::int64_t k) const;
};

/// The tree of a structure over k terms.
SumTree tree_of(const SumStructure& structure, std::int64_t k);

/// The simplest structure with this tree, if there is one: no promotion before promotion, whole K
/// before split K.
std::optional<SumStructure> structure_of(const SumTree& tree);

}  // namespace fp8lab

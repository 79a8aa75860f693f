#pragma once
// The structure of a kernel from its tree: the kind of its unit's steps, and how their chains are
// cut and added. Each structure that the library can compute has a tree. At most one of them is the
// kernel's.

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
  exact,           ///< an exact sum of `terms` products, then c; with all of K as terms: one sum
  halves_chained,  ///< products with k mod 4 < 2 in one node, the others and its sum in one, then c
  halves_separate,  ///< each half in one node, both added, then c
  pairs,            ///< pairs of products, pairs of pairs, then c
};

struct SumStructure {
  StepShape step = StepShape::fused;
  std::int64_t terms = 1;  ///< products per step; 1: one after the other
  std::int64_t promotion_interval = 0;
  SplitK split{};

  /// The places of the first chain, whose sum starts from zero, in order.
  [[nodiscard]] std::vector<std::int64_t> chain(std::int64_t k) const;
  /// A description in one sentence.
  [[nodiscard]] std::string text(std::int64_t k) const;
};

/// The tree of a structure over k terms.
SumTree tree_of(const SumStructure& structure, std::int64_t k);

/// The simplest structure with this tree, if there is one. Structures without promotion or split K
/// come first.
std::optional<SumStructure> structure_of(const SumTree& tree);

}  // namespace fp8lab

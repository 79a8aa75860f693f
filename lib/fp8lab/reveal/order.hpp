#pragma once
// The order of a sum from outside: FPRev's method (Xie et al., "FPRev: Revealing the Order of
// Floating-Point Summations", 2024), for nodes of many terms too. A big product at place i, its
// negative at j and small ones elsewhere: what is added before the two cancel is lost, so the
// output counts the terms that stand outside of the lowest node that holds both i and j.

#include <optional>
#include <string>

#include "fp8lab/reveal/kernel.hpp"
#include "fp8lab/reveal/tree.hpp"

namespace fp8lab {

/// Which products the probes of an order are made of.
struct OrderScale {
  int big = 0;    ///< exponent of the big product
  int small = 0;  ///< exponent of the small ones
  /// As many small products are counted at once as give an exact sum.
  std::int64_t counted = 0;
};

struct RevealedOrder {
  OrderScale scale;
  SumTree tree;
  /// Why there is no tree; empty: there is one.
  std::string failure;

  [[nodiscard]] bool found() const { return failure.empty(); }
};

/// Finds the products for the probes in one round, together with `whole` calls as `ProbeRunner`
/// takes them. Nothing where the kernel gives no power of two back, or another result for the same
/// probe; `failure` then says why.
std::optional<OrderScale> find_order_scale(ProbeRunner& runner, std::span<const Probe> whole,
                                           std::vector<float>& whole_outputs, std::string& failure);

/// The tree. Rounds: one for each level at which parts branch off, two for a chain of fused steps.
RevealedOrder reveal_order(ProbeRunner& runner, const OrderScale& scale);

/// Probes of pairs of leaves that the tree did not need, and whether outputs agree with the tree.
struct OrderCheck {
  std::vector<Probe> probes;
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
};
OrderCheck order_check(const ProbeShape& shape, const OrderScale& scale, std::uint64_t seed);
/// The pairs whose outputs the tree does not give.
std::int64_t contradictions(const OrderCheck& check, const SumTree& tree, const OrderScale& scale,
                            std::span<const float> outputs);

}  // namespace fp8lab

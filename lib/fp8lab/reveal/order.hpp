#pragma once
// Finds the order of a sum from outputs only, by FPRev's method (Xie et al., "FPRev: Revealing the
// Order of Floating-Point Summations", 2024), extended to nodes of many terms. A probe has a big
// product at place i, its negative at j and small ones elsewhere. Terms added before the two cancel
// are lost, so the output counts the terms outside the lowest node that contains both i and j.

#include <optional>
#include <string>

#include "fp8lab/reveal/kernel.hpp"
#include "fp8lab/reveal/tree.hpp"

namespace fp8lab {

/// The products in the probes of an order.
struct OrderScale {
  int big = 0;    ///< exponent of the big product
  int small = 0;  ///< exponent of the small products
  /// The number of small products whose sum is exact, so that one probe can count them.
  std::int64_t counted = 0;
};

struct RevealedOrder {
  OrderScale scale;
  SumTree tree;
  /// The reason if there is no tree; empty if there is one.
  std::string failure;

  [[nodiscard]] bool found() const { return failure.empty(); }
};

/// Finds the products for the probes in one round, together with `whole` calls (see `ProbeRunner`).
/// Nothing if the kernel returns no power of two exactly, or different results for the same probe;
/// `failure` then has the reason.
std::optional<OrderScale> find_order_scale(ProbeRunner& runner, std::span<const Probe> whole,
                                           std::vector<float>& whole_outputs, std::string& failure);

/// Finds the tree. It takes one round per level of branches, and two for a chain of fused steps.
RevealedOrder reveal_order(ProbeRunner& runner, const OrderScale& scale);

/// Probes of further pairs of leaves, to check the tree.
struct OrderCheck {
  std::vector<Probe> probes;
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
};
OrderCheck order_check(const ProbeShape& shape, const OrderScale& scale, std::uint64_t seed);
/// The number of pairs whose outputs contradict the tree.
std::int64_t contradictions(const OrderCheck& check, const SumTree& tree, const OrderScale& scale,
                            std::span<const float> outputs);

}  // namespace fp8lab

#include "fp8lab/reveal/order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"

namespace fp8lab {
namespace {

/// Distance of exponents from which on a product is lost beside another.
constexpr int kLost = 26;

/// A failure that `reveal_order` reports.
struct NoTree {
  std::string reason;
};

using Places = std::vector<std::int64_t>;
using Pair = std::pair<std::int64_t, std::int64_t>;

class Prober {
 public:
  Prober(const ProbeShape& shape, const OrderScale& scale)
      : powers_(shape.a_format, shape.b_format),
        k_(static_cast<std::size_t>(shape.k)),
        scale_(scale) {}

  [[nodiscard]] Probe zeros() const { return {std::vector<float>(k_), std::vector<float>(k_)}; }
  void set(Probe& probe, std::int64_t at, int exponent, float sign = 1.0F) const {
    const auto [a, b] = powers_.factors(exponent);
    probe.a[static_cast<std::size_t>(at)] = sign * a;
    probe.b[static_cast<std::size_t>(at)] = b;
  }

  /// Probes of the pair, each with a part of the other `active` places as small products.
  void append_pair(std::int64_t i, std::int64_t j, const Places& active,
                   std::vector<Probe>& probes) const {
    Probe probe = with_pair(i, j);
    std::int64_t filled = 0;
    for (const std::int64_t at : active) {
      if (at == i || at == j) continue;
      set(probe, at, scale_.small);
      if (++filled % scale_.counted == 0) {
        probes.push_back(std::move(probe));
        probe = with_pair(i, j);
      }
    }
    if (filled % scale_.counted != 0 || filled == 0) probes.push_back(std::move(probe));
  }

  /// Outputs of one pair's probes as a number of places that were not lost.
  [[nodiscard]] std::int64_t count(std::span<const float> outputs) const {
    std::int64_t sum = 0;
    for (const float output : outputs) {
      const double units = std::ldexp(static_cast<double>(output), -scale_.small);
      const bool whole = units >= 0.0 && units <= static_cast<double>(scale_.counted) &&
                         units == std::floor(units);
      if (!whole)
        throw NoTree{
            fmt::format("large and small products that cancel left {:g}, which is not a whole "
                        "number of small products",
                        units)};
      sum += static_cast<std::int64_t>(units);
    }
    return sum;
  }

  [[nodiscard]] std::size_t probes_a_pair(std::size_t active) const {
    const auto others = static_cast<std::int64_t>(active) - 2;
    return static_cast<std::size_t>(
        std::max<std::int64_t>(1, (others + scale_.counted - 1) / scale_.counted));
  }

 private:
  [[nodiscard]] Probe with_pair(std::int64_t i, std::int64_t j) const {
    Probe probe = zeros();
    set(probe, i, scale_.big);
    set(probe, j, scale_.big, -1.0F);
    return probe;
  }

  PowerProducts powers_;
  std::size_t k_;
  OrderScale scale_;
};

/// A set of leaves whose tree is asked for: the first one and all others paired.
struct Part {
  Places leaves;
  std::map<std::int64_t, Places> groups;  ///< by leaves of the lowest common node
  std::map<std::int64_t, std::size_t> parts;
};

class Builder {
 public:
  Builder(ProbeRunner& runner, const OrderScale& scale, Places active)
      : runner_(runner), prober_(runner.shape(), scale), active_(std::move(active)) {}

  /// Leaves below the lowest common node of the first place and each other.
  std::vector<std::int64_t> sizes(const std::vector<Pair>& pairs) {
    std::vector<Probe> probes;
    for (const auto& [i, j] : pairs)
      prober_.append_pair(std::min(i, j), std::max(i, j), active_, probes);
    const std::vector<float> outputs = runner_.run(probes);
    const std::size_t each = prober_.probes_a_pair(active_.size());
    std::vector<std::int64_t> found;
    for (std::size_t p = 0; p < pairs.size(); ++p)
      found.push_back(static_cast<std::int64_t>(active_.size()) -
                      prober_.count(std::span(outputs).subspan(p * each, each)));
    return found;
  }

  /// All parts, level by level, and then the tree. `first`: what `sizes` gave for the first place
  /// and each other, in order.
  SumTree tree(std::vector<std::int64_t> first = {}) {
    parts_.push_back({active_, {}, {}});
    std::size_t done = 0;
    while (done < parts_.size()) {
      const std::size_t end = parts_.size();
      std::vector<Pair> pairs;
      for (std::size_t p = done; p < end; ++p) append_unknown(parts_[p].leaves, p == 0, pairs);
      if (!pairs.empty()) {
        const std::vector<std::int64_t> found = done == 0 && !first.empty() ? first : sizes(pairs);
        for (std::size_t i = 0; i < pairs.size(); ++i) known_[pairs[i]] = found[i];
      }
      for (std::size_t p = done; p < end; ++p) {
        const Places leaves = parts_[p].leaves;
        for (std::size_t j = 1; j < leaves.size(); ++j)
          parts_[p].groups[known_.at({leaves[0], leaves[j]})].push_back(leaves[j]);
        branch(p);
      }
      done = end;
    }
    return build(0, static_cast<std::int64_t>(active_.size())).first;
  }

 private:
  /// The pairs that a part asks for: of its first leaf and each other. Those of a small part that
  /// hangs on another, which is a fused step most often, are all asked for at once, since its
  /// leaves would else branch off one a round.
  void append_unknown(const Places& leaves, bool root, std::vector<Pair>& pairs) const {
    constexpr std::size_t kSmall = 64;
    const std::size_t firsts = !root && leaves.size() <= kSmall ? leaves.size() : 1;
    for (std::size_t i = 0; i < firsts; ++i)
      for (std::size_t j = i + 1; j < leaves.size(); ++j)
        if (!known_.contains({leaves[i], leaves[j]})) pairs.emplace_back(leaves[i], leaves[j]);
  }

  void branch(std::size_t p) {
    const std::map<std::int64_t, Places> groups = parts_[p].groups;
    for (const auto& [size, leaves] : groups) {
      parts_[p].parts[size] = parts_.size();
      parts_.push_back({leaves, {}, {}});
    }
  }

  /// The tree of a part, and the leaves below its root. `of_parent` is the size of the node that
  /// the part hangs on: a root of that size is that node.
  std::pair<SumTree, std::int64_t> build(std::size_t p, std::int64_t of_parent) const {
    const Part& part = parts_[p];
    SumTree tree = SumTree::of_leaf(part.leaves[0]);
    std::int64_t held = 1;
    std::int64_t root = 1;
    for (const auto& [size, leaves] : part.groups) {
      auto [other, other_root] = build(part.parts.at(size), size);
      std::vector<SumTree> children{std::move(tree)};
      if (other_root == size && !other.is_leaf())
        for (SumTree& child : other.children) children.push_back(std::move(child));
      else
        children.push_back(std::move(other));
      tree = SumTree::node(std::move(children));
      held += static_cast<std::int64_t>(leaves.size());
      root = size;
      if (size != held && size != of_parent)
        throw NoTree{
            fmt::format("terms {} and {} meet in a sum of {} according to one probe and of "
                        "{} according to others",
                        part.leaves[0], leaves[0], counted(size, "term"), held)};
    }
    return {std::move(tree), root};
  }

  ProbeRunner& runner_;
  Prober prober_;
  Places active_;
  std::vector<Part> parts_;
  std::map<Pair, std::int64_t> known_;
};

Places all_places(const ProbeShape& shape) {
  Places places(static_cast<std::size_t>(shape.k));
  std::iota(places.begin(), places.end(), 0);
  return places;
}

/// Groups of places between which nothing is ever lost, in order; empty where two such places are
/// but a sum of two, unless groups `of_two` are asked for. `first`: sizes of the pairs of the first
/// place.
std::vector<Places> exact_groups(ProbeRunner& runner, const OrderScale& scale, bool of_two,
                                 std::vector<std::int64_t>& first) {
  Places open = all_places(runner.shape());
  std::vector<Places> groups;
  Builder builder(runner, scale, open);
  while (!open.empty()) {
    std::vector<Pair> pairs;
    for (std::size_t j = 1; j < open.size(); ++j) pairs.emplace_back(open[0], open[j]);
    Places group{open[0]};
    Places rest;
    if (!pairs.empty()) {
      const std::vector<std::int64_t> sizes = builder.sizes(pairs);
      if (groups.empty()) first = sizes;
      for (std::size_t j = 0; j < pairs.size(); ++j)
        (sizes[j] == 2 ? group : rest).push_back(pairs[j].second);
    }
    if (groups.empty() && group.size() <= (of_two ? 1U : 2U)) return {};
    groups.push_back(group);
    open = rest;
  }
  return groups;
}

SumTree with_groups(const SumTree& tree, const std::map<std::int64_t, Places>& groups) {
  std::vector<SumTree> children;
  if (tree.is_leaf()) {
    for (const std::int64_t leaf : groups.at(tree.leaf)) children.push_back(SumTree::of_leaf(leaf));
    return SumTree::node(std::move(children), true);
  }
  for (const SumTree& child : tree.children) children.push_back(with_groups(child, groups));
  return SumTree::node(std::move(children));
}

SumTree tree_of_groups(ProbeRunner& runner, const OrderScale& scale,
                       const std::vector<Places>& groups) {
  Places first;
  std::map<std::int64_t, Places> by_first;
  for (const Places& group : groups) {
    first.push_back(group[0]);
    by_first[group[0]] = group;
  }
  return with_groups(Builder(runner, scale, first).tree(), by_first);
}

SumTree tree_of(ProbeRunner& runner, const OrderScale& scale) {
  // Pairs of the first place alone decide whether there are exact groups of three or more.
  std::vector<std::int64_t> sizes;
  const std::vector<Places> groups = exact_groups(runner, scale, false, sizes);
  if (!groups.empty()) return tree_of_groups(runner, scale, groups);
  try {
    return Builder(runner, scale, all_places(runner.shape())).tree(sizes);
  } catch (const NoTree&) {
    const std::vector<Places> pairs = exact_groups(runner, scale, true, sizes);
    if (pairs.empty()) throw;
    return tree_of_groups(runner, scale, pairs);
  }
}

}  // namespace

std::optional<OrderScale> find_order_scale(ProbeRunner& runner, std::span<const Probe> whole,
                                           std::vector<float>& whole_outputs,
                                           std::string& failure) {
  const ProbeShape& shape = runner.shape();
  const PowerProducts powers(shape.a_format, shape.b_format);
  const Prober prober(shape, {0, 0, 1});
  // FP16 sums end at 2^15, and their smallest steps are 2^-24.
  const std::array<int, 5> big{powers.largest(), 15, 14, 8, 4};
  const std::array<int, 7> small{
      powers.smallest(), powers.smallest_normal(), -24, -20, -17, -14, -10};
  std::vector<Probe> probes;
  const auto one = [&](int exponent) {
    Probe probe = prober.zeros();
    prober.set(probe, 0, std::clamp(exponent, powers.smallest(), powers.largest()));
    probes.push_back(std::move(probe));
  };
  for (const int exponent : big) one(exponent);
  for (const int exponent : small) one(exponent);
  std::vector<std::int64_t> counts;
  for (std::int64_t count = 1; count <= shape.k; count *= 2) counts.push_back(count);
  for (const int exponent : small)
    for (const std::int64_t count : counts) {
      // From the first place on, and spread over all of them.
      for (const std::int64_t step : {std::int64_t{1}, shape.k / count}) {
        Probe probe = prober.zeros();
        for (std::int64_t i = 0; i < count; ++i)
          prober.set(probe, i * step, std::max(exponent, powers.smallest()));
        probes.push_back(std::move(probe));
      }
    }
  const std::size_t once = probes.size();
  for (std::size_t i = 0; i < once; ++i) probes.push_back(probes[i]);
  const std::vector<float> d = runner.run(probes, whole, &whole_outputs);
  for (std::size_t i = 0; i < once; ++i)
    if (d[i] != d[i + once] && !(std::isnan(d[i]) && std::isnan(d[i + once]))) {
      failure = fmt::format(
          "the kernel gave {:g} and {:g} for the same dot product: its order of summation varies",
          d[i], d[i + once]);
      return std::nullopt;
    }
  const auto is = [&](std::size_t at, int exponent, std::int64_t count) {
    return d[at] == std::ldexp(static_cast<float>(count), exponent);
  };
  std::optional<OrderScale> best;
  for (std::size_t s = 0; s < small.size() && !best; ++s) {
    const int of_small = std::max(small[s], powers.smallest());
    for (std::size_t b = 0; b < big.size() && !best; ++b) {
      const int of_big = std::min(big[b], powers.largest());
      // Small ones must be lost beside the big one, all of them together too.
      if (!is(b, of_big, 1) || !is(big.size() + s, of_small, 1) || of_big - of_small < kLost)
        continue;
      OrderScale scale{of_big, of_small, 0};
      const std::size_t first = big.size() + small.size() + s * counts.size() * 2;
      for (std::size_t c = 0; c < counts.size(); ++c) {
        const bool exact =
            is(first + 2 * c, of_small, counts[c]) && is(first + 2 * c + 1, of_small, counts[c]);
        if (!exact) break;
        scale.counted = counts[c];
      }
      if (scale.counted == 0) continue;
      if (scale.counted == counts.back()) scale.counted = shape.k;
      // Small products together stay 2^26 below the big one: no unit's alignment keeps them.
      const int room = std::min(of_big - of_small - kLost, 30);
      scale.counted = std::min(scale.counted, std::int64_t{1} << room);
      best = scale;
    }
  }
  if (!best)
    failure = fmt::format(
        "the kernel returns no pair of large and small products exactly: expected outputs 2^{} and "
        "2^{} for single products, got {:g} and {:g} ({} x {} spans 2^{}, and 2^26 is needed)",
        big[0], small[0], d[0], d[big.size()], format(shape.a_format).name,
        format(shape.b_format).name, powers.largest() - powers.smallest());
  return best;
}

RevealedOrder reveal_order(ProbeRunner& runner, const OrderScale& scale) {
  RevealedOrder order{scale, {}, {}};
  try {
    order.tree = tree_of(runner, scale);
  } catch (const NoTree& reason) {
    order.failure = reason.reason;
  }
  return order;
}

OrderCheck order_check(const ProbeShape& shape, const OrderScale& scale, std::uint64_t seed) {
  const RandomStream random(seed, "order check");
  const Prober prober(shape, scale);
  const Places places = all_places(shape);
  OrderCheck check;
  constexpr std::uint64_t kPairs = 64;
  for (std::uint64_t i = 0; i < kPairs; ++i) {
    const auto k = static_cast<std::uint64_t>(shape.k);
    const auto one = static_cast<std::int64_t>(random.below(2 * i, k));
    const auto other = static_cast<std::int64_t>(random.below(2 * i + 1, k));
    if (one == other) continue;
    check.pairs.emplace_back(std::min(one, other), std::max(one, other));
    prober.append_pair(check.pairs.back().first, check.pairs.back().second, places, check.probes);
  }
  return check;
}

std::int64_t contradictions(const OrderCheck& check, const SumTree& tree, const OrderScale& scale,
                            std::span<const float> outputs) {
  if (check.pairs.empty()) return 0;
  const std::size_t each = check.probes.size() / check.pairs.size();
  const std::int64_t k = tree.leaves();
  std::int64_t wrong = 0;
  for (std::size_t p = 0; p < check.pairs.size(); ++p) {
    double kept = 0.0;
    for (std::size_t i = 0; i < each; ++i)
      kept += std::ldexp(static_cast<double>(outputs[p * each + i]), -scale.small);
    const std::int64_t expected =
        k - leaves_of_both(tree, check.pairs[p].first, check.pairs[p].second);
    if (kept != static_cast<double>(expected)) ++wrong;
  }
  return wrong;
}

}  // namespace fp8lab

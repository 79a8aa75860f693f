#include "fp8lab/reveal/structure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "fp8lab/core/ceil_divide.hpp"

namespace fp8lab {
namespace {

using Places = std::vector<std::int64_t>;

SumTree joined(SumTree left, SumTree right) {
  std::vector<SumTree> children;
  children.push_back(std::move(left));
  children.push_back(std::move(right));
  return SumTree::node(std::move(children));
}

SumTree of_places(const Places& places, bool exact = false) {
  std::vector<SumTree> children;
  for (const std::int64_t place : places) children.push_back(SumTree::of_leaf(place));
  return SumTree::node(std::move(children), exact);
}

/// One step's products as a tree, or, for fused steps, as terms beside c.
std::vector<SumTree> step_terms(StepShape shape, const Places& places) {
  std::vector<SumTree> terms;
  if (shape == StepShape::fused) {
    for (const std::int64_t place : places) terms.push_back(SumTree::of_leaf(place));
  } else if (shape == StepShape::exact) {
    terms.push_back(of_places(places, true));
  } else if (shape == StepShape::pairs) {
    std::vector<SumTree> pairs;
    for (std::size_t i = 0; i < places.size(); i += 2)
      pairs.push_back(of_places(
          {places.begin() + static_cast<std::ptrdiff_t>(i),
           places.begin() + static_cast<std::ptrdiff_t>(std::min(i + 2, places.size()))}));
    terms.push_back(SumTree::node(std::move(pairs)));
  } else {
    Places first;
    Places second;
    for (std::size_t i = 0; i < places.size(); ++i)
      (i % 4 < 2 ? first : second).push_back(places[i]);
    if (second.empty()) {
      terms.push_back(of_places(first));
    } else if (shape == StepShape::halves_separate) {
      terms.push_back(joined(of_places(first), of_places(second)));
    } else {
      std::vector<SumTree> both{of_places(first)};
      for (const std::int64_t place : second) both.push_back(SumTree::of_leaf(place));
      terms.push_back(SumTree::node(std::move(both)));
    }
  }
  return terms;
}

/// Steps over the places of one chain, c the sum so far.
SumTree chain_of(const SumStructure& s, const Places& places) {
  std::vector<SumTree> sum;
  for (std::size_t begin = 0; begin < places.size(); begin += static_cast<std::size_t>(s.terms)) {
    const std::size_t end = std::min(begin + static_cast<std::size_t>(s.terms), places.size());
    std::vector<SumTree> step =
        step_terms(s.step, {places.begin() + static_cast<std::ptrdiff_t>(begin),
                            places.begin() + static_cast<std::ptrdiff_t>(end)});
    for (SumTree& one : step) sum.push_back(std::move(one));
    SumTree node = SumTree::node(std::move(sum));
    sum.clear();
    sum.push_back(std::move(node));
  }
  return std::move(sum.front());
}

SumTree promoted(const SumStructure& s, const Places& places) {
  if (s.promotion_interval == 0) return chain_of(s, places);
  const auto interval = static_cast<std::size_t>(s.promotion_interval);
  std::vector<SumTree> sum;
  for (std::size_t begin = 0; begin < places.size(); begin += interval) {
    const std::size_t end = std::min(begin + interval, places.size());
    SumTree part = chain_of(s, {places.begin() + static_cast<std::ptrdiff_t>(begin),
                                places.begin() + static_cast<std::ptrdiff_t>(end)});
    if (sum.empty())
      sum.push_back(std::move(part));
    else
      sum.front() = joined(std::move(sum.front()), std::move(part));
  }
  return std::move(sum.front());
}

SumTree serial(std::vector<SumTree> parts) {
  SumTree sum = std::move(parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) sum = joined(std::move(sum), std::move(parts[i]));
  return sum;
}

/// The parts of a split K in their order, as `add_up` adds them.
SumTree added_up(std::vector<SumTree> parts, SplitOrder order) {
  if (order == SplitOrder::serial || parts.size() == 1) return serial(std::move(parts));
  if (order == SplitOrder::tree) {
    while (parts.size() > 1) {
      std::vector<SumTree> next;
      for (std::size_t i = 0; i < parts.size(); i += 2) {
        if (i + 1 < parts.size())
          next.push_back(joined(std::move(parts[i]), std::move(parts[i + 1])));
        else
          next.push_back(std::move(parts[i]));
      }
      parts = std::move(next);
    }
    return std::move(parts.front());
  }
  const std::size_t count = parts.size();
  const std::size_t half = (count + 1) / 2;
  std::vector<SumTree> sums{std::move(parts.back())};
  for (std::size_t i = 0; i < half && i + 1 < count; ++i) {
    SumTree part = std::move(parts[i]);
    if (i + half + 1 < count) part = joined(std::move(part), std::move(parts[i + half]));
    sums.push_back(std::move(part));
  }
  return serial(std::move(sums));
}

std::int64_t tile_of(const SumStructure& s) {
  if (s.split.tile > 0) return s.split.tile;
  return s.promotion_interval > 0 ? s.promotion_interval : s.terms;
}

/// The places of each part that has some.
std::vector<Places> parts_of(const SumStructure& s, std::int64_t k) {
  const std::int64_t tile = tile_of(s);
  const std::int64_t tiles = ceil_divide(k, tile);
  const std::int64_t each = ceil_divide(tiles, std::int64_t{s.split.parts});
  std::vector<Places> parts(static_cast<std::size_t>(s.split.parts));
  for (std::int64_t at = 0; at < k; ++at) {
    const std::int64_t part =
        s.split.cut == SplitCut::modulo ? at / tile % s.split.parts : at / tile / each;
    parts[static_cast<std::size_t>(part)].push_back(at);
  }
  std::erase_if(parts, [](const Places& part) { return part.empty(); });
  return parts;
}

/// Numbers of terms beside each other in a node.
void collect_counts(const SumTree& tree, std::set<std::int64_t>& counts,
                    std::set<std::int64_t>& exact) {
  std::int64_t own = 0;
  for (const SumTree& child : tree.children) {
    if (child.is_leaf())
      ++own;
    else
      collect_counts(child, counts, exact);
  }
  if (own > 0) (tree.exact ? exact : counts).insert(own);
}

/// Steps that may have made the tree.
std::vector<SumStructure> steps_of(const SumTree& tree) {
  std::set<std::int64_t> counts;
  std::set<std::int64_t> exact;
  collect_counts(tree, counts, exact);
  std::vector<SumStructure> steps;
  for (const std::int64_t terms : exact) steps.push_back({StepShape::exact, terms, 0, {}});
  if (!exact.empty()) return steps;
  counts.insert(1);
  for (const std::int64_t terms : counts) steps.push_back({StepShape::fused, terms, 0, {}});
  for (const std::int64_t terms : {2, 4}) steps.push_back({StepShape::pairs, terms, 0, {}});
  for (const std::int64_t half : counts)
    for (const StepShape shape : {StepShape::halves_chained, StepShape::halves_separate})
      if (half % 2 == 0) steps.push_back({shape, 2 * half, 0, {}});
  return steps;
}

}  // namespace

std::vector<std::int64_t> SumStructure::chain(std::int64_t k) const {
  Places places(static_cast<std::size_t>(k));
  std::iota(places.begin(), places.end(), 0);
  if (split.parts > 1) places = parts_of(*this, k).front();
  const auto interval = static_cast<std::size_t>(promotion_interval);
  if (interval > 0 && places.size() > interval) places.resize(interval);
  return places;
}

std::string SumStructure::text(std::int64_t k) const {
  std::string out;
  if (step == StepShape::exact && terms >= k)
    out = fmt::format("one exact sum of all {} terms", k);
  else if (step == StepShape::exact)
    out = fmt::format("steps of {} products added exactly, then to the sum so far", terms);
  else if (step == StepShape::pairs)
    out = fmt::format("groups of {} products added in pairs, then to the sum so far", terms);
  else if (step == StepShape::fused && terms == 1)
    out = "products added one at a time";
  else if (step == StepShape::fused && terms >= k)
    out = fmt::format("one step of all {} terms", k);
  else if (step == StepShape::fused)
    out = fmt::format("steps of {} products and c, the sum so far, aligned together", terms);
  else
    out = fmt::format("instructions of {} terms in two halves ({}), added to the sum so far", terms,
                      step == StepShape::halves_chained ? "the second half continues from the first"
                                                        : "each from zero");
  if (promotion_interval > 0)
    out += fmt::format("; a new chain every {} terms, added in order", promotion_interval);
  if (split.parts > 1)
    out += fmt::format("; K in {} parts ({}, tiles of {}), combined as: {}", split.parts,
                       to_string(split.cut), tile_of(*this), to_string(split.order));
  return out;
}

SumTree tree_of(const SumStructure& s, std::int64_t k) {
  if (s.split.parts == 1) {
    Places all(static_cast<std::size_t>(k));
    std::iota(all.begin(), all.end(), 0);
    return promoted(s, all);
  }
  std::vector<SumTree> parts;
  for (const Places& part : parts_of(s, k)) parts.push_back(promoted(s, part));
  return added_up(std::move(parts), s.split.order);
}

std::optional<SumStructure> structure_of(const SumTree& tree) {
  const std::int64_t k = tree.leaves();
  const std::vector<SumStructure> steps = steps_of(tree);
  const auto fits = [&](const SumStructure& s) { return tree_of(s, k) == tree; };
  for (const SumStructure& s : steps)
    if (fits(s)) return s;
  for (SumStructure s : steps)
    for (s.promotion_interval = s.terms; s.promotion_interval < k; s.promotion_interval += s.terms)
      if (fits(s)) return s;
  constexpr int kMostParts = 16;
  for (SumStructure s : steps)
    for (const std::int64_t promotion : {0, 32, 64, 128, 256, 512})
      for (const std::int64_t tile : {0, 32, 64, 128, 256})
        for (int parts = 2; parts <= kMostParts; ++parts)
          for (const SplitCut cut : {SplitCut::contiguous, SplitCut::modulo})
            for (const SplitOrder order :
                 {SplitOrder::serial, SplitOrder::pairwise, SplitOrder::tree}) {
              s.promotion_interval = promotion;
              s.split = {parts, tile, cut, order};
              const bool possible = promotion < k && promotion % s.terms == 0 &&
                                    tile_of(s) % s.terms == 0 &&
                                    parts <= ceil_divide(k, tile_of(s));
              if (possible && fits(s)) return s;
            }
  return std::nullopt;
}

}  // namespace fp8lab

#include "fp8lab/reveal/tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "fp8lab/core/counted.hpp"

namespace fp8lab {
namespace {

/// Runs of leaves of one stride, `0-31`, `0-30:2`, `7`.
void append_leaves(const std::vector<std::int64_t>& leaves, std::vector<std::string>& parts) {
  std::size_t i = 0;
  while (i < leaves.size()) {
    std::size_t end = i + 1;
    const std::int64_t stride = end < leaves.size() ? leaves[end] - leaves[i] : 1;
    while (end < leaves.size() && leaves[end] - leaves[end - 1] == stride) ++end;
    if (end - i == 2 && stride > 1) end = i + 1;  // two unlike places are no run
    if (end - i == 1)
      parts.push_back(fmt::format("{}", leaves[i]));
    else if (end - i == 2)
      parts.push_back(fmt::format("{} {}", leaves[i], leaves[i + 1]));
    else
      parts.push_back(fmt::format("{}-{}{}", leaves[i], leaves[end - 1],
                                  stride == 1 ? "" : fmt::format(":{}", stride)));
    i = end;
  }
}

/// How a node looks, whatever its places are: terms of its own, then kinds of its other children.
using Kind = std::pair<std::pair<bool, std::int64_t>, std::vector<int>>;

class Kinds {
 public:
  /// The number of a node's kind; a chain of equal additions is one kind however long.
  int of(const SumTree& node) {
    Kind kind{{node.exact, 0}, {}};
    for (const SumTree& child : node.children)
      if (child.is_leaf())
        ++kind.first.second;
      else
        kind.second.push_back(of(child));
    // A chain: the first child is of the kind that this node would be with it left out.
    if (!kind.second.empty()) {
      const int first = kind.second.front();
      Kind link = kind;
      link.second.erase(link.second.begin());
      if (links_[static_cast<std::size_t>(first)] == link) {
        ++lengths_[static_cast<std::size_t>(first)];
        return add(kind, first, link);
      }
    }
    Kind link = kind;
    if (!link.second.empty()) link.second.erase(link.second.begin());
    return add(kind, -1, link);
  }

  [[nodiscard]] std::string text(int root) const;

 private:
  int add(const Kind& kind, int inner, const Kind& link) {
    const auto [at, is_new] = numbers_.try_emplace({kind, inner}, static_cast<int>(kinds_.size()));
    if (is_new) {
      kinds_.push_back(kind);
      links_.push_back(link);
      inner_.push_back(inner);
      lengths_.push_back(0);
    }
    return at->second;
  }

  std::map<std::pair<Kind, int>, int> numbers_;
  std::vector<Kind> kinds_;
  std::vector<Kind> links_;
  std::vector<int> inner_;
  std::vector<int> lengths_;
};

/// Numbers of kinds in the order in which they are named.
using Names = std::map<int, int>;

int name_of(int kind, Names& names) {
  return names.try_emplace(kind, static_cast<int>(names.size()) + 1).first->second;
}

std::string terms_text(const Kind& kind, Names& names) {
  std::vector<std::string> parts;
  if (kind.first.second > 0) parts.push_back(counted(kind.first.second, "term"));
  std::map<int, int> counts;
  for (const int child : kind.second) ++counts[child];
  for (const auto& [child, count] : counts)
    parts.push_back(count == 1 ? fmt::format("#{}", name_of(child, names))
                               : fmt::format("{} x #{}", count, name_of(child, names)));
  return fmt::format("{}{}", kind.first.first ? "exactly " : "", fmt::join(parts, " + "));
}

std::string kind_text(int at, const Kind& kind, Names& names) {
  const int own = name_of(at, names);
  return fmt::format("  #{}: {}\n", own, terms_text(kind, names));
}

std::string chain_text(int kind, int start, int links, const Kind& link, Names& names) {
  const int own = name_of(kind, names);
  const int from = name_of(start, names);
  return fmt::format("  #{}: a chain: #{}, then {} times the sum so far + {}\n", own, from, links,
                     terms_text(link, names));
}

std::string Kinds::text(int root) const {
  std::vector<bool> needed(kinds_.size(), false);
  std::vector<int> open{root};
  std::string out;
  Names names;
  while (!open.empty()) {
    const int at = open.front();
    open.erase(open.begin());
    if (needed[static_cast<std::size_t>(at)]) continue;
    needed[static_cast<std::size_t>(at)] = true;
    int length = 1;
    int bottom = at;
    while (inner_[static_cast<std::size_t>(bottom)] >= 0) {
      bottom = inner_[static_cast<std::size_t>(bottom)];
      ++length;
    }
    const Kind& kind = kinds_[static_cast<std::size_t>(at)];
    const Kind& link = links_[static_cast<std::size_t>(at)];
    out +=
        length > 1 ? chain_text(at, bottom, length - 1, link, names) : kind_text(at, kind, names);
    if (length > 1) open.push_back(bottom);
    for (std::size_t i = length > 1 ? 1 : 0; i < kind.second.size(); ++i)
      open.push_back(kind.second[i]);
  }
  return out;
}

bool holds(const SumTree& tree, std::int64_t leaf) {
  if (tree.is_leaf()) return tree.leaf == leaf;
  return std::any_of(tree.children.begin(), tree.children.end(),
                     [&](const SumTree& child) { return holds(child, leaf); });
}

}  // namespace

SumTree SumTree::node(std::vector<SumTree> children, bool exact) {
  if (children.size() == 1) return std::move(children.front());
  std::vector<std::pair<std::int64_t, std::size_t>> order;
  for (std::size_t i = 0; i < children.size(); ++i) order.emplace_back(children[i].first_leaf(), i);
  std::sort(order.begin(), order.end());
  SumTree made{-1, exact, {}};
  for (const auto& [first, i] : order) made.children.push_back(std::move(children[i]));
  return made;
}

std::int64_t SumTree::first_leaf() const {
  return is_leaf() ? leaf : children.front().first_leaf();
}

std::int64_t SumTree::leaves() const {
  if (is_leaf()) return 1;
  std::int64_t count = 0;
  for (const SumTree& child : children) count += child.leaves();
  return count;
}

std::int64_t leaves_of_both(const SumTree& tree, std::int64_t i, std::int64_t j) {
  const SumTree* at = &tree;
  while (!at->is_leaf()) {
    const SumTree* below = nullptr;
    for (const SumTree& child : at->children) {
      if (!holds(child, i)) continue;
      if (holds(child, j)) below = &child;
      break;
    }
    if (below == nullptr) return holds(*at, i) && holds(*at, j) ? at->leaves() : 0;
    at = below;
  }
  return 0;
}

std::string text_of(const SumTree& tree) {
  if (tree.is_leaf()) return fmt::format("{}", tree.leaf);
  std::vector<std::string> parts;
  std::vector<std::int64_t> leaves;
  for (const SumTree& child : tree.children) {
    if (child.is_leaf()) {
      leaves.push_back(child.leaf);
      continue;
    }
    append_leaves(leaves, parts);
    leaves.clear();
    parts.push_back(text_of(child));
  }
  append_leaves(leaves, parts);
  const std::string inner = fmt::format("{}", fmt::join(parts, " "));
  return tree.exact ? "[" + inner + "]" : "(" + inner + ")";
}

std::string compact_text_of(const SumTree& tree) {
  if (tree.is_leaf()) return fmt::format("  one term: {}\n", tree.leaf);
  Kinds kinds;
  const int root = kinds.of(tree);
  return kinds.text(root);
}

}  // namespace fp8lab

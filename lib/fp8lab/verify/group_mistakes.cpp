#include "fp8lab/verify/group_mistakes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab {
namespace {

/// Another part, and what it is to the one in question.
struct Neighbour {
  const GroupProduct* part = nullptr;
  std::string_view relation;  ///< previous, next, first, last
};

/// The parts with rows and terms before and behind part number `at`, the first and the last one,
/// of other groups than its own, each once.
std::vector<Neighbour> neighbours_of(const GroupedProduct& grouped, std::size_t at) {
  const std::int64_t own = grouped.parts[at].group;
  std::vector<Neighbour> found;
  const auto add = [&](std::size_t i, std::string_view relation) {
    const GroupProduct& part = grouped.parts[i];
    const bool known = std::any_of(found.begin(), found.end(), [&](const Neighbour& one) {
      return one.part->group == part.group;
    });
    if (!known && part.group != own) found.push_back({&part, relation});
  };
  const auto counts = [&](std::size_t i) {
    const Product& p = grouped.parts[i].product;
    return p.problem.b.rows > 0 && p.problem.a.k > 0 && grouped.parts[i].group != own;
  };
  const auto has_rows = [&](std::size_t i) { return grouped.parts[i].product.rows() > 0; };
  // Beside a group without rows stands one that a count of groups with rows takes for its
  // neighbour.
  for (std::size_t i = at; i-- > 0;)
    if (counts(i)) {
      add(i, "previous");
      if (has_rows(i)) break;
    }
  for (std::size_t i = at + 1; i < grouped.parts.size(); ++i)
    if (counts(i)) {
      add(i, "next");
      if (has_rows(i)) break;
    }
  for (std::size_t i = 0; i < grouped.parts.size(); ++i)
    if (counts(i)) {
      add(i, "first");
      break;
    }
  for (std::size_t i = grouped.parts.size(); i-- > 0;)
    if (counts(i)) {
      add(i, "last");
      break;
    }
  return found;
}

/// `scales` of as many rows as `rows`, if there are so many.
std::optional<InverseScales> first_rows(InverseScales scales, const CodeMatrix& m,
                                        std::int64_t rows) {
  if (scales.empty()) return std::nullopt;
  const std::int64_t k_block = scales.k_block == 0 ? m.k : scales.k_block;
  const std::int64_t columns = m.k == 0 ? 0 : ceil_divide(m.k, k_block);
  const auto wanted = static_cast<std::size_t>(ceil_divide(rows, scales.row_block) * columns);
  if (scales.values.size() < wanted) return std::nullopt;
  scales.values = scales.values.first(wanted);
  return scales;
}

bool same_values(const InverseScales& x, const InverseScales& y) {
  return std::ranges::equal(x.values, y.values);
}

/// Tiles' scales of one group under the tensor scale of another.
InverseScales under(InverseScales tiles, const InverseScales& upper) {
  tiles.tensor_scale = upper.tensor_scale;
  return tiles;
}

class Maker {
 public:
  Maker(const GroupedProduct& grouped, std::size_t at)
      : grouped_(grouped), own_(grouped.parts[at]), at_(at) {}

  std::vector<WrongProduct> make() {
    for (const Neighbour& other : neighbours_of(grouped_, at_)) {
      if (grouped_.whole) {
        terms_of(other);
      } else {
        weights_of(other);
        inputs_of(other);
      }
      bias_of(other);
    }
    if (!grouped_.whole) scales_at_offset();
    if (grouped_.whole) moved_terms();
    return std::move(mistakes_);
  }

 private:
  void add(std::string name, std::string text, Product product, bool must_be_seen) {
    mistakes_.push_back({std::move(name), std::move(text), std::move(product), must_be_seen});
  }

  Product own_with_owners_of(const Neighbour& other) const {
    Product product = own_.product;
    product.a_original = product.b_original = nullptr;
    const auto& owners = other.part->product.owners;
    product.owners.insert(product.owners.end(), owners.begin(), owners.end());
    return product;
  }

  static std::string named(std::string_view what, const Neighbour& other) {
    return fmt::format("{}_of_{}_group", what, other.relation);
  }

  void weights_of(const Neighbour& other) {
    const GemmProblem& from = other.part->product.problem;
    const std::int64_t group = other.part->group;
    Product product = own_with_owners_of(other);
    product.problem.b = from.b;
    if (!from.scale_b.empty())
      add(named("weight_codes", other),
          fmt::format("the weights of group {} under this group's scales", group), product, false);
    product.problem.scale_b = from.scale_b;
    add(named("weight", other), fmt::format("the weights of group {}", group), std::move(product),
        true);
    if (!from.scale_b.empty())
      scales_of(other, "b", fmt::format("group {}'s weights", group), from.scale_b, true);
  }

  /// Scales of another group under this one's codes: those of tiles, the tensor's, both.
  void scales_of(const Neighbour& other, std::string_view letter, const std::string& whose,
                 const InverseScales& theirs, bool must_be_seen) {
    const auto scales = [&](Product& product) -> InverseScales& {
      return letter == "a" ? product.problem.scale_a : product.problem.scale_b;
    };
    Product right = own_.product;
    const InverseScales own = scales(right);
    const auto with = [&](std::string_view what, const std::string& text, InverseScales wrong) {
      Product product = own_with_owners_of(other);
      scales(product) = wrong;
      add(named(fmt::format("{}_{}", what, letter), other), text, std::move(product), must_be_seen);
    };
    const bool tiles = !same_values(theirs, own);
    const bool upper = theirs.tensor_scale != own.tensor_scale;
    if (tiles) with("scale", fmt::format("the scales of {}", whose), under(theirs, own));
    if (upper)
      with("tensor_scale", fmt::format("the tensor scale of {}", whose), under(own, theirs));
    if (tiles && upper)
      with("both_scales", fmt::format("the scales of tiles and the tensor scale of {}", whose),
           theirs);
  }

  /// The scales of the weights begin at another row of tiles of all groups' scales: the number of
  /// rows of a group's was taken for another one.
  void scales_at_offset() {
    constexpr std::int64_t kMostTried = 64;
    const InverseScales& own = own_.product.problem.scale_b;
    const std::int64_t k_block = own.k_block == 0 ? own_.product.problem.b.k : own.k_block;
    if (own.empty() || k_block == 0 || grouped_.parts.size() < 2) return;
    const std::int64_t columns = ceil_divide(own_.product.problem.b.k, k_block);
    const std::int64_t rows = std::ssize(own.values) / std::max<std::int64_t>(columns, 1);
    auto all = std::make_shared<std::vector<float>>();
    std::int64_t first = 0;
    for (std::size_t i = 0; i < grouped_.parts.size(); ++i) {
      const GroupProduct& part = grouped_.parts[i];
      const InverseScales& scales = part.product.problem.scale_b;
      if (part.group != static_cast<std::int64_t>(i) || scales.values.size() != own.values.size())
        return;
      if (i == at_) first = std::ssize(*all) / std::max<std::int64_t>(columns, 1);
      all->insert(all->end(), scales.values.begin(), scales.values.end());
    }
    const std::int64_t last = std::ssize(*all) / std::max<std::int64_t>(columns, 1) - rows;
    if (rows < 2) return;  // each row is a group's, which its neighbours stand for
    for (std::int64_t by = -std::min(first, kMostTried); by <= std::min(last - first, kMostTried);
         ++by) {
      if (by % rows == 0) continue;
      Product product = own_.product;
      product.a_original = product.b_original = nullptr;
      product.owners.push_back(all);
      product.problem.scale_b.values = std::span<const float>(*all).subspan(
          static_cast<std::size_t>((first + by) * columns), own.values.size());
      add("scale_b_at_other_offset",
          fmt::format("the scales of the weights begin {} of tiles too {} in all groups' scales",
                      counted(std::abs(by), "row"), by < 0 ? "early" : "late"),
          std::move(product), false);
    }
  }

  void inputs_of(const Neighbour& other) {
    const GemmProblem& from = other.part->product.problem;
    const GemmProblem& own = own_.product.problem;
    const std::int64_t group = other.part->group;
    const std::optional<InverseScales> scales = first_rows(from.scale_a, from.a, own.a.rows);
    if (from.a.rows >= own.a.rows && (from.scale_a.empty() || scales)) {
      Product product = own_with_owners_of(other);
      product.problem.a = from.a;
      product.problem.a.rows = own.a.rows;
      if (scales) product.problem.scale_a = *scales;
      add(named("input", other), fmt::format("the rows of group {}", group), std::move(product),
          false);
    }
    if (scales) scales_of(other, "a", fmt::format("group {}'s rows", group), *scales, false);
  }

  void bias_of(const Neighbour& other) {
    const std::span<const float> bias = other.part->product.epilogue.bias;
    if (bias.empty() || std::ranges::equal(bias, own_.product.epilogue.bias)) return;
    Product product = own_with_owners_of(other);
    product.epilogue.bias = bias;
    add(named("bias", other), fmt::format("the bias of group {}", other.part->group),
        std::move(product), true);
  }

  /// The product of terms [begin, end) of the whole under the tensor scales of `levels`, nothing
  /// where scale tiles would be cut.
  [[nodiscard]] std::optional<Product> of_terms(std::int64_t begin, std::int64_t end,
                                                const GemmProblem& levels) const {
    const std::int64_t k = grouped_.whole->problem.a.k;
    if (begin < 0 || begin >= end || end > k) return std::nullopt;
    Product product = own_.product;
    try {
      Product part = take_k(*grouped_.whole, begin, end);
      product.problem.a = part.problem.a;
      product.problem.b = part.problem.b;
      if (!grouped_.whole->problem.scale_a.empty())
        product.problem.scale_a = under(part.problem.scale_a, levels.scale_a);
      if (!grouped_.whole->problem.scale_b.empty())
        product.problem.scale_b = under(part.problem.scale_b, levels.scale_b);
      product.owners.insert(product.owners.end(), part.owners.begin(), part.owners.end());
      validate(product.problem, product.sum_count());
    } catch (const Error&) {  // scales or splits that such a part cannot have
      return std::nullopt;
    }
    return product;
  }

  void terms_of(const Neighbour& other) {
    const auto at = static_cast<std::size_t>(other.part - grouped_.parts.data());
    const GroupPart& terms = grouped_.terms[at];
    if (std::optional<Product> product =
            of_terms(terms.begin, terms.end, other.part->product.problem))
      add(named("terms", other), fmt::format("the terms of group {}", terms.group),
          std::move(*product), true);
    const GemmProblem& from = other.part->product.problem;
    const GemmProblem& own = own_.product.problem;
    // Scales of tiles lie with the terms where one grid lies over all of them.
    const auto each = [&](std::string_view letter, const InverseScales& whole,
                          const InverseScales& theirs, const InverseScales& its) {
      if (theirs.empty() || its.empty()) return;
      scales_of(other, letter, fmt::format("group {}", terms.group),
                whole.empty() ? theirs : under(its, theirs), true);
    };
    each("a", grouped_.whole->problem.scale_a, from.scale_a, own.scale_a);
    each("b", grouped_.whole->problem.scale_b, from.scale_b, own.scale_b);
  }

  /// Offsets that are off by one term or one tile of scales that change along K, or by a
  /// kernel's usual tile.
  void moved_terms() {
    const GemmProblem& p = grouped_.whole->problem;
    const auto tile = [](const InverseScales& scales, const CodeMatrix& m) {
      return ScaleLookup(scales, m).varies_along_k() ? scales.k_block : std::int64_t{1};
    };
    const std::int64_t step = std::lcm(tile(p.scale_a, p.a), tile(p.scale_b, p.b));
    moved_by(step);
    for (const std::int64_t usual : {16, 32, 64, 128})
      if (step < usual && usual % step == 0) moved_by(usual);
  }
  void moved_by(std::int64_t step) {
    const GroupPart& own = grouped_.terms[at_];
    const std::string by = step == 1 ? "one term" : fmt::format("{} terms", step);
    const auto moved = [&](std::string_view name, std::string_view what, std::int64_t begin,
                           std::int64_t end) {
      if (std::optional<Product> product =
              of_terms(own.begin + begin, own.end + end, own_.product.problem))
        add(std::string(name), fmt::format("{} by {}", what, by), std::move(*product), false);
    };
    moved("k_begins_late", "the group's terms begin too late", step, 0);
    moved("k_begins_early", "the group's terms begin too early", -step, 0);
    moved("k_ends_late", "the group's terms end too late", 0, step);
    moved("k_ends_early", "the group's terms end too early", 0, -step);
    moved("k_offset_high", "the group's terms begin and end too late", step, step);
    moved("k_offset_low", "the group's terms begin and end too early", -step, -step);
  }

  const GroupedProduct& grouped_;
  const GroupProduct& own_;
  std::size_t at_;
  std::vector<WrongProduct> mistakes_;
};

}  // namespace

std::vector<WrongProduct> group_mistakes(const GroupedProduct& grouped, std::size_t part) {
  return Maker(grouped, part).make();
}

}  // namespace fp8lab

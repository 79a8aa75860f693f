#include "fp8lab/verify/k_blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/term_variants.hpp"
#include "fp8lab/verify/stand_in.hpp"

namespace fp8lab {
namespace {

constexpr double kNearShare = 0.25;  // of the difference's square that may be left over
constexpr std::array<std::int64_t, 5> kOlderBlocks{1, -1, 2, 3, 4};  // before the right one

enum class Kind : std::uint8_t { dropped, doubled, stale_both, stale_a, stale_b };

/// A mistake in block `at`, of which a stale one was block `from`.
struct Candidate {
  Kind kind = Kind::dropped;
  std::int64_t at = 0;
  std::int64_t from = 0;
  double left = INFINITY;  ///< what it leaves of the difference, squared and summed
};

class BlockSums {
 public:
  BlockSums(const Product& product, std::int64_t block)
      : p_(product.problem),
        block_(block),
        step_(std::gcd(block, common_scale_block(p_))),
        a_scales_(p_.scale_a, p_.a),
        b_scales_(p_.scale_b, p_.b),
        a_(values(p_.a)),
        b_(values(p_.b)) {}

  /// The sum of A's block i and B's block j under the scales of block `scales`.
  [[nodiscard]] double at(std::int64_t row, std::int64_t column, std::int64_t i, std::int64_t j,
                          std::int64_t scales) const {
    const double* x = &a_[static_cast<std::size_t>(row * p_.a.k + i * block_)];
    const double* y = &b_[static_cast<std::size_t>(column * p_.b.k + j * block_)];
    const std::int64_t count = std::min({block_, p_.a.k - i * block_, p_.a.k - j * block_});
    double total = 0.0;
    for (std::int64_t begin = 0; begin < count; begin += step_) {
      double sum = 0.0;
      for (std::int64_t k = begin; k < std::min(begin + step_, count); ++k) sum += x[k] * y[k];
      const std::int64_t at = std::min(scales * block_ + begin, p_.a.k - 1);
      total += sum * static_cast<double>(a_scales_.at(row, at)) *
               static_cast<double>(b_scales_.at(column, at));
    }
    return total;
  }
  /// Whether blocks are as long as the first one.
  [[nodiscard]] bool whole(std::int64_t index) const { return (index + 1) * block_ <= p_.a.k; }

 private:
  static std::vector<double> values(const CodeMatrix& m) {
    std::vector<double> result;
    for (std::int64_t row = 0; row < m.rows; ++row)
      for (std::int64_t k = 0; k < m.k; ++k)
        result.push_back(decode(format(m.format), code_at(m, row, k)));
    return result;
  }

  const GemmProblem& p_;
  std::int64_t block_;
  std::int64_t step_;  ///< terms that share both scales
  ScaleLookup a_scales_;
  ScaleLookup b_scales_;
  std::vector<double> a_;
  std::vector<double> b_;
};

/// What got - golden is if the candidate is right.
double expected_difference(const BlockSums& sums, const Candidate& c, std::int64_t row,
                           std::int64_t column) {
  const double right = sums.at(row, column, c.at, c.at, c.at);
  switch (c.kind) {
    case Kind::dropped:
      return -right;
    case Kind::doubled:
      return right;
    case Kind::stale_both:
      return sums.at(row, column, c.from, c.from, c.at) - right;
    case Kind::stale_a:
      return sums.at(row, column, c.from, c.at, c.at) - right;
    case Kind::stale_b:
      break;
  }
  return sums.at(row, column, c.at, c.from, c.at) - right;
}

BlockMistake mistake_of(const Candidate& c, std::int64_t k, std::int64_t block) {
  const auto range = [&](std::int64_t i) {
    return fmt::format("[{}, {})", i * block, std::min((i + 1) * block, k));
  };
  const std::vector<std::int64_t> all = all_k_blocks(k, block);
  BlockMistake mistake{"", "", {all, all, all}};
  const auto place = static_cast<std::size_t>(c.at);
  const auto here = static_cast<std::ptrdiff_t>(c.at);
  BlockSources& s = mistake.sources;
  const std::string stale = fmt::format("block {} of K still held {}", range(c.at), range(c.from));
  switch (c.kind) {
    case Kind::dropped:
      mistake.name = "dropped_k_block";
      mistake.text = fmt::format("block {} of K left out", range(c.at));
      for (std::vector<std::int64_t>* list : {&s.a, &s.b, &s.scales})
        list->erase(list->begin() + here);
      break;
    case Kind::doubled:
      mistake.name = "doubled_k_block";
      mistake.text = fmt::format("block {} of K counted twice", range(c.at));
      for (std::vector<std::int64_t>* list : {&s.a, &s.b, &s.scales})
        list->insert(list->begin() + here, c.at);
      break;
    case Kind::stale_both:
      mistake.name = "stale_k_block";
      mistake.text = stale + ", of A and B";
      s.a[place] = s.b[place] = c.from;
      break;
    case Kind::stale_a:
      mistake.name = "stale_k_block_a";
      mistake.text = stale + ", of A";
      s.a[place] = c.from;
      break;
    case Kind::stale_b:
      mistake.name = "stale_k_block_b";
      mistake.text = stale + ", of B";
      s.b[place] = c.from;
      break;
  }
  return mistake;
}

}  // namespace

std::vector<BlockMistake> likely_block_mistakes(const Product& product,
                                                std::span<const float> golden,
                                                std::span<const float> got, std::int64_t block) {
  // Behind an epilogue differences of outputs are not those of sums.
  if (!product.epilogue.empty() || product.split.parts > 1) return {};
  const std::int64_t k = product.problem.a.k;
  std::vector<double> difference;
  double square = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference.push_back(static_cast<double>(got[i]) - static_cast<double>(golden[i]));
    square += difference.back() * difference.back();
  }
  if (k < 2 * block || !std::isfinite(square) || square == 0.0) return {};
  const BlockSums sums(product, block);
  const auto blocks = static_cast<std::int64_t>(all_k_blocks(k, block).size());
  std::vector<BlockMistake> mistakes;
  for (const Kind kind :
       {Kind::dropped, Kind::doubled, Kind::stale_both, Kind::stale_a, Kind::stale_b}) {
    const bool stale = kind != Kind::dropped && kind != Kind::doubled;
    Candidate best;
    const auto look_at = [&](Candidate c) {
      c.left = 0.0;
      for (std::size_t i = 0; i < difference.size() && c.left < best.left; ++i) {
        const auto at = static_cast<std::int64_t>(i);
        const double off = difference[i] - expected_difference(sums, c, at / product.columns(),
                                                               at % product.columns());
        c.left += off * off;
      }
      if (c.left < best.left) best = c;
    };
    for (std::int64_t at = 0; at < blocks; ++at) {
      // A short block counted twice has no place among whole ones.
      if (!stale && (kind == Kind::dropped || sums.whole(at))) look_at({kind, at, at});
      if (!stale || !sums.whole(at)) continue;
      for (const std::int64_t older : kOlderBlocks)
        if (at - older >= 0 && at - older < blocks && sums.whole(at - older))
          look_at({kind, at, at - older});
    }
    if (best.left < kNearShare * square) mistakes.push_back(mistake_of(best, k, block));
  }
  return mistakes;
}

}  // namespace fp8lab

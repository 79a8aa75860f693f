#include "fp8lab/product/split_k.hpp"

#include <fmt/format.h>

#include <array>
#include <numeric>
#include <utility>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/partial_sums.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/product/term_variants.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 2> kCuts{"contiguous", "modulo"};
constexpr std::array<std::string_view, 3> kOrders{"serial", "pairwise", "tree"};

std::int64_t tile_count(const Product& product) {
  const std::int64_t tile = split_tile(product);
  return (product.problem.a.k + tile - 1) / tile;
}

/// The tiles of part number `part`, ascending.
std::vector<std::int64_t> tiles_of(const SplitK& split, std::int64_t tiles, std::int64_t part) {
  std::vector<std::int64_t> owned;
  if (split.cut == SplitCut::modulo) {
    for (std::int64_t tile = part; tile < tiles; tile += split.parts) owned.push_back(tile);
    return owned;
  }
  const std::int64_t each = (tiles + split.parts - 1) / split.parts;
  for (std::int64_t tile = part * each; tile < std::min((part + 1) * each, tiles); ++tile)
    owned.push_back(tile);
  return owned;
}

/// The same terms in blocks of `block` terms, which divides `tile`.
std::vector<std::int64_t> in_blocks_of(std::int64_t block, std::int64_t tile, std::int64_t k,
                                       const std::vector<std::int64_t>& tiles) {
  std::vector<std::int64_t> blocks;
  for (const std::int64_t one : tiles)
    for (std::int64_t at = one * tile; at < std::min((one + 1) * tile, k); at += block)
      blocks.push_back(at / block);
  return blocks;
}

void add_to(std::vector<float>& sum, const std::vector<float>& part) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = canonical(sum[i] + part[i]);
}

std::vector<float> add_serially(std::vector<std::vector<float>> parts) {
  for (std::size_t i = 1; i < parts.size(); ++i) add_to(parts[0], parts[i]);
  return std::move(parts[0]);
}

}  // namespace

std::string_view to_string(SplitCut cut) { return kCuts[static_cast<std::size_t>(cut)]; }
std::string_view to_string(SplitOrder order) { return kOrders[static_cast<std::size_t>(order)]; }
SplitCut find_split_cut(std::string_view name) {
  return find_enumerator<SplitCut>(kCuts, "split_cut", name);
}
SplitOrder find_split_order(std::string_view name) {
  return find_enumerator<SplitOrder>(kOrders, "split_order", name);
}

std::int64_t split_tile(const Product& product) {
  if (product.split.tile > 0) return product.split.tile;
  const GemmProblem& p = product.problem;
  return p.promotion_interval > 0 ? p.promotion_interval : std::int64_t{p.model.terms};
}

void validate_split(const Product& product) {
  const SplitK& split = product.split;
  const GemmProblem& p = product.problem;
  require(split.parts >= 1, "split_k", "1 part or more", fmt::format("{}", split.parts));
  require(split.tile >= 0, "split_tile", "0 (the promotion interval, or a step) or more terms",
          fmt::format("{}", split.tile));
  if (split.parts == 1) return;
  require(split.parts <= tile_count(product), "split_k",
          fmt::format("at most {}, one per tile of {}", counted(tile_count(product), "part"),
                      counted(split_tile(product), "term")),
          fmt::format("{}", split.parts));
  require(!applies_scales(p), "split_k", "1, since the instruction applies the scales itself",
          fmt::format("{}", split.parts));
  require(!scaled_in_blocks(p) || split_tile(product) % p.promotion_interval == 0, "split_tile",
          fmt::format("a multiple of the promotion interval {}", p.promotion_interval),
          fmt::format("{}", split_tile(product)));
}

std::vector<Product> split_parts(const Product& product) {
  Product whole = product;
  whole.split = {};
  whole.epilogue = {};
  GemmProblem& p = whole.problem;
  const bool in_blocks = scaled_in_blocks(p);
  if (!in_blocks) drop_outer_scales(whole);
  p.c = nullptr;
  p.c_enters = CPlacement::unnamed;
  const std::int64_t tile = split_tile(product);
  const std::int64_t block = in_blocks ? p.promotion_interval : tile;
  std::vector<Product> parts;
  for (std::int64_t i = 0; i < product.split.parts; ++i) {
    const std::vector<std::int64_t> blocks =
        in_blocks_of(block, tile, p.a.k, tiles_of(product.split, tile_count(product), i));
    if (blocks.empty()) continue;
    parts.push_back(with_k_blocks(whole, block, {blocks, blocks, blocks}));
    if (i == 0 && product.problem.c != nullptr) begin_with_c(parts.back(), product.problem);
  }
  return parts;
}

std::vector<float> add_up(std::vector<std::vector<float>> parts, SplitOrder order) {
  const FloatEnvironment environment;
  switch (order) {
    case SplitOrder::serial:
      break;
    case SplitOrder::pairwise: {
      const std::size_t half = (parts.size() + 1) / 2;
      std::vector<std::vector<float>> sums{parts.back()};
      for (std::size_t i = 0; i < half && i + 1 < parts.size(); ++i) {
        if (i + half + 1 < parts.size()) add_to(parts[i], parts[i + half]);
        sums.push_back(std::move(parts[i]));
      }
      return add_serially(std::move(sums));
    }
    case SplitOrder::tree:
      for (std::size_t step = 1; step < parts.size(); step *= 2)
        for (std::size_t i = 0; i + step < parts.size(); i += 2 * step)
          add_to(parts[i], parts[i + step]);
      return std::move(parts[0]);
  }
  return add_serially(std::move(parts));
}

}  // namespace fp8lab

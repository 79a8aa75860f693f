#pragma once
// Products whose terms were read from a wrong place, in a wrong format, or summed otherwise.

#include <cstdint>
#include <optional>
#include <vector>

#include "fp8lab/product/product.hpp"
#include "fp8lab/product/variants.hpp"

namespace fp8lab {

/// E4M3 codes read as E5M2, or the reverse, of either zero.
std::optional<FormatId> other_fp8_format(FormatId format);

/// One operand's (or both operands') codes read as `as` of their format says; nothing where it
/// says nothing.
std::optional<Product> with_codes_read_as(const Product& product, Side side,
                                          std::optional<FormatId> (*as)(FormatId));

/// The sampled product with term k of an operand read at k + by, where a row's end runs on into
/// the next row, and the matrix's ends into zeros: a pointer that is off.
Product take_with_moved_terms(const Product& product, const Sample& sample, Side side,
                              std::int64_t by);

/// How a number becomes a code of the format: the number is what the recipe casts, an element
/// times its scale or divided by the inverse.
using OtherCast = std::uint32_t (*)(const Format& to, float x);

/// The sampled product with codes that another cast made of what its recipe casts. Nothing where
/// the operands came as codes.
std::optional<Product> take_with_recast_codes(const Product& product, const Sample& sample,
                                              Side side, OtherCast cast);

/// Which blocks of K are summed, one entry a block of the wrong product.
struct BlockSources {
  std::vector<std::int64_t> a;
  std::vector<std::int64_t> b;
  std::vector<std::int64_t> scales;
};
/// The product whose block number i along K has A's terms from block `a[i]`, B's from `b[i]` and
/// both scales from `scales[i]`. Only the last block may be short, and stays last. For samples.
Product with_k_blocks(const Product& product, std::int64_t block, const BlockSources& sources);

/// Every block of K, in order.
std::vector<std::int64_t> all_k_blocks(std::int64_t k, std::int64_t block);

/// Sums over `interval` terms in one accumulator each, then scaled and added up.
struct IntervalSums {
  std::int64_t interval = 0;
  bool first_scale = false;  ///< of the scales inside of an interval: the first, not the last
  std::optional<FormatId> rounded{};  ///< each sum so far is rounded to this format
};
/// The FP32 result of such a kernel. Nothing where the interval does not fit the instruction.
std::optional<std::vector<float>> compute_in_intervals(const Product& product,
                                                       const IntervalSums& how);

}  // namespace fp8lab

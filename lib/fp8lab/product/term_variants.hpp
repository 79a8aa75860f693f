#pragma once
// Products with terms from a wrong place, in a wrong format, or with another sum.

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "fp8lab/product/product.hpp"
#include "fp8lab/product/variants.hpp"

namespace fp8lab {

/// The other format of the same width: E5M2 for E4M3, E3M2 for E2M3, and the reverse, OCP or FNUZ.
/// Nothing if there is none.
std::optional<FormatId> other_format_of_width(FormatId format);

/// The codes of one or both operands read in the format that `as` returns for theirs. Nothing if it
/// returns nothing.
std::optional<Product> with_codes_read_as(const Product& product, Side side,
                                          std::optional<FormatId> (*as)(FormatId));

/// The sampled product with term k of an operand read at k + by: a wrong pointer. Beyond a row it
/// reads the next row, and beyond the matrix zeros.
Product take_with_moved_terms(const Product& product, const Sample& sample, Side side,
                              std::int64_t by);

/// The sampled product with `k` terms, more than there are: those behind a row are those of the
/// next row, and zeros behind the matrix. Nothing where scales change along K.
std::optional<Product> take_with_longer_rows(const Product& product, const Sample& sample,
                                             std::int64_t k);

/// The sampled product with term k of an operand read at `source(k)`; beyond the ends zeros.
Product take_with_terms_at(const Product& product, const Sample& sample, Side side,
                           const std::function<std::int64_t(std::int64_t k)>& source);

/// The sampled product with the codes of row `source(row)` of an operand in each row, under the
/// scales of the right one. Nothing if a row does not exist.
std::optional<Product> take_with_codes_of_rows(
    const Product& product, const Sample& sample, Side side,
    const std::function<std::int64_t(std::int64_t row)>& source);

/// The sampled product with the two codes of each byte exchanged: term k read at k xor 1. Nothing
/// for formats of other widths than 4 bits.
std::optional<Product> take_with_exchanged_nibbles(const Product& product, const Sample& sample,
                                                   Side side);

/// A cast of a number to a code of the format. The number is an element times its scale, or divided
/// by the inverse scale.
using OtherCast = std::uint32_t (*)(const Format& to, float x);

/// The sampled product with codes of another cast of the numbers that its recipe casts. Nothing if
/// the operands were given as codes.
std::optional<Product> take_with_recast_codes(const Product& product, const Sample& sample,
                                              Side side, OtherCast cast);

/// The blocks of K that are summed, one entry per block of the wrong product.
struct BlockSources {
  std::vector<std::int64_t> a;
  std::vector<std::int64_t> b;
  std::vector<std::int64_t> scales;
};
/// The product whose block number i along K has A's terms from block `a[i]`, B's from `b[i]` and
/// both scales from `scales[i]`. Only the last block may be short; it must stay last. For samples.
Product with_k_blocks(const Product& product, std::int64_t block, const BlockSources& sources);

/// The numbers of all blocks of K, in order.
std::vector<std::int64_t> all_k_blocks(std::int64_t k, std::int64_t block);

/// Sums over `interval` terms, each in one accumulator, which are then scaled and added.
struct IntervalSums {
  std::int64_t interval = 0;
  bool first_scale = false;           ///< use the first scale of an interval, not the last
  std::optional<FormatId> rounded{};  ///< round each partial sum to this format
};
/// The FP32 result of such a kernel. Nothing if the interval does not fit the instruction.
std::optional<std::vector<float>> compute_in_intervals(const Product& product,
                                                       const IntervalSums& how);

}  // namespace fp8lab

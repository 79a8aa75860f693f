#pragma once
// Batched and grouped products: one `Product` for each group, and the place of its rows in the
// output.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fp8lab/product/groups.hpp"
#include "fp8lab/product/non_finite.hpp"
#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// Adjacent rows of one group.
struct GroupProduct {
  std::int64_t group = 0;
  std::int64_t first_row = 0;  ///< in the output as a matrix of all groups, one below the other
  Product product;
};

/// Rows of the output that are in no group.
struct UngroupedRows {
  std::int64_t group = 0;  ///< the group before these rows; if there is none, the group after them
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  /// The output of a kernel without the mask: these rows with the weights of `group`. Nothing if
  /// the operands have no valid scales for these rows.
  std::optional<Product> product{};
};

/// The output as a matrix [rows, columns]: D [G, m, n] has G * m rows.
struct GroupedProduct {
  Groups groups;
  std::int64_t count = 0;  ///< number of groups
  OutputCast output;
  std::vector<std::int64_t> shape;  ///< of the output: [G, m, n] or [M, n]
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<GroupProduct> parts;  ///< by ascending rows; includes parts without rows or terms
  std::vector<UngroupedRows> rest;
  std::optional<Product> whole{};  ///< `k_ends`: all terms in one product, which contains the parts
  std::vector<GroupPart> terms{};  ///< `k_ends`: the terms of each part

  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(rows * columns); }
  /// The part of a group with the most rows, null if it has none.
  [[nodiscard]] const GroupProduct* find(std::int64_t group) const;
};

/// The products of all groups. Each is computed separately: a recipe quantizes A and B by groups.
///
/// A, B and D have the shapes of `GroupKind`, B [.., k, n] with `transposed`. Other operands:
///
/// - scales: one value for all. For operands [G, ..]: one per group, [G] or [G, 1], or [G, ...]
///   with the grid of one group. For A [M, k]: one per group, [G] (if M is not G) or [G, 1, 1], or
///   a grid over [M, k]. For A [m, K] and B [n, K]: one per group, [G, 1, 1]; one per row of each
///   group, [G, rows] or [G, rows, 1]; or a grid over the whole in which no group ends inside a
///   tile. `tensor_scale` applies to all groups; `group_tensor_scales` has one per group, [G].
/// - C: the shape of D, or of the sums if gated. bias and column_scales: [n] for all, or [G, n].
///   row_scales: [m] for all or [G, m]; under `row_ends` and `row_indices` [M].
///
/// Throws `Error` as `make_product` does, with the number of the group, and for an output scale by
/// amax, which is ambiguous here (of a group, or of all). A library call is applied to the operands
/// of each group; a call in a table has no groups.
GroupedProduct make_grouped_product(const GemmOperands& operands, const GemmSpec& spec,
                                    const Groups& groups);

/// The same for operands whose instruction is not known, see `make_product_of_unknown_model`.
GroupedProduct make_grouped_product_of_unknown_model(const GemmOperands& operands,
                                                     const OutputCast& output, const Groups& groups,
                                                     const EpilogueSpec& epilogue = {});

/// The FP32 result before the cast, [rows, columns]; +0 in rows that are in no group.
std::vector<float> compute(const GroupedProduct& product, int threads = 0);

/// The golden output: these values as codes of the output format, little endian.
std::vector<std::byte> golden_output(const GroupedProduct& product, int threads = 0);

/// The numbers of NaN and infinities in all parts, by operand.
NonFiniteReport count_non_finite(const GroupedProduct& product);

}  // namespace fp8lab

#pragma once
// Batched and grouped products: one `Product` for each group, and where its rows stand in the
// output.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fp8lab/product/calls.hpp"
#include "fp8lab/product/groups.hpp"
#include "fp8lab/product/non_finite.hpp"
#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// Rows of one group that stand together.
struct GroupProduct {
  std::int64_t group = 0;
  std::int64_t first_row = 0;  ///< of the output as a matrix, all groups below each other
  Product product;
};

/// Rows of the output that are in no group.
struct UngroupedRows {
  std::int64_t group = 0;  ///< whose rows stand before them (where there are none, behind them)
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  /// What a kernel gives there that forgot the mask: these rows with that group's weights.
  /// Nothing where the operands have no valid scales there.
  std::optional<Product> product{};
};

/// The output is a matrix [rows, columns], whatever its shape: D [G, m, n] has G * m rows.
struct GroupedProduct {
  Groups groups;
  std::int64_t count = 0;  ///< groups
  OutputCast output;
  std::vector<std::int64_t> shape;  ///< of the output: [G, m, n] or [M, n]
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<GroupProduct> parts;  ///< ascending rows; parts without rows or terms among them
  std::vector<UngroupedRows> rest;
  std::optional<Product> whole{};  ///< `k_ends`: all terms in one product, of which parts are cut
  std::vector<GroupPart> terms{};  ///< `k_ends`: the terms of each part

  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(rows * columns); }
  /// The part of a group with the most rows, null if it has none.
  [[nodiscard]] const GroupProduct* find(std::int64_t group) const;
};

/// Each group's product, computed as if it were alone: a recipe quantizes A and B group by group.
///
/// A, B and D: the shapes of `GroupKind`; B [.., k, n] with `transpose_b`. Of the other operands:
///
/// - scales: one value for all; of operands [G, ..] one a group, [G] or [G, 1], or [G, ...] with
///   the grid of one group; of A [M, k] one a group, [G] (if M is not G) or [G, 1, 1], or a grid
///   over [M, k]; of A [m, K] and B [n, K] one a group, [G, 1, 1], one a row of each group, [G,
///   rows] or [G, rows, 1], or a grid over the whole, in which no group ends inside of a tile.
///   `tensor_scale_a` and `_b` hold for all groups; `group_tensor_scales_a` and `_b` have one a
///   group, [G].
/// - C: the shape of D (of the sums under a gate). bias and column_scales: [n] for all, or [G, n].
///   row_scales: [m] for all or [G, m]; under `row_ends` and `row_indices` [M].
///
/// Throws `Error` as `make_product` does, with the group in front, and for an output scale by amax,
/// which may be of a group or of all.
///
/// `call` sets what `with_call` sets, for each group's operands; null: none.
GroupedProduct make_grouped_product(const GemmOperands& operands, const GemmSpec& spec,
                                    const Groups& groups, const LibraryCall* call = nullptr);

/// The same of operands whose instruction is not known, see `make_product_of_unknown_model`.
GroupedProduct make_grouped_product_of_unknown_model(const GemmOperands& operands,
                                                     const OutputCast& output, const Groups& groups,
                                                     const EpilogueSpec& epilogue = {});

/// What is cast to the output's format, [rows, columns]; +0 in rows that are in no group.
std::vector<float> compute(const GroupedProduct& product, int threads = 0);

/// The golden output: codes of those, little endian.
std::vector<std::byte> golden_output(const GroupedProduct& product, int threads = 0);

/// NaN and infinities of all parts, added up by operand.
NonFiniteReport count_non_finite(const GroupedProduct& product);

}  // namespace fp8lab

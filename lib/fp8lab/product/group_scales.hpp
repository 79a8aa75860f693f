#pragma once
// The scales of one operand of a grouped product, group by group.

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/product/groups.hpp"
#include "fp8lab/product/scale_layouts.hpp"

namespace fp8lab {

/// The operand to which scales belong.
struct ScaledOperand {
  std::string argument;      ///< "scale_a", "scale_b"
  bool stacked = false;      ///< [G, rows, k]; else one matrix [rows, k] for all groups
  bool cut_along_k = false;  ///< groups divide the matrix along k, not along rows
  std::int64_t count = 0;    ///< number of groups
  std::int64_t rows = 0;
  std::int64_t k = 0;
};

/// Reads scales once and returns those of each group. Shapes: see `make_grouped_product`.
class GroupScales {
 public:
  /// Throws `Error` that names the argument for shapes that are neither a grid of the whole nor of
  /// a group, and for shapes that could be both.
  GroupScales(const ScaledOperand& operand, const TensorView& tensor, ScaleLayout layout,
              const std::optional<ScaleTiles>& tiles);

  /// Whether they are a grid over the whole matrix, which is divided with it.
  [[nodiscard]] bool whole() const { return each_.size() == 1 && over_whole_; }

  /// The scales of rows [begin, end) of a part, owned by this object. With `cut_along_k`, those of
  /// all rows, unless they are `whole`.
  InverseScales of(const GroupPart& part);

  /// All scales, if `whole`.
  [[nodiscard]] InverseScales all() const;

 private:
  ScaledOperand operand_;
  std::vector<ScaleGrid> each_;  ///< one per group, or one for all
  bool over_whole_ = false;      ///< one grid covers the matrix of all groups
  std::list<std::vector<float>> expanded_;
};

}  // namespace fp8lab

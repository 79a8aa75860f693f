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

/// What scales lie over.
struct ScaledOperand {
  std::string argument;      ///< "scale_a", "scale_b"
  bool stacked = false;      ///< [G, rows, k]; else one matrix [rows, k] that all groups share
  bool cut_along_k = false;  ///< the matrix is cut into groups along k, not along rows
  std::int64_t count = 0;    ///< groups
  std::int64_t rows = 0;
  std::int64_t k = 0;
};

/// Reads scales once and gives each group its own. Shapes: see `make_grouped_product`.
class GroupScales {
 public:
  /// Throws `Error` naming the argument for shapes that are no grid of the whole and none of a
  /// group, and for those that could be either.
  GroupScales(const ScaledOperand& operand, const TensorView& tensor, ScaleLayout layout,
              const std::optional<ScaleTiles>& tiles);

  /// They lie over the whole matrix and are cut with it.
  [[nodiscard]] bool whole() const { return each_.size() == 1 && over_whole_; }

  /// Of rows [begin, end) of a part; the values live in this object. Under `cut_along_k` of all
  /// rows, unless they are `whole`.
  InverseScales of(const GroupPart& part);

  /// All of them, where `whole`.
  [[nodiscard]] InverseScales all() const;

 private:
  ScaledOperand operand_;
  std::vector<ScaleGrid> each_;  ///< one a group, or one for all
  bool over_whole_ = false;      ///< the one grid lies over the matrix of all groups
  std::list<std::vector<float>> expanded_;
};

}  // namespace fp8lab

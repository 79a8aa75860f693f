#pragma once
// Finds the model that explains the output of a batched or grouped product in every group.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/identify/identify.hpp"
#include "fp8lab/product/grouped_product.hpp"

namespace fp8lab {

/// The outputs of a group that the best explanation gives.
struct GroupMatch {
  std::int64_t group = 0;
  std::int64_t first_row = 0;  ///< of the output as a matrix
  std::uint64_t matches = 0;
  std::uint64_t compared = 0;
};

struct GroupedIdentification {
  /// The result for the group with the most outputs. Members of its best class that contradict a
  /// sample of at most 64 x 64 outputs of another group are left out, unless none would remain.
  Identification found;
  std::int64_t group = 0;
  std::vector<GroupMatch> groups;  ///< all groups, for the first member of the best class

  /// Whether it gives every output of every group.
  [[nodiscard]] bool explained() const;
};

/// As `identify` above. `got`: the codes of the whole output [rows, columns]; rows in no group are
/// ignored. Throws `Error` as `identify`, and if no group has outputs.
GroupedIdentification identify(const GroupedProduct& product, const Operand& got, int threads = 0,
                               std::span<const std::string> models = {});

/// The ranking, and the groups that it does not explain.
std::string describe(const GroupedIdentification& result, std::size_t most = 5);

}  // namespace fp8lab

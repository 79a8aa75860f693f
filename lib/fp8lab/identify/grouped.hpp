#pragma once
// Which model explains the output of a batched or grouped product in every group?

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/identify/identify.hpp"
#include "fp8lab/product/grouped_product.hpp"

namespace fp8lab {

/// How much of a group the best explanation gives.
struct GroupMatch {
  std::int64_t group = 0;
  std::int64_t first_row = 0;  ///< of the output as a matrix
  std::uint64_t matches = 0;
  std::uint64_t compared = 0;
};

struct GroupedIdentification {
  /// Of the group with the most outputs. Members of its best class that do not give a sample of at
  /// most 64 x 64 outputs of some other group are left out, as long as others remain.
  Identification found;
  std::int64_t group = 0;
  std::vector<GroupMatch> groups;  ///< whole groups under the first member of the best class

  /// It gives every output of every group.
  [[nodiscard]] bool explained() const;
};

/// As `identify`. `got`: codes of the whole output [rows, columns]; rows in no group are not
/// looked at. Throws `Error` as there, and for no group with outputs.
GroupedIdentification identify(const GroupedProduct& product, const Operand& got, int threads = 0,
                               std::span<const std::string> models = {});

/// The ranking, and the groups that it does not explain.
std::string describe(const GroupedIdentification& result, std::size_t most = 5);

}  // namespace fp8lab

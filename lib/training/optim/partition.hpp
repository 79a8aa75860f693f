#pragma once
// ZeRO with whole tensors: FP8-LM's greedy distribution, its Algorithm 1.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fp8lab {

struct Partition {
  std::vector<std::size_t> rank_of;  ///< a rank for each tensor
  std::vector<std::int64_t> load;    ///< bytes of each rank

  [[nodiscard]] std::int64_t largest() const;
  [[nodiscard]] std::int64_t smallest() const;
  /// Largest load over the mean, minus one; 0 for no bytes at all.
  [[nodiscard]] double imbalance() const;
};

/// Tensors by size, largest first (equal sizes in the order given), each to the
/// rank with the least bytes so far (the first of equals), so that a tensor and its
/// scale stay together. Throws `Error` for ranks below 1 or negative sizes.
Partition partition_whole_tensors(std::span<const std::int64_t> bytes, std::int64_t ranks);

}  // namespace fp8lab

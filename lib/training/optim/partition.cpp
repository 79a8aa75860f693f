#include "training/optim/partition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "fp8lab/core/error.hpp"

namespace fp8lab {

std::int64_t Partition::largest() const { return *std::max_element(load.begin(), load.end()); }
std::int64_t Partition::smallest() const { return *std::min_element(load.begin(), load.end()); }

double Partition::imbalance() const {
  const std::int64_t total = std::accumulate(load.begin(), load.end(), std::int64_t{0});
  if (total == 0) return 0.0;
  const double mean = static_cast<double>(total) / static_cast<double>(load.size());
  return static_cast<double>(largest()) / mean - 1.0;
}

Partition partition_whole_tensors(std::span<const std::int64_t> bytes, std::int64_t ranks) {
  require(ranks >= 1, "ranks", "at least 1", fmt::format("{}", ranks));
  for (const std::int64_t size : bytes)
    require(size >= 0, "bytes", "sizes of 0 or more", fmt::format("{}", size));
  std::vector<std::size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  Partition partition;
  partition.rank_of.resize(bytes.size());
  partition.load.resize(static_cast<std::size_t>(ranks));
  for (const std::size_t tensor : order) {
    const auto least = std::min_element(partition.load.begin(), partition.load.end());
    *least += bytes[tensor];
    partition.rank_of[tensor] = static_cast<std::size_t>(least - partition.load.begin());
  }
  return partition;
}

}  // namespace fp8lab

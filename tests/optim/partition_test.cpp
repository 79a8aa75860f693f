#include "fp8lab/optim/partition.hpp"

#include <numeric>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;

TEST_CASE("whole tensors go to the least loaded rank, largest first", "[optim]") {
  const std::vector<std::int64_t> bytes{3, 7, 5, 5, 2};
  const Partition p = partition_whole_tensors(bytes, 2);
  // 7 -> 0; 5 -> 1; 5 -> 1; 3 -> 0; 2: both hold 10, so rank 0.
  CHECK(p.rank_of == std::vector<std::size_t>{0, 0, 1, 1, 0});
  CHECK(p.load == std::vector<std::int64_t>{12, 10});
  CHECK(p.imbalance() == 12.0 / 11.0 - 1.0);
}

TEST_CASE("a tensor larger than a fair share unbalances every partition", "[optim]") {
  const std::vector<std::int64_t> bytes{100, 1, 1, 1, 1};
  const Partition p = partition_whole_tensors(bytes, 4);
  CHECK(p.largest() == 100);
  CHECK(p.smallest() == 1);
  CHECK(std::accumulate(p.load.begin(), p.load.end(), std::int64_t{0}) == 104);
}

TEST_CASE("partitions need ranks and sizes", "[optim]") {
  const std::vector<std::int64_t> negative{-1};
  CHECK_THROWS_WITH(partition_whole_tensors({}, 0), contains("ranks"));
  CHECK_THROWS_WITH(partition_whole_tensors(negative, 1), contains("bytes"));
  CHECK(partition_whole_tensors({}, 3).imbalance() == 0.0);
}

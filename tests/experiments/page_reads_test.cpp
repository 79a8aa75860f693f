#include "common/page_reads.hpp"

#include <unistd.h>

#include <cmath>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

TEST_CASE("pages are counted when they come, and leave in the order in which they came",
          "[experiments]") {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::vector<float> values(4 * page / sizeof(float), 1.0F);
  const auto pages_read = [&](std::size_t window, const std::vector<std::size_t>& order) {
    PageCountedTensor counted(values, window * page);
    const volatile float* data = counted.values().data();
    float sum = 0.0F;
    const double reads = counted.reads([&] {
      for (const std::size_t at : order) sum += data[at * page / sizeof(float)];
    });
    CHECK(sum == static_cast<float>(order.size()));
    return std::lround(4.0 * reads);
  };
  CHECK(pages_read(4, {0, 1, 2, 3}) == 4);
  CHECK(pages_read(4, {0, 1, 2, 3, 0, 3}) == 4);
  CHECK(pages_read(2, {0, 1, 0, 1}) == 2);
  CHECK(pages_read(2, {0, 1, 2, 0}) == 4);     // 0 left for 2
  CHECK(pages_read(2, {0, 1, 2, 1, 0}) == 4);  // 1 is still there
  CHECK(pages_read(1, {0, 0, 1, 0}) == 3);
  CHECK(pages_read(3, {0, 1, 2, 3, 1, 0}) == 5);
  CHECK_THROWS_WITH(PageCountedTensor(values, page - 1), contains("window_bytes"));
}

#include "walkthrough/walkthrough.hpp"

#include <array>
#include <cmath>

#include "catch.hpp"

using namespace fp8lab::experiments;

namespace {

const WalkthroughRow& row(const std::vector<WalkthroughRow>& rows, double outlier,
                          std::string_view scaling, int index) {
  for (const WalkthroughRow& r : rows)
    if (r.outlier == outlier && r.scaling == scaling && r.index == index) return r;
  FAIL("no such row");
  return rows.front();
}

}  // namespace

TEST_CASE("the walk-through's first cast is the text's", "[experiments]") {
  const std::vector<WalkthroughRow> rows = walkthrough_rows();
  REQUIRE(rows.size() == 15);
  const std::array expected{0.8125, -0.203125, 448.0, 0.1015625, -0.625};
  for (int i = 0; i < 5; ++i) {
    const WalkthroughRow& r = row(rows, 220.0, "per tensor", i);
    INFO("element " << i);
    CHECK(r.preserved.quantized == expected[static_cast<std::size_t>(i)]);
    CHECK(r.flushed.quantized == r.preserved.quantized);
    CHECK(agrees(r.preserved.quantized, r.text.quantized.value(), 4));
    CHECK(agrees(r.preserved.value_back, r.text.value_back.value(), 4));
  }
}

TEST_CASE("with the outlier at 4400 two elements die only if subnormals are flushed",
          "[experiments]") {
  const std::vector<WalkthroughRow> rows = walkthrough_rows();
  const WalkthroughRow& third = row(rows, 4400.0, "per tensor", 3);
  CHECK(third.preserved.quantized == 0.005859375);  // 3 * 2^-9
  CHECK(third.flushed.quantized == 0.0);
  const WalkthroughRow& first = row(rows, 4400.0, "per tensor", 1);
  CHECK(first.preserved.quantized == -0.009765625);  // 5 * 2^-9
  CHECK(first.flushed.quantized == 0.0);
  CHECK_FALSE(agrees(first.preserved.quantized, first.text.quantized.value(), 4));
  CHECK_FALSE(agrees(first.flushed.quantized, first.text.quantized.value(), 4));
}

TEST_CASE("per tile the second tile is cast as the text says", "[experiments]") {
  const std::vector<WalkthroughRow> rows = walkthrough_rows();
  CHECK(row(rows, 4400.0, "per tile", 3).preserved.quantized == 72.0);
  CHECK(row(rows, 4400.0, "per tile", 4).preserved.quantized == -448.0);
  CHECK(row(rows, 4400.0, "per tile", 1).preserved.code ==
        row(rows, 4400.0, "per tensor", 1).preserved.code);
}

TEST_CASE("agreement is one unit of the last printed place", "[experiments]") {
  CHECK(agrees(0.30692, 0.3070, 4));
  CHECK_FALSE(agrees(0.30672, 0.3070, 4));
  CHECK_FALSE(agrees(0.009766, 0.0176, 4));
}

TEST_CASE("the text's grid values lie on the grid but skip some of it", "[experiments]") {
  int skips = 0;
  for (const GridValue& v : grid_values()) {
    INFO(v.text);
    CHECK(v.is_e4m3);
    if (!v.next_agrees) ++skips;
  }
  CHECK(skips == 2);  // 0.8125 and 0.9375
}

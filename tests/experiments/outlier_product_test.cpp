// The part of an output that all elements but the outlier contribute. What it loses follows from
// what the casts lose: nothing but rounding, the outlier's tile, or all of it.

#include "outlier/product.hpp"

#include <cmath>
#include <string>

#include "catch.hpp"
#include "experiments/quick_run.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;
using namespace fp8lab::experiments::outlier_sweep;

namespace {

/// The mean over eight draws of 64 outputs.
double mean_error(double outlier, std::size_t k, const ProductScheme& scheme) {
  const RandomStream random(3, 5);
  double sum = 0.0;
  for (std::uint64_t i = 0; i < 8; ++i)
    sum += product_error(RandomStream(random.bits64(i), i), 0.4, outlier, k, 64, scheme);
  return sum / 8.0;
}

}  // namespace

TEST_CASE("an outlier takes from an output what its scale takes from the others", "[experiments]") {
  const ProductScheme& tensor = product_schemes()[0];
  const ProductScheme& tiles = product_schemes()[1];
  REQUIRE(tensor.tile == 0);
  REQUIRE(tiles.tile == 128);
  // Two casts with 2.6 % each, independent: 3.7 %.
  for (const ProductScheme* scheme : {&tensor, &tiles}) {
    const double small = mean_error(1.0, 1024, *scheme);
    CHECK(small > 0.030);
    CHECK(small < 0.045);
  }
  // Of one scale for all, nothing is left: the error is the sum itself.
  CHECK(std::abs(mean_error(1e6, 1024, tensor) - 1.0) < 0.02);
  // Of tiles, the outlier's is lost: 128 of K elements, and the square root of that of the norm.
  for (const std::size_t k : {1024U, 4096U}) {
    INFO("k " << k);
    const double lost = std::sqrt(128.0 / static_cast<double>(k));
    CHECK(std::abs(mean_error(1e6, k, tiles) - lost) < 0.25 * lost);
  }
  // The unit aligns to the outlier's product: far more than the cast of the row loses.
  CHECK(mean_error(1e4, 4096, tensor) > 0.25);
}

TEST_CASE("the product part of the outlier experiment can be left out or changed",
          "[experiments]") {
  const std::vector<std::string> small{"elements=256", "repeats=1", "published_repeats=1",
                                       "containment_elements=64"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), small.begin(), small.end());
    return run_quick("outlier", 1, more);
  };
  const Results none = with({"product_k=[]"});
  for (const Table& table : none.tables) CHECK(table.name() != "product");
  const Results two = with({"product_k=[256,64]", "product_outputs=2"});
  const Table& table = two.tables.back();
  REQUIRE(table.name() == "product");
  CHECK(table.rows().size() == 2 * 2 * 7);  // schemes, K, decades of outliers
  // Plots over the outlier's magnitude show it in units of sigma too.
  const Results other = with({"product_k=[64]", "product_outputs=2", "sigma=0.25"});
  int with_units = 0;
  for (const Plot& plot : other.plots) {
    if (plot.x.label != "magnitude of the one outlier") continue;
    INFO(plot.name);
    REQUIRE(plot.x.second.has_value());
    CHECK(plot.x.second->unit == 0.25);
    ++with_units;
  }
  CHECK(with_units == 4);
  CHECK_THROWS_WITH(with({"product_k=1"}), contains("product_k"));
  CHECK_THROWS_WITH(with({"product_outputs=0"}), contains("product_outputs"));
}

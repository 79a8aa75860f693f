#include <algorithm>
#include <cmath>

#include "catch.hpp"
#include "common/tensors.hpp"
#include "dynamic-range/dynamic_range.hpp"
#include "experiments/quick_run.hpp"
#include "format-asymmetry/format_asymmetry.hpp"
#include "fp8lab/core/error.hpp"
#include "outlier/outlier.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

namespace {

const Format& kE4M3 = format(FormatId::e4m3fn);
const Format& kE5M2 = format(FormatId::e5m2);

double rounded(double x) { return std::round(x * 100.0) / 100.0; }

}  // namespace

TEST_CASE("the ranges of the two FP8 formats", "[experiments]") {
  CHECK(range_of(kE4M3).max_finite / range_of(kE4M3).min_normal == 28672.0);
  CHECK(range_of(kE4M3).max_finite / range_of(kE4M3).min_subnormal == 229376.0);
  CHECK(rounded(range_of(kE4M3).decades_normal) == 4.46);
  CHECK(rounded(range_of(kE4M3).decades_with_subnormals) == 5.36);
  CHECK(rounded(range_of(kE5M2).decades_normal) == 8.97);
  CHECK(rounded(range_of(kE5M2).decades_with_subnormals) == 9.57);
}

TEST_CASE("survival counts the edges of E4M3 exactly", "[experiments]") {
  // 2^-10 ties to even zero, the next float above it survives; 464 ties down to
  // 448, the next float saturates.
  const std::vector<float> x{0.0F,    0x1p-10F, std::nextafter(0x1p-10F, 1.0F), 0x1p-7F,
                             0x1p-6F, -464.0F,  std::nextafter(464.0F, 500.0F)};
  const SurvivalShares kept = survival(x, 1.0, kE4M3, kNvidiaSatfinite);
  CHECK(kept.crushed == 1.0 / 6.0);
  CHECK(kept.saturated == 1.0 / 6.0);
  CHECK(kept.representable == 4.0 / 6.0);
  CHECK(kept.accurate == 3.0 / 6.0);  // all kept but the float above 2^-10, which doubles
  const SurvivalShares flushed = survival(x, 1.0, kE4M3, kFlush);
  CHECK(flushed.crushed == 3.0 / 6.0);
  CHECK(flushed.representable == 2.0 / 6.0);
  CHECK(survival(x, 2.0, kE4M3, kNvidiaSatfinite).crushed == 0.0);
  CHECK(survival(std::vector<float>{0.0F}, 1.0, kE4M3, kFlush).representable == 0.0);
}

TEST_CASE("one scale cannot hold seven decades in E4M3, but can in E5M2", "[experiments]") {
  std::vector<float> x = log_uniform(RandomStream(3, "seven"), 8000, 7.0);
  normalize_amax(x);
  const std::vector<double> scales{1e2, 448.0, 1e3, 1e4, 57344.0, 1e5};
  const auto best = [&](const Format& f, const CastPolicy& policy) {
    return best_of(scales, sweep(x, scales, f, policy)).shares.representable;
  };
  // The window of what neither vanishes nor saturates: 464 / 2^-10 and 464 / 2^-6.
  CHECK(std::abs(best(kE4M3, kNvidiaSatfinite) - std::log10(464.0 * 1024.0) / 7.0) < 0.02);
  CHECK(std::abs(best(kE4M3, kFlush) - std::log10(464.0 * 64.0) / 7.0) < 0.02);
  CHECK(best(kE5M2, kFlush) == 1.0);
}

TEST_CASE("tiles contain an outlier", "[experiments]") {
  const RandomStream random(5, "contain");
  const OutlierTensor shape{4096, 0.4, 1e5, 2048, false};
  const OutlierSpread tensor = repeat_damage(random, shape, 2, 0, kE4M3, kNvidiaSatfinite);
  double last = 0.0;
  for (const std::size_t tile : {16U, 32U, 64U, 128U, 256U}) {
    CAPTURE(tile);
    const OutlierSpread tiled = repeat_damage(random, shape, 2, tile, kE4M3, kNvidiaSatfinite);
    CHECK(tiled.bulk_relative_l2.max <= tensor.bulk_relative_l2.min);
    CHECK(tiled.bulk_relative_l2.mean > last);
    last = tiled.bulk_relative_l2.mean;
    CHECK(tiled.crushed.max < static_cast<double>(tile));
    CHECK(tiled.damaged.mean > 0.7 * static_cast<double>(tile));
    CHECK(tiled.damaged.mean < 1.3 * static_cast<double>(tile));
  }
  CHECK(tensor.damaged.min > 3000.0);
}

TEST_CASE("an outlier of a thousand costs the bulk little, of a million all", "[experiments]") {
  const RandomStream random(5, "magnitude");
  const auto bulk = [&](double outlier, const CastPolicy& policy) {
    return repeat_damage(random, {4096, 0.4, outlier, 2048, false}, 2, 0, kE4M3, policy)
        .bulk_relative_l2;
  };
  CHECK(bulk(1e3, kNvidiaSatfinite).max < 0.03);
  CHECK(bulk(1e3, kFlush).min > bulk(1e3, kNvidiaSatfinite).max);
  CHECK(bulk(1e5, kNvidiaSatfinite).mean > 0.25);
  CHECK(bulk(1e5, kNvidiaSatfinite).mean < 0.40);
  CHECK(bulk(1e5, kFlush).mean == 1.0);
  CHECK(bulk(1e6, kNvidiaSatfinite).mean == 1.0);
  CHECK_THROWS_WITH(make_outlier_tensor(random, {16, 0.4, 1.0, 16, false}),
                    contains("outlier_index: expected below 16"));
}

TEST_CASE("each format fails where its recipe says", "[experiments]") {
  LayerShape shape;
  shape.tokens = 128;
  shape.inputs = 64;
  shape.outputs = 128;
  const Layer layer = make_layer(RandomStream(2, "layer"), shape);
  CHECK(make_gradient(RandomStream(2, "layer"), shape) == layer.dy);
  const auto zero_share = [&](const Format& f, ScaleBlock block) {
    return tensor_loss(layer.dy, quantize(layer.dy, 128, 128, block, f, kNvidiaSatfinite))
        .zero_share;
  };
  CHECK(zero_share(kE4M3, kPerTensor) > 0.1);
  CHECK(zero_share(kE5M2, kPerTensor) < 0.01);
  CHECK(zero_share(kE4M3, tile(128)) < 0.02);

  ProductSetup setup;
  setup.tile = 32;
  setup.promotion_interval = 32;
  const auto forward = [&](const Recipe& recipe) {
    return product_error(layer, recipe, Product::forward, setup).error.relative_l2;
  };
  CHECK(forward(kRecipes[1]) > 1.5 * forward(kRecipes[0]));  // E5M2 against E4M3
  CHECK(forward(kRecipes[2]) == forward(kRecipes[0]));       // hybrid is E4M3 forward
  CHECK(forward(kRecipes[3]) < forward(kRecipes[0]));        // fine scales
}

TEST_CASE("products of quantized operands equal those of their values", "[experiments]") {
  LayerShape shape;
  shape.tokens = 40;
  shape.inputs = 96;
  shape.outputs = 72;
  const Layer layer = make_layer(RandomStream(4, "layer"), shape);
  const Quantized x = quantize(layer.x, 40, 96, tile(32), kE4M3, kNvidiaSatfinite);
  const Quantized w = quantize(layer.w, 72, 96, {32, 32}, kE4M3, kNvidiaSatfinite);
  // A layer of the reconstructed values survives the same cast, so its FP8
  // product differs from its FP64 product by binary32 roundings alone.
  Layer again = layer;
  again.x = x.values;
  again.w = w.values;
  ProductSetup setup;
  setup.tile = 32;
  setup.promotion_interval = 32;
  setup.exact = true;
  const ProductError error = product_error(again, kRecipes[3], Product::forward, setup);
  CHECK(error.error.relative_l2 < 1e-6);
  CHECK(error.row_error.size() == 40);
  CHECK(error.median_row_error() <= error.worst_row_error());
}

TEST_CASE("dynamic-range: best_scale is the mean of its draws, survival the first",
          "[experiments]") {
  const Results results =
      run_quick("dynamic-range", 1,
                {"elements=400", "repeats=3", "scales_per_decade=2", "formats=e4m3fn",
                 "policies=nvidia_satfinite", "distributions=log_normal", "decades=7"});
  const Table& draws = table_named(results, "best_scale_repeats");
  REQUIRE(draws.rows().size() == 3);
  const std::vector<Cell>& best = table_named(results, "best_scale").rows().at(0);
  double sum = 0.0;
  for (const std::vector<Cell>& row : draws.rows()) sum += std::get<double>(row[7]);
  CHECK(std::abs(std::get<double>(best[10]) - sum / 3.0) < 1e-12);
  CHECK(std::get<double>(best[11]) < std::get<double>(best[12]));  // draws differ
  double most = 0.0;
  for (const std::vector<Cell>& row : table_named(results, "survival").rows())
    most = std::max(most, std::get<double>(row[5]));
  CHECK(most == std::get<double>(draws.rows()[0][6]));
}

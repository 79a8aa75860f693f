// Statistics of tensors with infinities, and transposes of tensors with a calibrated upper level.

#include <cmath>
#include <limits>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/scaling/statistics.hpp"

using namespace fp8lab;

TEST_CASE("statistics: an infinity is in no range of a tile", "[scaling]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x{1.0F,      8.0F,       kInfinity, -kInfinity,  // 3 octaves
                             kInfinity, -kInfinity, 0.0F,      kInfinity,   // none
                             0.5F,      0.5F,       -0.5F,     kInfinity,   // 0 octaves
                             2.0F,      -0.25F,     -0.0F,     -1.0F};      // 3 octaves
  const Recipe recipe{.format = FormatId::e4m3fn, .row_block = 1, .k_block = 4};
  const QuantizationStatistics s = quantization_statistics({x, 4, 4}, quantize(recipe, {x, 4, 4}));
  CHECK(s.tile_range_max == 3.0);
  CHECK(s.tile_range_mean == 2.0);
}

TEST_CASE("two levels: a calibrated upper level is the transpose's too", "[scaling]") {
  constexpr std::int64_t kRows = 32;
  constexpr std::int64_t kColumns = 48;
  const RandomStream random(6, "calibrated");
  std::vector<float> x;
  std::vector<float> turned(kRows * kColumns);
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    x.push_back(static_cast<float>(random.normal(static_cast<std::uint64_t>(i))));
    turned[static_cast<std::size_t>(i % kColumns * kRows + i / kColumns)] = x.back();
  }
  for (const ScaleRule rule : {ScaleRule::nvfp4, ScaleRule::modelopt_nvfp4}) {
    Quantizer quantizer(Recipe{.format = FormatId::e2m1,
                               .rule = rule,
                               .source = ScaleSource::calibration,
                               .row_block = 1,
                               .k_block = 16});
    const float samples = 12.0F;
    quantizer.observe({{&samples, 1}, 1, 1});
    const QuantizedTensor both = quantizer.quantize({x, kRows, kColumns}, true);
    const QuantizedTensor want = quantizer.quantize({turned, kColumns, kRows});
    INFO(to_string(rule));
    REQUIRE(both.transposed);
    CHECK(both.transposed->tensor_inverse_scale == both.tensor_inverse_scale);
    CHECK(both.transposed->tensor_inverse_scale == want.tensor_inverse_scale);
    CHECK(both.transposed->ue4m3 == want.ue4m3);
    CHECK(both.transposed->codes == want.codes);
  }
}

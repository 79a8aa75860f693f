// FP4 and FP6 recipes of training: the block-scaled instruction applies the scales.

#include <cmath>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/linear/linear_recipe.hpp"
#include "fp8lab/linear/products.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

std::vector<float> normal(std::int64_t count, std::uint64_t seed) {
  const RandomStream stream(seed, "block scaled training");
  std::vector<float> x;
  for (std::int64_t i = 0; i < count; ++i)
    x.push_back(static_cast<float>(stream.normal(static_cast<std::uint64_t>(i))));
  return x;
}

bool same_model(const AccumulatorModel& model, std::string_view name) {
  const AccumulatorModel& other = find_instruction_model(name).accumulator;
  return model.kind == other.kind && model.terms == other.terms &&
         model.alignment_fraction_bits == other.alignment_fraction_bits;
}

}  // namespace

TEST_CASE("training: blocks of FP8, FP6 and FP4 run under the block-scaled instruction",
          "[train]") {
  for (const auto& [name, model] : std::vector<std::pair<std::string, std::string>>{
           {"nvfp4", "sm100.tcgen05.mxf4nvf4"},
           {"te-nvfp4", "sm100.tcgen05.mxf4nvf4"},
           {"mxfp4", "sm100.tcgen05.mxf4nvf4"},
           {"te-mxfp8", "sm100.tcgen05.mxf8f6f4.e4m3"},
           {"torchao-mxfp8-rceil", "sm100.tcgen05.mxf8f6f4.e4m3"},
           {"mxfp6-e2m3", "sm100.tcgen05.mxf8f6f4.e2m3"},
           {"mxfp6-e3m2", "sm100.tcgen05.mxf8f6f4.e3m2"}}) {
    INFO(name);
    const LinearRecipe recipe = find_linear_recipe(name);
    for (const GemmSettings* product : {&recipe.forward, &recipe.dgrad, &recipe.wgrad}) {
      CHECK(is_fp8(*product));
      CHECK(product->promotion_interval == 0);
      CHECK(same_model(product->accumulator, model));
    }
    CHECK(recipe.bf16_outputs);
  }
}

TEST_CASE("training: hardware moves block-scaled products", "[train]") {
  const LinearRecipe mxfp8 = find_linear_recipe("te-mxfp8");
  // Hopper has no such instruction: its library kernels would apply the scales every 32 terms.
  const LinearRecipe hopper = on_hardware(mxfp8, "sm90");
  CHECK(hopper.forward.promotion_interval == 32);
  CHECK(same_model(hopper.wgrad.accumulator, "sm90.wgmma.e4m3"));
  CHECK(on_hardware(hopper, "sm100").forward.promotion_interval == 0);
  CHECK(on_hardware(mxfp8, "exact").dgrad.promotion_interval == 32);
  // Blocks of 16 are promoted every 16 terms; an interval that is there stays.
  CHECK(on_hardware(find_linear_recipe("nvfp4"), "exact").dgrad.promotion_interval == 16);
  GemmSettings own = mxfp8.forward;
  own.promotion_interval = 64;
  CHECK(on_hardware(own, mxfp8.activation, "sm90").promotion_interval == 64);
  CHECK(on_hardware(own, mxfp8.activation, "sm120").promotion_interval == 0);
  CHECK(same_model(on_hardware(mxfp8, "sm120").forward.accumulator, "sm120.mma.mxf8f6f4.e4m3"));
  CHECK(same_model(on_hardware(find_linear_recipe("nvfp4"), "sm120").dgrad.accumulator,
                   "sm120.mma.mxf4nvf4"));
  CHECK(on_hardware(find_linear_recipe("te-current"), "sm120").dgrad.promotion_interval == 128);
  for (const char* name : {"nvfp4", "mxfp4", "mxfp6-e3m2"})
    CHECK_THROWS_WITH(on_hardware(find_linear_recipe(name), "sm90"),
                      Catch::Matchers::Contains("hardware: expected sm100 or sm120"));
}

TEST_CASE("training: a product of NVFP4 codes has both levels of scales", "[train]") {
  constexpr std::int64_t kRows = 16;
  constexpr std::int64_t kColumns = 32;
  constexpr std::int64_t kK = 128;
  const std::vector<float> x = normal(kRows * kK, 1);
  const std::vector<float> w = normal(kColumns * kK, 2);
  for (const char* name : {"nvfp4", "te-nvfp4", "mxfp4"}) {
    INFO(name);
    const LinearRecipe recipe = find_linear_recipe(name);
    const QuantizedTensor a = quantize(recipe.activation, {x, kRows, kK});
    const QuantizedTensor b = quantize(recipe.weight, {w, kColumns, kK});
    std::vector<float> d(kRows * kColumns);
    fp8_product(recipe.forward, codes_of(a), codes_of(b), d, 1);
    // What the codes stand for, summed in binary64: a sum of 35 bits is close to it.
    const std::vector<float> left = dequantize(a);
    const std::vector<float> right = dequantize(b);
    for (std::int64_t i = 0; i < kRows; ++i)
      for (std::int64_t j = 0; j < kColumns; ++j) {
        double sum = 0.0;
        double magnitude = 0.0;
        for (std::int64_t k = 0; k < kK; ++k) {
          const double term = static_cast<double>(left[static_cast<std::size_t>(i * kK + k)]) *
                              static_cast<double>(right[static_cast<std::size_t>(j * kK + k)]);
          sum += term;
          magnitude += std::abs(term);
        }
        const double got = static_cast<double>(d[static_cast<std::size_t>(i * kColumns + j)]);
        CHECK(std::abs(got - sum) <= magnitude * 0x1p-21);
      }
  }
}

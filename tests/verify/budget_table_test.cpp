// What the budget of one element is for products of every kind, to six digits.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/verify/budget.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// Element [1, 2] of a product.
std::string budget_line(const std::string& name, const Product& product) {
  const ErrorBudget b = error_budget(product, 1, 2);
  if (b.special) return name + ": special\n";
  std::string text = fmt::format("{}: {:.6g}, {:.6g} + {:.6g} + {:.6g}", name, b.exact,
                                 b.quantization, b.accumulation, b.rounding);
  if (product.output.format != FormatId::f32)
    return text + fmt::format(", {:x} to {:x}\n", b.low, b.high);
  // The ends in binary32, of which the errors are no less than the sum's.
  const double reach = b.quantization + b.accumulation;
  const auto low = static_cast<double>(std::bit_cast<float>(b.low));
  const auto high = static_cast<double>(std::bit_cast<float>(b.high));
  const double step = std::max(std::abs(low), std::abs(high)) * 0x1p-23;
  const bool right = low <= b.exact - reach && low >= b.exact - reach - step &&
                     high >= b.exact + reach && high <= b.exact + reach + step;
  return text + (right ? "\n" : ", other ends\n");
}

RandomProduct::Options odd_sizes(std::int64_t k) { return {.shape = {3, 5, k}}; }

}  // namespace

TEST_CASE("budget: of one element of products of every kind", "[verify]") {
  std::string all;
  for (const char* model :
       {"sm90.wgmma.e4m3", "sm89.mma.e4m3", "sm100.mma.e4m3", "sm90.mma.e4m3.f16",
        "gfx942.mfma.fp8", "fp32", "exact", "sequential14.rz"})
    for (const std::int64_t interval : {0, 64})
      all += budget_line(
          fmt::format("{} {}", model, interval),
          RandomProduct({.model = model, .promotion_interval = interval}, odd_sizes(200)).product);
  const std::vector<float> values{0.75F, -1.5F, 2.0F, 0.3F, -0.6F};
  std::vector<float> matrix;
  for (int i = 0; i < 15; ++i) matrix.push_back(0.5F * static_cast<float>(i) - 3.0F);
  for (const int scales : {0, 1, 2})
    for (const bool with_c : {false, true}) {
      RandomProduct::Options options = odd_sizes(256);
      options.with_c = with_c;
      if (scales == 1) options.tiles_a = {3}, options.tiles_b = {5};
      if (scales == 2) options.tiles_a = {3, 2}, options.tiles_b = {5, 2};
      const RandomProduct random({.promotion_interval = 64}, options);
      Product product = random.product;
      if (!with_c) {
        all += budget_line(fmt::format("scales {}", scales), product);
        continue;
      }
      for (const CPlacement place : possible_c_placements(product.problem)) {
        product.problem.c_enters = place;
        all += budget_line(fmt::format("scales {}, C in {}", scales, to_string(place)), product);
      }
    }
  for (const SplitCut cut : {SplitCut::contiguous, SplitCut::modulo})
    for (const int parts : {2, 4}) {
      RandomProduct::Options options = odd_sizes(256);
      options.tiles_a = {3};
      const RandomProduct random({.promotion_interval = 64}, options);
      Product product = random.product;
      product.split = {.parts = parts, .cut = cut};
      all += budget_line(fmt::format("{} parts {}", parts, to_string(cut)), product);
    }
  for (const Activation activation : activations()) {
    RandomProduct::Options options = odd_sizes(64);
    options.shape.n = 6;
    const RandomProduct random({.output = default_output(FormatId::bf16)}, options);
    Product product = random.product;
    std::vector<float> six = values;
    six.push_back(1.25F);
    Epilogue& e = product.epilogue;
    e.activation = activation;
    e.slope = -1.7F;
    all += budget_line(std::string(to_string(activation)), product);
    e.alpha = 0.3F;
    e.row_scales = std::span(values).first(3);
    e.column_scales = six;
    e.bias = six;
    e.beta = -0.9F;
    matrix.resize(18, 0.7F);
    e.c = matrix.data();
    e.activation_ulps = 9.0F;
    e.output_scale = 3.5F;
    all += budget_line(fmt::format("{} and all", to_string(activation)), product);
  }
  RandomProduct nothing({.c_enters = CPlacement::accumulator},
                        {.shape = {3, 5, 64}, .with_c = true});
  nothing.product.problem.a.k = nothing.product.problem.b.k = 0;
  all += budget_line("no terms", nothing.product);
  nothing.product.problem.c = nullptr;
  all += budget_line("no terms and no C", nothing.product);
  std::vector<float> normal;
  const RandomStream draws(4, "budget table");
  for (std::uint64_t i = 0; i < 5 * 128; ++i) normal.push_back(static_cast<float>(draws.normal(i)));
  for (const auto& [preset, model] : {std::pair{"te-current", "sm90.wgmma.e4m3"},
                                      {"torchao-rowwise", "sm90.wgmma.e4m3"},
                                      {"ocp-mxfp8", "sm100.tcgen05.mxf8f6f4.e4m3"},
                                      {"nvfp4", "sm120.mma.mxf4nvf4"}}) {
    GemmOperands operands;
    operands.a.codes =
        view_of(ElementType::f32, {3, 128}, std::span<const float>(normal).first(384));
    operands.b.codes = view_of(ElementType::f32, {5, 128}, std::span<const float>(normal));
    operands.recipe = preset;
    for (const FormatId output : {FormatId::f32, FormatId::f16, FormatId::e4m3fn}) {
      const Product product =
          make_product(operands, {.model = model, .output = default_output(output)});
      all += budget_line(fmt::format("{} to {}", preset, format(output).name), product);
      Product around = product;
      around.epilogue.alpha = 0.3F;
      around.epilogue.bias = values;
      around.epilogue.output_scale = 3.5F;
      all += budget_line("  with an epilogue", around);
    }
  }
  CHECK(all ==
        "sm90.wgmma.e4m3 0: 5.99001, 0 + 0.164958 + 2.38419e-07\n"
        "sm90.wgmma.e4m3 64: 5.99001, 0 + 0.0517 + 2.38419e-07\n"
        "sm89.mma.e4m3 0: 5.99001, 0 + 0.202455 + 2.38419e-07\n"
        "sm89.mma.e4m3 64: 5.99001, 0 + 0.0718204 + 2.38419e-07\n"
        "sm100.mma.e4m3 0: 5.99001, 0 + 2.35365e-05 + 2.38419e-07\n"
        "sm100.mma.e4m3 64: 5.99001, 0 + 2.54943e-05 + 2.38419e-07\n"
        "sm90.mma.e4m3.f16 0: 5.99001, 0 + 0.081919 + 2.38419e-07\n"
        "sm90.mma.e4m3.f16 64: 5.99001, 0 + 0.0606698 + 2.38419e-07\n"
        "gfx942.mfma.fp8 0: 5.99171, 0 + 0.00012651 + 2.38419e-07\n"
        "gfx942.mfma.fp8 64: 5.99171, 0 + 5.087e-05 + 2.38419e-07\n"
        "fp32 0: 5.99001, 0 + 0.000242827 + 2.38419e-07\n"
        "fp32 64: 5.99001, 0 + 9.40736e-05 + 2.38419e-07\n"
        "exact 0: 5.99001, 0 + 3.57038e-07 + 2.38419e-07\n"
        "exact 64: 5.99001, 0 + 5.67203e-06 + 2.38419e-07\n"
        "sequential14.rz 0: 5.99001, 0 + 0.497309 + 2.38419e-07\n"
        "sequential14.rz 64: 5.99001, 0 + 0.183374 + 2.38419e-07\n"
        "scales 0: -27.9391, 0 + 0.12085 + 9.53674e-07\n"
        "scales 0, C in accumulator: -26.9699, 0 + 0.121208 + 9.53674e-07\n"
        "scales 0, C in promoted_sum: -26.9699, 0 + 0.12085 + 9.53674e-07\n"
        "scales 0, C in epilogue: -26.9699, 0 + 0.120854 + 9.53674e-07\n"
        "scales 1: -88.908, 0 + 0.384584 + 3.8147e-06\n"
        "scales 1, C in accumulator: -85.8236, 0 + 0.385725 + 3.8147e-06\n"
        "scales 1, C in epilogue: -87.9388, 0 + 0.384584 + 3.8147e-06\n"
        "scales 2: 159.264, 0 + 0.695767 + 7.62939e-06\n"
        "scales 2, C in accumulator: 176.951, 0 + 0.702319 + 7.62939e-06\n"
        "scales 2, C in promoted_sum: 160.234, 0 + 0.695767 + 7.62939e-06\n"
        "scales 2, C in epilogue: 160.234, 0 + 0.695795 + 7.62939e-06\n"
        "2 parts contiguous: -40.6361, 0 + 0.175787 + 1.90735e-06\n"
        "4 parts contiguous: -40.6361, 0 + 0.175794 + 1.90735e-06\n"
        "2 parts modulo: -40.6361, 0 + 0.17578 + 1.90735e-06\n"
        "4 parts modulo: -40.6361, 0 + 0.175794 + 1.90735e-06\n"
        "none: 11.967, 0 + 0.0392009 + 0.03125, 413f to 4140\n"
        "none and all: -33.8461, 0 + 0.123493 + 0.125, c208 to c207\n"
        "relu: 11.967, 0 + 0.0392016 + 0.03125, 413f to 4140\n"
        "relu and all: 0, 0 + 0.123491 + 4.59177e-41, bdfd to 3dfd\n"
        "leaky_relu: 11.967, 0 + 0.0666422 + 0.03125, 413e to 4141\n"
        "leaky_relu and all: 57.5383, 0 + 0.209942 + 0.125, 4265 to 4267\n"
        "gelu: 11.967, 0 + 0.0443034 + 0.03125, 413f to 4140\n"
        "gelu and all: -6.82262e-21, 0 + 0.139581 + 2.64698e-23, be0f to 3e0f\n"
        "gelu_tanh: 11.967, 0 + 0.0443034 + 0.03125, 413f to 4140\n"
        "gelu_tanh and all: -6.36421e-34, 0 + 0.139581 + 1.50463e-36, be0f to 3e0f\n"
        "silu: 11.9669, 0 + 0.0443034 + 0.03125, 413f to 4140\n"
        "silu and all: -0.00213658, 0 + 0.139581 + 7.62939e-06, be11 to 3e0d\n"
        "swiglu: 15.8143, 0 + 0.204228 + 0.03125, 417a to 4180\n"
        "swiglu and all: 0.00372479, 0 + 0.244306 + 7.62939e-06, be76 to 3e7e\n"
        "no terms: 0.969267, 0 + 0 + 2.98023e-08\n"
        "no terms and no C: 0, 0 + 0 + 7.00649e-46\n"
        "te-current to f32: 1.86335, 2.66985 + 0.0471831 + 5.96046e-08\n"
        "  with an epilogue: 8.95652, 2.80334 + 0.0495433 + 4.76837e-07\n"
        "te-current to f16: 1.86335, 2.66985 + 0.0471831 + 0.000488281, bad4 to 4495\n"
        "  with an epilogue: 8.95652, 2.80334 + 0.0495433 + 0.00390625, 461b to 49e8\n"
        "te-current to e4m3fn: 1.86335, 2.66985 + 0.0471831 + 0.0625, b6 to 49\n"
        "  with an epilogue: 8.95652, 2.80334 + 0.0495433 + 0.5, 4c to 54\n"
        "torchao-rowwise to f32: 2.18112, 2.36212 + 0.050033 + 1.19209e-07\n"
        "  with an epilogue: 9.29018, 2.48023 + 0.0525358 + 4.76837e-07\n"
        "torchao-rowwise to f16: 2.18112, 2.36212 + 0.050033 + 0.000976562, b365 to 4498\n"
        "  with an epilogue: 9.29018, 2.48023 + 0.0525358 + 0.00390625, 46c2 to 49e9\n"
        "torchao-rowwise to e4m3fn: 2.18112, 2.36212 + 0.050033 + 0.125, a7 to 49\n"
        "  with an epilogue: 9.29018, 2.48023 + 0.0525358 + 0.5, 4e to 54\n"
        "ocp-mxfp8 to f32: 2.00143, 2.46934 + 1.35975e-05 + 1.19209e-07\n"
        "  with an epilogue: 9.10151, 2.59281 + 1.53624e-05 + 4.76837e-07\n"
        "ocp-mxfp8 to f16: 2.00143, 2.46934 + 1.35975e-05 + 0.000976562, b77d to 4479\n"
        "  with an epilogue: 9.10151, 2.59281 + 1.53624e-05 + 0.00390625, 4682 to 49d9\n"
        "ocp-mxfp8 to e4m3fn: 2.00143, 2.46934 + 1.35975e-05 + 0.125, af to 49\n"
        "  with an epilogue: 9.10151, 2.59281 + 1.53624e-05 + 0.5, 4d to 54\n"
        "nvfp4 to f32: 2.23834, 8.80771 + 1.40696e-06 + 1.19209e-07\n"
        "  with an epilogue: 9.35025, 9.2481 + 2.59195e-06 + 4.76837e-07\n"
        "nvfp4 to f16: 2.23834, 8.80771 + 1.40696e-06 + 0.000976562, c692 to 4986\n"
        "  with an epilogue: 9.35025, 9.2481 + 2.59195e-06 + 0.00390625, 2e8a to 4ca6\n"
        "nvfp4 to e4m3fn: 2.23834, 8.80771 + 1.40696e-06 + 0.125, cd to 53\n"
        "  with an epilogue: 9.35025, 9.2481 + 2.59195e-06 + 0.5, 1d to 59\n");
}

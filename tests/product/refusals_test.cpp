// What a product refuses, word for word.

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "catch.hpp"
#include "fp8lab/product/product.hpp"
#include "message_of.hpp"
#include "product/ones.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("product: what is refused, word for word", "[product]") {
  using O = GemmOperands;
  using S = GemmSpec;
  const auto plain = [](const std::string& expected, const std::function<void(O&, S&)>& change) {
    GemmOperands operands;
    operands.a.codes = codes({3, 32});
    operands.b.codes = codes({2, 32});
    GemmSpec spec{.model = "sm90.wgmma.e4m3"};
    change(operands, spec);
    CHECK(message_of([&] { (void)make_product(operands, spec); }) == expected);
  };
  plain("A: expected a matrix [m, k], got e4m3fn [96]", [](O& o, S&) { o.a.codes = codes({96}); });
  plain("B: expected a matrix [n, k], got e4m3fn [2, 4, 8]", [](O& o, S&) {
    o.b.codes = codes({2, 4, 8});
  });
  plain("B: expected a matrix [k, n], got e4m3fn [64]",
        [](O& o, S&) { o.b.codes = codes({64}), o.b.transposed = true; });
  plain(
      "A: expected e4m3fn for sm90.wgmma.e4m3; uint8 codes need their format (`dtype=e4m3fn`, or a "
      "sidecar), got u8 [3, 32]",
      [](O& o, S&) {
        o.a.codes = codes({3, 32}, ElementType::u8);
      });
  plain("B: expected e4m3fn for sm90.wgmma.e4m3, got e5m2 [2, 32]", [](O& o, S&) {
    o.b.codes = codes({2, 32}, ElementType::e5m2);
  });
  plain(
      "B: expected e4m3fn for sm90.wgmma.e4m3; FNUZ codes are AMD's, this one for `model=exact`, "
      "fp32 or gfx942.mfma.fp8, got e4m3fnuz [2, 32]",
      [](O& o, S&) {
        o.b.codes = codes({2, 32}, ElementType::e4m3fnuz);
      });
  plain(
      "A: expected e4m3fn for sm90.wgmma.e4m3; floats need a recipe to quantize them (`recipe`), "
      "got f32 [3, 32]",
      [](O& o, S&) {
        o.a.codes = real({3, 32});
      });
  plain("A: expected tf32 for sm90.wgmma.tf32, got e4m3fn [3, 32]", [](O& o, S& s) {
    s.model = "sm90.wgmma.tf32", o.b.codes = o.a.codes = codes({3, 32});
  });
  plain("B: expected [n, k] with k = 16, as for A, got [2, 32]", [](O& o, S& s) {
    s.model = "sm90.wgmma.tf32",
    o.a.codes = view_of(ElementType::f16, {3, 16}, std::span(ones()).first(96));
  });
  plain("B: expected [n, k] with k = 32, as for A, got [2, 33]", [](O& o, S&) {
    o.b.codes = codes({2, 33});
  });
  plain("B: expected [n, k] with k = 32, as for A; it is [k, n]: give `transpose_b`, got [32, 2]",
        [](O& o, S&) {
          o.b.codes = codes({32, 2});
        });
  plain(
      "B: expected [k, n] with k = 32, as for A; it is [n, k]: leave out `transpose_b`, got [2, "
      "32]",
      [](O& o, S&) { o.b.transposed = true; });
  plain("B: expected [k, n] with k = 32, as for A, got [33, 2]", [](O& o, S&) {
    o.b.codes = codes({33, 2}), o.b.transposed = true;
  });
  plain("tensor_scale: expected one number, since there are no groups, got one per group",
        [](O& o, S&) { o.a.group_tensor_scales = {1.0F}; });
  plain("tensor_scale: expected one number, since there are no groups, got one per group",
        [](O& o, S&) { o.b.group_tensor_scales = {1.0F}; });
  plain("A: expected floats, since a recipe quantizes them, got e4m3fn [3, 32]",
        [](O& o, S&) { o.recipe = "te-current"; });
  plain("B: expected floats, since a recipe quantizes them, got e4m3fn [2, 32]", [](O& o, S&) {
    o.recipe = "te-current", o.a.codes = real({3, 32});
  });
  plain("scales: expected none, since the recipe makes them, got scales of your own", [](O& o, S&) {
    o.recipe = "te-current", o.a.codes = real({3, 32}), o.b.codes = real({2, 32}),
    o.a.scales = real({1});
  });
  plain("scales: expected none, since the recipe makes them, got scales of your own", [](O& o, S&) {
    o.recipe = "te-current", o.a.codes = real({3, 32}), o.b.codes = real({2, 32}),
    o.b.tensor_scale = 2.0F;
  });
  plain(
      "recipe: expected a recipe that gives e5m2 and e5m2, for sm90.wgmma.e5m2, got e4m3fn and "
      "e4m3fn from te-current",
      [](O& o, S& s) {
        s.model = "sm90.wgmma.e5m2", o.recipe = "te-current", o.a.codes = real({3, 32}),
        o.b.codes = real({2, 32});
      });
  plain("bias: expected floats [2] or [1, 2], got f32 [3]", [](O& o, S&) { o.bias = real({3}); });
  plain("row_scales: expected floats [3] or [3, 1], got f32 [2]",
        [](O& o, S&) { o.row_scales = real({2}); });
  plain("column_scales: expected floats [2] or [1, 2], got f32 [3]",
        [](O& o, S&) { o.column_scales = real({3}); });
  plain("C: expected floats [m, n] = [3, 2], got f32 [2, 3]", [](O& o, S&) { o.c = real({2, 3}); });
  plain("bias: expected floats [2] or [1, 2], got e4m3fn [2]",
        [](O& o, S&) { o.bias = codes({2}); });
  plain("alpha: expected a finite number, got inf",
        [](O&, S& s) { s.epilogue.alpha = std::numeric_limits<float>::infinity(); });
  plain("beta: expected a finite number, got nan", [](O& o, S& s) {
    o.c = real({3, 2}), s.epilogue.beta = std::numeric_limits<float>::quiet_NaN();
  });
  plain("slope: expected a finite number, got -inf", [](O&, S& s) {
    s.epilogue.activation = Activation::leaky_relu,
    s.epilogue.slope = -std::numeric_limits<float>::infinity();
  });
  plain("output_scale: expected a finite number, got inf",
        [](O&, S& s) { s.epilogue.output_scale = std::numeric_limits<float>::infinity(); });
  plain("activation_ulps: expected 0 to 2^20, got -1",
        [](O&, S& s) { s.epilogue.activation_ulps = -1.0F; });
  plain("activation_ulps: expected 0 to 2^20, got 1048577",
        [](O&, S& s) { s.epilogue.activation_ulps = 1048577.0F; });
  plain(
      "activation: expected an even number of columns for swiglu: gates, then the columns that "
      "they multiply, got n = 3",
      [](O& o, S& s) {
        o.b.codes = codes({3, 32}), s.epilogue.activation = Activation::swiglu;
      });
  plain("output_scale: expected a number or the amax of the output, got both",
        [](O&, S& s) { s.epilogue.scale_by_amax = true, s.epilogue.output_scale = 2.0F; });
  plain("beta: expected a C, which it multiplies, got none",
        [](O&, S& s) { s.epilogue.beta = 2.0F; });
  plain("split_k: expected 1 part or more, got 0", [](O&, S& s) { s.split.parts = 0; });
  plain("split_k: expected at most 1 part, one per tile of 32 terms, got 2",
        [](O&, S& s) { s.split.parts = 2; });
  plain("split_k: expected at most 3 parts, one per tile of 32 terms, got 4", [](O& o, S& s) {
    o.a.codes = codes({3, 96}), o.b.codes = codes({2, 96}), s.split.parts = 4;
  });
  plain("split_tile: expected 0 (the promotion interval, or a step) or more terms, got -1",
        [](O&, S& s) { s.split.tile = -1; });
  plain("split_tile: expected a multiple of the promotion interval 128, got 64", [](O& o, S& s) {
    o.a.codes = codes({3, 256}), o.b.codes = codes({2, 256}), o.a.scales = real({3, 2}),
    s.promotion_interval = 128, s.split = {.parts = 2, .tile = 64};
  });
  plain(
      "output dtype: expected one that NVIDIA's chips have, for sm90.wgmma.e4m3 (FNUZ is AMD's: "
      "`model=exact` or fp32), got e4m3fnuz",
      [](O&, S& s) { s.output.format = FormatId::e4m3fnuz; });
  plain(
      "c_enters: expected accumulator or promoted_sum or epilogue (with promotion, the bits depend "
      "on where C enters), got nothing",
      [](O& o, S& s) {
        o.c = real({3, 2}), s.promotion_interval = 32;
      });
  plain("promotion_interval: expected 0 or a multiple of the model's 32 terms, got 33",
        [](O&, S& s) { s.promotion_interval = 33; });
  plain(
      "scale_a: expected one value, [3] or [3, 1], [3, 1] (1x128 tiles), [1, 1] (128x128 tiles), "
      "[3, 1] (1x32 tiles), [3, 2] (1x16 tiles); other tiles must be named, such as 64x64, got [4]",
      [](O& o, S&) { o.a.scales = real({4}); });
  plain(
      "scale_b: expected one value, [2] or [2, 1], [2, 1] (1x128 tiles), [1, 1] (128x128 tiles), "
      "[2, 1] (1x32 tiles), [2, 2] (1x16 tiles); other tiles must be named, such as 64x64, got [3]",
      [](O& o, S&) { o.b.scales = real({3}); });
  plain(
      "scale_a: expected floats, or E8M0 or UE4M3 codes with a stated format "
      "(`scale_format=e8m0fnu` or e4m3fn, or a sidecar), got e5m2",
      [](O& o, S&) { o.a.scales = codes({3}, ElementType::e5m2); });
}

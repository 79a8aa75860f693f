// What a product is refused for, word for word, and values at both sides of its limits.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/product/epilogue.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/product/non_finite.hpp"
#include "fp8lab/product/scale_layouts.hpp"
#include "fp8lab/product/scale_variants.hpp"
#include "fp8lab/product/split_k.hpp"
#include "fp8lab/product/table_calls.hpp"
#include "fp8lab/product/term_variants.hpp"
#include "fp8lab/product/variants.hpp"
#include "message_of.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using Values = std::vector<float>;

const std::vector<std::uint8_t>& ones() {
  static const std::vector<std::uint8_t> kOnes(64 * 64, 0x38);
  return kOnes;
}
const std::vector<float>& floats() {
  static const std::vector<float> kFloats(64 * 64, 1.0F);
  return kFloats;
}
TensorView codes(std::vector<std::int64_t> shape, ElementType type = ElementType::e4m3fn) {
  const auto size = static_cast<std::size_t>(element_count(shape, "codes"));
  return view_of(type, std::move(shape), std::span(ones()).first(size));
}
TensorView real(std::vector<std::int64_t> shape) {
  const auto size = static_cast<std::size_t>(element_count(shape, "floats"));
  return view_of(ElementType::f32, std::move(shape), std::span(floats()).first(size));
}

}  // namespace

TEST_CASE("calls: one scale a row of either operand, as a tensor or loaded, has its own order",
          "[product]") {
  const LibraryCall& call = find_library_call("cublaslt.h100.fast");
  for (const bool of_a : {true, false}) {
    CAPTURE(of_a);
    GemmOperands operands;
    operands.a = operands.b = codes({8, 64});
    const auto loaded = [&](std::size_t count, std::int64_t k_block) {
      GemmOperands scaled = operands;
      (of_a ? scaled.inverse_a : scaled.inverse_b) =
          InverseScales{std::span(floats()).first(count), 1, k_block};
      return with_call(call, scaled, {}).scale_order;
    };
    CHECK(loaded(8, 0) == ScaleOrder::b_then_fma_a);
    CHECK(loaded(8, 64) == ScaleOrder::b_then_fma_a);
    CHECK(loaded(8, 65) == ScaleOrder::b_then_fma_a);
    CHECK(loaded(8, 63) == ScaleOrder::product_then_fma);
    CHECK(loaded(2, 0) == ScaleOrder::b_then_fma_a);
    CHECK(loaded(1, 0) == ScaleOrder::product_then_fma);
    const auto stored = [&](ScaleLayout layout, std::vector<std::int64_t> shape) {
      GemmOperands scaled = operands;
      (of_a ? scaled.layout_a : scaled.layout_b) = layout;
      (of_a ? scaled.scale_a : scaled.scale_b) = real(std::move(shape));
      return with_call(call, scaled, {}).scale_order;
    };
    CHECK(stored(ScaleLayout::row_major, {8, 1}) == ScaleOrder::b_then_fma_a);
    CHECK(stored(ScaleLayout::row_major, {1, 8}) == ScaleOrder::product_then_fma);
    CHECK(stored(ScaleLayout::column_major, {1, 8}) == ScaleOrder::b_then_fma_a);
    CHECK(stored(ScaleLayout::column_major, {8, 1}) == ScaleOrder::product_then_fma);
  }
}

TEST_CASE("calls: splits and formats that a call has not are refused, its own are kept",
          "[product]") {
  const LibraryCall& ada = find_library_call("cublaslt.rtx4060.fast");
  GemmOperands operands;
  operands.a = operands.b = codes({8, 64});
  const auto split = [&](SplitK asked) {
    GemmSpec spec;
    spec.split = asked;
    return with_call(ada, operands, spec).split;
  };
  CHECK(split({.parts = 2, .cut = SplitCut::modulo}).tile == 64);
  CHECK(split({.parts = 2, .tile = 32, .cut = SplitCut::modulo}).tile == 32);
  CHECK(split({.parts = 1}).tile == 0);
  CHECK(split({.parts = 2, .cut = SplitCut::modulo, .order = SplitOrder::pairwise}).order ==
        SplitOrder::pairwise);
  CHECK(message_of([&] { split({.parts = 2}); }) ==
        "split_k: expected modulo serial or modulo pairwise, the known splits of "
        "cublaslt.rtx4060.fast, got contiguous serial");
  GemmSpec halves;
  halves.split.parts = 2;
  CHECK(message_of([&] { with_call(find_library_call("deepgemm.h100"), operands, halves); }) ==
        "split_k: expected K whole, the known splits of deepgemm.h100, got contiguous serial");
  operands.a.type = ElementType::e4m3fnuz;
  operands.b.type = ElementType::e5m2;
  const std::string refused = message_of([&] { with_call(ada, operands, {}); });
  CHECK_THAT(refused, contains("call: expected operands in formats that cublaslt.rtx4060.fast "
                               "reads (e4m3fn x e4m3fn, e5m2 x e5m2"));
  CHECK(refused.ends_with("), got e4m3fnuz x e5m2"));
}

TEST_CASE("epilogue: every part that does not fit is refused by its own name", "[product]") {
  const std::vector<float> three(3, 1.0F);
  const auto message = [&](const auto& change) {
    Epilogue e;
    change(e);
    return message_of([&] { validate(e, 2, 5); });
  };
  CHECK(message([&](Epilogue& e) { e.row_scales = three; }) ==
        "row_scales: expected [m] = [2], got [3]");
  CHECK(message([&](Epilogue& e) { e.column_scales = three; }) ==
        "column_scales: expected [n] = [5], got [3]");
  CHECK(message([&](Epilogue& e) { e.column_scales = std::span(three).first(2); }) ==
        "column_scales: expected [n] = [5], got [2]");
  CHECK(message([&](Epilogue& e) { e.bias = std::span(three).first(2); }) ==
        "bias: expected [n] = [5], got [2]");
  for (const auto& [x, text] : {std::pair{kInf, "inf"}, {-kInf, "-inf"}, {kNan, "nan"}}) {
    const std::string number = std::string(": expected a finite number, got ") + text;
    const float value = x;
    CHECK(message([&](Epilogue& e) { e.alpha = value; }) == "alpha" + number);
    CHECK(message([&](Epilogue& e) { e.beta = value; }) == "beta" + number);
    CHECK(message([&](Epilogue& e) { e.slope = value; }) == "slope" + number);
    CHECK(message([&](Epilogue& e) { e.output_scale = value; }) == "output_scale" + number);
  }
  const auto ulps = [&](float x) { return message([&](Epilogue& e) { e.activation_ulps = x; }); };
  CHECK(ulps(0.0F) == "accepted");
  CHECK(ulps(1048576.0F) == "accepted");
  CHECK(ulps(1048577.0F) == "activation_ulps: expected 0 to 2^20, got 1048577");
  CHECK(ulps(-0.5F) == "activation_ulps: expected 0 to 2^20, got -0.5");
}

TEST_CASE("epilogue: its text names every part in the order of the steps", "[product]") {
  const std::vector<float> two(2, 1.0F);
  Epilogue e;
  CHECK(describe(e).empty());
  e.row_scales = two;
  CHECK(describe(e) == "row scales");
  e.column_scales = two;
  e.alpha = 0.5F;
  e.bias = two;
  e.c = two.data();
  e.beta = -2.0F;
  e.activation = Activation::leaky_relu;
  e.slope = 0.25F;
  e.output_scale = 3.0F;
  CHECK(describe(e) ==
        "row scales, column scales, alpha 0.5, bias, beta -2, leaky_relu 0.25, output scale 3");
  e.row_scales = {};
  e.activation = Activation::silu;
  e.activation_ulps = 7.0F;
  CHECK(describe(e) ==
        "column scales, alpha 0.5, bias, beta -2, silu (within 7 ulp), output scale 3");
}

TEST_CASE("epilogue: the amax is of finite values, and each NaN has the same bits", "[product]") {
  Epilogue none;
  Epilogue relu;
  relu.activation = Activation::relu;
  for (const Epilogue& e : {none, relu}) {
    CHECK(finish(e, {3.0F, kInf, -kInf, kNan}, 1, 4).amax == 3.0F);
    CHECK(finish(e, {kNan, kNan}, 2, 1).amax == 0.0F);
    CHECK(finish(e, {1.0F, 2.0F, 5.0F, 4.0F}, 2, 2).amax == 5.0F);
  }
  Epilogue silu;
  silu.activation = Activation::silu;
  Epilogue swiglu;
  swiglu.activation = Activation::swiglu;
  Epilogue scaled = relu;
  scaled.output_scale = 0.0F;
  const auto bits = [](const Epilogue& e, Values sums) {
    const auto n = static_cast<std::int64_t>(sums.size());
    return std::bit_cast<std::uint32_t>(finish(e, std::move(sums), 1, n).values.at(0));
  };
  CHECK(bits(silu, {-kInf}) == kCanonicalNan);
  CHECK(bits(swiglu, {kInf, 0.0F}) == kCanonicalNan);
  CHECK(bits(scaled, {kInf}) == kCanonicalNan);
  // Below the least normal number a unit in the last place is the least subnormal.
  Epilogue gelu;
  gelu.activation = Activation::gelu;
  for (const float v : {0.0F, 0x1p-140F, 0x1p-127F, 0x1p-126F})
    CHECK(finish(gelu, {v}, 1, 1, true).reach.at(0) == 4 * 0x1p-149);
  CHECK(finish(gelu, {0x1p-125F}, 1, 1, true).reach.at(0) == 4 * 0x1p-148);
}

TEST_CASE("groups: what does not fit is refused, word for word", "[product]") {
  const auto message = [](GroupKind kind, std::vector<std::int64_t> values,
                          std::int64_t alignment = 0) {
    return message_of([&] { parts_of({kind, std::move(values), alignment}, 8, 2); });
  };
  CHECK(message(GroupKind::row_ends, {0, 4, 8}) ==
        "row_ends: expected one value for each of 2 groups (ends: leave out the leading 0), got 3");
  CHECK(message(GroupKind::row_ends, {1, 4, 8}) ==
        "row_ends: expected one value for each of 2 groups, got 3");
  CHECK(message(GroupKind::row_ends, {0}) ==
        "row_ends: expected one value for each of 2 groups, got 1");
  CHECK(message(GroupKind::k_ends, {4, 3}) ==
        "k_ends: expected ends that increase to at most 8, got 3 after 4 (group 1)");
  CHECK(message(GroupKind::row_ends, {4, 9}) ==
        "row_ends: expected ends that increase to at most 8, got 9 after 4 (group 1)");
  CHECK(message(GroupKind::row_ends, {-1, 8}) ==
        "row_ends: expected ends that increase to at most 8, got -1 after 0 (group 0)");
  CHECK(message(GroupKind::row_counts, {8, -1}) ==
        "row_counts: expected counts of 0 to 8 rows, got -1 (group 1)");
  CHECK(message(GroupKind::row_counts, {9, 0}) ==
        "row_counts: expected counts of 0 to 8 rows, got 9 (group 0)");
  CHECK(message(GroupKind::row_counts, {8, 0}) == "accepted");
  CHECK(message(GroupKind::row_indices, {0, 1, 0, -2, 0, 0, 0, 0}) ==
        "row_indices: expected groups 0 to 1, or -1, got -2 at 3");
  CHECK(message(GroupKind::row_indices, {0, 1, -1, 0, 0, 2, 0, 0}) ==
        "row_indices: expected groups 0 to 1, or -1, got 2 at 5");
  CHECK(message(GroupKind::row_indices, {0, 1}) ==
        "row_indices: expected one index for each of 8 rows, got 2");
  CHECK(message(GroupKind::batched, {1}) == "batched: expected no values, got [1]");
  CHECK(message(GroupKind::row_ends, {3, 8}, 4) ==
        "row_ends: expected groups that start at multiples of 4, got group 1 at 3");
  CHECK(message(GroupKind::row_indices, {-1, -1, 1, 1, 1, 1, 1, 1}, 4) ==
        "row_indices: expected groups that start at multiples of 4, got group 1 at 2");
}

TEST_CASE("groups: operands that do not fit are refused, word for word", "[product]") {
  GemmOperands all;
  all.a = codes({8, 64});
  all.b = codes({2, 4, 64});
  const auto message = [](const GemmOperands& operands, const GemmSpec& spec = {},
                          Groups groups = {GroupKind::row_ends, {3, 8}, 0}) {
    return message_of([&] { (void)make_grouped_product(operands, spec, groups); });
  };
  CHECK(message(all) == "accepted");
  GemmOperands other = all;
  other.group_tensor_scales_b = {1.0F, 2.0F, 3.0F};
  CHECK(message(other) == "tensor_scale_b: expected one value, or 2, one per group, got 3");
  other = all;
  other.tensor_scale_b = 2.0F;
  other.group_tensor_scales_b = {1.0F, 2.0F};
  CHECK(message(other) ==
        "tensor_scale_b: expected one for all groups, or one per group, got both");
  other = all;
  other.a = real({8, 64});
  other.b = real({2, 4, 64});
  other.recipe = "te-current";
  for (const bool of_a : {true, false}) {
    GemmOperands scaled = other;
    (of_a ? scaled.scale_a : scaled.scale_b) = real({1});
    CHECK(message(scaled) ==
          "scales: expected none, since the recipe makes them, got scales of "
          "your own");
  }
  other = all;
  other.scale_b = real({2, 3});
  CHECK_THAT(message(other), contains("scale_b: expected ") && contains(" (of group 0)"));
  other = all;
  other.inverse_b = InverseScales{std::span(floats()).first(1)};
  CHECK(message(other) ==
        "scales: expected tensors, with groups, got scales that are already "
        "loaded");
  GemmSpec amax;
  amax.epilogue.scale_by_amax = true;
  CHECK_THAT(message(all, amax), contains("output_scale: expected a number: with groups"));
  // C has the shape of the sums, of which a gated activation makes half as many outputs.
  GemmSpec gated;
  gated.epilogue.activation = Activation::swiglu;
  gated.epilogue.beta = 1.0F;
  other = all;
  other.c = real({8, 4});
  CHECK(message(other, gated) == "accepted");
  other.c = real({8, 2});
  CHECK(message(other, gated) == "C: expected [8, 4], got [8, 2]");
}

TEST_CASE("groups: rows and empty groups have their own scales", "[product]") {
  // Row i of A is scaled by i + 1, group g of rows by another tensor scale; group 0 is empty.
  Values rows;
  for (int i = 0; i < 8; ++i) rows.push_back(static_cast<float>(i + 1));
  GemmOperands all;
  all.a = codes({8, 32});
  all.b = codes({3, 1, 32});
  all.row_scales = view_of(ElementType::f32, {8}, std::span<const float>(rows));
  const auto d = [&](const Groups& groups) {
    return compute(make_grouped_product(all, {}, groups));
  };
  CHECK(d({GroupKind::row_ends, {0, 3, 8}, 0}) == Values{32, 64, 96, 128, 160, 192, 224, 256});
  all.row_scales.reset();
  all.scale_a = view_of(ElementType::f32, {8}, std::span<const float>(rows));
  all.group_tensor_scales_a = {64.0F, 0.5F, 2.0F};
  CHECK(d({GroupKind::row_ends, {0, 3, 8}, 0}) == Values{16, 32, 48, 256, 320, 384, 448, 512});
}

TEST_CASE("groups: rows in no group belong to the group before, the first ones to that behind",
          "[product]") {
  GemmOperands all;
  all.a = codes({7, 32});
  all.b = codes({3, 1, 32});
  const GroupedProduct product =
      make_grouped_product(all, {}, {GroupKind::row_indices, {-1, 2, 2, -1, 1, -1, -1}, 0});
  REQUIRE(product.rest.size() == 3);
  const auto is = [&](std::size_t at, std::int64_t group, std::int64_t first, std::int64_t rows) {
    const UngroupedRows& rest = product.rest[at];
    INFO("rest " << at << ": group " << rest.group << ", row " << rest.first_row << ", "
                 << rest.rows);
    CHECK((rest.group == group && rest.first_row == first && rest.rows == rows));
  };
  is(0, 2, 0, 1);
  is(1, 2, 3, 1);
  is(2, 1, 5, 2);
}

TEST_CASE("groups: of terms each is split as it was asked for, and its C is added", "[product]") {
  const RandomProduct random({.model = "sm100.mma.e4m3"},
                             {.shape = {4, 3, 256}, .data = Data::wide});
  GemmOperands all;
  all.a = view_of(ElementType::e4m3fn, {4, 256}, std::span(random.a));
  all.b = view_of(ElementType::e4m3fn, {3, 256}, std::span(random.b));
  GemmSpec spec{.model = "sm100.mma.e4m3"};
  spec.split = {.parts = 2, .tile = 32};
  const Groups groups{GroupKind::k_ends, {96, 256}, 0};
  const std::vector<float> d = compute(make_grouped_product(all, spec, groups));
  for (const auto& [group, begin, end] : {std::tuple{0, 0, 96}, {1, 96, 256}}) {
    Product part = take_k(random.product, begin, end);
    part.split = spec.split;
    const std::vector<float> right = compute(part);
    const std::vector<float> got(d.begin() + group * 12, d.begin() + (group + 1) * 12);
    CAPTURE(group);
    CHECK(got == right);
    part.split = {};
    if (group == 1) CHECK(got != compute(part));
  }
  // The first group has three tiles.
  spec.split.parts = 4;
  CHECK(message_of([&] { (void)make_grouped_product(all, spec, groups); }) ==
        "group 0: split_k: expected at most 3 parts, one per tile of 32 terms, got 4");
  // Of an unknown model each group is exact, and its C has a place.
  all.c = real({2, 4, 3});
  const GroupedProduct unknown = make_grouped_product_of_unknown_model(all, {}, groups);
  for (const GroupProduct& part : unknown.parts)
    CHECK(part.product.problem.model == find_instruction_model("exact").accumulator);
}

TEST_CASE("groups: numbers that are not finite are counted over all groups", "[product]") {
  std::vector<std::uint8_t> a(6 * 32, 0x38);
  std::vector<std::uint8_t> b(2 * 32, 0x38);
  for (const std::size_t at : {0U, 40U, 100U, 191U}) a[at] = 0x7f;
  b[5] = b[40] = b[41] = 0xff;
  GemmOperands all;
  all.a = view_of(ElementType::e4m3fn, {6, 32}, std::span<const std::uint8_t>(a));
  all.b = view_of(ElementType::e4m3fn, {2, 1, 32}, std::span<const std::uint8_t>(b));
  const GroupedProduct product = make_grouped_product(all, {}, {GroupKind::row_ends, {2, 6}, 0});
  CHECK(describe(count_non_finite(product)) == "A has 4 NaN; B has 3 NaN");
}

TEST_CASE("product: each format's NaN and infinities are told apart by every bit", "[product]") {
  const auto count = [](FormatId id, auto infinity, int mantissa_bits) {
    using Word = decltype(infinity);
    for (int bit = 0; bit < mantissa_bits; ++bit) {
      const std::vector<Word> words{static_cast<Word>(infinity | Word{1} << bit)};
      CAPTURE(format(id).name, bit);
      CHECK(count_non_finite(id, std::as_bytes(std::span(words))) == NonFinite{1, 0});
    }
    const std::vector<Word> words{infinity, static_cast<Word>(infinity - 1), Word{0}};
    CHECK(count_non_finite(id, std::as_bytes(std::span(words))) == NonFinite{0, 1});
  };
  count(FormatId::f16, std::uint16_t{0x7c00}, 10);
  count(FormatId::bf16, std::uint16_t{0x7f80}, 7);
  count(FormatId::f32, std::uint32_t{0x7f800000}, 23);
}

TEST_CASE("product: tiles of several rows are as if each row had its scale", "[product]") {
  const RandomProduct random({.promotion_interval = 128},
                             {.shape = {6, 4, 512}, .tiles_a = {6, 1}, .tiles_b = {4, 4}});
  // B's tiles of 256 terms and two rows hold two intervals.
  Product coarse = random.product;
  Product fine = random.product;
  coarse.problem.b_scales = {coarse.keep({1.5F, 0.75F, 3.0F, 0.3F}), 2, 256};
  fine.problem.b_scales = {fine.keep({1.5F, 1.5F, 0.75F, 0.75F, 1.5F, 1.5F, 0.75F, 0.75F, 3.0F,
                                      3.0F, 0.3F, 0.3F, 3.0F, 3.0F, 0.3F, 0.3F}),
                           1, 128};
  CHECK(compute(coarse) == compute(fine));
  CHECK(*compute_missing_promotion(coarse) == *compute_missing_promotion(fine));
}

TEST_CASE("product: what a recipe, groups and B's order exclude is refused", "[product]") {
  GemmOperands recipe;
  recipe.a = recipe.b = real({8, 64});
  recipe.recipe = "te-current";
  const auto message = [](const GemmOperands& operands, const GemmSpec& spec = {}) {
    return message_of([&] { (void)make_product(operands, spec); });
  };
  const std::string none =
      "scales: expected none, since the recipe makes them, got scales of your "
      "own";
  CHECK(message(recipe) == "accepted");
  for (const bool of_a : {true, false}) {
    GemmOperands other = recipe;
    (of_a ? other.scale_a : other.scale_b) = real({1});
    CHECK(message(other) == none);
    other = recipe;
    (of_a ? other.inverse_a : other.inverse_b) = InverseScales{std::span(floats()).first(1)};
    CHECK(message(other) == none);
    other = recipe;
    (of_a ? other.tensor_scale_a : other.tensor_scale_b) = 2.0F;
    CHECK(message(other) == none);
    other = recipe;
    other.recipe = "";
    (of_a ? other.group_tensor_scales_a : other.group_tensor_scales_b) = {1.0F};
    CHECK(message(other) ==
          "tensor_scale: expected one number, since there are no groups, got one per group");
  }
  GemmOperands turned;
  turned.a = codes({8, 64});
  turned.b = codes({4, 64});
  turned.transpose_b = true;
  CHECK(message(turned) ==
        "B: expected [k, n] with k = 64, as for A; it is [n, k]: leave out "
        "`transpose_b`, got [4, 64]");
  turned.b = codes({4, 32});
  CHECK(message(turned) == "B: expected [k, n] with k = 64, as for A, got [4, 32]");
  turned.transpose_b = false;
  CHECK(message(turned) == "B: expected [n, k] with k = 64, as for A, got [4, 32]");
  turned.b = codes({64, 32});
  CHECK(message(turned) ==
        "B: expected [n, k] with k = 64, as for A; it is [k, n]: give "
        "`transpose_b`, got [64, 32]");
  GemmOperands fnuz;
  fnuz.a = fnuz.b = codes({8, 64}, ElementType::e4m3fnuz);
  CHECK(message(fnuz) ==
        "A: expected e4m3fn for sm90.wgmma.e4m3; FNUZ codes are AMD's, this one for `model=exact`, "
        "fp32 or gfx942.mfma.fp8, got e4m3fnuz [8, 64]");
  GemmSpec both;
  both.output = default_output(FormatId::e4m3fn);
  both.epilogue.scale_by_amax = true;
  both.epilogue.output_scale = 2.0F;
  turned.b = codes({4, 64});
  CHECK(message(turned, both) ==
        "output_scale: expected a number or the amax of the output, got both");
}

TEST_CASE("product: vectors of an epilogue are rows or columns of any float", "[product]") {
  const std::vector<std::uint16_t> bf16{0x3f80, 0x4000, 0x4040};
  const std::vector<double> f64{1.0, 2.0, 3.0};
  GemmOperands operands;
  operands.a = operands.b = codes({3, 32});
  const auto view = [&](bool narrow, std::vector<std::int64_t> shape) {
    return narrow ? view_of(ElementType::bf16, std::move(shape), std::span(bf16))
                  : view_of(ElementType::f64, std::move(shape), std::span(f64));
  };
  for (const bool narrow : {true, false}) {
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{3}, {3, 1}}) {
      GemmOperands scaled = operands;
      scaled.row_scales = view(narrow, shape);
      CHECK(compute(make_product(scaled, {})) == Values{32, 32, 32, 64, 64, 64, 96, 96, 96});
    }
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{3}, {1, 3}}) {
      GemmOperands scaled = operands;
      scaled.column_scales = view(narrow, shape);
      CHECK(compute(make_product(scaled, {})) == Values{32, 64, 96, 32, 64, 96, 32, 64, 96});
      scaled.column_scales.reset();
      scaled.bias = view(narrow, shape);
      CHECK(compute(make_product(scaled, {})) == Values{33, 34, 35, 33, 34, 35, 33, 34, 35});
    }
  }
  operands.row_scales = real({1, 3});
  CHECK(message_of([&] { (void)make_product(operands, {}); }) ==
        "row_scales: expected floats [3] or [3, 1], got f32 [1, 3]");
  operands.row_scales.reset();
  operands.bias = real({3, 1});
  CHECK(message_of([&] { (void)make_product(operands, {}); }) ==
        "bias: expected floats [3] or [1, 3], got f32 [3, 1]");
}

TEST_CASE("scale layouts: UE4M3 codes have no sign, and tiles of 16 terms", "[product]") {
  std::vector<std::uint8_t> stored(512, 0);
  // Rows 0, 33, 70 and 127 of 128, tiles 0 to 3 of 16 terms, in their places of a block.
  for (const std::size_t row : {0U, 33U, 70U, 127U})
    for (std::size_t tile = 0; tile < 4; ++tile)
      stored[row % 32 * 16 + row / 32 * 4 + tile] =
          static_cast<std::uint8_t>((tile % 2 == 0 ? 0x80U : 0U) + 8 * tile + row / 32 + 8);
  const ScaleGrid grid =
      read_scales("scale_a", view_of(ElementType::e4m3fn, {512}, std::span(std::as_const(stored))),
                  ScaleLayout::blocked_128x4, std::nullopt, 128, 64);
  CHECK(grid.tiles == ScaleTiles{1, 16});
  REQUIRE(grid.values.size() == 128 * 4);
  for (std::size_t row = 0; row < 128; ++row)
    for (std::size_t tile = 0; tile < 4; ++tile) {
      const bool held = row == 0 || row == 33 || row == 70 || row == 127;
      const auto code = static_cast<std::uint32_t>(held ? 8 * tile + row / 32 + 8 : 0);
      CHECK(static_cast<double>(grid.values[row * 4 + tile]) ==
            decode(format(FormatId::e4m3fn), code));
    }
  const std::vector<std::uint8_t> minus(6, 0xb8);
  for (const ScaleLayout layout : {ScaleLayout::row_major, ScaleLayout::column_major})
    CHECK(read_scales("scale_a", view_of(ElementType::e4m3fn, {6}, std::span(minus)), layout,
                      std::nullopt, 6, 64)
              .values == Values(6, 1.0F));
}

TEST_CASE("scale layouts: shapes that do not fit are refused with those that do", "[product]") {
  const std::vector<std::uint32_t> words(64, 0x7f7f7f7f);
  const auto message = [&](std::vector<std::int64_t> shape, ScaleLayout layout, std::int64_t rows) {
    const auto size = static_cast<std::size_t>(element_count(shape, "words"));
    return message_of([&] {
      (void)read_scales("scale_a", view_of(ElementType::u32, shape, std::span(words).first(size)),
                        layout, std::nullopt, rows, 1024);
    });
  };
  CHECK(message({6, 2}, ScaleLayout::packed_ue8m0, 6) == "accepted");
  CHECK(message({2, 6}, ScaleLayout::packed_ue8m0, 6) ==
        "scale_a: expected [6, 2] words for tiles of 1x128 (packed_ue8m0), got [2, 6]");
  const ScaleLayout turned = ScaleLayout::packed_ue8m0_column_major;
  CHECK(message({2, 6}, turned, 6) == "accepted");
  CHECK(message({2, 8}, turned, 6) == "accepted");
  CHECK(message({2, 7}, turned, 6) ==
        "scale_a: expected [2, 6] words for tiles of 1x128 (packed_ue8m0, or padded [2, 8]), got "
        "[2, 7]");
  CHECK(message({2, 5}, turned, 8) ==
        "scale_a: expected [2, 8] words for tiles of 1x128 (packed_ue8m0), got [2, 5]");
  CHECK(
      message_of([] {
        (void)tiles_of_shape("scale_a", std::vector<std::int64_t>{5, 5}, 200, 300);
      }) ==
      "scale_a: expected one value, [200] or [200, 1], [200, 3] (1x128 tiles), [2, 3] (128x128 "
      "tiles), [200, 10] (1x32 tiles), [200, 19] (1x16 tiles); other tiles must be named, such as "
      "64x64, got [5, 5]");
  for (const ElementType type : {ElementType::f64, ElementType::f32, ElementType::f16,
                                 ElementType::bf16, ElementType::e8m0fnu, ElementType::e4m3fn})
    CHECK_NOTHROW(require_scale_type("scale_a", type));
  for (const ElementType type : {ElementType::e5m2, ElementType::u8, ElementType::i32})
    CHECK_THROWS_AS(require_scale_type("scale_a", type), Error);
}

TEST_CASE("variants: each side has its own grid, and scales beyond FP16 become infinite",
          "[product]") {
  // A: 3 x 2 tiles, B: 5 x 4; all of one operand's are changed, none of the other's.
  const RandomProduct random({.promotion_interval = 128},
                             {.shape = {3, 5, 512}, .tiles_a = {3, 1}, .tiles_b = {5, 4}});
  Product product = random.product;
  Values numbered(20);
  for (std::size_t i = 0; i < 20; ++i) numbered[i] = static_cast<float>(i + 1);
  numbered[7] = 70000.0F;
  numbered[8] = 1.0F + 0x1p-9F;
  product.problem.b_scales.values = product.keep(Values(numbered));
  const auto of_b = [](const std::optional<Product>& wrong) {
    REQUIRE(wrong);
    const auto& values = wrong->problem.b_scales.values;
    return Values(values.begin(), values.end());
  };
  for (const Side side : {Side::b, Side::both}) {
    Values rows;
    Values next;
    Values first;
    for (std::size_t i = 0; i < 20; ++i) {
      rows.push_back(numbered[(i / 4 + 1) % 5 * 4 + i % 4]);
      next.push_back(numbered[i / 4 * 4 + std::min<std::size_t>(i % 4 + 1, 3)]);
      first.push_back(numbered[i / 4 * 4]);
    }
    CHECK(of_b(with_scales_moved_along_rows(product, side, 1)) == rows);
    CHECK(of_b(with_scales_moved_along_k(product, side, 1)) == next);
    CHECK(of_b(with_first_scale_of_k(product, side)) == first);
    Values f16 = numbered;
    f16[7] = kInf;
    CHECK(of_b(with_rounded_scales(product, side, FormatId::f16)) == f16);
    f16[7] = 70144.0F;  // 8 bits
    f16[8] = 1.0F;
    CHECK(of_b(with_rounded_scales(product, side, FormatId::bf16)) == f16);
  }
}

TEST_CASE("variants: codes are read as the other format of their own operand", "[product]") {
  using Id = FormatId;
  for (const auto& [id, other] : {std::pair{Id::e4m3fn, Id::e5m2},
                                  {Id::e5m2, Id::e4m3fn},
                                  {Id::e4m3fnuz, Id::e5m2fnuz},
                                  {Id::e5m2fnuz, Id::e4m3fnuz}})
    CHECK(other_fp8_format(id) == other);
  CHECK_FALSE(other_fp8_format(Id::bf16));
  const RandomProduct random({.model = "sm90.wgmma.e4m3.e5m2"}, {.shape = {3, 5, 64}});
  const auto formats = [&](Side side) {
    const std::optional<Product> wrong = with_codes_read_as(random.product, side, other_fp8_format);
    REQUIRE(wrong);
    return std::pair{wrong->problem.a.format, wrong->problem.b.format};
  };
  CHECK(formats(Side::a) == std::pair{Id::e5m2, Id::e5m2});
  CHECK(formats(Side::b) == std::pair{Id::e4m3fn, Id::e4m3fn});
  CHECK(formats(Side::both) == std::pair{Id::e5m2, Id::e4m3fn});
}

TEST_CASE("variants: scales are swapped unless both operands have one, B's order turned twice",
          "[product]") {
  const auto swapped = [](std::vector<std::int64_t> of_a, std::vector<std::int64_t> of_b) {
    const RandomProduct random(
        {}, {.shape = {4, 5, 64}, .tiles_a = std::move(of_a), .tiles_b = std::move(of_b)});
    return with_swapped_scales(random.product).has_value();
  };
  CHECK(swapped({4}, {5}));
  CHECK(swapped({4}, {1}));
  CHECK(swapped({1}, {5}));
  CHECK_FALSE(swapped({1}, {1}));
  CHECK_FALSE(swapped({4}, {}));
  CHECK_FALSE(swapped({}, {5}));
  const RandomProduct random({}, {.shape = {4, 5, 64}});
  const Product once = *with_transposed_b(random.product);
  const std::optional<Product> twice = with_transposed_b(once);
  REQUIRE(twice);
  const CodeMatrix& b = once.problem.b;
  CHECK((b.row_stride == 1 && b.k_stride == 5));
  CHECK((twice->problem.b.row_stride == 64 && twice->problem.b.k_stride == 1));
}

TEST_CASE("variants: C stays where another accumulator or interval leaves it", "[product]") {
  const RandomProduct random({.model = "sm89.mma.e4m3", .promotion_interval = 16},
                             {.shape = {4, 5, 256}, .with_c = true});
  REQUIRE(random.product.problem.c_enters == CPlacement::promoted_sum);
  // Steps of 32 terms do not fit into 16.
  const Product wide =
      with_accumulator(random.product, find_instruction_model("sm90.wgmma.e4m3").accumulator);
  CHECK(wide.problem.promotion_interval == 0);
  CHECK(wide.problem.c_enters == CPlacement::epilogue);
  CHECK_NOTHROW(compute(wide));
  // One interval of all terms: the sum, and C at its place.
  for (const CPlacement place :
       {CPlacement::accumulator, CPlacement::promoted_sum, CPlacement::epilogue}) {
    Product product = random.product;
    product.problem.promotion_interval = 256;
    product.problem.c_enters = place;
    CAPTURE(to_string(place));
    CHECK(*compute_in_intervals(product, {.interval = 256}) == compute(product));
    Product without = product;
    without.problem.c = nullptr;
    CHECK(*compute_in_intervals(product, {.interval = 256}) != compute(without));
  }
}

TEST_CASE("split-K: a product whose instruction applies the scales is not split", "[product]") {
  RandomProduct random({.model = "sm100.tcgen05.mxf8f6f4.e4m3"}, {.shape = {2, 2, 128}});
  const std::vector<float> scales(8, 2.0F);
  random.product.problem.a_scales =
      random.product.problem.b_scales = {scales, 1, 32, FormatId::e8m0fnu};
  random.product.split = {.parts = 2};
  CHECK(message_of([&] { validate_split(random.product); }) ==
        "split_k: expected 1, since the instruction applies the scales itself, got 2");
  random.product.split = {.parts = 1, .tile = -1};
  CHECK(message_of([&] { validate_split(random.product); }) ==
        "split_tile: expected 0 (the promotion interval, or a step) or more terms, got -1");
}

TEST_CASE("a call in a table: recipes with one scale, of the formats that they make", "[product]") {
  const std::string head =
      "# fp8lab cublaslt 2\n# model: sm90.wgmma.e4m3\nm,n,k,a,b,output,accumulation,outputs,"
      "fitting,interval,parts,tile,cut,order,scale_order,rounding\n";
  const auto row = [](const std::string& formats) {
    return "8,4,64," + formats + ",f32,fast,32,1,0,1,64,contiguous,serial,product_then_fma,once\n";
  };
  const CallTable table = parse_call_table(head + row("e4m3fn,e4m3fn"), "t.csv");
  const TableCall call = parse_table_call("t.csv:fast");
  GemmOperands operands;
  operands.a = real({8, 64});
  operands.b = real({4, 64});
  const auto message = [&](const std::string& recipe) {
    operands.recipe = recipe;
    return message_of([&] { (void)with_call(table, call, operands, {}); });
  };
  CHECK(message("te-current") == "accepted");
  for (const char* recipe : {"deepseek-v3", "torchao-rowwise", "mxfp8-floor"})
    CHECK(message(recipe) == std::string("recipe: expected one with a scale for a whole tensor, as "
                                         "the calls of the table had, got ") +
                                 recipe);
  operands.recipe = "";
  operands.a = codes({2, 4, 64});
  operands.b = codes({4, 64});
  const std::string matrices =
      "call: expected matrices with a table, got another number of "
      "dimensions";
  CHECK(message("") == matrices);
  operands.a = codes({8, 64});
  operands.b = codes({1, 4, 64});
  CHECK(message("") == matrices);
  operands.b = codes({4, 64}, ElementType::e4m3fnuz);
  CHECK(message("") == "B: expected e4m3fn or e5m2 with a table, got e4m3fnuz");
  CHECK(message_of([] { (void)parse_table_call("t.csv:fast,output=bf16,output=f32"); }) ==
        "call: expected output once, got t.csv:fast,output=bf16,output=f32");
  CHECK(message_of([] { (void)parse_table_call("t.csv:fast,tile=1,order=tree,tile=2"); }) ==
        "call: expected each field once, got tile");
  // What a table says beside its candidates.
  const auto refused = [&](const std::string& text) {
    return message_of([&] { (void)parse_call_table(text, "t.csv"); });
  };
  CHECK(refused("# fp8lab cublaslt 2\n# : x\n") == "t.csv:2: expected `# key: value`, got # : x");
  const std::string begin = "8,4,64,e4m3fn,e4m3fn,f32,fast,32,";
  for (std::size_t field = 0; field < 7; ++field) {
    std::string none = begin + "0";
    for (std::size_t i = 0; i < 7; ++i) none += i == field ? ",1" : ",-";
    CHECK_THAT(
        refused(head + none + "\n"),
        contains("t.csv:4: ") && contains("expected -, since no candidate fits, got a value"));
  }
  CHECK_THAT(refused(head + begin + "2,0,1,64,contiguous,serial,product_then_fma,once\n" +
                     "8,4,64,e4m3fn,e4m3fn,f32,fast,33,2,0,1,32,contiguous,serial,product_then_fma,"
                     "once\n"),
             contains("t.csv:5: expected 1 more rows of 8x4x64"));
}

// What a product is refused for, word for word, and values at both sides of its limits.

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/product/grouped_product.hpp"
#include "fp8lab/product/non_finite.hpp"
#include "fp8lab/product/scale_layouts.hpp"
#include "fp8lab/product/split_k.hpp"
#include "fp8lab/product/variants.hpp"
#include "message_of.hpp"
#include "product/ones.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

using Floats = std::vector<float>;

}  // namespace

TEST_CASE("calls: one scale a row of either operand, as a tensor or loaded, has its own order",
          "[product]") {
  const LibraryCall& call = find_library_call("cublaslt.h100.fast");
  for (const bool of_a : {true, false}) {
    CAPTURE(of_a);
    GemmOperands operands;
    operands.a.codes = operands.b.codes = codes({8, 64});
    const auto loaded = [&](std::size_t count, std::int64_t k_block) {
      GemmOperands scaled = operands;
      (of_a ? scaled.a.inverse : scaled.b.inverse) =
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
      (of_a ? scaled.a.layout : scaled.b.layout) = layout;
      (of_a ? scaled.a.scales : scaled.b.scales) = real(std::move(shape));
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
  operands.a.codes = operands.b.codes = codes({8, 64});
  const auto split = [&](SplitK asked) {
    GemmSpec spec{.model = "sm90.wgmma.e4m3"};
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
  GemmSpec halves{.model = "sm90.wgmma.e4m3"};
  halves.split.parts = 2;
  CHECK(message_of([&] { with_call(find_library_call("deepgemm.h100"), operands, halves); }) ==
        "split_k: expected K whole, the known splits of deepgemm.h100, got contiguous serial");
  operands.a.codes.type = ElementType::e4m3fnuz;
  operands.b.codes.type = ElementType::e5m2;
  const std::string refused = message_of([&] { with_call(ada, operands, {}); });
  CHECK_THAT(refused, contains("call: expected operands in formats that cublaslt.rtx4060.fast "
                               "reads (e4m3fn x e4m3fn, e5m2 x e5m2"));
  CHECK(refused.ends_with("), got e4m3fnuz x e5m2"));
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
  coarse.problem.scale_b = {coarse.keep({1.5F, 0.75F, 3.0F, 0.3F}), 2, 256};
  fine.problem.scale_b = {fine.keep({1.5F, 1.5F, 0.75F, 0.75F, 1.5F, 1.5F, 0.75F, 0.75F, 3.0F, 3.0F,
                                     0.3F, 0.3F, 3.0F, 3.0F, 0.3F, 0.3F}),
                          1, 128};
  CHECK(compute(coarse) == compute(fine));
  CHECK(*compute_missing_promotion(coarse) == *compute_missing_promotion(fine));
}

TEST_CASE("product: what a recipe, groups and B's order exclude is refused", "[product]") {
  GemmOperands recipe;
  recipe.a.codes = recipe.b.codes = real({8, 64});
  recipe.recipe = "te-current";
  const auto message = [](const GemmOperands& operands,
                          const GemmSpec& spec = {.model = "sm90.wgmma.e4m3"}) {
    return message_of([&] { (void)make_product(operands, spec); });
  };
  const std::string none =
      "scales: expected none, since the recipe makes them, got scales of your "
      "own";
  CHECK(message(recipe) == "accepted");
  for (const bool of_a : {true, false}) {
    GemmOperands other = recipe;
    (of_a ? other.a.scales : other.b.scales) = real({1});
    CHECK(message(other) == none);
    other = recipe;
    (of_a ? other.a.inverse : other.b.inverse) = InverseScales{std::span(floats()).first(1)};
    CHECK(message(other) == none);
    other = recipe;
    (of_a ? other.a.tensor_scale : other.b.tensor_scale) = 2.0F;
    CHECK(message(other) == none);
    other = recipe;
    other.recipe = "";
    (of_a ? other.a.group_tensor_scales : other.b.group_tensor_scales) = {1.0F};
    CHECK(message(other) ==
          "tensor_scale: expected one number, since there are no groups, got one per group");
  }
  GemmOperands turned;
  turned.a.codes = codes({8, 64});
  turned.b.codes = codes({4, 64});
  turned.b.transposed = true;
  CHECK(message(turned) ==
        "B: expected [k, n] with k = 64, as for A; it is [n, k]: leave out "
        "`transpose_b`, got [4, 64]");
  turned.b.codes = codes({4, 32});
  CHECK(message(turned) == "B: expected [k, n] with k = 64, as for A, got [4, 32]");
  turned.b.transposed = false;
  CHECK(message(turned) == "B: expected [n, k] with k = 64, as for A, got [4, 32]");
  turned.b.codes = codes({64, 32});
  CHECK(message(turned) ==
        "B: expected [n, k] with k = 64, as for A; it is [k, n]: give "
        "`transpose_b`, got [64, 32]");
  GemmOperands fnuz;
  fnuz.a.codes = fnuz.b.codes = codes({8, 64}, ElementType::e4m3fnuz);
  CHECK(message(fnuz) ==
        "A: expected e4m3fn for sm90.wgmma.e4m3; FNUZ codes are AMD's, this one for `model=exact`, "
        "fp32 or gfx942.mfma.fp8, got e4m3fnuz [8, 64]");
  GemmSpec both{.model = "sm90.wgmma.e4m3"};
  both.output = default_output(FormatId::e4m3fn);
  both.epilogue.scale_by_amax = true;
  both.epilogue.output_scale = 2.0F;
  turned.b.codes = codes({4, 64});
  CHECK(message(turned, both) ==
        "output_scale: expected a number or the amax of the output, got both");
}

TEST_CASE("product: vectors of an epilogue are rows or columns of any float", "[product]") {
  const std::vector<std::uint16_t> bf16{0x3f80, 0x4000, 0x4040};
  const std::vector<double> f64{1.0, 2.0, 3.0};
  GemmOperands operands;
  operands.a.codes = operands.b.codes = codes({3, 32});
  const auto view = [&](bool narrow, std::vector<std::int64_t> shape) {
    return narrow ? view_of(ElementType::bf16, std::move(shape), std::span(bf16))
                  : view_of(ElementType::f64, std::move(shape), std::span(f64));
  };
  for (const bool narrow : {true, false}) {
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{3}, {3, 1}}) {
      GemmOperands scaled = operands;
      scaled.row_scales = view(narrow, shape);
      CHECK(compute(make_product(scaled, {.model = "sm90.wgmma.e4m3"})) ==
            Floats{32, 32, 32, 64, 64, 64, 96, 96, 96});
    }
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{3}, {1, 3}}) {
      GemmOperands scaled = operands;
      scaled.column_scales = view(narrow, shape);
      CHECK(compute(make_product(scaled, {.model = "sm90.wgmma.e4m3"})) ==
            Floats{32, 64, 96, 32, 64, 96, 32, 64, 96});
      scaled.column_scales.reset();
      scaled.bias = view(narrow, shape);
      CHECK(compute(make_product(scaled, {.model = "sm90.wgmma.e4m3"})) ==
            Floats{33, 34, 35, 33, 34, 35, 33, 34, 35});
    }
  }
  operands.row_scales = real({1, 3});
  CHECK(message_of([&] { (void)make_product(operands, {.model = "sm90.wgmma.e4m3"}); }) ==
        "row_scales: expected floats [3] or [3, 1], got f32 [1, 3]");
  operands.row_scales.reset();
  operands.bias = real({3, 1});
  CHECK(message_of([&] { (void)make_product(operands, {.model = "sm90.wgmma.e4m3"}); }) ==
        "bias: expected floats [3] or [1, 3], got f32 [3, 1]");
}

TEST_CASE("split-K: a product whose instruction applies the scales is not split", "[product]") {
  RandomProduct random({.model = "sm100.tcgen05.mxf8f6f4.e4m3"}, {.shape = {2, 2, 128}});
  const std::vector<float> scales(8, 2.0F);
  random.product.problem.scale_a =
      random.product.problem.scale_b = {scales, 1, 32, FormatId::e8m0fnu};
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
  operands.a.codes = real({8, 64});
  operands.b.codes = real({4, 64});
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
  operands.a.codes = codes({2, 4, 64});
  operands.b.codes = codes({4, 64});
  CHECK(message("") == "A: expected a matrix [m, k], got e4m3fn [2, 4, 64]");
  operands.a.codes = codes({8, 64});
  operands.b.codes = codes({1, 4, 64});
  CHECK(message("") == "B: expected a matrix [n, k], got e4m3fn [1, 4, 64]");
  operands.b.codes = codes({4, 64}, ElementType::e4m3fnuz);
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

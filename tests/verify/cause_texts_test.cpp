// All mistakes that are tried, with their texts word for word: budgets so wide that each explains
// every output.

#include <fmt/format.h>

#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/cast_causes.hpp"
#include "fp8lab/verify/judge.hpp"
#include "fp8lab/verify/kernel_causes.hpp"
#include "fp8lab/verify/product_causes.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

namespace {

/// What is tried where every code is wrong and every finite one explains it, one mistake a line.
std::string all_tried(const Product& product) {
  const std::vector<float> golden = compute(product);
  const std::vector<std::uint32_t> right =
      code_words(product.output.format, cast_output(golden, product.output, 1));
  std::vector<std::uint32_t> wrong;
  std::vector<ErrorBudget> budgets;
  for (const std::uint32_t code : right) {
    wrong.push_back(code ^ 1U);
    ErrorBudget wide;
    wide.accumulation = 1e38;
    wide.low = wide.high = code;
    budgets.push_back(wide);
  }
  Judge judge(product.output, right, wrong, budgets);
  Sample all;
  for (std::int64_t i = 0; i < product.rows(); ++i) all.rows.push_back(i);
  for (std::int64_t i = 0; i < product.columns(); ++i) all.columns.push_back(i);
  try_mistakes(product, all, product, golden, judge, 1);
  const Diagnosis found = judge.finish();
  std::string text = fmt::format("{} tried\n", found.tried);
  for (const Cause& one : found.causes) {
    text += fmt::format("{}: {}\n", one.name, one.text);
    CHECK(one.explained > 0);
  }
  return text;
}

/// The lines without those of other accumulators, of which each has its own name in it.
std::string without_accumulators(const std::string& text) {
  std::string rest;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at) + 1;
    const std::string line = text.substr(at, end - at);
    at = end;
    if (!line.starts_with("accumulator_")) {
      rest += line;
      continue;
    }
    const std::string name = line.substr(12, line.find(':') - 12);
    CHECK(line == fmt::format("accumulator_{}: accumulated as {} does\n", name, name));
  }
  return rest;
}

/// The first line of each name: what explains as much under a name that was told is not told again.
std::string first_of_each_name(const std::string& text) {
  std::string kept;
  std::set<std::string> names;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at) + 1;
    const std::string line = text.substr(at, end - at);
    if (names.insert(line.substr(0, line.find(':'))).second) kept += line;
    at = end;
  }
  return kept;
}

constexpr const char* kWrongResults =
    "negated_output: every sign is wrong\n"
    "relu: negative results became zero\n"
    "doubled_output: twice the right results\n"
    "halved_output: half the right results\n";

/// K of 520 terms in tiles of 128 where `along_k`; `masks`: of the rows that are exchanged.
std::string scale_texts(bool along_k, std::string_view letter, const std::string& of,
                        const std::vector<int>& masks) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& what) {
    text += fmt::format("{}: {}{}\n", name, of, what);
  };
  const auto value = [&](const std::string& name, const std::string& what) {
    add(fmt::format("{}_scale_{}", name, letter), " " + what);
  };
  value("missing", "not applied");
  value("doubled", "applied twice");
  value("inverted", "inverted: divided instead of multiplied");
  add(fmt::format("e8m0_scale_{}_without_requantizing", letter),
      " rounded up to a power of two (E8M0), with unchanged codes");
  add(fmt::format("e8m0_scale_{}_truncated", letter),
      " truncated to a power of two: the exponent alone, with unchanged codes");
  add(fmt::format("e8m0_scale_{}_nearest", letter),
      " rounded to the nearest power of two, with unchanged codes");
  value("bf16", "rounded to bf16");
  value("f16", "rounded to f16");
  for (const char* narrow : {"bf16", "f16"})
    add(fmt::format("{}_scale_{}_truncated", narrow, letter),
        fmt::format(" truncated to {}", narrow));
  if (along_k) {
    value("stale", "of the tile of K before");
    value("next", "of the next tile of K");
    value("first", "of the first tile of K throughout");
    value("tail", "of the last, shorter tile of K: that of the tile before");
    value("missing_last", "of the last tile of K, [512, 520), not applied");
    value("missing_first", "of the first tile of K, [0, 128), not applied");
    add(fmt::format("half_tile_scale_{}", letter),
        ": the second half of each tile of K read the scale of the next tile");
  }
  for (const int terms : {16, 32, 64, 256, 512}) {
    if (!along_k) continue;
    const std::string name = fmt::format("scale_group_{}_{}", terms, letter);
    // With rows as long as they are or as the tiles make them; 16 is shorter than the unit's step.
    for (int i = 0; i < (terms == 16 || terms > 128 ? 2 : 3); ++i)
      add(name, fmt::format(" read as if a tile had {} terms of K", terms));
    for (const char* which : {"first", "last"})
      if (terms > 128)
        add(name, fmt::format(": one for {} terms of K, the {} of its tiles", terms, which));
  }
  add(fmt::format("scale_{}_of_first_row", letter), " of the first row of tiles in all rows");
  add(fmt::format("scale_{}_of_next_row", letter), " of the next row of tiles");
  add(fmt::format("scale_{}_of_previous_row", letter), " of the previous row of tiles");
  for (const int mask : masks)
    add(fmt::format("scale_rows_xor_{}_{}", mask, letter),
        fmt::format(" of another row: row r has that of row r xor {}", mask));
  for (const int rows : {32, 64, 128, 256})
    add(fmt::format("scale_row_group_{}_{}", rows, letter),
        fmt::format(" read as if a tile had {} rows", rows));
  if (!along_k) return text;
  add(fmt::format("wrong_scale_axis_{}", letter), " read along the wrong axis");
  add(fmt::format("wrong_scale_axis_{}", letter), ": a column-major grid read as row-major");
  add(fmt::format("linear_scale_read_as_128x4_{}", letter),
      ": a row-major grid read as blocks of 128 x 4");
  add(fmt::format("128x4_scale_read_as_linear_{}", letter),
      ": blocks of 128 x 4 read as a row-major grid");
  return text;
}

constexpr const char* kMovedPointers =
    "k_offset_1_a: A read 1 term too far\n"
    "k_offset_-1_a: A read 1 term early\n"
    "k_offset_16_a: A read 16 terms too far\n"
    "k_offset_-16_a: A read 16 terms early\n"
    "k_offset_1_b: B read 1 term too far\n"
    "k_offset_-1_b: B read 1 term early\n"
    "k_offset_16_b: B read 16 terms too far\n"
    "k_offset_-16_b: B read 16 terms early\n";

constexpr const char* kScaleOrders =
    "scale_order_product_then_add: scales applied in the order product_then_add\n"
    "scale_order_a_then_fma_b: scales applied in the order a_then_fma_b\n"
    "scale_order_b_then_fma_a: scales applied in the order b_then_fma_a\n"
    "scale_order_a_then_b_then_add: scales applied in the order a_then_b_then_add\n";

}  // namespace

TEST_CASE("causes: all that are tried of a product with scales along K and C", "[verify]") {
  const RandomProduct random(
      {.promotion_interval = 128},
      {.shape = {4, 6, 520}, .tiles_a = {4, 5}, .tiles_b = {6, 5}, .with_c = true});
  CHECK(
      without_accumulators(all_tried(random.product)) ==
      first_of_each_name(
          std::string("218 tried\n"
                      "double_rounding_f16: double rounding: rounded to f16 first, then to f32\n"
                      "double_rounding_bf16: double rounding: rounded to bf16 first, then to f32\n"
                      "truncated_f16_first: truncated to f16 first, then rounded to f32\n"
                      "truncated_bf16_first: truncated to bf16 first, then rounded to f32\n"
                      "flushed_subnormals: subnormal results flushed to zero\n") +
          scale_texts(true, "a", "A's scale", {1, 2}) +
          scale_texts(true, "b", "B's scale", {1, 2, 4}) +
          scale_texts(true, "a_and_b", "both scales", {1, 2, 4}) +
          "swapped_scales: A's scales on B and B's on A\n" + kScaleOrders +
          "c_in_accumulator: C entered at another place: as c_enters=accumulator\n"
          "c_in_epilogue: C entered at another place: as c_enters=epilogue\n"
          "missing_c: C left out\n"
          "e5m2_codes_a: A's codes are e5m2, read as e4m3fn, or the reverse\n"
          "e5m2_codes_b: B's codes are e5m2, read as e4m3fn, or the reverse\n"
          "e5m2_codes_a_and_b: the codes of both are e5m2, read as e4m3fn, or the reverse\n"
          "transposed_b: B read in the other memory order\n"
          "flushed_input_subnormals: subnormal operands read as zeros\n"
          "dropped_last_k_tile: the terms from 512 on left out\n"
          "dropped_first_k_tile: the first 128 terms left out\n"
          "dropped_k_tail: the last 8 terms, beyond multiples of 128, left out\n"
          "dropped_k_tail: the last 8 terms, beyond multiples of 64, left out\n"
          "dropped_k_tail: the last 8 terms, beyond multiples of 32, left out\n"
          "dropped_k_tail: the last 8 terms, beyond multiples of 16, left out\n"
          "dropped_first_half_of_k: the first 384 terms left out\n"
          "dropped_last_half_of_k: the terms from 384 on left out\n" +
          kMovedPointers +
          "missing_promotion: the first promotion does not happen\n"
          "no_promotion: no promotion to FP32 at all, under the last scale of each interval\n"
          "no_promotion: no promotion to FP32 at all, under the first scale of each interval\n"
          "promotion_32: promotion to FP32 every 32 terms\n"
          "promotion_64: promotion to FP32 every 64 terms\n"
          "promotion_256: promotion to FP32 every 256 terms, under the last scale of each "
          "interval\n"
          "promotion_256: promotion to FP32 every 256 terms, under the first scale of each "
          "interval\n"
          "promotion_512: promotion to FP32 every 512 terms, under the last scale of each "
          "interval\n"
          "promotion_512: promotion to FP32 every 512 terms, under the first scale of each "
          "interval\n"
          "bf16_accumulator: the sum rounded to bf16 every 128 terms\n"
          "f16_accumulator: the sum rounded to f16 every 128 terms\n"
          "split_k_2: K split in 2 parts, summed in FP32 in order\n"
          "split_k_4: K split in 4 parts, summed in FP32 in order\n" +
          kWrongResults + "zero_output: zeros in place of all results\n"));
}

TEST_CASE("causes: all that are tried of a product of FNUZ codes and bf16 outputs", "[verify]") {
  const RandomProduct random({.model = "gfx942.mfma.fp8", .output = default_output(FormatId::bf16)},
                             {.shape = {4, 6, 200}, .tiles_a = {4}});
  CHECK(
      without_accumulators(all_tried(random.product)) ==
      first_of_each_name(
          std::string("108 tried\n"
                      "double_rounding_f16: double rounding: rounded to f16 first, then to bf16\n"
                      "truncated_f16_first: truncated to f16 first, then rounded to bf16\n"
                      "rtz_cast: truncated (round toward zero) instead of rounded to nearest\n"
                      "ties_away_cast: ties rounded away from zero instead of to even\n"
                      "saturated: values beyond the largest finite one saturated instead of "
                      "becoming NaN or infinity\n"
                      "flushed_subnormals: subnormal results flushed to zero\n"
                      "negative_zero_lost: -0 stored as +0\n"
                      "sign_lost: the sign left out\n"
                      "nan_to_largest: NaN became the largest finite number, as a clamp makes "
                      "it\n"
                      "nan_to_lowest: NaN became the lowest finite number, as a clamp makes it\n"
                      "nan_to_zero: NaN became 0\n") +
          scale_texts(false, "a", "A's scale", {1, 2}) +
          scale_texts(false, "a_and_b", "both scales", {1, 2}) + kScaleOrders +
          "fnuz_inputs: FNUZ/FN mix-up: the codes were read with the other bias\n"
          "fnuz_a: FNUZ/FN mix-up: A's codes were read with the other bias\n"
          "fnuz_b: FNUZ/FN mix-up: B's codes were read with the other bias\n"
          "e5m2fnuz_codes_a: A's codes are e5m2fnuz, read as e4m3fnuz, or the reverse\n"
          "e5m2fnuz_codes_b: B's codes are e5m2fnuz, read as e4m3fnuz, or the reverse\n"
          "e5m2fnuz_codes_a_and_b: the codes of both are e5m2fnuz, read as e4m3fnuz, or the "
          "reverse\n"
          "transposed_b: B read in the other memory order\n"
          "flushed_input_subnormals: subnormal operands read as zeros\n"
          "dropped_last_k_tile: the terms from 128 on left out\n"
          "dropped_first_k_tile: the first 128 terms left out\n"
          "dropped_k_tail: the last 72 terms, beyond multiples of 128, left out\n"
          "dropped_k_tail: the last 8 terms, beyond multiples of 64, left out\n"
          "dropped_k_tail: the last 8 terms, beyond multiples of 32, left out\n"
          "dropped_k_tail: the last 8 terms, beyond multiples of 16, left out\n"
          "dropped_first_half_of_k: the first 128 terms left out\n"
          "dropped_last_half_of_k: the terms from 128 on left out\n" +
          kMovedPointers +
          "unmasked_k_tail: K padded to a multiple of 16 with what lies behind each row: the next "
          "row's terms\n"
          "promotion_32: promotion to FP32 every 32 terms\n"
          "promotion_64: promotion to FP32 every 64 terms\n"
          "promotion_128: promotion to FP32 every 128 terms\n"
          "bf16_accumulator: the sum rounded to bf16 every 32 terms\n"
          "bf16_accumulator: the sum rounded to bf16 every 64 terms\n"
          "bf16_accumulator: the sum rounded to bf16 every 128 terms\n"
          "f16_accumulator: the sum rounded to f16 every 32 terms\n"
          "f16_accumulator: the sum rounded to f16 every 64 terms\n"
          "f16_accumulator: the sum rounded to f16 every 128 terms\n"
          "split_k_2: K split in 2 parts, summed in FP32 in order\n"
          "split_k_4: K split in 4 parts, summed in FP32 in order\n"
          "split_k_8: K split in 8 parts, summed in FP32 in order\n"
          "bf16_before_scales: the sum rounded to bf16 before its scales\n"
          "f16_before_scales: the sum rounded to f16 before its scales\n" +
          kWrongResults + "zero_output: zeros in place of all results\n"));
}

TEST_CASE("causes: all that are tried of products of few terms", "[verify]") {
  // A half of K, and a tail, are parts of it.
  for (const auto& [k, expected] :
       {std::pair{1, ""}, std::pair{16, ""},
        std::pair{20, "dropped_k_tail: the last 4 terms, beyond multiples of 16, left out\n"},
        std::pair{128, ""},
        std::pair{129,
                  "dropped_last_k_tile: the terms from 128 on left out\n"
                  "dropped_first_k_tile: the first 128 terms left out\n"
                  "dropped_k_tail: the last 1 term, beyond multiples of 128, left out\n"
                  "dropped_k_tail: the last 1 term, beyond multiples of 64, left out\n"
                  "dropped_k_tail: the last 1 term, beyond multiples of 32, left out\n"
                  "dropped_k_tail: the last 1 term, beyond multiples of 16, left out\n"
                  "dropped_first_half_of_k: the first 128 terms left out\n"
                  "dropped_last_half_of_k: the terms from 128 on left out\n"}}) {
    const RandomProduct random({.model = "sm100.tcgen05.e4m3"}, {.shape = {3, 2, k}});
    std::string dropped;
    const std::string all = all_tried(random.product);
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t end = all.find('\n', at) + 1;
      if (all.substr(at, 8) == "dropped_") dropped += all.substr(at, end - at);
      at = end;
    }
    INFO("k = " << k);
    CHECK(dropped == first_of_each_name(expected));
  }
}

TEST_CASE("causes: the texts of mistakes around a sum", "[verify]") {
  const RandomProduct random({}, {.shape = {4, 6, 64}});
  const std::vector<float> six{1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F};
  const std::vector<float> c(24, 1.0F);
  const auto texts = [](const Product& product) {
    std::string text;
    for (const KernelMistake& one : kernel_mistakes(product))
      text += fmt::format("{}: {}\n", one.name, one.text);
    return text;
  };
  Product all = random.product;
  all.problem.scale_a.tensor_scale = 2.0F;
  all.problem.scale_b.tensor_scale = 0.5F;
  all.split = {.parts = 2};
  Epilogue& e = all.epilogue;
  e.alpha = 0.5F;
  e.row_scales = std::span(six).first(4);
  e.column_scales = e.bias = six;
  e.beta = 0.25F;
  e.c = c.data();
  e.activation = Activation::silu;
  e.output_scale = 3.0F;
  CHECK(texts(all) ==
        "missing_tensor_scale_a: A's tensor scale left out\n"
        "missing_tensor_scale_b: B's tensor scale left out\n"
        "missing_tensor_scale_a_and_b: of both operands: tensor scale left out\n"
        "inverted_tensor_scale_a: A's divided by the tensor scale instead of multiplied\n"
        "inverted_tensor_scale_b: B's divided by the tensor scale instead of multiplied\n"
        "inverted_tensor_scale_a_and_b: of both operands: divided by the tensor scale instead of "
        "multiplied\n"
        "doubled_tensor_scale_a: A's tensor scale applied twice\n"
        "doubled_tensor_scale_b: B's tensor scale applied twice\n"
        "doubled_tensor_scale_a_and_b: of both operands: tensor scale applied twice\n"
        "not_split: K summed as a whole, not in parts\n"
        "split_order_pairwise: the parts of K added in the order pairwise\n"
        "split_order_tree: the parts of K added in the order tree\n"
        "bf16_split_parts: the parts of K rounded to bf16 before they are added\n"
        "f16_split_parts: the parts of K rounded to f16 before they are added\n"
        "split_cut_modulo: K cut into modulo parts\n"
        "missing_bias: the bias left out\n"
        "bf16_bias: the bias rounded to bf16\n"
        "f16_bias: the bias rounded to f16\n"
        "missing_row_scales: the scales of rows left out\n"
        "missing_column_scales: the scales of columns left out\n"
        "missing_alpha: alpha taken as 1\n"
        "missing_c: C left out\n"
        "missing_beta: beta taken as 1\n"
        "missing_output_scale: the output's scale left out\n"
        "inverted_output_scale: divided by the output's scale instead of multiplied\n"
        "missing_activation: no activation\n"
        "activation_relu: relu as the activation\n"
        "activation_leaky_relu: leaky_relu as the activation\n"
        "activation_gelu: gelu as the activation\n"
        "activation_gelu_tanh: gelu_tanh as the activation\n"
        "bias_after_activation: the bias added after the activation\n"
        "bf16_before_epilogue: the sum rounded to bf16 before the epilogue\n"
        "bf16_before_activation: rounded to bf16 before the activation\n"
        "f16_before_epilogue: the sum rounded to f16 before the epilogue\n"
        "f16_before_activation: rounded to f16 before the activation\n");
  Product gated = random.product;
  gated.epilogue.activation = Activation::swiglu;
  CHECK(texts(gated) ==
        "gate_and_factor_exchanged: the gate and the columns that it multiplies exchanged\n"
        "bf16_before_epilogue: the sum rounded to bf16 before the epilogue\n"
        "bf16_before_activation: rounded to bf16 before the activation\n"
        "f16_before_epilogue: the sum rounded to f16 before the epilogue\n"
        "f16_before_activation: rounded to f16 before the activation\n");
}

TEST_CASE("causes: the texts of mistakes in casts of outputs and of operands", "[verify]") {
  const auto texts = [](FormatId id, const CastPolicy& policy) {
    std::string text;
    for (const CastMistake& one : cast_mistakes(id, policy))
      text += fmt::format("{}: {}\n", one.name, one.text);
    return text;
  };
  const std::string middle =
      "rtz_cast: truncated (round toward zero) instead of rounded to nearest\n"
      "ties_away_cast: ties rounded away from zero instead of to even\n";
  const std::string flushed = "flushed_subnormals: subnormal results flushed to zero\n";
  const std::string triton =
      "triton_interpreter_cast: the cast of Triton's interpreter: a carry into the exponent is "
      "lost (127 becomes 64)\n";
  for (const auto& [id, name, last] : {std::tuple{FormatId::e4m3fn, "e4m3fn",
                                                  "fnuz_output: encoded as FNUZ (bias one higher), "
                                                  "read as FN\n"},
                                       std::tuple{FormatId::e5m2fnuz, "e5m2fnuz",
                                                  "fn_output: encoded as FN (bias one lower), "
                                                  "read as FNUZ\n"}})
    for (const bool saturates : {false, true})
      CHECK(texts(id, saturates ? kNvidiaSatfinite : kNvidiaNosat) ==
            fmt::format("double_rounding_f16: double rounding: rounded to f16 first, then to {}\n"
                        "double_rounding_bf16: double rounding: rounded to bf16 first, then to {}\n"
                        "truncated_f16_first: truncated to f16 first, then rounded to {}\n"
                        "truncated_bf16_first: truncated to bf16 first, then rounded to {}\n"
                        "{}{}{}{}{}{}",
                        name, name, name, name, middle,
                        saturates ? "not_saturated: values beyond the largest finite one became "
                                    "NaN or infinity instead of saturating\n"
                                  : "saturated: values beyond the largest finite one saturated "
                                    "instead of becoming NaN or infinity\n",
                        flushed, last, triton, kWrongResults));
  std::vector<float> x(2 * 64);
  const RandomStream stream(1, "texts of casts");
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(stream.normal(i));
  GemmOperands operands;
  operands.a.codes = operands.b.codes =
      view_of(ElementType::f32, {2, 64}, std::span<const float>(x));
  operands.recipe = "te-current";
  Product product = make_product(operands, {.model = "sm90.wgmma.e4m3"});
  std::string quantized;
  const std::string all = all_tried(product);
  for (const char* start : {"truncated_quantization_", "triton_interpreter_cast_"})
    for (std::size_t at = 0; (at = all.find(start, at)) != std::string::npos; ++at)
      if (at == 0 || all[at - 1] == '\n') quantized += all.substr(at, all.find('\n', at) + 1 - at);
  std::string expected;
  for (const char* what : {"truncated_quantization", "triton_interpreter_cast"})
    for (const auto& [letter, of] :
         {std::pair{"a", "A"}, std::pair{"b", "B"}, std::pair{"a_and_b", "A and B"}})
      expected += fmt::format("{}_{}: {} {}\n", what, letter, of,
                              what[1] == 'r' && what[2] == 'u'
                                  ? "truncated where the recipe rounds to nearest"
                                  : "quantized with the cast of Triton's interpreter, which loses "
                                    "carries into the exponent (127 becomes 64)");
  CHECK(quantized == expected);
  for (const bool of_a : {false, true}) {
    Product one = product;
    (of_a ? one.a_original : one.b_original) = nullptr;
    CHECK(quantization_mistakes(one).empty());
  }
}

TEST_CASE("causes: mistakes around a sum are tried with their texts and outputs", "[verify]") {
  RandomProduct random({}, {.shape = {3, 4, 64}});
  const std::vector<float> bias{-3.0007F, 0.50013F, 2.0009F, 100.03F};  // of no narrower format
  const std::vector<float> rows{2.0F, -0.5F, 3.0F};
  random.product.epilogue.bias = bias;
  random.product.epilogue.row_scales = rows;
  random.product.epilogue.activation = Activation::relu;
  const std::string all = all_tried(random.product);
  for (const KernelMistake& one : kernel_mistakes(random.product)) {
    INFO(one.name);
    CHECK(all.find(fmt::format("\n{}: {}\n", one.name, one.text)) != std::string::npos);
    if (one.name != "bias_after_activation") continue;
    const std::vector<float> sums = compute_sums(random.product);
    std::vector<float> expected;
    for (std::size_t i = 0; i < 12; ++i) {
      const float scaled = sums[i] * rows[i / 4];
      expected.push_back((scaled > 0.0F ? scaled : 0.0F) + bias[i % 4]);
    }
    CHECK(one.output(random.product).value() == expected);
  }
}

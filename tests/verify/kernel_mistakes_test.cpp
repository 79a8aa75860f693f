// Which mistakes of a kernel are tried: those of the parts that it has, and no others.

#include "fp8lab/verify/kernel_causes.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "catch.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/verify/causes.hpp"
#include "fp8lab/verify/k_blocks.hpp"
#include "product/products.hpp"

using namespace fp8lab;
using namespace fp8lab::test;

TEST_CASE("causes: mistakes of a kernel are those of its own parts", "[verify]") {
  const RandomProduct random({.promotion_interval = 32}, {.shape = {4, 6, 128}});
  const std::vector<float> six{1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F};
  const std::vector<float> c(24, 1.0F);
  const auto names = [&](const auto& change) {
    Product product = random.product;
    change(product);
    std::string text;
    for (const KernelMistake& one : kernel_mistakes(product)) text += one.name + " ";
    return text;
  };
  const std::string curves =
      "activation_relu activation_leaky_relu activation_gelu activation_gelu_tanh activation_silu ";
  const std::string before = "bf16_before_epilogue f16_before_epilogue ";
  CHECK(names([](Product&) {}) == "");
  // Splits.
  CHECK(names([](Product& p) { p.split = {.parts = 2}; }) ==
        "not_split split_order_pairwise split_order_tree bf16_split_parts f16_split_parts "
        "split_cut_modulo ");
  CHECK(names([](Product& p) {
          p.split = {.parts = 2, .cut = SplitCut::modulo, .order = SplitOrder::tree};
        }) ==
        "not_split split_order_serial split_order_pairwise bf16_split_parts f16_split_parts "
        "split_cut_contiguous ");
  // Tensor scales.
  for (const bool of_a : {false, true})
    for (const bool of_b : {false, true}) {
      std::string expected;
      for (const char* how : {"missing", "inverted", "doubled"}) {
        if (of_a) expected += std::string(how) + "_tensor_scale_a ";
        if (of_b) expected += std::string(how) + "_tensor_scale_b ";
        if (of_a && of_b) expected += std::string(how) + "_tensor_scale_a_and_b ";
      }
      CHECK(names([&](Product& p) {
              if (of_a) p.problem.scale_a.tensor_scale = 2.0F;
              if (of_b) p.problem.scale_b.tensor_scale = 0.5F;
            }) == expected);
    }
  // One part of an epilogue at a time.
  const auto part = [&](const auto& change) {
    return names([&](Product& p) { change(p.epilogue); });
  };
  CHECK(part([&](Epilogue& e) { e.bias = six; }) ==
        "missing_bias bf16_bias f16_bias " + curves + before);
  CHECK(part([&](Epilogue& e) { e.row_scales = std::span(six).first(4); }) ==
        "missing_row_scales " + curves + before);
  CHECK(part([&](Epilogue& e) { e.column_scales = six; }) ==
        "missing_column_scales " + curves + before);
  CHECK(part([](Epilogue& e) { e.alpha = 0.5F; }) == "missing_alpha " + curves + before);
  CHECK(part([&](Epilogue& e) { e.c = c.data(); }) == "missing_c " + curves + before);
  CHECK(part([&](Epilogue& e) { e.c = c.data(), e.beta = 2.0F; }) ==
        "missing_c missing_beta " + curves + before);
  CHECK(part([&](Epilogue& e) { e.c = c.data(), e.beta = 0.0F; }) ==
        "missing_c missing_beta " + curves + before);
  CHECK(part([](Epilogue& e) { e.output_scale = 2.0F; }) ==
        "missing_output_scale inverted_output_scale " + curves + before);
  // Every curve: what else it may have been, and what was rounded before it.
  for (const Activation own : activations()) {
    if (own == Activation::none) continue;
    for (const bool with_bias : {false, true}) {
      std::string expected = with_bias ? "missing_bias bf16_bias f16_bias " : "";
      const bool gated = own == Activation::swiglu;
      for (const Activation other : activations()) {
        if (gated || other == own || other == Activation::swiglu) continue;
        expected += other == Activation::none ? std::string("missing_activation ")
                                              : "activation_" + std::string(to_string(other)) + " ";
      }
      if (with_bias && !gated) expected += "bias_after_activation ";
      if (gated) expected += "gate_and_factor_exchanged ";
      for (const char* id : {"bf16", "f16"})
        expected += std::string(id) + "_before_epilogue " + id + "_before_activation ";
      INFO(to_string(own) << ", bias " << with_bias);
      CHECK(part([&](Epilogue& e) {
              e.activation = own;
              if (with_bias) e.bias = six;
            }) == expected);
    }
  }
}

TEST_CASE("causes: a block of K explains a difference of which it leaves a quarter of the square",
          "[verify]") {
  const RandomProduct random({}, {.shape = {4, 3, 128}});
  const Product& p = random.product;
  const std::vector<float> golden = compute(p);
  const std::vector<float> block = compute(take_k(p, 32, 64));
  const auto found = [&](const Product& of, double share) {
    std::vector<float> got = golden;
    for (std::size_t i = 0; i < got.size(); ++i)
      got[i] = static_cast<float>(static_cast<double>(golden[i]) -
                                  share * static_cast<double>(block[i]));
    for (const BlockMistake& one : likely_block_mistakes(of, golden, got, 32))
      if (one.name == "dropped_k_block") return one.text;
    return std::string("none");
  };
  // (share - 1)^2 / share^2
  const std::string text = "block [32, 64) of K left out";
  for (const double share : {1.0, 0.67, 1.99}) CHECK(found(p, share) == text);
  for (const double share : {0.66, 2.02, -1.0, 5.0}) CHECK(found(p, share) != text);
  // Of a split sum, and behind an epilogue, nothing is known of blocks.
  Product split = p;
  split.split = {.parts = 2};
  CHECK(found(split, 1.0) == "none");
  Product around = p;
  around.epilogue.alpha = 2.0F;
  CHECK(found(around, 1.0) == "none");
  CHECK(likely_block_mistakes(p, golden, golden, 32).empty());
  std::vector<float> infinite = golden;
  infinite[5] = INFINITY;
  CHECK(likely_block_mistakes(p, golden, infinite, 32).empty());
}

TEST_CASE("causes: a quarter of the elements that are tried first is enough", "[verify]") {
  constexpr std::int64_t kSide = 40;
  const RandomProduct random({.promotion_interval = 32}, {.shape = {kSide, kSide, 96}});
  const std::vector<float> wrong = compute(without_terms(random.product, 64, 96));
  Sample all;
  for (std::int64_t i = 0; i < kSide; ++i) {
    all.rows.push_back(i);
    all.columns.push_back(i);
  }
  // Rows and columns 0, 13, 26 and 39 are tried first; of their 16 elements some are anything.
  for (const int garbage : {0, 11, 12, 13, 16}) {
    std::vector<float> got = wrong;
    int left = garbage;
    for (const std::size_t row : {0U, 13U, 26U, 39U})
      for (const std::size_t column : {0U, 13U, 26U, 39U})
        if (left-- > 0) got[row * kSide + column] = 1e6F;
    const Diagnosis found =
        diagnose(random.product, std::as_bytes(std::span(got)), all, {.threads = 1});
    std::string text;
    for (const Cause& one : found.causes)
      if (one.name == "dropped_last_k_tile") text = one.name + " " + std::to_string(one.explained);
    INFO(garbage << " of 16");
    CHECK(found.mismatches == kSide * kSide);
    CHECK(text == (garbage > 12 ? "" : "dropped_last_k_tile " + std::to_string(1600 - garbage)));
  }
}

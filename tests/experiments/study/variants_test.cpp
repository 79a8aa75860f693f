// What each run of `train` and of the ladders is made of, in words.

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "failure-ladder/modes.hpp"
#include "fp8lab/linear/linear_recipe.hpp"
#include "train/variants.hpp"

using namespace fp8lab;
using namespace fp8lab::experiments;

namespace {

std::string operand_words(const Recipe& r) {
  std::string tile;
  if (r.row_block != 0 || r.k_block != 0) tile = fmt::format(" {}x{}", r.row_block, r.k_block);
  return fmt::format("{} {}{}", format(r.format).name, to_string(r.rule), tile);
}

std::string product_words(const train::GemmSettings& s) {
  return fmt::format("{} bits {} /{}",
                     to_string(s.accumulator.kind) == "fused_dot_product" ? "fused" : "other",
                     s.accumulator.alignment_fraction_bits == s.accumulator.output_fraction_bits
                         ? fmt::format("{}", s.accumulator.output_fraction_bits)
                         : fmt::format("{} and {}", s.accumulator.alignment_fraction_bits,
                                       s.accumulator.output_fraction_bits),
                     s.promotion_interval);
}

/// Everything in which runs of unlike names may differ; products once where all three are alike.
std::string variant_words(const Variant& v) {
  const train::LinearRecipe& r = v.recipe;
  std::string products = product_words(r.forward);
  if (product_words(r.dgrad) != products || product_words(r.wgrad) != products)
    products += fmt::format(", {}, {}", product_words(r.dgrad), product_words(r.wgrad));
  return fmt::format("{} | {} | {} | {} | {} | loss x {:g}{}", v.group, operand_words(r.activation),
                     operand_words(r.weight), operand_words(r.gradient), products, v.loss_scale,
                     v.outliers ? " | outliers" : "");
}

}  // namespace

TEST_CASE("train: every run that has no system's recipe, part by part", "[experiments]") {
  const std::vector<std::pair<std::string, std::string>> expected{
      {"unscaled-e4m3",
       "naive | e4m3fn unit | e4m3fn unit | e4m3fn unit | fused bits 13 /0 | loss x 1"},
      {"unscaled-hybrid",
       "naive | e4m3fn unit | e4m3fn unit | e5m2 unit | fused bits 13 /0 | loss x 1"},
      {"unscaled-e5m2", "naive | e5m2 unit | e5m2 unit | e5m2 unit | fused bits 13 /0 | loss x 1"},
      {"e4m3-only", "naive | e4m3fn te | e4m3fn te | e4m3fn te | fused bits 13 /128 | loss x 1"},
      {"e5m2-only", "naive | e5m2 te | e5m2 te | e5m2 te | fused bits 13 /128 | loss x 1"},
      {"no-promotion", "naive | e4m3fn te | e4m3fn te | e5m2 te | fused bits 13 /0 | loss x 1"},
      {"fix-loss-scale",
       "mitigation | e4m3fn unit | e4m3fn unit | e4m3fn unit | fused bits 13 /0 | loss x 4096"},
      {"fix-formats",
       "mitigation | e4m3fn unit | e4m3fn unit | e5m2 unit | fused bits 13 /0 | loss x 1"},
      {"fix-scales",
       "mitigation | e4m3fn te | e4m3fn te | e4m3fn te | fused bits 13 /0 | loss x 1"},
      {"fix-promotion",
       "mitigation | e4m3fn unit | e4m3fn unit | e4m3fn unit | fused bits 13 /128 | loss x 1"},
      {"fix-all", "mitigation | e4m3fn te | e4m3fn te | e5m2 te | fused bits 13 /128 | loss x 1"},
      {"unscaled-e5m2+outliers",
       "naive | e5m2 unit | e5m2 unit | e5m2 unit | fused bits 13 /0 | loss x 1 | outliers"}};
  for (const auto& [name, words] : expected) {
    INFO(name);
    CHECK(find_variant(name).name == name);
    CHECK(variant_words(find_variant(name)) == words);
  }
}

TEST_CASE("train: runs of a system have the recipe of its name", "[experiments]") {
  const auto check = [](const std::string& name, const std::string& recipe, const char* group) {
    INFO(name);
    const Variant v = find_variant(name);
    Variant wanted = v;
    wanted.group = group;
    wanted.recipe = train::find_linear_recipe(recipe);
    wanted.loss_scale = 1.0;
    CHECK(variant_words(v) == variant_words(wanted));
    CHECK(v.recipe.name == wanted.recipe.name);
    CHECK(v.outliers == name.ends_with("+outliers"));
  };
  for (const char* name : {"fp32", "bf16"}) check(name, name, "reference");
  for (const char* name : {"te-delayed", "te-current", "torchao-rowwise", "deepseek-v3",
                           "deepseek-v3-first", "deepgemm", "te-mxfp8", "ms-amp"})
    check(name, name, "preset");
  check("fix-tiles", "mxfp8-rceil", "mitigation");
  check("deepgemm+outliers", "deepgemm", "preset");
  CHECK_THROWS_WITH(
      find_variant("fix"),
      "variants: expected one of bf16, deepgemm, deepseek-v3, deepseek-v3-first, e4m3-only, "
      "e5m2-only, fix-all, fix-formats, fix-loss-scale, fix-promotion, fix-scales, fix-tiles, "
      "fp32, "
      "ms-amp, no-promotion, te-current, te-delayed, te-mxfp8, torchao-rowwise, unscaled-e4m3, "
      "unscaled-e5m2, unscaled-hybrid, got 'fix'");
}

TEST_CASE("ladders: each step, and what mends each rung, part by part", "[experiments]") {
  const std::vector<std::pair<std::string, std::string>> steps{
      {"underflow",
       "log2 of the loss scale | naive | e4m3fn unit | e4m3fn unit | e5m2 unit | fused bits 13 /0 "
       "| loss x 64 | 0 channels 2^0"},
      {"outliers",
       "log2 of the outlier channels' magnitude | preset | e4m3fn te | e4m3fn te | e5m2 te | fused "
       "bits 13 /0, fused bits 13 /128, fused bits 13 /128 | loss x 1 | 5 channels 2^6"},
      {"outliers-rowwise",
       "log2 of the outlier channels' magnitude | preset | e4m3fn torchao 1x0 | e4m3fn torchao 1x0 "
       "| e4m3fn torchao 1x0 | fused bits 13 /0, fused bits 13 /128, fused bits 13 /128 | loss x 1 "
       "| 5 channels 2^6"},
      {"outliers-mx",
       "log2 of the outlier channels' magnitude | preset | e4m3fn te_mx 1x32 | e4m3fn te_mx 1x32 | "
       "e4m3fn te_mx 1x32 | other bits 25 and 23 /0 | loss x 1 | 5 channels 2^6"},
      {"accumulator",
       "fraction bits of the accumulator | naive | e4m3fn te | e4m3fn te | e5m2 te | fused bits 6 "
       "/0 | loss x 1 | 0 channels 2^0"},
      {"accumulator-promoted",
       "fraction bits of the accumulator | naive | e4m3fn te | e4m3fn te | e5m2 te | fused bits 6 "
       "/32 | loss x 1 | 0 channels 2^0"}};
  for (const auto& [ladder, words] : steps) {
    const std::vector<LadderStep> found = find_ladder(ladder, {-3.0, 6.0}, 5);
    REQUIRE(found.size() == 2);
    const LadderStep& step = found[1];
    INFO(ladder);
    CHECK((found[0].value == -3.0 && step.value == 6.0 && step.ladder == ladder));
    CHECK(step.variant.name == ladder + " 6");
    CHECK(fmt::format("{} | {} | {} channels 2^{}", step.what, variant_words(step.variant),
                      step.outliers.count, step.outliers.log2_magnitude) == words);
  }
  const std::vector<std::pair<std::string, std::string>> rungs{
      {"range",
       "log2 of the constant that multiplies gradients -> a current scale of the gradients\n"
       "rung | e4m3fn te | e4m3fn te | e5m2 unit | fused bits 13 /128 | loss x 16\n"
       "rung | e4m3fn te | e4m3fn te | e5m2 te | fused bits 13 /128 | loss x 16\n"
       "0 channels 2^0"},
      {"formats",
       "log2 of the constant that multiplies E4M3 gradients -> E5M2 gradients\n"
       "rung | e4m3fn te | e4m3fn te | e4m3fn unit | fused bits 13 /128 | loss x 16\n"
       "rung | e4m3fn te | e4m3fn te | e5m2 unit | fused bits 13 /128 | loss x 16\n"
       "0 channels 2^0"},
      {"outliers",
       "log2 of the outlier channels' magnitude -> tiles of 32\n"
       "preset | e4m3fn te | e4m3fn te | e5m2 te | fused bits 13 /0, fused bits 13 /128, fused "
       "bits 13 /128 | loss x 1\n"
       "preset | e4m3fn te_mx 1x32 | e4m3fn te_mx 1x32 | e4m3fn te_mx 1x32 | other bits 25 and 23 "
       "/0 | loss x 1\n"
       "7 channels 2^4"},
      {"accumulator",
       "fraction bits of the accumulator -> promotion every 32 terms\n"
       "naive | e4m3fn te | e4m3fn te | e5m2 te | fused bits 4 /0 | loss x 1\n"
       "naive | e4m3fn te | e4m3fn te | e5m2 te | fused bits 4 /32 | loss x 1\n"
       "0 channels 2^0"}};
  for (const auto& [mode, words] : rungs) {
    const Rung rung = make_rung(mode, 4.0, 7);
    INFO(mode);
    CHECK((rung.mode == mode && rung.value == 4.0));
    CHECK(fmt::format("{} -> {}\n{}\n{}\n{} channels 2^{}", rung.what, rung.mitigation,
                      variant_words(rung.failing), variant_words(rung.mended), rung.outliers.count,
                      rung.outliers.log2_magnitude) == words);
  }
}

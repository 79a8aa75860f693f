#include "train/variants.hpp"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "fp8lab/core/error.hpp"

namespace fp8lab::experiments {
namespace {

using train::find_linear_recipe;
using train::fp8_recipe;
using train::LinearRecipe;

constexpr std::int64_t kPromotion = 128;
constexpr const char* kOutlierEnding = "+outliers";

Recipe per_tensor(FormatId format) { return {.format = format}; }
Recipe unscaled(FormatId format) { return {.format = format, .rule = ScaleRule::unit}; }

/// Activations and weights in one format, gradients in another.
LinearRecipe fp8(const std::string& name, const Recipe& forward, const Recipe& gradient,
                 std::int64_t promotion) {
  return fp8_recipe(name, forward, forward, gradient, promotion);
}

std::map<std::string, std::function<Variant(const std::string&)>> makers() {
  constexpr FormatId kE4 = FormatId::e4m3fn;
  constexpr FormatId kE5 = FormatId::e5m2;
  std::map<std::string, std::function<Variant(const std::string&)>> all;
  const auto add = [&](const char* group, const char* name, const LinearRecipe& recipe,
                       double loss_scale = 1.0) {
    all[name] = [=](const std::string& called) {
      return Variant{group, called, recipe, loss_scale, false};
    };
  };
  for (const char* name : {"fp32", "bf16"}) add("reference", name, find_linear_recipe(name));
  add("naive", "unscaled-e4m3", fp8("", unscaled(kE4), unscaled(kE4), 0));
  add("naive", "unscaled-hybrid", fp8("", unscaled(kE4), unscaled(kE5), 0));
  add("naive", "unscaled-e5m2", fp8("", unscaled(kE5), unscaled(kE5), 0));
  add("naive", "e4m3-only", fp8("", per_tensor(kE4), per_tensor(kE4), kPromotion));
  add("naive", "e5m2-only", fp8("", per_tensor(kE5), per_tensor(kE5), kPromotion));
  add("naive", "no-promotion", fp8("", per_tensor(kE4), per_tensor(kE5), 0));
  // Each takes one thing from `unscaled-e4m3` away.
  add("mitigation", "fix-loss-scale", fp8("", unscaled(kE4), unscaled(kE4), 0), 4096.0);
  add("mitigation", "fix-formats", fp8("", unscaled(kE4), unscaled(kE5), 0));
  add("mitigation", "fix-scales", fp8("", per_tensor(kE4), per_tensor(kE4), 0));
  add("mitigation", "fix-promotion", fp8("", unscaled(kE4), unscaled(kE4), kPromotion));
  add("mitigation", "fix-tiles", find_linear_recipe("mxfp8-rceil"));
  add("mitigation", "fix-all", fp8("", per_tensor(kE4), per_tensor(kE5), kPromotion));
  for (const char* name : {"te-delayed", "te-current", "torchao-rowwise", "deepseek-v3",
                           "deepseek-v3-first", "deepgemm", "te-mxfp8", "ms-amp"})
    add("preset", name, find_linear_recipe(name));
  return all;
}

Variant with_bits(std::int64_t promotion, double bits) {
  Variant v = find_variant("no-promotion");
  for (train::GemmSettings* s : {&v.recipe.forward, &v.recipe.dgrad, &v.recipe.wgrad}) {
    s->accumulator.alignment_fraction_bits = static_cast<int>(bits);
    s->accumulator.output_fraction_bits = static_cast<int>(bits);
    s->promotion_interval = promotion;
  }
  return v;
}

LadderStep ladder_step(const std::string& ladder, double value, std::int64_t outlier_channels) {
  LadderStep step{ladder, "", value, {}, {}};
  if (ladder == "underflow") {
    step.what = "log2 of the loss scale";
    step.variant = find_variant("unscaled-hybrid");
    step.variant.loss_scale = std::exp2(value);
  } else if (ladder.starts_with("outliers")) {
    const std::map<std::string, std::string> recipes{{"outliers", "te-current"},
                                                     {"outliers-rowwise", "torchao-rowwise"},
                                                     {"outliers-mx", "te-mxfp8"}};
    require(recipes.contains(ladder), "ladders", "outliers, outliers-rowwise or outliers-mx",
            "'" + ladder + "'");
    step.what = "log2 of the outlier channels' magnitude";
    step.variant = find_variant(recipes.at(ladder));
    step.outliers = {outlier_channels, static_cast<int>(value)};
  } else if (ladder == "accumulator" || ladder == "accumulator-promoted") {
    step.what = "fraction bits of the accumulator";
    step.variant = with_bits(ladder == "accumulator" ? 0 : 32, value);
  } else {
    throw Error("ladders",
                "underflow, outliers, outliers-rowwise, outliers-mx, accumulator or "
                "accumulator-promoted",
                "'" + ladder + "'");
  }
  step.variant.name = fmt::format("{} {:g}", ladder, value);
  return step;
}

}  // namespace

Variant find_variant(const std::string& name) {
  static const auto kMakers = makers();
  std::string base = name;
  const bool outliers = base.ends_with(kOutlierEnding);
  if (outliers) base.resize(base.size() - std::string(kOutlierEnding).size());
  const auto found = kMakers.find(base);
  if (found == kMakers.end()) {
    std::string known;
    for (const auto& [key, maker] : kMakers) known += (known.empty() ? "" : ", ") + key;
    throw Error("variants", "one of " + known, "'" + name + "'");
  }
  Variant v = found->second(name);
  v.outliers = outliers;
  return v;
}

std::vector<LadderStep> find_ladder(const std::string& name, const std::vector<double>& values,
                                    std::int64_t outlier_channels) {
  std::vector<LadderStep> steps;
  for (const double value : values) steps.push_back(ladder_step(name, value, outlier_channels));
  return steps;
}

}  // namespace fp8lab::experiments

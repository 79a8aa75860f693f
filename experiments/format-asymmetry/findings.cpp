#include "format-asymmetry/findings.hpp"

#include <fmt/format.h>

#include "common/names.hpp"
#include "common/spread.hpp"

namespace fp8lab::experiments::asymmetry {

std::string zero_finding(const Setup& s, const std::vector<TensorPoint>& tensors,
                         const CastProfile* policy) {
  std::string figures;
  for (const TensorPoint& p : tensors)
    if (p.tensor == "gradient" && p.recipe->name != "hybrid" && p.policy == policy)
      figures += fmt::format("{} {} in {} with {}", figures.empty() ? "" : ",",
                             share_text(p.figures.zero_share, 100.0,
                                        share_resolution(s.shape.tokens * s.shape.outputs)),
                             short_name(format(p.recipe->backward)),
                             p.recipe->fine_scales ? "fine scales" : "one scale");
  return fmt::format(
      "Share of a gradient's elements that become zero, subnormals {}:{} ({} x {} log-normal, {:g} "
      "decades, fine scales 1 x {}; {}; repeats: {}).",
      subnormal_name(policy->policy), figures, s.shape.tokens, s.shape.outputs,
      s.shape.gradient_decades, s.product.tile, kIntervalMeaning, s.tensor_repeats);
}

std::optional<Headline> headline_of(const Setup& s, const std::vector<TensorPoint>& tensors) {
  const auto zeros = [&](FormatId id, bool fine) -> std::string {
    for (const TensorPoint& p : tensors)
      if (p.tensor == "gradient" && p.format == id && p.recipe->fine_scales == fine &&
          p.policy == s.policies.front())
        return range_text(spread_of(p.figures.zero_share));
    return "";
  };
  const std::string coarse = zeros(FormatId::e4m3fn, false);
  const std::string fine = zeros(FormatId::e4m3fn, true);
  const std::string wide = zeros(FormatId::e5m2, false);
  if (coarse.empty() || fine.empty() || wide.empty()) return std::nullopt;
  return Headline{
      .title = "Gradients do not fit the format of activations",
      .sentence = fmt::format(
          "Of a gradient over {:g} decades, {} of the elements become zero in E4M3 with one scale, "
          "{} in E5M2, and {} in E4M3 with a scale for each {} elements of a row (mean and range "
          "of {} "
          "draws).",
          s.shape.gradient_decades, coarse, wide, fine, s.product.tile, s.tensor_repeats),
      .plot = "zeros_against_decades",
      .advice = "Use E5M2 for gradients, or E4M3 with scales along the token.",
      .measure = "gradient elements that become zero",
      .failing = coarse + " in E4M3 with one scale",
      .mitigation = fmt::format("E5M2; E4M3 with a scale per {}", s.product.tile),
      .mitigated = fmt::format("{}; {}", wide, fine),
      .curves = {{"E4M3 per tensor", "E4M3, one scale"},
                 {"E5M2 per tensor", "E5M2, one scale"},
                 {"E4M3 fine scales", fmt::format("E4M3, a scale per {}", s.product.tile)}}};
}

std::string product_finding(const Setup& s, const Recipe& recipe,
                            const std::vector<ProductPoint>& products) {
  std::string figures;
  for (const ProductPoint& p : products) {
    if (p.exact || p.recipe != &recipe) continue;
    figures += fmt::format("{} {} {} %", figures.empty() ? "" : ",", to_string(p.product),
                           interval_text(p.figures.relative_l2, 100.0));
    if (p.product == Product::input_gradient)
      figures += fmt::format(" (worst token {} %)", log_interval_text(p.figures.worst_row, 100.0));
  }
  return fmt::format("{}: error of{} ({} tokens, {} inputs, {} outputs; {}; {}; repeats: {}).",
                     recipe.label, figures, s.shape.tokens, s.shape.inputs, s.shape.outputs,
                     kIntervalMeaning, kLogIntervalMeaning, s.repeats);
}

}  // namespace fp8lab::experiments::asymmetry

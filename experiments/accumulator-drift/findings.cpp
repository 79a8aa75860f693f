#include "accumulator-drift/findings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/spread.hpp"

namespace fp8lab::experiments {
namespace {

constexpr double Comparison::*kError = &Comparison::relative_l2;

Curve hopper(Distribution d, std::int64_t interval) {
  return {OperandFormat::e4m3, d, std::string(kHopper), interval};
}

std::string percent(const std::vector<double>& errors) { return interval_text(errors, 100.0); }

std::string sets_of(const Sweep& sweep) {
  return fmt::format("{}; sets of operands: {}", kIntervalMeaning, sweep.settings().fit_repeats);
}

}  // namespace

void add_promotion_finding(const Sweep& sweep, std::vector<std::string>& findings) {
  const std::int64_t k = sweep.longest();
  std::string text;
  for (const Distribution d : sweep.distributions()) {
    const std::vector<double> without = sweep.each_set(hopper(d, 0), k, kError);
    const std::vector<double> with = sweep.each_set(hopper(d, kDeepSeekInterval), k, kError);
    if (without.empty() || with.empty()) continue;
    std::vector<double> ratios;
    for (std::size_t i = 0; i < with.size(); ++i) ratios.push_back(without[i] / with[i]);
    text += fmt::format("{} {} operands {} % to {} % ({} times less)", text.empty() ? "" : ",",
                        to_string(d), percent(without), percent(with), interval_text(ratios));
  }
  if (!text.empty())
    findings.push_back(
        fmt::format("Promotion every {} changes the relative L2 error of {} at K = {}:{} ({}).",
                    kDeepSeekInterval, kHopper, k, text, sets_of(sweep)));
}

void add_nearest_finding(const Sweep& sweep, std::vector<std::string>& findings) {
  std::string text;
  for (const std::int64_t k : sweep.settings().k) {
    const Curve nearest{OperandFormat::e4m3, Distribution::uniform, std::string(kNearest), 0};
    const Curve truncated{OperandFormat::e4m3, Distribution::uniform, std::string(kTruncated), 0};
    const std::vector<double> errors = sweep.each_set(nearest, k, kError);
    const std::vector<double> cut = sweep.each_set(truncated, k, kError);
    if (errors.empty() || cut.empty() || !sweep.quoted(nearest, k)) continue;
    text += fmt::format("{} K = {}: nearest {} % (bias {} %), truncated {} %",
                        text.empty() ? "" : ";", k, percent(errors),
                        percent(sweep.each_set(nearest, k, &Comparison::mean_signed_relative)),
                        percent(cut));
  }
  if (!text.empty())
    findings.push_back(fmt::format(
        "14 bits, one addition at a time, uniform E4M3 operands, relative L2 error:{}. Rounding to "
        "nearest is biased once the ulp of the sum is larger than the products ({}).",
        text, sets_of(sweep)));
}

Table quoted_repeat_table(const Sweep& sweep) {
  Table table("error_repeats", "Error of the accumulation at the lengths that findings quote",
              {{"distribution", "", "of the operands"},
               {"k", "1", "length of each dot product"},
               {"accumulator", "", "registered model"},
               {"promotion_interval", "1", "terms between promotions into FP32; 0 for none"},
               {"repeat", "1", "set of operands, from 0"},
               {"relative_l2", "1", "|d - exact|_2 / |exact|_2 over the outputs"},
               {"bias", "1", "sum sign(exact)(d - exact) / sum |exact|; negative: toward zero"}});
  for (const Distribution d : sweep.distributions())
    for (const std::int64_t k : sweep.settings().k)
      for (const Curve& curve : sweep.curves(d)) {
        if (!sweep.quoted(curve, k)) continue;
        const std::vector<double> errors = sweep.each_set(curve, k, kError);
        const std::vector<double> bias =
            sweep.each_set(curve, k, &Comparison::mean_signed_relative);
        for (std::size_t i = 0; i < errors.size(); ++i)
          table.add_row({std::string(to_string(d)), k, curve.accumulator, curve.interval,
                         static_cast<std::int64_t>(i), errors[i], bias[i]});
      }
  return table;
}

std::optional<Headline> headline_of(const Sweep& sweep) {
  const std::int64_t k = sweep.longest();
  constexpr Distribution kShown = Distribution::uniform;
  const std::vector<double> without = sweep.each_set(hopper(kShown, 0), k, kError);
  const std::vector<double> with = sweep.each_set(hopper(kShown, kDeepSeekInterval), k, kError);
  if (without.empty() || with.empty()) return std::nullopt;
  const std::string failing = percent(without) + " %";
  const std::string mitigated = percent(with) + " %";
  return Headline{
      .title = "The accumulator drops bits, and long sums drift",
      .sentence = fmt::format(
          "The sum of {} positive E4M3 products by {} has an error of {} (relative L2 over {} "
          "outputs). Promoted into FP32 every {} terms, the error is {}.",
          k, kHopper, failing, sweep.settings().outputs(), kDeepSeekInterval, mitigated),
      .plot = fmt::format("error_against_k_{}", to_string(kShown)),
      .advice = fmt::format("Promote partial sums into FP32 every {} terms, or turn fast "
                            "accumulation off if K is long.",
                            kDeepSeekInterval),
      .measure = fmt::format("relative L2 error of a product, K = {}", k),
      .failing = failing,
      .mitigation = fmt::format("promotion every {} terms", kDeepSeekInterval),
      .mitigated = mitigated,
      .curves = {{std::string(kHopper), "Hopper FP8"},
                 {fmt::format("{}/{}", kHopper, kDeepSeekInterval),
                  fmt::format("promoted every {} terms", kDeepSeekInterval)}}};
}

}  // namespace fp8lab::experiments

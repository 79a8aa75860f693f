// F4 - F4d: the accumulator.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "accumulator-drift/drift.hpp"
#include "accumulator-drift/fit.hpp"
#include "claims/groups.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::int64_t kSide = 16;
constexpr std::int64_t kInterval = 128;

const AccumulatorModel& model(std::string_view name) {
  return find_instruction_model(name).accumulator;
}

Bf16Operands operands(const ClaimContext& context, Distribution distribution, std::int64_t k) {
  return make_operands({distribution, kSide, kSide, k}, context.seed);
}

Comparison hopper_error(const ClaimContext& context, Distribution distribution, std::int64_t k,
                        std::int64_t interval) {
  return accumulation_error(quantize(operands(context, distribution, k), context.backend),
                            model("sm90.wgmma.e4m3"), interval, context.threads, context.backend);
}

LineFit hopper_slope(const ClaimContext& context, Distribution distribution) {
  std::vector<double> lengths;
  std::vector<double> errors;
  for (const std::int64_t k : {512, 1024, 2048, 4096}) {
    lengths.push_back(static_cast<double>(k));
    errors.push_back(hopper_error(context, distribution, k, 0).relative_l2);
  }
  return fit_power_law(lengths, errors);
}

Measurement measure_f4(const ClaimContext& context) {
  constexpr std::int64_t kLength = 1024;
  const Comparison normal = hopper_error(context, Distribution::normal, kLength, 0);
  const Comparison normal_fixed = hopper_error(context, Distribution::normal, kLength, kInterval);
  const Comparison positive = hopper_error(context, Distribution::uniform, kLength, 0);
  const Comparison positive_fixed =
      hopper_error(context, Distribution::uniform, kLength, kInterval);
  const LineFit slope_normal = hopper_slope(context, Distribution::normal);
  const LineFit slope_positive = hopper_slope(context, Distribution::uniform);
  Measurement m;
  m.figure = fmt::format(
      "K = 1024, N(0,1): {:.3f} % without promotion, {:.3f} % with; U[0,1): {:.2f} % (bias "
      "{:+.2f} %) and {:.3f} %; error ~ K^{:.2f} on U[0,1), K^{:.2f} on N(0,1), K = 512 ... 4096",
      100.0 * normal.relative_l2, 100.0 * normal_fixed.relative_l2, 100.0 * positive.relative_l2,
      100.0 * positive.mean_signed_relative, 100.0 * positive_fixed.relative_l2,
      slope_positive.slope, slope_normal.slope);
  m.values = {{"normal_error", "1", normal.relative_l2},
              {"normal_error_promoted", "1", normal_fixed.relative_l2},
              {"uniform_error", "1", positive.relative_l2},
              {"uniform_bias", "1", positive.mean_signed_relative},
              {"uniform_error_promoted", "1", positive_fixed.relative_l2},
              {"uniform_exponent", "1", slope_positive.slope},
              {"normal_exponent", "1", slope_normal.slope}};
  return m;
}

Verdict judge_f4(Values values) {
  const auto drifts = [&](const std::string& distribution) {
    return value_of(values, distribution + "_exponent") > 0.8 &&
           value_of(values, distribution + "_error") >
               10.0 * value_of(values, distribution + "_error_promoted");
  };
  if (!drifts("uniform") || value_of(values, "uniform_bias") >= 0.0) return Verdict::does_not_hold;
  return drifts("normal") ? Verdict::holds : Verdict::holds_with_correction;
}

constexpr double kPrinted = 0.027;
constexpr double kPrintedPromoted = 0.0006;

bool within_factor_two(double value, double claimed) {
  return value >= 0.5 * claimed && value <= 2.0 * claimed;
}

/// The first power of two from 1024 on at which U[0, 1) is as far off as printed.
std::int64_t long_enough(const ClaimContext& context) {
  std::int64_t k = 1024;
  while (k < 65536 && hopper_error(context, Distribution::uniform, k, 0).relative_l2 < kPrinted)
    k *= 2;
  return k;
}

/// The most fraction bits with which sums of N(0, 1) are as far off as printed.
int narrow_enough(const ClaimContext& context, const QuantizedOperands& normal) {
  AccumulatorModel narrow = model("sm90.wgmma.e4m3");
  while (narrow.alignment_fraction_bits > 1 &&
         accumulation_error(normal, narrow, 0, context.threads, context.backend).relative_l2 <
             kPrinted)
    narrow.output_fraction_bits = --narrow.alignment_fraction_bits;
  return narrow.alignment_fraction_bits;
}

/// The share of single outputs that are as far off as printed: sums that nearly cancel.
double share_as_far_off(const ClaimContext& context, const QuantizedOperands& normal) {
  const std::vector<double> exact = exact_product(normal);
  const std::vector<double> sums =
      accumulate(normal, model("sm90.wgmma.e4m3"), 0, context.threads, context.backend);
  double far = 0.0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    far += std::abs(sums[i] - exact[i]) >= kPrinted * std::abs(exact[i]) ? 1.0 : 0.0;
  return far / static_cast<double>(exact.size());
}

Measurement measure_f4c(const ClaimContext& context) {
  constexpr std::int64_t kLength = 1024;
  const Bf16Operands drawn = operands(context, Distribution::normal, kLength);
  const QuantizedOperands normal = quantize(drawn, context.backend);
  const AccumulatorModel& hopper = model("sm90.wgmma.e4m3");
  const auto error = [&](std::int64_t interval) {
    return accumulation_error(normal, hopper, interval, context.threads, context.backend)
        .relative_l2;
  };
  const double plain = error(0);
  const double promoted = error(kInterval);
  const double inputs =
      pipeline_error(drawn, {"inputs", "sm90.wgmma.e4m3"}, {true, false, false, false},
                     context.threads, context.backend);
  const std::int64_t length = long_enough(context);
  const int bits = narrow_enough(context, normal);
  const double share = share_as_far_off(context, normal);
  Measurement m;
  m.figure = fmt::format(
      "N(0,1), K = 1024: {:.3f} % without promotion, {:.3f} % with. These give 2.7 %: casting the "
      "inputs to E4M3 ({:.2f} %, which promotion does not reduce); U[0,1) from K = {} up; an "
      "accumulator of {} fraction bits; a single sum that nearly cancels ({:.1f} % of the outputs "
      "have such an error)",
      100.0 * plain, 100.0 * promoted, 100.0 * inputs, length, bits, 100.0 * share);
  m.values = {{"error", "1", plain},
              {"error_promoted", "1", promoted},
              {"error_of_inputs", "1", inputs},
              {"uniform_length", "1", static_cast<double>(length)},
              {"fraction_bits", "bits", static_cast<double>(bits)},
              {"share_as_far_off", "1", share}};
  return m;
}

Verdict judge_f4c(Values values) {
  const bool plain = within_factor_two(value_of(values, "error"), kPrinted);
  const bool promoted = within_factor_two(value_of(values, "error_promoted"), kPrintedPromoted);
  return plain && promoted ? Verdict::holds : Verdict::does_not_hold;
}

/// Exponent of K of a 14-bit sum, one addition at a time, where it alone rounds.
LineFit rounding_slope(const ClaimContext& context, std::string_view name, Distribution d) {
  std::vector<double> lengths;
  std::vector<double> errors;
  for (const std::int64_t k : {32, 64, 128, 256, 512, 1024}) {
    lengths.push_back(static_cast<double>(k));
    errors.push_back(accumulation_error(operands(context, d, k), model(name), 0, context.threads,
                                        context.backend)
                         .relative_l2);
  }
  return fit_power_law(lengths, errors);
}

Measurement measure_f4a(const ClaimContext& context) {
  const LineFit nearest = rounding_slope(context, "sequential14.rne", Distribution::uniform);
  const LineFit truncated = rounding_slope(context, "sequential14.rz", Distribution::uniform);
  const QuantizedOperands long_sum =
      quantize(operands(context, Distribution::uniform, 16384), context.backend);
  const Comparison stagnant =
      accumulation_error(long_sum, model("sequential14.rne"), 0, context.threads, context.backend);
  Measurement m;
  m.figure = fmt::format(
      "relative L2 error ~ K^({:.2f} ± {:.2f}) rounding to nearest, K^({:.2f} ± {:.2f}) "
      "truncating; on E4M3 at K = 16384, where the ulp of the sum is larger than the products, "
      "rounding to nearest is biased after all, by {:+.1f} %",
      nearest.slope, nearest.slope_standard_error, truncated.slope, truncated.slope_standard_error,
      100.0 * stagnant.mean_signed_relative);
  m.values = {{"nearest_exponent", "1", nearest.slope},
              {"nearest_exponent_standard_error", "1", nearest.slope_standard_error},
              {"truncation_exponent", "1", truncated.slope},
              {"truncation_exponent_standard_error", "1", truncated.slope_standard_error},
              {"nearest_bias_e4m3_16384", "1", stagnant.mean_signed_relative}};
  return m;
}

Verdict judge_f4a(Values values) {
  const double nearest = value_of(values, "nearest_exponent");
  if (nearest >= 0.85) return Verdict::holds;
  return nearest < 0.65 && value_of(values, "truncation_exponent") > 0.85
             ? Verdict::does_not_hold
             : Verdict::holds_with_correction;
}

Measurement measure_f4b(const ClaimContext&) {
  constexpr std::int64_t kLength = 16384;
  std::int64_t adds = 0;
  for (std::int64_t k = 0; k < kLength; k += kInterval) ++adds;
  const double of_products = static_cast<double>(adds) / static_cast<double>(kLength);
  Measurement m;
  m.figure = fmt::format(
      "K = {}, M = {}: {} FP32 additions per output, {:.2f} % of its multiply-adds ({:.2f} % of "
      "FLOPs at two per multiply-add)",
      kLength, kInterval, adds, 100.0 * of_products, 50.0 * of_products);
  m.values = {{"adds", "1", static_cast<double>(adds)},
              {"share_of_products", "1", of_products},
              {"share_of_flops", "1", 0.5 * of_products}};
  return m;
}

Verdict judge_f4b(Values values) {
  const auto rounds = [&](const char* share) {
    return std::round(1000.0 * value_of(values, share)) == 8.0;
  };
  if (rounds("share_of_flops")) return Verdict::holds;
  return rounds("share_of_products") ? Verdict::holds_with_correction : Verdict::does_not_hold;
}

constexpr std::array<std::int64_t, 2> kPromotionLengths{4096, 16384};

/// The largest error without promotion over that with it; geometric mean of eight draws.
double promotion_gain(const ClaimContext& context, Distribution distribution, std::int64_t k) {
  constexpr std::uint64_t kGainDraws = 8;
  double sum = 0.0;
  for (std::uint64_t draw = 0; draw < kGainDraws; ++draw) {
    ClaimContext one = context;
    one.seed = context.seed + draw;
    sum += std::log(hopper_error(one, distribution, k, 0).max_absolute /
                    hopper_error(one, distribution, k, kInterval).max_absolute);
  }
  return std::exp(sum / static_cast<double>(kGainDraws));
}

Measurement measure_f4d(const ClaimContext& context) {
  Measurement m;
  m.figure = "largest error without promotion over that with it:";
  for (const auto& [distribution, name] :
       {std::pair{Distribution::uniform, "uniform"}, std::pair{Distribution::normal, "normal"}})
    for (const std::int64_t k : kPromotionLengths) {
      const double gain = promotion_gain(context, distribution, k);
      m.figure +=
          fmt::format("{} {} at K = {}: {:.1f}", m.values.empty() ? "" : ",", name, k, gain);
      m.values.push_back({fmt::format("gain_{}_{}", name, k), "1", gain});
    }
  return m;
}

Verdict judge_f4d(Values values) {
  constexpr double kTwoOrders = 50.0;  // what rounds to two orders
  const auto gains = [&](const std::string& name) {
    return value_of(values, "gain_" + name) >= kTwoOrders;
  };
  if (gains("uniform_16384") && gains("normal_16384")) return Verdict::holds;
  return gains("uniform_16384") || gains("normal_16384") ? Verdict::holds_with_correction
                                                         : Verdict::does_not_hold;
}

}  // namespace

std::vector<Claim> accumulator_claims() {
  return {
      {"F4", kTutorial,
       "A 14-bit accumulator drifts in proportion to K, and promotion every 128 terms fixes it.",
       "sm90.wgmma.e4m3, 256 dot products of E4M3 operands with amax scales; relative L2 error of "
       "the accumulation alone",
       "holds if the error grows at least like K^0.8 and promotion reduces it more than 10 times, "
       "on N(0,1), the listing's distribution, and on U[0,1), there toward zero; with a correction "
       "if on U[0,1) only",
       measure_f4, judge_f4},
      {"F4a", kTutorial, "Rounding to nearest is biased, so errors grow in proportion to K.",
       "14-bit sums, one addition at a time, of BF16 operands U[0,1) (whose products are rounded "
       "only by the accumulator), K = 32 ... 1024, 256 dot products per length",
       "holds if nearest rounding's exponent is at least 0.85; does not hold if it is below 0.65 "
       "and truncation's above 0.85; else with a correction",
       measure_f4a, judge_f4a},
      {"F4b", kTutorial,
       "Promotion costs K/M FP32 additions per output: 0.8 % of the FLOPs at M = 128, K = 16384.",
       "adds counted over one output",
       "holds if the share of the FLOPs rounds to 0.8 %, with a correction if that of the "
       "multiply-adds does",
       measure_f4b, judge_f4b, Basis::arithmetic},
      {"F4c", kTutorial,
       "At K = 1024 the accumulator has an error of 2.7 %, and of 0.06 % with promotion.",
       "as F4, on N(0,1); then other sources of 2.7 %: the cast of the inputs, longer positive "
       "sums, fewer bits, sums that cancel",
       "holds if both figures are reproduced within a factor of 2", measure_f4c, judge_f4c},
      {"F4d", kTutorial, "Promotion makes the worst accumulation error two orders smaller.",
       "Hopper's E4M3 unit, 16x16 outputs of U[0, 1) and N(0, 1) at K = 4096 and 16384 (the "
       "length that the text names); largest absolute error without promotion over that with "
       "promotion every 128, geometric mean of 8 draws",
       "holds if the ratio is at least 50 at K = 16384 for both; with a correction if for one",
       measure_f4d, judge_f4d},
  };
}

}  // namespace fp8lab::experiments

// F1 - F3 without F1b: dynamic range, bias, outliers, format asymmetry.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "accumulator-drift/fit.hpp"
#include "claims/formats.hpp"
#include "claims/groups.hpp"
#include "common/quantize.hpp"
#include "common/tensors.hpp"
#include "dynamic-range/dynamic_range.hpp"
#include "format-asymmetry/format_asymmetry.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/random.hpp"
#include "outlier/outlier.hpp"

namespace fp8lab::experiments {
namespace {

constexpr double kNothingLost = 0.999;

/// The largest share of a tensor of `decades` that any power-of-two scale keeps.
double best_share(const ClaimContext& context, double decades, const CastPolicy& policy) {
  constexpr std::size_t kElements = 16384;
  std::vector<float> x = log_uniform({context.seed, "claims/range"}, kElements, decades);
  normalize_amax(x);
  double best = 0.0;
  for (int exponent = -4; exponent <= 40; ++exponent)
    best = std::max(
        best,
        survival(x, std::ldexp(7.0, exponent), e4m3(), policy, context.backend).representable);
  return best;
}

Measurement measure_f1(const ClaimContext& context) {
  Measurement m;
  std::string figure = "largest share kept by any one scale:";
  for (const double decades : {5.0, 6.0, 7.0}) {
    const double flushed = best_share(context, decades, kFlush);
    const double kept = best_share(context, decades, kNvidiaSatfinite);
    figure += fmt::format(" {} decades {:.1f} % with subnormals, {:.1f} % flushed;", decades,
                          100.0 * kept, 100.0 * flushed);
    m.values.push_back({fmt::format("kept_{}_decades", decades), "1", kept});
    m.values.push_back({fmt::format("kept_{}_decades_flushed", decades), "1", flushed});
  }
  figure.pop_back();
  m.figure = figure;
  return m;
}

Verdict judge_f1(Values values) {
  bool kept_any = false;
  for (const std::string decades : {"5", "6", "7"}) {
    if (value_of(values, "kept_" + decades + "_decades_flushed") >= kNothingLost)
      return Verdict::does_not_hold;
    kept_any = kept_any || value_of(values, "kept_" + decades + "_decades") >= kNothingLost;
  }
  return kept_any ? Verdict::holds_with_correction : Verdict::holds;
}

bool near(double value, double claimed, double relative) {
  return std::abs(value / claimed - 1.0) <= relative;
}

Measurement measure_f1a(const ClaimContext&) {
  const FormatRange a = range_of(e4m3());
  const FormatRange b = range_of(e5m2());
  const double ratio_a = a.max_finite / a.min_normal;
  const double ratio_b = b.max_finite / b.min_normal;
  Measurement m;
  m.figure = fmt::format(
      "normals: E4M3 {:.0f} ({:.2f} decades), E5M2 {:.3g} ({:.2f}); with subnormals: E4M3 {:.0f} "
      "({:.2f}), E5M2 {:.3g} ({:.2f})",
      ratio_a, a.decades_normal, ratio_b, b.decades_normal, a.max_finite / a.min_subnormal,
      a.decades_with_subnormals, b.max_finite / b.min_subnormal, b.decades_with_subnormals);
  m.values = {{"e4m3_ratio_normal", "1", ratio_a},
              {"e5m2_ratio_normal", "1", ratio_b},
              {"e4m3_decades_normal", "decades", a.decades_normal},
              {"e4m3_decades", "decades", a.decades_with_subnormals},
              {"e5m2_decades_normal", "decades", b.decades_normal},
              {"e5m2_decades", "decades", b.decades_with_subnormals}};
  return m;
}

Verdict judge_f1a(Values values) {
  const double decades_a = value_of(values, "e4m3_decades_normal");
  const double decades_b = value_of(values, "e5m2_decades_normal");
  const bool normals =
      value_of(values, "e4m3_ratio_normal") == 28672.0 && near(decades_a, 4.5, 0.02) &&
      near(value_of(values, "e5m2_ratio_normal"), 9.4e8, 0.01) && near(decades_b, 9.0, 0.02);
  if (!normals) return Verdict::does_not_hold;
  const bool complete = value_of(values, "e4m3_decades") <= decades_a &&
                        value_of(values, "e5m2_decades") <= decades_b;
  return complete ? Verdict::holds : Verdict::holds_with_correction;
}

/// The mean error of a cast over the mean magnitude of its elements, and how many standard errors
/// that is away from zero.
struct MeanError {
  double relative = 0.0;
  double sigmas = 0.0;
};

/// A cast of x times `scale`, of which the elements with a scaled magnitude in [low, high) count.
struct PartlyCast {
  const std::vector<float>* x = nullptr;
  double scale = 1.0;
  CastPolicy policy;
  double low = 0.0;
  double high = 0.0;
};

/// `of_magnitudes`: of |x|, so that below zero is toward zero.
MeanError mean_error(const PartlyCast& part, bool of_magnitudes) {
  double count = 0.0;
  double magnitude = 0.0;
  double sum = 0.0;
  double squares = 0.0;
  for (const float value : *part.x) {
    const auto scaled = static_cast<float>(static_cast<double>(value) * part.scale);
    const auto exact = static_cast<double>(scaled);
    if (std::abs(exact) < part.low || std::abs(exact) >= part.high) continue;
    double error = round_trip(e4m3(), part.policy, scaled) - exact;
    if (of_magnitudes && exact < 0.0) error = -error;
    count += 1.0;
    magnitude += std::abs(exact);
    sum += error;
    squares += error * error;
  }
  const double deviation = std::sqrt(squares - sum * sum / count);
  return {sum / magnitude, deviation == 0.0 ? 0.0 : sum / deviation};
}

/// The magnitude below which `share` of a tensor lies.
double quantile(std::vector<float> x, double share) {
  for (float& value : x) value = std::abs(value);
  const auto at = x.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(x.size()));
  std::ranges::nth_element(x, at);
  return static_cast<double>(*at);
}

Measurement measure_f1c(const ClaimContext& context) {
  constexpr std::size_t kElements = 65536;
  constexpr double kShare = 0.05;
  const std::vector<float> flat = normal({context.seed, "claims/bias"}, kElements, 1.0);
  const std::vector<float> wide = log_normal({context.seed, "claims/bias-wide"}, kElements, 6.0);
  const FormatRange range = range_of(e4m3());
  const double least = range.min_subnormal;  // below half of it, a value rounds to zero
  const auto underflow = [&](const std::vector<float>& x) {
    return PartlyCast{&x, 0.5 * least / quantile(x, kShare), kNvidiaSatfinite, 0.0, least};
  };
  const auto flush = [&](const std::vector<float>& x) {
    return PartlyCast{&x, range.min_normal / quantile(x, kShare), kFlush, 0.0, range.min_normal};
  };
  const double most = range.max_finite;
  const std::array<std::pair<std::string, PartlyCast>, 6> cases{
      {{"clipping",
        {&flat, most / quantile(flat, 1.0 - kShare), kNvidiaSatfinite, most, 2.0 * most}},
       {"underflow_normal", underflow(flat)},
       {"underflow_log_normal", underflow(wide)},
       {"flush_normal", flush(flat)},
       {"flush_log_normal", flush(wide)},
       {"rounding", {&flat, 16.0, kNvidiaSatfinite, 1.0, 64.0}}}};
  Measurement m;
  m.figure = "mean error of these elements and of their magnitudes, over their mean magnitude:";
  for (const auto& [name, part] : cases) {
    const MeanError all = mean_error(part, false);
    const MeanError size = mean_error(part, true);
    m.figure += fmt::format("{} {} {:+.2g} % ({:.1f} standard errors) and {:+.2g} % ({:.1f})",
                            m.values.empty() ? "" : ";", name, 100.0 * all.relative, all.sigmas,
                            100.0 * size.relative, size.sigmas);
    m.values.insert(m.values.end(), {{"signed_" + name, "1", all.relative},
                                     {"signed_sigmas_" + name, "1", all.sigmas},
                                     {"magnitude_" + name, "1", size.relative},
                                     {"magnitude_sigmas_" + name, "1", size.sigmas}});
  }
  return m;
}

Verdict judge_f1c(Values values) {
  constexpr double kBeyondChance = 4.0;
  const auto biased = [&](const std::string& name) {
    return std::abs(value_of(values, name)) > kBeyondChance;
  };
  if (biased("signed_sigmas_clipping") && biased("signed_sigmas_underflow_normal") &&
      biased("signed_sigmas_underflow_log_normal"))
    return Verdict::holds;
  const bool toward_zero =
      value_of(values, "magnitude_sigmas_clipping") < -kBeyondChance &&
      (value_of(values, "magnitude_sigmas_underflow_normal") < -kBeyondChance ||
       value_of(values, "magnitude_sigmas_underflow_log_normal") < -kBeyondChance);
  return toward_zero ? Verdict::holds_with_correction : Verdict::does_not_hold;
}

constexpr std::size_t kRepeats = 4;

OutlierSpread damage(const ClaimContext& context, double outlier, std::size_t tile,
                     const CastPolicy& policy, std::size_t elements = 16384) {
  OutlierTensor shape;
  shape.elements = elements;
  shape.outlier = outlier;
  shape.outlier_index = elements / 2;
  return repeat_damage({context.seed, "claims/outlier"}, shape, kRepeats, tile, e4m3(), policy,
                       context.backend);
}

Measurement measure_f2(const ClaimContext& context) {
  Measurement m;
  std::string figure = "bulk relative L2 error per tensor (flushed):";
  for (const double outlier : {1e2, 1e3, 1e4, 1e5}) {
    const double kept = damage(context, outlier, 0, kNvidiaSatfinite).bulk_relative_l2.mean;
    const double flushed = damage(context, outlier, 0, kFlush).bulk_relative_l2.mean;
    figure +=
        fmt::format(" outlier {:g}: {:.2f} % ({:.2f} %);", outlier, 100.0 * kept, 100.0 * flushed);
    m.values.push_back({fmt::format("bulk_error_{:g}", outlier), "1", kept});
    m.values.push_back({fmt::format("bulk_error_{:g}_flushed", outlier), "1", flushed});
  }
  const double tiled = damage(context, 1e3, 128, kNvidiaSatfinite).bulk_relative_l2.mean;
  m.values.push_back({"bulk_error_1000_tile_128", "1", tiled});
  m.figure = figure + fmt::format(" in tiles of 128 at 1000: {:.2f} %", 100.0 * tiled);
  return m;
}

Verdict judge_f2(Values values) {
  constexpr double kLost = 0.8;
  bool all = true;
  bool some = false;
  for (const std::string name : {"bulk_error_100", "bulk_error_1000"})
    for (const std::string subnormals : {"", "_flushed"}) {
      const bool lost = value_of(values, name + subnormals) >= kLost;
      all = all && lost;
      some = some || lost;
    }
  if (all) return Verdict::holds;
  return some ? Verdict::holds_with_correction : Verdict::does_not_hold;
}

Measurement measure_f2b(const ClaimContext& context) {
  constexpr std::size_t kDraws = 64;
  const OutlierTensor shape{.elements = 128, .sigma = 0.5, .outlier = 1e4, .outlier_index = 63};
  const auto crushed = [&](const CastPolicy& policy) {
    return repeat_damage({context.seed, "claims/one-hot"}, shape, kDraws, 0, e4m3(), policy,
                         context.backend)
        .crushed;
  };
  const Spread kept = crushed(kNvidiaSatfinite);
  const Spread flush = crushed(kFlush);
  Measurement m;
  m.figure = fmt::format(
      "of 127 values {:.1f} become zero with subnormals ({:g} to {:g} in {} draws), {:.1f} if "
      "subnormals are flushed ({:g} to {:g})",
      kept.mean, kept.min, kept.max, kDraws, flush.mean, flush.min, flush.max);
  m.values = {{"values", "1", 127.0},
              {"crushed_most", "1", kept.max},
              {"crushed", "1", kept.mean},
              {"crushed_least_flushed", "1", flush.min},
              {"crushed_flushed", "1", flush.mean}};
  return m;
}

Verdict judge_f2b(Values values) {
  constexpr double kEvery = 0.99;
  const double all = kEvery * value_of(values, "values");
  if (value_of(values, "crushed") >= all) return Verdict::holds;
  return value_of(values, "crushed_flushed") >= all ? Verdict::holds_with_correction
                                                    : Verdict::does_not_hold;
}

Measurement measure_f2a(const ClaimContext& context) {
  constexpr double kOutlier = 1e6;  // crushes most of its tile
  Measurement m;
  std::vector<double> tiles;
  std::vector<double> damaged;
  std::string figure = fmt::format("values lost to an outlier of {:g}: tiles", kOutlier);
  for (const std::size_t size : {16U, 32U, 64U, 128U, 256U}) {
    tiles.push_back(static_cast<double>(size));
    damaged.push_back(damage(context, kOutlier, size, kNvidiaSatfinite).crushed.mean);
    figure += fmt::format(" {}: {:.1f},", size, damaged.back());
    m.values.push_back({fmt::format("crushed_tile_{}", size), "elements", damaged.back()});
  }
  const double small = damage(context, kOutlier, 128, kNvidiaSatfinite, 4096).crushed.mean;
  const double large = damage(context, kOutlier, 128, kNvidiaSatfinite, 65536).crushed.mean;
  const double whole = damage(context, kOutlier, 0, kNvidiaSatfinite).crushed.mean;
  const double slope = fit_power_law(tiles, damaged).slope;
  m.values.insert(m.values.end(), {{"exponent_in_tile", "1", slope},
                                   {"crushed_4096_elements", "elements", small},
                                   {"crushed_65536_elements", "elements", large},
                                   {"crushed_per_tensor_16384", "elements", whole}});
  m.figure = figure + fmt::format(
                          " like tile^{:.2f}; in tiles of 128 of a tensor of 4096: {:.1f}, of "
                          "65536: {:.1f}; per tensor (16384): {:.0f}",
                          slope, small, large, whole);
  return m;
}

Verdict judge_f2a(Values values) {
  const double slope = value_of(values, "exponent_in_tile");
  const double large = value_of(values, "crushed_65536_elements");
  const bool with_tile = slope > 0.8 && slope < 1.2;
  const bool not_with_tensor = large < 1.5 * value_of(values, "crushed_4096_elements");
  return with_tile && not_with_tensor ? Verdict::holds : Verdict::does_not_hold;
}

TensorLoss loss_of(const ClaimContext& context, std::span<const float> x, std::size_t rows,
                   ScaleBlock block, const Format& f) {
  return tensor_loss(
      x, quantize(x, rows, x.size() / rows, block, f, kNvidiaSatfinite, context.backend));
}

Measurement measure_f3(const ClaimContext& context) {
  const Layer layer = make_layer({context.seed, "claims/layer"}, {});
  const auto gradient = [&](const Format& f, ScaleBlock block) {
    return loss_of(context, layer.dy, layer.tokens, block, f).zero_share;
  };
  const auto forward = [&](const Format& f, ScaleBlock block) {
    return loss_of(context, layer.x, layer.tokens, block, f).error.relative_l2;
  };
  const double zero_e4m3 = gradient(e4m3(), kPerTensor);
  const double zero_e5m2 = gradient(e5m2(), kPerTensor);
  const double zero_fine = gradient(e4m3(), tile(128));
  const double error_e4m3 = forward(e4m3(), kPerTensor);
  const double error_e5m2 = forward(e5m2(), kPerTensor);
  const double error_fine = forward(e4m3(), tile(128));
  Measurement m;
  m.figure = fmt::format(
      "gradients that become zero: E4M3 {:.2f} %, E5M2 {:.2f} %, E4M3 in 1x128 tiles {:.2f} %; "
      "relative L2 error of the activations: E4M3 {:.2f} %, E5M2 {:.2f} %, E4M3 in tiles {:.2f} %",
      100.0 * zero_e4m3, 100.0 * zero_e5m2, 100.0 * zero_fine, 100.0 * error_e4m3,
      100.0 * error_e5m2, 100.0 * error_fine);
  m.values = {{"gradient_zero_share_e4m3", "1", zero_e4m3},
              {"gradient_zero_share_e5m2", "1", zero_e5m2},
              {"gradient_zero_share_e4m3_tiles", "1", zero_fine},
              {"activation_error_e4m3", "1", error_e4m3},
              {"activation_error_e5m2", "1", error_e5m2},
              {"activation_error_e4m3_tiles", "1", error_fine}};
  return m;
}

Verdict judge_f3(Values values) {
  const double zeros = value_of(values, "gradient_zero_share_e4m3");
  const double error = value_of(values, "activation_error_e4m3");
  const bool both = zeros > 2.0 * value_of(values, "gradient_zero_share_e5m2") &&
                    value_of(values, "activation_error_e5m2") > 1.5 * error;
  if (!both) return Verdict::does_not_hold;
  const bool tiles_mend = value_of(values, "gradient_zero_share_e4m3_tiles") < 0.5 * zeros &&
                          value_of(values, "activation_error_e4m3_tiles") <= 1.05 * error;
  return tiles_mend ? Verdict::holds_with_correction : Verdict::holds;
}

}  // namespace

std::vector<Claim> failure_mode_claims() {
  return {
      {"F1", kTutorial,
       "One scale cannot hold a tensor of 5 to 7 decades in E4M3: small values become zero or "
       "large ones saturate.",
       "16384 log-uniform values over 5, 6 and 7 decades, amax 1, scales 7 * 2^-4 ... 7 * 2^40; "
       "share of the values that neither become zero nor saturate",
       "holds if the best share is below 99.9 % at 5, 6 and 7 decades, with subnormals and "
       "flushed; with a correction if only when flushed",
       measure_f1, judge_f1},
      {"F1a", kTutorial, "E4M3 covers 448/2^-6 = 28 672 (4.5 decades), E5M2 9.4e8 (9 decades).",
       "the formats' tables",
       "holds if the ratios match (2 %) and subnormals add nothing; with a "
       "correction if they match for normals only",
       measure_f1a, judge_f1a, Basis::arithmetic},
      {"F1c", kTutorial, "Clipping and underflow have errors that are not zero in the mean.",
       "65536 values, N(0, 1) or log-normal of 6 decades with random signs, scaled so that 5 % "
       "saturate or 5 % become zero; mean error of the elements that saturate, or that lie below "
       "the least subnormal (flushed: normal) number, and of their magnitudes, with its standard "
       "errors; rounding alone beside it",
       "holds if the elements' mean error is beyond 4 standard errors for clipping and for "
       "underflow of both; with a correction if only their magnitudes shrink so in the mean, by "
       "clipping and by underflow of one of the two",
       measure_f1c, judge_f1c},
      {"F2", kTutorial,
       "One outlier of 100 to 1000 makes a per-tensor cast lose 80 to 99 % of the other values.",
       "16384 values N(0, 0.4^2) with one outlier, E4M3, amax scale, 4 tensors; relative L2 error "
       "of the values other than the outlier",
       "holds if the error is at least 80 % at outliers of 100 and 1000, with subnormals and "
       "flushed; with a correction if in one of these cases",
       measure_f2, judge_f2},
      {"F2a", kTutorial, "The damage of an outlier scales with its tile, not with the tensor.",
       "as F2 with an outlier of 1e6 in tiles of 16 to 256 and tensors of 4096 and 65536 values; "
       "values that become zero",
       "holds if the count grows like tile^(0.8 ... 1.2), and 16 times the tensor gives less than "
       "1.5 times the count",
       measure_f2a, judge_f2a},
      {"F2b", kTutorial, "One outlier of 10^4 makes every small value of its tensor zero.",
       "128 values N(0, 0.5^2), one of them replaced by 10^4, one amax scale, 64 draws; values "
       "that become zero",
       "holds if at least 99 % of the other 127 become zero with subnormals; with a correction if "
       "they do where subnormals are flushed",
       measure_f2b, judge_f2b},
      {"F3", kTutorial,
       "E4M3 for everything loses gradient range, E5M2 for everything loses forward precision.",
       "activations with outlier channels [128, 512] and log-normal gradients of 8 decades "
       "[128, 128], amax scale per tensor and in 1x128 tiles",
       "holds if E4M3 zeroes over twice the gradients that E5M2 does and E5M2's activation error "
       "is over 1.5 times E4M3's; with a correction if E4M3 in tiles has neither fault (half the "
       "zeros, at most 5 % more error)",
       measure_f3, judge_f3},
  };
}

}  // namespace fp8lab::experiments

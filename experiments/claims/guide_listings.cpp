// L9 - L11: the first listings of the FP8 guide and the FP8-LM summary, run as they are written.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "claims/formats.hpp"
#include "claims/groups.hpp"
#include "claims/recorded.hpp"
#include "common/product.hpp"
#include "common/tensors.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "fp8lab/scaling/presets.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t kTokens = 32;
constexpr std::size_t kInputs = 256;
constexpr std::size_t kOutputs = 64;
constexpr float kMax = 448.0F;

/// x [kTokens, kInputs] ~ N(0, 1) and w [kOutputs, kInputs] ~ N(0, 2 / kInputs), as the guide's
/// layer begins.
struct LayerDraws {
  std::vector<float> x, w;
  std::vector<double> exact;  ///< x w^T in FP64
};

LayerDraws draw_layer(const ClaimContext& context) {
  LayerDraws d;
  d.x = normal({context.seed, "claims/guide/x"}, kTokens * kInputs, 1.0);
  d.w = normal({context.seed, "claims/guide/w"}, kOutputs * kInputs,
               std::sqrt(2.0 / static_cast<double>(kInputs)));
  d.exact = exact_product(d.x, d.w, kInputs);
  return d;
}

float largest(std::span<const float> x) {
  float most = 0.0F;
  for (const float value : x) most = std::max(most, std::abs(value));
  return most;
}

/// The guide's cast: scaled and clamped, nothing else.
std::vector<float> guide_cast(std::span<const float> x, float scale) {
  std::vector<float> cast(x.begin(), x.end());
  for (float& value : cast) value = std::clamp(value * scale, -kMax, kMax);
  return cast;
}

std::vector<float> rounded_to_e4m3(std::vector<float> x) {
  for (float& value : x) value = static_cast<float>(round_trip(e4m3(), kNvidiaSatfinite, value));
  return x;
}

/// ||product / (sx sw) - exact|| / ||exact||.
double linear_error(const LayerDraws& d, std::span<const float> x, std::span<const float> w,
                    float sx, float sw) {
  std::vector<double> y = exact_product(x, w, kInputs);
  for (double& value : y) value /= static_cast<double>(sx) * static_cast<double>(sw);
  return compare(std::span<const double>(d.exact), std::span<const double>(y)).relative_l2;
}

Measurement measure_l9(const ClaimContext& context) {
  const LayerDraws d = draw_layer(context);
  // The second step, whose scales the first one left.
  const float sx = kMax / largest(d.x);
  const float sw = kMax / largest(d.w);
  const std::vector<float> x = guide_cast(d.x, sx);
  const std::vector<float> w = guide_cast(d.w, sw);
  double in_format = 0.0;
  for (const auto* operand : {&x, &w}) {
    const std::vector<float> rounded = rounded_to_e4m3(*operand);
    for (std::size_t i = 0; i < rounded.size(); ++i)
      in_format += rounded[i] == (*operand)[i] ? 1.0 : 0.0;
  }
  in_format /= static_cast<double>(x.size() + w.size());
  const double written = linear_error(d, x, w, sx, sw);
  const double quantized = linear_error(d, rounded_to_e4m3(x), rounded_to_e4m3(w), sx, sw);
  const Recorded& grid = recorded("linear_operands_in_e4m3");
  const Recorded& gradients = recorded("linear_weight_gradients");
  Measurement m;
  m.figure = fmt::format(
      "its casts scale and clamp: {:.2g} % of the operands of its product are E4M3 numbers ({} "
      "under {}), and the product has an error of {:.1g}; rounded to E4M3 it would be {:.2f} %. "
      "Since the weights are used through .data, {} of its {} weights get a gradient there",
      100.0 * in_format, fmt::format("{:.2g} %", 100.0 * grid.value), grid.system, written,
      100.0 * quantized, gradients.value, kOutputs * kInputs);
  m.values = {{"operands_in_e4m3", "1", in_format},
              {"operands_in_e4m3_recorded", "1", grid.value},
              {"error_as_written", "1", written},
              {"error_in_e4m3", "1", quantized},
              {"weights_with_gradient", "1", gradients.value}};
  return m;
}

Verdict judge_l9(Values values) {
  const bool quantizes = value_of(values, "operands_in_e4m3") == 1.0 &&
                         value_of(values, "operands_in_e4m3_recorded") == 1.0;
  const bool trains = value_of(values, "weights_with_gradient") > 0.0;
  if (quantizes && trains) return Verdict::holds;
  return quantizes || trains ? Verdict::holds_with_correction : Verdict::does_not_hold;
}

/// The guide's deepseek_fp8_gemm: operands of groups of 128, a product of them that nothing reads,
/// and what it returns.
struct GuideGemm {
  std::vector<double> unused;
  std::vector<double> returned;
};

std::vector<float> guide_groups(std::span<const float> x) {
  constexpr std::size_t kGroup = 128;
  std::vector<float> cast;
  for (std::size_t i = 0; i < x.size(); i += kGroup) {
    const auto group = x.subspan(i, kGroup);
    const auto scaled = guide_cast(group, kMax / std::max(largest(group), 1e-12F));
    cast.insert(cast.end(), scaled.begin(), scaled.end());
  }
  return cast;
}

GuideGemm run_guide_gemm(const LayerDraws& d) {
  return {exact_product(guide_groups(d.x), guide_groups(d.w), kInputs),
          exact_product(d.x, d.w, kInputs)};
}

/// The product in the tiles of DeepSeek-V3, on Hopper with promotion.
double tiled_error(const ClaimContext& context, const LayerDraws& d) {
  const Preset& preset = find_preset("deepseek-v3");
  const QuantizedTensor x =
      quantize(preset.activation, {d.x, kTokens, kInputs}, false, 1, {}, context.backend);
  const QuantizedTensor w =
      quantize(preset.weight, {d.w, kOutputs, kInputs}, false, 1, {}, context.backend);
  GemmProblem problem;
  problem.model = find_instruction_model("sm90.wgmma.e4m3").accumulator;
  problem.a = x.matrix();
  problem.b = w.matrix();
  problem.scale_a = x.inverse();
  problem.scale_b = w.inverse();
  problem.promotion_interval = 128;
  std::vector<float> y(kTokens * kOutputs);
  gemm_on(context.backend, problem, y, 1);
  return compare(std::span<const double>(d.exact), std::span<const float>(y)).relative_l2;
}

Measurement measure_l10(const ClaimContext& context) {
  const LayerDraws d = draw_layer(context);
  const GuideGemm written = run_guide_gemm(d);
  double changed = 0.0;
  for (std::size_t i = 0; i < d.exact.size(); ++i)
    changed += written.returned[i] != d.exact[i] ? 1.0 : 0.0;
  const double unused =
      compare(std::span<const double>(d.exact), std::span<const double>(written.unused))
          .relative_l2;
  const double tiled = tiled_error(context, d);
  const Recorded& torch = recorded("gemm_outputs_changed");
  Measurement m;
  m.figure = fmt::format(
      "{} of {} outputs differ from x w^T ({} under {}): the listing scales and clamps both "
      "operands, multiplies them without their scales (off by a factor of {:.0f}), and returns the "
      "unquantized product. In 1x128 and 128x128 tiles on sm90.wgmma.e4m3 it would be {:.2f} % off",
      changed, d.exact.size(), torch.value, torch.system, unused, 100.0 * tiled);
  m.values = {{"outputs_changed", "1", changed},
              {"outputs_changed_recorded", "1", torch.value},
              {"error_of_unused", "1", unused},
              {"error_in_tiles", "1", tiled}};
  return m;
}

Verdict judge_l10(Values values) {
  return value_of(values, "outputs_changed") > 0.0 &&
                 value_of(values, "outputs_changed_recorded") > 0.0
             ? Verdict::holds
             : Verdict::does_not_hold;
}

/// The summary's FP8AutoScaler, line by line; `warmup` is taken and not kept, as there.
class SummaryScaler {
 public:
  explicit SummaryScaler(double threshold, int /*warmup*/) : threshold_(threshold) {}

  [[nodiscard]] double mu() const { return mu_; }

  void scale_gradients(std::span<const float> gradient) {
    double over = 0.0;
    for (const float g : gradient)
      over += std::abs(static_cast<double>(g) * mu_) >= static_cast<double>(kMax) ? 1.0 : 0.0;
    if (over / static_cast<double>(gradient.size()) > threshold_) {
      mu_ /= 2.0;
      steps_below_ = 0;
    } else if (++steps_below_ >= 1000) {
      mu_ *= std::exp2(1.0 / 1000.0);
    }
  }

 private:
  double threshold_;
  double mu_ = 1.0;
  int steps_below_ = 0;
};

Measurement measure_l11(const ClaimContext& context) {
  constexpr int kWarmup = 25;
  constexpr int kSteps = 60;
  constexpr std::size_t kElements = 4096;
  const RandomStream random(context.seed, "claims/guide/warmup");
  std::array<SummaryScaler, 3> scalers{SummaryScaler(1e-3, kWarmup), SummaryScaler(1e-3, 0),
                                       SummaryScaler(1e-3, 1000)};
  double halved = 0.0;  // within the warm-up
  double differing = 0.0;
  std::vector<float> gradient(kElements);
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < kElements; ++i) {
      const auto position = static_cast<std::uint64_t>(step) * kElements + i;
      gradient[i] = static_cast<float>(1e6 * random.normal(position));
    }
    const double before = scalers[0].mu();
    for (SummaryScaler& scaler : scalers) scaler.scale_gradients(gradient);
    if (step < kWarmup && scalers[0].mu() < before) halved += 1.0;
    if (scalers[0].mu() != scalers[1].mu() || scalers[0].mu() != scalers[2].mu()) differing += 1.0;
  }
  Measurement m;
  m.figure = fmt::format(
      "on gradients of N(0, 1e12) mu is halved {} times within the warm-up of {} steps, and after "
      "{} steps is {:.3g}; with a warm-up of 0 or 1000 mu differs in {} of {} steps: nothing reads "
      "the parameter",
      halved, kWarmup, kSteps, scalers[0].mu(), differing, kSteps);
  m.values = {{"halved_in_warmup", "steps", halved},
              {"mu_differs", "steps", differing},
              {"mu_at_end", "1", scalers[0].mu()}};
  return m;
}

Verdict judge_l11(Values values) {
  if (value_of(values, "mu_differs") == 0.0) return Verdict::does_not_hold;
  return value_of(values, "halved_in_warmup") == 0.0 ? Verdict::holds
                                                     : Verdict::holds_with_correction;
}

}  // namespace

std::vector<Claim> guide_listing_claims() {
  return {
      {"L9", kGuide, "The FP8Linear listing is a complete FP8 layer for training and inference.",
       "its second forward step as written, x [32, 256] ~ N(0, 1), w [64, 256] ~ N(0, 2/256); and "
       "the same layer run by PyTorch, forward and backward (recorded)",
       "holds if every operand of its product is an E4M3 number and its weights get gradients; "
       "with a correction if one of the two",
       measure_l9, judge_l9},
      {"L10", kGuide,
       "The deepseek_fp8_gemm listing simulates DeepSeek-V3's product in groups of 128.",
       "the listing as written on the operands of L9, and run by PyTorch (recorded)",
       "holds if its result differs from the unquantized product at all", measure_l10, judge_l10},
      {"L11", kSummary, "The FP8AutoScaler listing has a warm-up of 25 steps.",
       "the listing as written, 60 steps of saturating gradients, with warm-ups of 0, 25 and 1000",
       "holds if mu depends on the warm-up and is not halved within it; with a correction if it "
       "only depends on it",
       measure_l11, judge_l11},
  };
}

}  // namespace fp8lab::experiments

// S4 and S7 - S10: what the FP8 guide and the LLaMA-Factory page say of installed systems. What
// such a system did is recorded (recorded.hpp); what was read in its source or report says so.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "claims/formats.hpp"
#include "claims/groups.hpp"
#include "claims/recorded.hpp"
#include "common/page_reads.hpp"
#include "common/product.hpp"
#include "common/tensors.hpp"
#include "delayed-dynamics/dynamics.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "fp8lab/scaling/presets.hpp"

namespace fp8lab::experiments {
namespace {

/// The scale after an amax of 4 and then one of 0, of a history that is so long.
double after_zero(std::int64_t history) {
  DelayedScaling scaling(FormatId::e4m3fn, {.history = history});
  for (const float amax : {4.0F, 0.0F}) {
    scaling.record(amax);
    scaling.update();
  }
  return static_cast<double>(scaling.scale());
}

/// The same by the page's listing: 448 over the largest of the last `history` amaxes, 1 where that
/// is 0.
double listing_after_zero(std::int64_t history) {
  std::vector<double> amaxes(static_cast<std::size_t>(history));
  double scale = 1.0;
  std::size_t step = 0;
  for (const double amax : {4.0, 0.0}) {
    amaxes[step++ % amaxes.size()] = amax;
    const double largest = *std::ranges::max_element(amaxes);
    scale = largest == 0.0 ? 1.0 : 448.0 / largest;
  }
  return scale;
}

Measurement measure_s4(const ClaimContext&) {
  const Recorded& torchao = recorded("zero_amax_scale");
  Measurement m;
  m.values = {{"delayed_remembered", "1", after_zero(1024)},
              {"listing_remembered", "1", listing_after_zero(1024)},
              {"delayed_forgotten", "1", after_zero(1)},
              {"listing_forgotten", "1", listing_after_zero(1)},
              {"current", "1", static_cast<double>(tile_scale({}, 0.0F).scale)},
              {"torchao", "1", torchao.value}};
  m.figure = fmt::format(
      "while the history holds the 4, TransformerEngine's delayed scale is {} and the listing's "
      "{}; once it holds zeros alone, {} and {}; TransformerEngine's current scale of a zero "
      "tensor is {}, {}'s tensorwise one {:.3g}",
      m.values[0].value, m.values[1].value, m.values[2].value, m.values[3].value, m.values[4].value,
      torchao.system, torchao.value);
  return m;
}

Verdict judge_s4(Values values) {
  const auto equal = [&](const std::string& when) {
    return value_of(values, "delayed_" + when) == value_of(values, "listing_" + when);
  };
  if (!equal("remembered")) return Verdict::does_not_hold;
  return equal("forgotten") ? Verdict::holds : Verdict::holds_with_correction;
}

constexpr std::size_t kRows = 256;
constexpr std::size_t kColumns = 1024;

/// The first code of a tensor whose element `position` is 64 and all others 1.
std::uint8_t first_code(const Recipe& recipe, std::size_t position) {
  std::vector<float> x(kRows * kColumns, 1.0F);
  if (position < x.size()) x[position] = 64.0F;
  return Quantizer(recipe).quantize({x, kRows, kColumns}, false, 1, current_target()).codes.front();
}

/// How many elements, in memory order, must be read before the first code can be written.
double reach_of(const Recipe& recipe) {
  const std::uint8_t code = first_code(recipe, kRows * kColumns);
  std::size_t reach = 1;
  for (std::size_t place = 2; place <= kRows * kColumns; place *= 2)
    if (first_code(recipe, place - 1) != code) reach = place;
  return static_cast<double>(reach);
}

/// Of a tensor [1024, 1024], past a cache of 1 MiB, with this library's kernels.
double reads_of(const Recipe& recipe, PageCountedTensor& counted) {
  return counted.reads([&] {
    // A named target: what is counted is how the host's kernels read memory.
    Quantizer(recipe).quantize({counted.values(), 1024, 1024}, false, 1, current_target());
  });
}

Measurement measure_s7(const ClaimContext& context) {
  const std::vector<float> x = normal({context.seed, "claims/reads"}, 1024 * 1024, 1.0);
  PageCountedTensor counted(x, std::size_t{1} << 20);
  Measurement m;
  m.figure = "elements on which the first code depends:";
  for (const char* name : {"te-delayed", "te-current", "te-blockwise", "te-mxfp8"}) {
    const Recipe& recipe = find_preset(name).activation;
    const double reach = reach_of(recipe);
    const double reads = reads_of(recipe, counted);
    m.figure += fmt::format("{} {} {:.0f} (this library's kernels read {:.2f} times)",
                            m.values.empty() ? "" : ",", name, reach, reads);
    m.values.push_back({fmt::format("reach_{}", name), "elements", reach});
    m.values.push_back({fmt::format("reads_{}", name), "1", reads});
  }
  const Recorded& tensorwise = recorded("reach_tensorwise");
  m.figure +=
      fmt::format("; {} tensorwise {:.0f}, rowwise {:.0f}, blockwise {:.0f}, in MXFP8 {:.0f}",
                  tensorwise.system, tensorwise.value, recorded("reach_rowwise").value,
                  recorded("reach_blockwise").value, recorded("reach_mxfp8").value);
  m.values.push_back({"reach_torchao_tensorwise", "elements", tensorwise.value});
  m.values.push_back({"reach_torchao_mxfp8", "elements", recorded("reach_mxfp8").value});
  return m;
}

Verdict judge_s7(Values values) {
  constexpr auto kAll = static_cast<double>(kRows * kColumns);
  constexpr double kOnChip = 16384.0;  // a 128x128 tile: 64 KiB of FP32, which an SM holds
  for (const std::string name : {"te-delayed", "te-blockwise", "te-mxfp8", "torchao_mxfp8"})
    if (value_of(values, "reach_" + name) > kOnChip) return Verdict::does_not_hold;
  const bool twice = value_of(values, "reach_te-current") == kAll &&
                     value_of(values, "reach_torchao_tensorwise") == kAll;
  return twice ? Verdict::holds : Verdict::does_not_hold;
}

Measurement measure_s8(const ClaimContext&) {
  const Recorded& scales = recorded("rowwise_scales");
  const Recorded& distinct = recorded("rowwise_distinct_scales");
  return {fmt::format("{} gives {} scales for 8 rows, {} of them distinct", scales.system,
                      scales.value, distinct.value),
          {{"scales", "1", scales.value}, {"distinct", "1", distinct.value}}};
}

Verdict judge_s8(Values values) {
  const double scales = value_of(values, "scales");
  if (scales == 1.0) return Verdict::holds;
  const bool each_row = scales == 8.0 && value_of(values, "distinct") == 8.0;
  return each_row ? Verdict::holds_with_correction : Verdict::does_not_hold;
}

/// Updates after a spike until the scale no longer knows of it: the history at work.
std::int64_t steps_remembered(const Recipe& recipe) {
  DelayedScaling scaling(recipe.format, recipe.delayed);
  const auto step = [&](float amax) {
    scaling.record(amax);
    scaling.update();
    return scaling.scale();
  };
  const float calm = step(1.0F);
  step(64.0F);
  std::int64_t steps = 1;
  while (step(1.0F) != calm) ++steps;
  return steps;
}

/// `amax_history_len` that LLaMA-Factory's TransformerEngine back end passes to Accelerate's
/// FP8RecipeKwargs (src/llamafactory/train/fp8_utils.py).
constexpr std::int64_t kLlamaFactoryHistory = 16;

Measurement measure_s9(const ClaimContext& context) {
  Recipe recipe = find_preset("te-delayed").activation;
  const std::int64_t history = steps_remembered(recipe);
  recipe.delayed.history = kLlamaFactoryHistory;
  const std::int64_t passed = steps_remembered(recipe);
  std::vector<float> x = normal({context.seed, "claims/scaling"}, 256, 1.0);
  normalize_amax(x);
  const std::vector<float> trace =
      make_trace({context.seed, "claims/trace"}, "steady", {.steps = 3000});
  const auto overflowing = [&](std::int64_t length) {
    double steps = 0.0;
    const std::vector<StepLoss> losses =
        run_trace({false, {.history = length}}, e4m3(), trace, x, context.backend);
    for (std::size_t i = 1; i < losses.size(); ++i)
      steps += losses[i].overflow_percent > 0.0 ? 1.0 : 0.0;
    return 100.0 * steps / static_cast<double>(losses.size() - 1);
  };
  const double with_16 = overflowing(16);
  const double with_default = overflowing(history);
  Measurement m;
  m.figure = fmt::format(
      "with what LLaMA-Factory passes, TransformerEngine's recipe remembers a spike for {} steps, "
      "by its own default for {}; with a quarter octave of noise {:.3g} % of the steps overflow "
      "with 16, {:.3g} % with {}",
      passed, history, with_16, with_default, history);
  m.values = {{"passed_history", "steps", static_cast<double>(passed)},
              {"default_history", "steps", static_cast<double>(history)},
              {"overflowing_steps_16", "%", with_16},
              {"overflowing_steps_default", "%", with_default}};
  return m;
}

Verdict judge_s9(Values values) {
  if (value_of(values, "passed_history") == 16.0) return Verdict::holds;
  return value_of(values, "default_history") == 16.0 ? Verdict::holds_with_correction
                                                     : Verdict::does_not_hold;
}

/// dx = dy w by a recipe's gradient and weight, on Hopper, against FP64.
double backward_error(const ClaimContext& context, const Preset& preset, const std::string& model,
                      const FloatMatrix& dy, const FloatMatrix& wt) {
  const QuantizedTensor a = quantize(preset.gradient, dy, false, 1, {}, context.backend);
  const QuantizedTensor b = quantize(preset.weight, wt, false, 1, {}, context.backend);
  GemmProblem problem;
  problem.model = find_instruction_model(model).accumulator;
  problem.a = a.matrix();
  problem.b = b.matrix();
  problem.scale_a = a.inverse();
  problem.scale_b = b.inverse();
  problem.promotion_interval = 128;
  std::vector<float> dx(static_cast<std::size_t>(dy.rows * wt.rows));
  gemm_on(context.backend, problem, dx, 1);
  const std::vector<double> exact =
      exact_product(dy.values, wt.values, static_cast<std::size_t>(dy.k));
  return compare(std::span<const double>(exact), std::span<const float>(dx)).relative_l2;
}

double bf16_backward_error(const FloatMatrix& dy, const FloatMatrix& wt) {
  const auto rounded = [](std::span<const float> x) {
    std::vector<float> y;
    for (const float value : x)
      y.push_back(static_cast<float>(round_trip(format(FormatId::bf16), kNvidiaNosat, value)));
    return y;
  };
  const auto k = static_cast<std::size_t>(dy.k);
  const std::vector<double> product = exact_product(rounded(dy.values), rounded(wt.values), k);
  const std::vector<float> dx(product.begin(), product.end());
  const std::vector<double> exact = exact_product(dy.values, wt.values, k);
  return compare(std::span<const double>(exact), std::span<const float>(dx)).relative_l2;
}

Measurement measure_s10(const ClaimContext& context) {
  const Preset& preset = find_preset("deepseek-v3");
  const std::vector<float> g =
      log_normal_rows({context.seed, "claims/gradient"}, 128, 256, 8.0, 0.5);
  const std::vector<float> w = normal({context.seed, "claims/weights"}, 128 * 256, 0.02);
  const FloatMatrix dy{g, 128, 256};
  const FloatMatrix wt{w, 128, 256};
  const FormatId used = quantize(preset.gradient, dy, false, 1, {}, context.backend).format;
  const double fine = backward_error(context, preset, "sm90.wgmma.e4m3", dy, wt);
  const double e5m2_tensor =
      backward_error(context, find_preset("te-current"), "sm90.wgmma.e5m2.e4m3", dy, wt);
  const double bf16 = bf16_backward_error(dy, wt);
  Measurement m;
  m.figure = fmt::format(
      "by the report (section 3.3), gradients get {} codes; dx = dy w then has an error of {:.3g} "
      "%, with E5M2 per tensor {:.3g} %, in BF16 {:.3g} %",
      format(used).name, 100.0 * fine, 100.0 * e5m2_tensor, 100.0 * bf16);
  const bool e4m3_throughout = used == FormatId::e4m3fn && !preset.high_precision_wgrad;
  m.values = {{"e4m3_throughout", "1", e4m3_throughout ? 1.0 : 0.0},
              {"e4m3_tiles", "1", fine},
              {"e5m2_tensor", "1", e5m2_tensor},
              {"bf16", "1", bf16}};
  return m;
}

Verdict judge_s10(Values values) {
  if (value_of(values, "e4m3_throughout") == 0.0) return Verdict::holds;
  return value_of(values, "e4m3_tiles") <= value_of(values, "e5m2_tensor")
             ? Verdict::does_not_hold
             : Verdict::holds_with_correction;
}

}  // namespace

std::vector<Claim> system_claims() {
  return {
      {"S4", kGuide, "a history whose largest amax is zero resets the scale to 1",
       "amax 4, then 0, with a history that still holds the 4 and with one of a single step: the "
       "listing's scale and TransformerEngine's delayed one (by reading); the scales of zero "
       "tensors "
       "beside them (torchao's is recorded)",
       "holds if both agree in both cases, with a correction if only while the history holds the 4",
       measure_s4, judge_s4, Basis::by_reading},
      {"S7", "FP8 guide, TransformerEngine guide",
       "current scaling reads the tensor twice, other recipes once",
       "how many elements of a [256, 1024] tensor must be known before the first code can be "
       "written, by TransformerEngine's recipes (by reading) and torchao's (recorded); reads by "
       "this library's kernels, beyond a cache of 1 MiB, are listed too and do not affect the "
       "verdict",
       "holds if current scaling needs the whole tensor, which then is read again or kept, and the "
       "others at most a 128x128 tile, which stays on the chip",
       measure_s7, judge_s7, Basis::by_reading},
      {"S8", kFactoryPage,
       "torchao's rowwise back end scales per tensor; further on: it has a scale for each row",
       "the scales that torchao's rowwise recipe gave an [8, 64] tensor, each row 8 times the one "
       "before",
       "holds if there is one; with a correction if each row has its own, as the page says further "
       "on",
       measure_s8, judge_s8, Basis::recorded},
      {"S9", kFactoryPage, "the default amax history of its TransformerEngine back end is 16 steps",
       "TransformerEngine's recipe after a spike of 64 with what LLaMA-Factory passes (both by "
       "reading) and with its own default, and both lengths on 3000 noisy steps",
       "holds if it remembers the spike for 16 steps with what is passed; with a correction if by "
       "its own default",
       measure_s9, judge_s9, Basis::by_reading},
      {"S10", "FP8 guide, naive-FP8 tutorial",
       "DeepSeek's backward runs in BF16 (guide) or E5M2 (tutorial)",
       "the recipe of its report (by reading) on dx = dy w with a log-normal dy [128, 256] of 8 "
       "decades, and the same product with E5M2 and BF16 gradients",
       "holds unless its gradients become E4M3 codes for both backward products; with a correction "
       "if those do worse than E5M2",
       measure_s10, judge_s10, Basis::by_reading},
  };
}

}  // namespace fp8lab::experiments

// S1 - S10, S12: what the FP8 guide, the LLaMA-Factory page and the
// TransformerEngine guide say about scaling.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "claims/groups.hpp"
#include "common/page_reads.hpp"
#include "common/product.hpp"
#include "common/tensors.hpp"
#include "delayed-dynamics/dynamics.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "int8-vs-fp8/grid.hpp"

namespace fp8lab::experiments {
namespace {

const Format& e4m3() { return format(FormatId::e4m3fn); }
const Format& e5m2() { return format(FormatId::e5m2); }

Measurement measure_s1(const ClaimContext& context) {
  struct Line {
    const char* name;
    std::size_t outliers;  ///< of 10000
    double int8_mse;
    double fp8_mse;
  };
  Measurement m;
  bool near = true;
  bool same_winner = true;
  for (const Line& line : {Line{"none", 0, 1.2e-5, 1.8e-5}, Line{"1 %", 100, 8.4e-4, 3.1e-4},
                           Line{"5 %", 500, 4.2e-3, 9.8e-4}}) {
    const std::vector<float> x = normal_with_outliers(context.seed, 10000, line.outliers);
    const double int8 = loss_at(find_grid("INT8"), x, 1.0).mse;
    const double fp8 = loss_at(find_grid("E4M3 (OCP)"), x, 1.0).mse;
    const auto is_near = [](double got, double claimed) {
      return got <= 2.0 * claimed && claimed <= 2.0 * got;
    };
    near = near && is_near(int8, line.int8_mse) && is_near(fp8, line.fp8_mse);
    same_winner = same_winner && (int8 < fp8) == (line.int8_mse < line.fp8_mse);
    m.figure += fmt::format("{}outliers {}: MSE {:.2g} in INT8, {:.2g} in E4M3",
                            m.figure.empty() ? "" : "; ", line.name, int8, fp8);
    m.values.push_back({fmt::format("int8_mse_{}_outliers", line.outliers), "1", int8});
    m.values.push_back({fmt::format("e4m3_mse_{}_outliers", line.outliers), "1", fp8});
  }
  if (same_winner) m.verdict = near ? Verdict::holds : Verdict::holds_with_correction;
  return m;
}

Measurement measure_s2(const ClaimContext&) {
  std::set<double> values;
  for (std::uint32_t code = 0; code < 256; ++code) {
    const double value = decode(e4m3(), code);
    if (std::isfinite(value)) values.insert(value);
  }
  const auto count = static_cast<double>(values.size());
  return {fmt::format("{} distinct finite values", count),
          {{"finite_values", "1", count}},
          count == 240.0 ? Verdict::holds : Verdict::does_not_hold};
}

/// Overflow of a step whose amax is `jump` times the one that the scale knows.
double overflow_after(const ClaimContext& context, double jump, const DelayedOptions& options) {
  std::vector<float> x = normal({context.seed, "claims/scaling"}, 4096, 1.0);
  normalize_amax(x);
  const std::vector<float> trace{1.0F, static_cast<float>(jump)};
  return run_trace({false, options}, e4m3(), trace, x, context.backend)[1].overflow_percent;
}

Measurement measure_s3(const ClaimContext& context) {
  const double too_large = overflow_after(context, 8.0, {});
  const double too_small = overflow_after(context, 0.125, {});
  Measurement m;
  m.figure = fmt::format(
      "a stale scale 8 times too large overflows {:.3g} % of the elements, one 8 times too small "
      "{:.3g} %",
      too_large, too_small);
  m.values = {{"overflow_scale_too_large", "%", too_large},
              {"overflow_scale_too_small", "%", too_small}};
  if (too_small > 0.0)
    m.verdict = too_large > 0.0 ? Verdict::holds_with_correction : Verdict::holds;
  return m;
}

Measurement measure_s4(const ClaimContext&) {
  DelayedScaling delayed(FormatId::e4m3fn);
  delayed.record(4.0F);
  delayed.update();
  const auto before = static_cast<double>(delayed.scale());
  delayed.record(0.0F);
  delayed.update();
  const auto after = static_cast<double>(delayed.scale());
  const auto current = static_cast<double>(tile_scale({}, 0.0F).scale);
  Measurement m;
  m.figure = fmt::format("after a zero amax: delayed scaling {} (before: {}), current scaling {}",
                         after, before, current);
  m.values = {
      {"delayed_before", "1", before}, {"delayed_after", "1", after}, {"current", "1", current}};
  if (current == 1.0) m.verdict = after == 1.0 ? Verdict::holds : Verdict::holds_with_correction;
  return m;
}

Measurement measure_s5(const ClaimContext& context) {
  std::vector<float> x = normal({context.seed, "claims/scaling"}, 4096, 1.0);
  normalize_amax(x);
  std::vector<float> trace(64, 1.0F);
  trace[20] = trace[30] = 64.0F;
  const auto at = [&](const DelayedOptions& options, std::size_t step) {
    return run_trace({false, options}, e4m3(), trace, x, context.backend)[step].overflow_percent;
  };
  const double first = at({.history = 16}, 20);
  const double second = at({.history = 16}, 30);
  const double forgotten = at({.history = 4}, 30);
  const double margin_1 = at({.history = 16, .margin = 1.0}, 20);
  const double margin_6 = at({.history = 16, .margin = 6.0}, 20);
  Measurement m;
  m.figure = fmt::format(
      "spikes of 64: the first overflows {:.3g} % of the elements with a history of 16, the "
      "second, 10 steps later, {:.3g} % ({:.3g} % with a history of 4); the first with margin 1 "
      "{:.3g} %, with margin 6 {:.3g} %",
      first, second, forgotten, margin_1, margin_6);
  m.values = {{"first_spike", "%", first},
              {"second_spike", "%", second},
              {"second_spike_history_4", "%", forgotten},
              {"first_spike_margin_1", "%", margin_1},
              {"first_spike_margin_6", "%", margin_6}};
  if (second == 0.0 && margin_6 == 0.0)
    m.verdict = first == 0.0 ? Verdict::holds : Verdict::holds_with_correction;
  return m;
}

Measurement measure_s6(const ClaimContext& context) {
  constexpr int kSteps = 32;
  const RandomStream random(context.seed, "claims/weights");
  std::vector<float> w = normal(random, 4096, 0.02);
  DelayedScaling scaling(FormatId::e4m3fn, {.history = 16});
  std::vector<std::uint8_t> cached(w.size());
  std::vector<std::uint8_t> fresh(w.size());
  double cached_scale = 0.0;
  double stale_steps = 0.0;
  double stale_codes = 0.0;
  for (int step = 0; step < kSteps; ++step) {
    const float scale = scaling.scale();
    encode_scaled(e4m3(), kNvidiaSatfinite, w, {scale, 1.0F / scale, 0}, false, fresh,
                  context.backend);
    if (static_cast<double>(scale) != cached_scale) {
      cached = fresh;
      cached_scale = static_cast<double>(scale);
    }
    double wrong = 0.0;
    for (std::size_t i = 0; i < w.size(); ++i) wrong += cached[i] != fresh[i] ? 1.0 : 0.0;
    if (wrong > 0.0) stale_steps += 1.0;
    stale_codes = std::max(stale_codes, 100.0 * wrong / static_cast<double>(w.size()));
    scaling.record(amax(w, true));
    scaling.update();
    const auto first = static_cast<std::uint64_t>(step + 1) << 32;
    for (std::size_t i = 0; i < w.size(); ++i)  // weight decay and a step of 1 % of sigma
      w[i] =
          static_cast<float>(0.999 * static_cast<double>(w[i]) + 2e-4 * random.normal(first + i));
  }
  Measurement m;
  m.figure = fmt::format(
      "{} of {} optimizer steps ran with stale codes, up to {:.3g} % of the weights wrong",
      stale_steps, kSteps, stale_codes);
  m.values = {{"stale_steps", "steps", stale_steps}, {"worst_stale_codes", "%", stale_codes}};
  m.verdict = stale_steps == 0.0 ? Verdict::holds : Verdict::does_not_hold;
  return m;
}

Measurement measure_s7(const ClaimContext& context) {
  constexpr std::int64_t kRows = 1024;
  const std::vector<float> small = normal({context.seed, "claims/reads"}, kRows * 1024, 1.0);
  PageCountedTensor counted(small, std::size_t{1} << 20);
  Measurement m;
  double current = 0.0;
  double most_others = 0.0;
  for (const char* name : {"te-delayed", "te-current", "te-blockwise", "te-mxfp8"}) {
    const Recipe& recipe = find_preset(name).activation;
    const double reads = counted.reads([&] {
      // A named target: what is counted is how the host's kernels read memory.
      Quantizer(recipe).quantize({counted.values(), kRows, 1024}, false, 1, current_target());
    });
    (std::string_view(name) == "te-current" ? current : most_others) =
        std::max(std::string_view(name) == "te-current" ? 0.0 : most_others, reads);
    m.figure += fmt::format("{}{} reads {:.2f} times, {:.2f} bytes an element",
                            m.figure.empty() ? "" : "; ", name, reads, 4.0 * reads + 1.0);
    m.values.push_back({fmt::format("reads_{}", name), "1", reads});
  }
  if (current >= 1.9 && most_others <= 1.1) m.verdict = Verdict::holds;
  return m;
}

Measurement measure_s8(const ClaimContext& context) {
  std::vector<float> x = normal({context.seed, "claims/rowwise"}, 8 * 64, 1.0);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(x[i], 3 * static_cast<int>(i / 64));
  const QuantizedTensor q = quantize(find_preset("torchao-rowwise").activation, {x, 8, 64}, false,
                                     1, {}, context.backend);
  const std::set<float> distinct(q.scales.begin(), q.scales.end());
  const auto scales = static_cast<double>(q.scales.size());
  return {fmt::format("{} scales for 8 rows, {} of them distinct", scales, distinct.size()),
          {{"scales", "1", scales}, {"distinct", "1", static_cast<double>(distinct.size())}},
          scales == 1.0 ? Verdict::holds : Verdict::does_not_hold};
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

Measurement measure_s9(const ClaimContext& context) {
  Recipe recipe = find_preset("te-delayed").activation;
  const std::int64_t history = steps_remembered(recipe);
  recipe.delayed.history = 16;
  const std::int64_t overridden = steps_remembered(recipe);
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
      "TransformerEngine's recipe remembers a spike for {} steps, for {} where the history is set "
      "to 16; with a quarter octave of noise {:.3g} % of the steps overflow with 16, {:.3g} % with "
      "{}",
      history, overridden, with_16, with_default, history);
  m.values = {{"default_history", "steps", static_cast<double>(history)},
              {"overridden_history", "steps", static_cast<double>(overridden)},
              {"overflowing_steps_16", "%", with_16},
              {"overflowing_steps_default", "%", with_default}};
  if (history == 16)
    m.verdict = Verdict::holds;
  else if (overridden == 16)
    m.verdict = Verdict::holds_with_correction;
  return m;
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
  problem.a_scales = a.inverse();
  problem.b_scales = b.inverse();
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
      "its recipe gives gradients {} codes; dx = dy w is then {:.3g} % off, with E5M2 per tensor "
      "{:.3g} %, in BF16 {:.3g} %",
      format(used).name, 100.0 * fine, 100.0 * e5m2_tensor, 100.0 * bf16);
  m.values = {{"e4m3_tiles", "1", fine}, {"e5m2_tensor", "1", e5m2_tensor}, {"bf16", "1", bf16}};
  const bool e4m3_throughout = used == FormatId::e4m3fn && !preset.high_precision_wgrad;
  if (!e4m3_throughout)
    m.verdict = Verdict::holds;
  else
    m.verdict = fine <= e5m2_tensor ? Verdict::does_not_hold : Verdict::holds_with_correction;
  return m;
}

Measurement measure_s12(const ClaimContext&) {
  double saturating = 0.0;
  double special = 0.0;
  std::string figure = "1e6 in E5M2 becomes";
  for (const CastProfile& profile : kCastProfiles) {
    if (profile.policy.max_magnitude > 0.0) continue;  // a grid for E4M3
    const double value = decode(e5m2(), encode(e5m2(), profile.policy, 1e6F));
    (std::isfinite(value) ? saturating : special) += 1.0;
    figure += fmt::format(" {} ({}),", value, profile.name);
  }
  figure.pop_back();
  Measurement m{figure, {{"profiles_finite", "1", saturating}, {"profiles_inf", "1", special}}, {}};
  if (special > 0.0)
    m.verdict = saturating == 0.0 ? Verdict::holds : Verdict::holds_with_correction;
  else
    m.verdict = Verdict::does_not_hold;
  return m;
}

}  // namespace

std::vector<Claim> scaling_claims() {
  return {
      {"S1", "FP8 guide",
       "INT8 has the smaller error on Gaussian elements (1.2e-5 against 1.8e-5), FP8 with outliers "
       "(8.4e-4 / 3.1e-4 at 1 %, 4.2e-3 / 9.8e-4 at 5 %)",
       "10000 elements of N(0, 0.5^2), 0, 1 and 5 % of them 20 times larger, one amax scale",
       "holds if each of the six errors is within a factor of 2; with a correction if the same "
       "format wins each time",
       measure_s1},
      {"S2", "FP8 guide", "E4M3 has 240 values", "all 256 codes decoded",
       "holds if 240 distinct finite values are found", measure_s2},
      {"S3", "FP8 guide", "a stale scale that is too small overflows (x * scale is cast)",
       "delayed scaling, E4M3, 4096 normal elements; the amax grows or shrinks 8 times",
       "holds if only the scale that is too small overflows, with a correction if both do",
       measure_s3},
      {"S4", "FP8 guide", "an amax of zero resets the scale to 1",
       "TransformerEngine's delayed and current rules, amax 4, then 0",
       "holds if both give 1, with a correction if only the current rule does", measure_s4},
      {"S5", "FP8 guide",
       "delayed scaling survives spikes by its history, and a margin adds headroom",
       "E4M3, 4096 normal elements, amax 1 with spikes of 64 at steps 20 and 30",
       "holds if no spike overflows; with a correction if the first does, and neither the second "
       "nor one within the margin",
       measure_s5},
      {"S6", "FP8 guide", "FP8 weights can be cached until their scale changes",
       "4096 weights, delayed scaling with a history of 16, 32 steps of decay and noise",
       "holds if the cached codes always equal fresh ones", measure_s6},
      {"S7", "FP8 guide, TransformerEngine guide",
       "current scaling reads the tensor twice, other recipes once",
       "pages of a [1024, 1024] tensor that this library's kernels of the recipe read from memory "
       "past a cache of 1 MiB",
       "holds if te-current reads twice and the others once", measure_s7},
      {"S8", "LLaMA-Factory page", "torchao's rowwise backend scales per tensor",
       "the recipe's scales of an [8, 64] tensor, each row 8 times the one before",
       "holds if there is one", measure_s8},
      {"S9", "LLaMA-Factory page", "the default amax history is 16",
       "TransformerEngine's recipe after a spike of 64, and both lengths on 3000 noisy steps",
       "holds if it remembers the spike for 16 steps; with a correction if it does once it is told "
       "to",
       measure_s9},
      {"S10", "FP8 guide, naive-FP8 tutorial",
       "DeepSeek's backward runs in BF16 (guide) or E5M2 (tutorial)",
       "the recipe of its report on dx = dy w with a log-normal dy [128, 256] of 8 decades, and "
       "the "
       "same product with E5M2 and BF16 gradients",
       "holds unless its gradients become E4M3 codes for both backward products; with a correction "
       "if those do worse than E5M2",
       measure_s10},
      {"S12", "TransformerEngine guide", "an overflow of E5M2 always gives Inf or NaN",
       "1e6 through every cast profile",
       "holds if all give Inf or NaN, with a correction if some do", measure_s12},
  };
}

}  // namespace fp8lab::experiments

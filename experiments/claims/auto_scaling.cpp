// A1 - A4 and A8: FP8-LM's automatic scaling, as the FP8-LM summary tells it.

#include "fp8lab/scaling/auto_scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "auto-scaling/reduction.hpp"
#include "claims/groups.hpp"
#include "common/tensors.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::string_view kSource = "FP8-LM summary";

const Format& e4m3() { return format(FormatId::e4m3fn); }

double amax_scale(const Gradients& gradients) {
  return static_cast<double>(tile_scale({}, gradients.amax()).scale);
}

/// mu and the last share of saturated sums after `steps` steps from 1.
std::pair<double, double> settle(const Gradients& gradients, AutoScaling variant, int steps) {
  AutoScaler scaler(auto_scaling_options(variant));
  double share = 0.0;
  for (int step = 0; step < steps; ++step) {
    share = share_at_max(ring_sum(gradients, amax_scale(gradients) * scaler.mu(), e4m3()).codes,
                         e4m3());
    scaler.update(share);
  }
  return {scaler.mu(), share};
}

ReductionLoss reduce(const Gradients& gradients, double mu) {
  const double factor = amax_scale(gradients) * mu;
  return measure_reduction(gradients, ring_sum(gradients, factor, e4m3()),
                           1.0 / (factor * static_cast<double>(gradients.ranks())), e4m3());
}

Measurement measure_a1(const ClaimContext& context) {
  Measurement m;
  bool pre_underflows = false;
  bool post_overflows = false;
  bool auto_avoids = true;
  for (const std::int64_t ranks : {8, 64, 512}) {
    const Gradients gradients({context.seed, "claims/gradients"}, {1024, 6.0, 2.0}, ranks);
    const ReductionLoss pre = reduce(gradients, 1.0 / static_cast<double>(ranks));
    const ReductionLoss post = reduce(gradients, 1.0);
    const ReductionLoss automatic =
        reduce(gradients, settle(gradients, AutoScaling::as_paper, 20).first);
    pre_underflows = pre_underflows || pre.underflow_percent > 1.5 * post.underflow_percent;
    post_overflows = post_overflows || post.overflow_percent > 0.0;
    auto_avoids = auto_avoids && automatic.overflow_percent <= 0.1 &&
                  automatic.underflow_percent <= 1.5 * post.underflow_percent;
    m.figure += fmt::format(
        "{}{} ranks: underflow {:.3g} % pre, {:.3g} % post, {:.3g} % auto; overflow {:.3g}, "
        "{:.3g}, "
        "{:.3g} %; SNR {:.1f}, {:.1f}, {:.1f} dB",
        m.figure.empty() ? "" : "; ", ranks, pre.underflow_percent, post.underflow_percent,
        automatic.underflow_percent, pre.overflow_percent, post.overflow_percent,
        automatic.overflow_percent, pre.snr_db, post.snr_db, automatic.snr_db);
    m.values.push_back({fmt::format("pre_underflow_{}", ranks), "%", pre.underflow_percent});
    m.values.push_back({fmt::format("post_underflow_{}", ranks), "%", post.underflow_percent});
    m.values.push_back({fmt::format("auto_underflow_{}", ranks), "%", automatic.underflow_percent});
    m.values.push_back({fmt::format("post_overflow_{}", ranks), "%", post.overflow_percent});
    m.values.push_back({fmt::format("auto_overflow_{}", ranks), "%", automatic.overflow_percent});
  }
  if (pre_underflows && post_overflows)
    m.verdict = auto_avoids ? Verdict::holds : Verdict::holds_with_correction;
  return m;
}

Measurement measure_a2(const ClaimContext& context) {
  const Gradients gradients({context.seed, "claims/gradients"}, {1 << 17, 3.0, 2.0}, 16);
  const auto [paper_mu, paper_share] = settle(gradients, AutoScaling::as_paper, 8);
  const auto [seed_mu, seed_share] = settle(gradients, AutoScaling::as_seed, 8);
  const double paper = 100.0 * auto_scaling_options(AutoScaling::as_paper).threshold;
  const double seed = 100.0 * auto_scaling_options(AutoScaling::as_seed).threshold;
  Measurement m;
  m.figure = fmt::format(
      "the paper's threshold is {:g} %, the summary's {:g} %; on the same gradients mu settles at "
      "{:.3g} with {:.3g} % of the sums saturated, or at {:.3g} with {:.3g} %",
      paper, seed, paper_mu, 100.0 * paper_share, seed_mu, 100.0 * seed_share);
  m.values = {{"paper_threshold", "%", paper},
              {"seed_threshold", "%", seed},
              {"paper_mu", "1", paper_mu},
              {"seed_mu", "1", seed_mu},
              {"paper_saturated", "%", 100.0 * paper_share},
              {"seed_saturated", "%", 100.0 * seed_share}};
  const bool same = paper_mu == seed_mu && paper_share == seed_share;
  m.verdict = same ? Verdict::holds : Verdict::does_not_hold;
  return m;
}

Measurement measure_a3(const ClaimContext&) {
  const auto after = [](AutoScaling variant, int steps) {
    AutoScaler scaler(auto_scaling_options(variant));
    for (int step = 0; step < steps; ++step) scaler.update(0.0);
    return std::log2(scaler.mu());
  };
  const double first = after(AutoScaling::as_seed, 999);
  const double doubled = after(AutoScaling::as_seed, 1999);
  const double seed_long = after(AutoScaling::as_seed, 20000);
  const double paper = after(AutoScaling::as_paper, 1000);
  Measurement m;
  m.figure = fmt::format(
      "log2 of mu without saturation: {:.3f} after 999 steps, {:.3f} after 1999, {:.3f} after "
      "20000 (the paper's rule: {:.3f} after 1000)",
      first, doubled, seed_long, paper);
  m.values = {{"after_999", "octaves", first},
              {"after_1999", "octaves", doubled},
              {"after_20000", "octaves", seed_long},
              {"paper_after_1000", "octaves", paper}};
  const bool ramps = first == 0.0 && std::abs(doubled - 1.0) < 1e-3;
  if (ramps) m.verdict = seed_long <= 1.0 ? Verdict::holds : Verdict::holds_with_correction;
  return m;
}

Measurement measure_a4(const ClaimContext& context) {
  const std::vector<float> g = log_normal({context.seed, "claims/mu"}, 16384, 6.0);
  const Recipe recipe{.rule = ScaleRule::torchao};
  const QuantizedTensor plain = quantize(recipe, {g, 1, 16384});
  Measurement m;
  double worst = 0.0;
  for (const double mu : {0x1p-10, 0.37, 3.0, 0x1p10}) {
    std::vector<float> scaled(g);
    for (float& value : scaled) value *= static_cast<float>(mu);
    const QuantizedTensor q = quantize(recipe, {scaled, 1, 16384});
    double different = 0.0;
    for (std::size_t i = 0; i < g.size(); ++i)
      different += q.codes[i] != plain.codes[i] ? 1.0 : 0.0;
    const double percent = 100.0 * different / static_cast<double>(g.size());
    worst = std::max(worst, percent);
    m.values.push_back({fmt::format("codes_changed_mu_{:g}", mu), "%", percent});
    m.figure += fmt::format("{}mu = {:.4g}: {:.3g} % of the codes change",
                            m.figure.empty() ? "" : "; ", mu, percent);
  }
  if (worst > 1.0) m.verdict = Verdict::holds;
  return m;
}

Measurement measure_a8(const ClaimContext&) {
  const double normal_octaves = std::log2(e4m3().min_normal());
  const double octaves = std::log2(e4m3().min_subnormal());
  Measurement m;
  m.figure = fmt::format("smallest normal 2^{}, smallest subnormal 2^{}", normal_octaves, octaves);
  m.values = {{"min_normal_log2", "octaves", normal_octaves},
              {"min_subnormal_log2", "octaves", octaves}};
  const bool near = std::abs(octaves + 14.0) <= 1.0 || std::abs(normal_octaves + 14.0) <= 1.0;
  if (near) m.verdict = Verdict::holds;
  return m;
}

}  // namespace

std::vector<Claim> auto_scaling_claims() {
  return {
      {"A1", kSource,
       "pre-scaling underflows, post-scaling overflows, automatic scaling avoids both",
       "E4M3 ring all-reduce with a rounding at every hop, 8, 64 and 512 ranks, 1024 log-normal "
       "elements of 6 decades",
       "holds if pre-scaling loses 1.5 times the means that post-scaling does, post-scaling "
       "saturates, and automatic scaling does neither (0.1 % saturated allowed); with a correction "
       "if it does one of them",
       measure_a1},
      {"A2", kSource, "mu is halved above a threshold of 0.001 = 0.1 %",
       "both thresholds on the same 131072 gradients of 16 ranks, 8 steps",
       "holds if mu settles at the same place under the paper's threshold of 0.001 %", measure_a2},
      {"A3", kSource, "mu grows by 2^(1/1000) a step after 1000 clean steps",
       "mu without any saturation",
       "holds if mu doubles over the 1000 steps after the first 1000 and stops there; with a "
       "correction if it goes on",
       measure_a3},
      {"A4", kSource, "gradients are multiplied by mu, then quantized with their amax scale",
       "16384 log-normal elements of 6 decades under mu from 2^-10 to 2^10",
       "holds as a scaling if some mu changes more than 1 % of the codes", measure_a4},
      {"A8", kSource, "E4M3 ends at about 2^-14", "the format's smallest values",
       "holds if the smallest normal or subnormal is within a factor of 2", measure_a8},
  };
}

}  // namespace fp8lab::experiments

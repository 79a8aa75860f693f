// A1 - A4 and A8: FP8-LM's automatic scaling, as the FP8-LM summary tells it.

#include "fp8lab/scaling/auto_scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "auto-scaling/schemes.hpp"
#include "claims/formats.hpp"
#include "claims/groups.hpp"
#include "claims/schemes.hpp"
#include "common/spread.hpp"
#include "common/tensors.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab::experiments {

SchemeVerdict judge_draw(const std::vector<SchemeLosses>& by_ranks) {
  constexpr double kLossRatio = 1.5;         // of underflow, against post-scaling's
  constexpr double kSaturatedAllowed = 0.1;  // percent
  SchemeVerdict v{false, false, false, false};
  for (const SchemeLosses& l : by_ranks) {
    const double much = kLossRatio * l.post.underflow_percent;
    v.pre_underflows = v.pre_underflows || l.pre.underflow_percent > much;
    v.post_overflows = v.post_overflows || l.post.overflow_percent > 0.0;
    v.auto_underflows = v.auto_underflows || l.automatic.underflow_percent > much;
    v.auto_overflows = v.auto_overflows || l.automatic.overflow_percent > kSaturatedAllowed;
  }
  return v;
}

namespace {

constexpr MuRule kPaperRule{};
constexpr std::size_t kElements = 100'000;  // one of them is the paper's threshold
const double kResolution = 100.0 * share_resolution(kElements);  // percent

SchemeLosses measure_schemes(const ClaimContext& context, std::int64_t ranks, int draw) {
  const RandomStream random(context.seed, fmt::format("claims/gradients/{}", draw));
  const Gradients gradients(random, {kElements, 6.0, 2.0}, ranks, context.threads);
  const std::vector<float> mean = gradients.mean();
  const double settled = settle(gradients, kPaperRule, 12, e4m3(), context.backend).mu;
  return {
      reduce_with_mu(gradients, mean, 1.0 / static_cast<double>(ranks), e4m3(), context.backend),
      reduce_with_mu(gradients, mean, 1.0, e4m3(), context.backend),
      reduce_with_mu(gradients, mean, settled, e4m3(), context.backend)};
}

/// The figures of one scheme over the draws, as text and as values.
struct SchemeFigures {
  std::vector<double> underflow, overflow, snr;

  void add(const ReductionLoss& loss) {
    underflow.push_back(loss.underflow_percent);
    overflow.push_back(loss.overflow_percent);
    snr.push_back(loss.snr_db);
  }
  [[nodiscard]] std::string text() const {
    return fmt::format("underflow {}, overflow {}, SNR {} dB",
                       share_text(underflow, 1.0, kResolution),
                       share_text(overflow, 1.0, kResolution), interval_text(snr));
  }
};

/// Mean, least and largest of the draws: `name_8`, `name_min_8`, `name_max_8`.
void add_spread(const std::string& name, std::int64_t ranks, const char* unit,
                const std::vector<double>& draws, Measurement& m) {
  const Spread spread = spread_of(draws);
  m.values.push_back({fmt::format("{}_{}", name, ranks), unit, spread.mean});
  m.values.push_back({fmt::format("{}_min_{}", name, ranks), unit, spread.min});
  m.values.push_back({fmt::format("{}_max_{}", name, ranks), unit, spread.max});
}

constexpr int kDraws = 5;

Measurement measure_a1(const ClaimContext& context) {
  constexpr std::array<std::int64_t, 2> kRanks{8, 64};
  std::array<std::array<SchemeFigures, 3>, kRanks.size()> figures;
  SchemeVerdict all;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<SchemeLosses> losses;
    for (std::size_t i = 0; i < kRanks.size(); ++i) {
      losses.push_back(measure_schemes(context, kRanks[i], draw));
      figures[i][0].add(losses.back().pre);
      figures[i][1].add(losses.back().post);
      figures[i][2].add(losses.back().automatic);
    }
    const SchemeVerdict v = judge_draw(losses);
    all.pre_underflows = all.pre_underflows && v.pre_underflows;
    all.post_overflows = all.post_overflows && v.post_overflows;
    all.auto_underflows = all.auto_underflows || v.auto_underflows;
    all.auto_overflows = all.auto_overflows || v.auto_overflows;
  }
  constexpr std::array<const char*, 3> kNames{"pre", "post", "auto"};
  Measurement m;
  for (std::size_t i = 0; i < kRanks.size(); ++i) {
    m.figure += fmt::format("{}{} ranks:", i == 0 ? "" : "; ", kRanks[i]);
    for (std::size_t scheme = 0; scheme < kNames.size(); ++scheme) {
      const SchemeFigures& f = figures[i][scheme];
      m.figure += fmt::format(" {}{} {}", scheme == 0 ? "" : "| ", kNames[scheme], f.text());
      const std::string name = kNames[scheme];
      add_spread(name + "_underflow", kRanks[i], "%", f.underflow, m);
      add_spread(name + "_overflow", kRanks[i], "%", f.overflow, m);
      add_spread(name + "_snr", kRanks[i], "dB", f.snr, m);
    }
  }
  m.figure += fmt::format(" ({}, {} draws)", kIntervalMeaning, kDraws);
  m.values.push_back({"pre_underflows", "1", all.pre_underflows ? 1.0 : 0.0});
  m.values.push_back({"post_overflows", "1", all.post_overflows ? 1.0 : 0.0});
  m.values.push_back({"auto_underflows", "1", all.auto_underflows ? 1.0 : 0.0});
  m.values.push_back({"auto_overflows", "1", all.auto_overflows ? 1.0 : 0.0});
  return m;
}

Verdict judge_a1(Values values) {
  const auto is = [&](std::string_view name) { return value_of(values, name) != 0.0; };
  if (!is("pre_underflows") || !is("post_overflows")) return Verdict::does_not_hold;
  if (is("auto_underflows") && is("auto_overflows")) return Verdict::does_not_hold;
  return is("auto_underflows") || is("auto_overflows") ? Verdict::holds_with_correction
                                                       : Verdict::holds;
}

Measurement measure_a2(const ClaimContext& context) {
  const Gradients gradients({context.seed, "claims/gradients"}, {1 << 17, 3.0, 2.0}, 16);
  const auto [paper_mu, paper_share] = settle(gradients, kPaperRule, 8, e4m3(), context.backend);
  const auto [seed_mu, seed_share] = settle(gradients, listing_rule(), 8, e4m3(), context.backend);
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
  return m;
}

Verdict judge_a2(Values values) {
  const bool same = value_of(values, "paper_threshold") == value_of(values, "seed_threshold") ||
                    (value_of(values, "paper_mu") == value_of(values, "seed_mu") &&
                     value_of(values, "paper_saturated") == value_of(values, "seed_saturated"));
  return same ? Verdict::holds : Verdict::does_not_hold;
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
  return m;
}

Verdict judge_a3(Values values) {
  const bool ramps =
      value_of(values, "after_999") == 0.0 && std::abs(value_of(values, "after_1999") - 1.0) < 1e-3;
  if (!ramps) return Verdict::does_not_hold;
  return value_of(values, "after_20000") <= 1.0 ? Verdict::holds : Verdict::holds_with_correction;
}

Measurement measure_a4(const ClaimContext& context) {
  const std::vector<float> g = log_normal({context.seed, "claims/mu"}, 16384, 6.0);
  const Recipe recipe{.rule = ScaleRule::torchao};
  const QuantizedTensor plain = quantize(recipe, {g, 1, 16384}, false, 1, {}, context.backend);
  Measurement m;
  for (const double mu : {0x1p-10, 0.37, 3.0, 0x1p10}) {
    std::vector<float> scaled(g);
    for (float& value : scaled) value *= static_cast<float>(mu);
    const QuantizedTensor q = quantize(recipe, {scaled, 1, 16384}, false, 1, {}, context.backend);
    double different = 0.0;
    for (std::size_t i = 0; i < g.size(); ++i)
      different += q.codes[i] != plain.codes[i] ? 1.0 : 0.0;
    const double percent = 100.0 * different / static_cast<double>(g.size());
    m.values.push_back({fmt::format("codes_changed_mu_{:g}", mu), "%", percent});
    m.figure += fmt::format("{}mu = {:.4g}: {:.3g} % of the codes change",
                            m.figure.empty() ? "" : "; ", mu, percent);
  }
  return m;
}

Verdict judge_a4(Values values) {
  const auto changed = [](const MeasuredValue& v) { return v.value > 1.0; };
  return std::ranges::any_of(values, changed) ? Verdict::holds : Verdict::does_not_hold;
}

Measurement measure_a8(const ClaimContext&) {
  const double normal_octaves = std::log2(e4m3().min_normal());
  const double octaves = std::log2(e4m3().min_subnormal());
  Measurement m;
  m.figure = fmt::format("smallest normal 2^{}, smallest subnormal 2^{}", normal_octaves, octaves);
  m.values = {{"min_normal_log2", "octaves", normal_octaves},
              {"min_subnormal_log2", "octaves", octaves}};
  return m;
}

Verdict judge_a8(Values values) {
  const auto near = [](const MeasuredValue& v) { return std::abs(v.value + 14.0) <= 1.0; };
  return std::ranges::any_of(values, near) ? Verdict::holds : Verdict::does_not_hold;
}

}  // namespace

std::vector<Claim> auto_scaling_claims() {
  return {
      {"A1", kSummary,
       "pre-scaling underflows, post-scaling overflows, automatic scaling avoids both",
       "E4M3 ring all-reduce with a rounding at every hop, 8 and 64 ranks, 100 000 log-normal "
       "elements of 6 decades (a single element is the paper's threshold), 5 draws",
       "holds if in every draw pre-scaling loses 1.5 times the means that post-scaling does and "
       "post-scaling saturates, at 8 or 64 ranks, and automatic scaling does neither in any draw "
       "at either (0.1 % saturated allowed); with a correction if it does one of them",
       measure_a1, judge_a1},
      {"A2", kSummary, "mu is halved above a threshold of 0.001 = 0.1 %",
       "the threshold in FP8-LM's paper (section 2.1: 0.001 %), and the effect of both on the same "
       "131072 gradients of 16 ranks in 8 steps",
       "holds if the paper's threshold is 0.1 %, or mu and the saturated share are the same under "
       "both",
       measure_a2, judge_a2, Basis::by_reading},
      {"A3", kSummary, "mu grows by 2^(1/1000) per step after 1000 clean steps",
       "mu without any saturation",
       "holds if mu doubles over the 1000 steps after the first 1000 and then stops; with a "
       "correction if it continues",
       measure_a3, judge_a3},
      {"A4", kSummary, "gradients are multiplied by mu, then quantized with their amax scale",
       "16384 log-normal elements of 6 decades under mu from 2^-10 to 2^10",
       "holds as a scaling if some mu changes more than 1 % of the codes", measure_a4, judge_a4},
      {"A8", kSummary, "E4M3 ends at about 2^-14", "the format's smallest values",
       "holds if the smallest normal or subnormal is within a factor of 2", measure_a8, judge_a8,
       Basis::arithmetic},
  };
}

}  // namespace fp8lab::experiments

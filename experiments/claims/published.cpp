// P1 - P6: published figures that no CPU can measure. What can be checked is their arithmetic, what
// they imply, and what bounds them; where that decides nothing, the verdict says so.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "claims/groups.hpp"
#include "common/spread.hpp"
#include "fp8lab/core/random.hpp"
#include "training/model/cost.hpp"

namespace fp8lab::experiments {
namespace {

// An H100 SXM (NVIDIA's data sheet, without sparsity): FLOP/s in BF16 and FP8, bytes/s of memory.
constexpr double kBf16Peak = 989e12;
constexpr double kFp8Peak = 1979e12;
constexpr double kBandwidth = 3.35e12;

/// A row of the guide's table of training throughput.
struct Throughput {
  const char* model;
  double parameters;
  double gpus;
  double bf16;  ///< tokens a second
  double fp8;
  double printed;  ///< speedup
};
constexpr std::array<Throughput, 4> kThroughputs{
    {{"gpt_3_175b", 175e9, 256.0, 12000.0, 20400.0, 1.70},
     {"llama_2_70b", 70e9, 64.0, 8500.0, 14000.0, 1.65},
     {"llama_7b", 6.7e9, 8.0, 45000.0, 76000.0, 1.69},
     {"mistral_7b", 7.2e9, 8.0, 48000.0, 80000.0, 1.67}}};

Verdict judge_p1(Values values) {
  bool ratios = true;
  bool plausible = true;
  for (const Throughput& row : kThroughputs) {
    const std::string model = row.model;
    ratios = ratios && value_of(values, "off_" + model) <= 0.01;
    plausible = plausible && value_of(values, "utilization_" + model) >= 20.0;
  }
  if (!ratios) return Verdict::does_not_hold;
  return plausible ? Verdict::holds : Verdict::holds_with_correction;
}

Measurement measure_p1(const ClaimContext&) {
  Measurement m;
  for (const Throughput& row : kThroughputs) {
    const double ratio = row.fp8 / row.bf16;
    const double utilization = 100.0 * 6.0 * row.parameters * row.bf16 / row.gpus / kBf16Peak;
    m.figure +=
        fmt::format("{}{}: {:.3f} (printed {:.2f}), BF16 at {:.1f} % of peak",
                    m.figure.empty() ? "" : "; ", row.model, ratio, row.printed, utilization);
    m.values.push_back({fmt::format("off_{}", row.model), "1", std::abs(ratio - row.printed)});
    m.values.push_back({fmt::format("utilization_{}", row.model), "%", utilization});
  }
  m.figure += "; no throughput is measured here";
  return m;
}

/// The share of a step's time that must run twice as fast to make it `speedup` times as fast.
double needed_share(double speedup) { return 2.0 * (1.0 - 1.0 / speedup); }

/// A bound that allows a figure does not prove it.
Verdict judge_needed_share(Values values) {
  return value_of(values, "needed_share") > 1.0 ? Verdict::does_not_hold : Verdict::cannot_tell;
}

Measurement measure_p2(const ClaimContext&) {
  constexpr double kHours = 2.788e6;
  constexpr double kPretrainingHours = 2.664e6;
  constexpr double kFlops = 6.0 * 37e9 * 14.8e12;
  const double rate = kFlops / (kPretrainingHours * 3600.0);
  const double share = needed_share(1.0 / (1.0 - 0.40));
  Measurement m;
  m.figure = fmt::format(
      "{:.3g} GPU hours at 2 dollars are {:.3f} million; 6 x 37e9 x 14.8e12 FLOP in the {:.3g} "
      "hours of "
      "pre-training are {:.0f} TFLOP/s a GPU, {:.0f} % of its BF16 peak. 40 % less than BF16 needs "
      "{:.0f} % "
      "of BF16's time in products that run twice as fast; no BF16 run of this model is published",
      kHours, 2.0 * kHours / 1e6, kPretrainingHours, rate / 1e12, 100.0 * rate / kBf16Peak,
      100.0 * share);
  m.values = {{"cost", "1e6 dollars", 2.0 * kHours / 1e6},
              {"rate", "TFLOP/s", rate / 1e12},
              {"needed_share", "1", share}};
  return m;
}

Measurement measure_p3(const ClaimContext&) {
  const double share = needed_share(1.27);
  Measurement m;
  m.figure = fmt::format(
      "27 % faster needs {:.0f} % of BF16's time in products that run twice as fast; not timed "
      "here",
      100.0 * share);
  m.values = {{"needed_share", "1", share}};
  return m;
}

Verdict judge_p4(Values values) {
  const bool optimizer = std::abs(value_of(values, "optimizer_saved") - 62.0) <= 2.0;
  const bool weights = std::abs(value_of(values, "weights_saved") - 32.0) <= 2.0;
  if (optimizer && weights) return Verdict::holds;
  return optimizer || weights ? Verdict::holds_with_correction : Verdict::does_not_hold;
}

Measurement measure_p4(const ClaimContext&) {
  const ParameterBytes before = parameter_bytes(find_training_scheme("bf16"));
  const ParameterBytes after = parameter_bytes(find_training_scheme("fp8-lm"));
  const auto saved = [](double now, double then) { return 100.0 * (1.0 - now / then); };
  const double optimizer = saved(after.optimizer(), before.optimizer());
  const double weights = saved(after.weight, before.weight);
  Measurement m;
  m.figure = fmt::format(
      "bytes per parameter of a block's GEMM: master, gradient and moments {:g} to {:g}, {:.1f} % "
      "less; weights {:g} to {:g}, {:.1f} % less. 32 % of all weights would leave {:.0f} % of them "
      "in BF16",
      before.optimizer(), after.optimizer(), optimizer, before.weight, after.weight, weights,
      100.0 * (1.0 - 32.0 / weights));
  m.values = {{"optimizer_saved", "%", optimizer}, {"weights_saved", "%", weights}};
  return m;
}

Verdict judge_p5(Values values) {
  const double rms = value_of(values, "rms");
  if (std::abs(rms / 32.0 - 1.0) <= 0.25) return Verdict::holds;
  return rms >= 16.0 ? Verdict::holds_with_correction : Verdict::does_not_hold;
}

/// Nearest even on 14 significant bits; the default rounding is that.
double to_14_bits(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(x, 14 - exponent)), exponent - 14);
}

Measurement measure_p5(const ClaimContext& context) {
  constexpr std::uint64_t kTerms = 1024;
  constexpr std::uint64_t kSums = 512;
  const RandomStream random(context.seed, "claims/ulps");
  std::vector<double> squares;
  for (std::uint64_t sum = 0; sum < kSums; ++sum) {
    double rounded = 0.0;
    double exact = 0.0;
    for (std::uint64_t k = 0; k < kTerms; ++k) {
      const double term = to_14_bits(random.uniform(sum * kTerms + k));
      rounded = to_14_bits(rounded + term);
      exact += term;
    }
    int exponent = 0;
    std::frexp(exact, &exponent);
    const double ulps = (rounded - exact) / std::ldexp(1.0, exponent - 14);
    squares.push_back(ulps * ulps);
  }
  const double rms = std::sqrt(spread_of(squares).mean);
  Measurement m;
  m.figure = fmt::format(
      "{} sums of {} terms of U[0, 1), every partial sum rounded to nearest even on 14 bits: "
      "{:.2f} "
      "ulps of the result in the root mean square; the square root of {} is {:.0f}, but a rounding "
      "is "
      "0.29 ulps in the mean and early ones are of smaller ulps",
      kSums, kTerms, rms, kTerms, std::sqrt(static_cast<double>(kTerms)));
  m.values = {{"rms", "ulps", rms}};
  return m;
}

Verdict judge_p6(Values values) {
  const double wide = value_of(values, "tax_12288");
  const double narrow = value_of(values, "tax_4096");
  if (wide < 4.0 || narrow > 16.0) return Verdict::does_not_hold;
  return Verdict::holds_with_correction;
}

Measurement measure_p6(const ClaimContext&) {
  Measurement m;
  for (const double n : {2048.0, 4096.0, 12288.0}) {
    // One more read of X [m, k] in BF16 beside a product of 2 m n k operations in FP8.
    const double tax = 100.0 * (2.0 / kBandwidth) / (2.0 * n / kFp8Peak);
    m.figure += fmt::format("{}{:.1f} % for {:g} outputs", m.figure.empty() ? "" : ", ", tax, n);
    m.values.push_back({fmt::format("tax_{:g}", n), "%", tax});
  }
  m.figure = "reading X once more at 3.35 TB/s, compared with its FP8 product at 1979 TFLOP/s: " +
             m.figure + "; from peak rates, not timed";
  return m;
}

}  // namespace

std::vector<Claim> published_claims() {
  return {
      {"P1", kGuide, "TransformerEngine trains 1.65 to 1.70 times as fast in FP8 (four rows)",
       "arithmetic on the table: speedup against tokens per second, and the share of an H100's "
       "peak that its BF16 column implies at 6 operations per parameter and token",
       "holds if each printed speedup is its ratio to 0.01 and BF16 reaches 20 % of peak in each "
       "row; with "
       "a correction if only the ratios hold",
       measure_p1, judge_p1, Basis::by_reading},
      {"P2", kGuide, "DeepSeek-V3: 2.788 million GPU hours, 40 % cheaper than in BF16",
       "arithmetic; the 2.664 million hours of pre-training are the report's",
       "does not hold if more than all of BF16's time would have to run twice as fast; else cannot "
       "tell, since a bound that allows a figure does not prove it (it never holds)",
       measure_p2, judge_needed_share, Basis::by_reading},
      {"P3", kSummary, "instruction tuning in FP8 is 27 % faster",
       "arithmetic: the share of time that must run twice as fast",
       "does not hold if that is more than all; else cannot tell (it never holds)", measure_p3,
       judge_needed_share, Basis::by_reading},
      {"P4", kSummary, "RLHF in FP8: 32 % less weight memory, 62 % less optimizer memory",
       "bytes per parameter of a GEMM from buffers, counted as in A7",
       "holds if both are reproduced within 2 points; with a correction if one is", measure_p4,
       judge_p4, Basis::arithmetic},
      {"P5", kTutorial,
       "after K = 1024 even unbiased rounding to 14 bits has an RMS error of some 32 ulps",
       "512 sums of 1024 uniform terms, every partial sum rounded to nearest even on 14 bits",
       "holds if the root mean square is within 25 % of 32 ulps of the result; with a correction "
       "if it "
       "is at least 16",
       measure_p5, judge_p5},
      {"P6", kTutorial, "a separate kernel for amax costs 5 to 15 % of throughput",
       "bytes and operations at an H100's published rates",
       "with a correction (by count, for which widths; it never holds without a timing) if 4096 to "
       "12288 outputs give 4 to 16 %; else does not hold",
       measure_p6, judge_p6, Basis::by_reading},
  };
}

}  // namespace fp8lab::experiments

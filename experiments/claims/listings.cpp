// L1 - L8: the listings, the walk-through and the arithmetic of the naive-FP8 tutorial.

#include <fmt/format.h>

#include <cmath>

#include "claims/formats.hpp"
#include "claims/groups.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "seed-listings/numpy_listing.hpp"
#include "seed-listings/repeats.hpp"
#include "walkthrough/walkthrough.hpp"

namespace fp8lab::experiments {
namespace {

/// Holds only if the figure that the claim prints is met; no correction makes it true.
Verdict plain(bool met) { return met ? Verdict::holds : Verdict::does_not_hold; }

Measurement measure_l1(const ClaimContext&) {
  const std::vector<double> grid = listing_grid();
  int normals = 0;
  int subnormals = 0;
  for (std::uint32_t code = 1; code <= e4m3().max_finite_code(); ++code)
    ++(unpack(e4m3(), code).value_class == ValueClass::normal ? normals : subnormals);
  Measurement m;
  m.figure = fmt::format(
      "the listing's grid has {} values and ends at {}; E4M3 has {} positive normals up to {} and "
      "{} positive subnormals",
      grid.size(), grid.back(), normals, e4m3().max_finite(), subnormals);
  m.values = {{"listing_grid_size", "1", static_cast<double>(grid.size())},
              {"listing_grid_max", "1", grid.back()},
              {"e4m3_positive_normals", "1", static_cast<double>(normals)},
              {"e4m3_positive_subnormals", "1", static_cast<double>(subnormals)}};
  return m;
}

Verdict judge_l1(Values values) {
  return plain(value_of(values, "listing_grid_size") == 112.0 &&
               value_of(values, "listing_grid_max") == 448.0 &&
               value_of(values, "e4m3_positive_normals") == 112.0);
}

Measurement measure_l2(const ClaimContext&) {
  const double written = listing_to_e4m3(250.0);
  const double correct = round_trip(e4m3(), kNvidiaSatfinite, 250.0F);
  Measurement m;
  m.figure = fmt::format("the listing returns {}, E4M3 rounds 250 to {}", written, correct);
  m.values = {{"listing", "1", written}, {"e4m3", "1", correct}};
  return m;
}

Verdict judge_l2(Values values) {
  if (value_of(values, "listing") == 256.0) return Verdict::holds;
  return value_of(values, "e4m3") == 256.0 ? Verdict::holds_with_correction
                                           : Verdict::does_not_hold;
}

/// Whether `value` prints as `printed` does to `decimals` places.
bool prints_as(double value, double printed, int decimals) {
  return fmt::format("{:.{}f}", value, decimals) == fmt::format("{:.{}f}", printed, decimals);
}

Measurement measure_l3(const ClaimContext&) {
  const ListingCasts w = cast_as_written(numpy_draws());
  const ListingCasts c = cast_corrected(numpy_draws());
  Measurement m;
  m.figure = fmt::format(
      "as written: crushed {}/128 and {}/128, rel_err {:.3f} and {:.3f}; corrected: crushed {} and "
      "{}, rel_err {:.4f} and {:.4f}; smallest result of the listing for a non-zero input: {}",
      w.per_tensor.crushed, w.per_tile.crushed, w.per_tensor.relative_l2, w.per_tile.relative_l2,
      c.per_tensor.crushed, c.per_tile.crushed, c.per_tensor.relative_l2, c.per_tile.relative_l2,
      listing_to_e4m3(1e-30));
  const auto add = [&](const std::string& prefix, const ListingCasts& casts) {
    m.values.insert(
        m.values.end(),
        {{prefix + "crushed_per_tensor", "1", static_cast<double>(casts.per_tensor.crushed)},
         {prefix + "crushed_per_tile", "1", static_cast<double>(casts.per_tile.crushed)},
         {prefix + "relative_l2_per_tensor", "1", casts.per_tensor.relative_l2},
         {prefix + "relative_l2_per_tile", "1", casts.per_tile.relative_l2}});
  };
  add("", w);
  add("corrected_", c);
  return m;
}

Verdict judge_l3(Values values) {
  const auto met = [&](const std::string& prefix) {
    return value_of(values, prefix + "crushed_per_tensor") == 3.0 &&
           value_of(values, prefix + "crushed_per_tile") == 0.0 &&
           prints_as(value_of(values, prefix + "relative_l2_per_tensor"), 0.043, 3) &&
           prints_as(value_of(values, prefix + "relative_l2_per_tile"), 0.011, 3);
  };
  if (met("")) return Verdict::holds;
  return met("corrected_") ? Verdict::holds_with_correction : Verdict::does_not_hold;
}

Measurement measure_l4(const ClaimContext& context) {
  constexpr std::int64_t kRepeats = 400;
  const ListingDot w = dot_as_written(numpy_draws());
  const ListingDot c = dot_corrected(numpy_draws());
  const DotRepeats repeats = repeat_dots(context.seed, kRepeats, context.threads);
  const double nearer = share_promoted_nearer(repeats.as_written);
  Measurement m;
  m.figure = fmt::format(
      "as written: {:.2f} % without promotion, {:.2f} % with, of which {:+.2f} % is the "
      "quantization of inputs; corrected {:.2f} % and {:.2f} %; promotion is nearer in {:.0f} % of "
      "{} draws as written",
      w.naive_percent_off(), w.promoted_percent_off(), 100.0 * w.input_error / std::abs(w.exact),
      c.naive_percent_off(), c.promoted_percent_off(), 100.0 * nearer, kRepeats);
  m.values = {{"naive_off", "%", w.naive_percent_off()},
              {"promoted_off", "%", w.promoted_percent_off()},
              {"corrected_naive_off", "%", c.naive_percent_off()},
              {"corrected_promoted_off", "%", c.promoted_percent_off()},
              {"share_promoted_nearer", "1", nearer}};
  return m;
}

Verdict judge_l4(Values values) {
  const double naive = value_of(values, "naive_off");
  const double promoted = value_of(values, "promoted_off");
  if (prints_as(naive, 2.70, 2) && prints_as(promoted, 0.06, 2)) return Verdict::holds;
  return naive > 10.0 * promoted && value_of(values, "share_promoted_nearer") > 0.9
             ? Verdict::holds_with_correction
             : Verdict::does_not_hold;
}

Measurement measure_l5(const ClaimContext& context) {
  constexpr std::int64_t kRepeats = 20;
  const std::vector<TorchListing> runs =
      repeat_torch(context.seed, kRepeats, 200.0F, context.threads);
  const auto quantiles = [&](auto figure) {
    std::vector<double> values;
    values.reserve(runs.size());
    for (const TorchListing& run : runs) values.push_back(figure(run));
    return quantiles_of(std::move(values));
  };
  const Quantiles tile = quantiles([](const TorchListing& t) { return t.per_tile; });
  const Quantiles tensor = quantiles([](const TorchListing& t) { return t.per_tensor; });
  const Quantiles ratio = quantiles([](const TorchListing& t) { return t.ratio(); });
  Measurement m;
  m.figure = fmt::format(
      "median (5th to 95th percentile) of {} draws: per tile {:.2f} % ({:.2f} to {:.2f}), per "
      "tensor {:.2f} % ({:.2f} to {:.2f}), ratio {:.2f} ({:.2f} to {:.2f})",
      kRepeats, 100.0 * tile.median, 100.0 * tile.low, 100.0 * tile.high, 100.0 * tensor.median,
      100.0 * tensor.low, 100.0 * tensor.high, ratio.median, ratio.low, ratio.high);
  m.values = {{"per_tile", "1", tile.median},
              {"per_tensor", "1", tensor.median},
              {"ratio", "1", ratio.median}};
  return m;
}

Verdict judge_l5(Values values) {
  const double ratio = value_of(values, "ratio");
  if (ratio < 30.0 || ratio > 50.0) return Verdict::does_not_hold;
  return std::abs(value_of(values, "per_tensor") / 0.2 - 1.0) < 0.25
             ? Verdict::holds
             : Verdict::holds_with_correction;
}

const WalkthroughRow& element(const std::vector<WalkthroughRow>& rows, int index) {
  for (const WalkthroughRow& row : rows)
    if (row.outlier > 1000.0 && row.scaling == "per tensor" && row.index == index) return row;
  throw Error("index", "an element of the walk-through", fmt::format("{}", index));
}

Measurement measure_l6(const ClaimContext& context) {
  const std::vector<WalkthroughRow> rows = walkthrough_rows(context.backend);
  int printed = 0;
  int agree_flushed = 0;
  int agree_preserved = 0;
  for (const WalkthroughRow& row : rows) {
    if (!row.text.quantized) continue;
    ++printed;
    agree_flushed += agrees(row.flushed.quantized, *row.text.quantized, 4) ? 1 : 0;
    agree_preserved += agrees(row.preserved.quantized, *row.text.quantized, 4) ? 1 : 0;
  }
  const WalkthroughRow& deleted = element(rows, 3);
  const WalkthroughRow& other = element(rows, 1);
  Measurement m;
  m.figure = fmt::format(
      "{:.4f} becomes {:.5f} ({} if flushed), {:.4f} becomes {:.5f} ({} if flushed, since it too "
      "is "
      "below 2^-6); of {} printed casts {} agree with subnormals, {} with them flushed",
      std::abs(deleted.scaled), std::abs(deleted.preserved.quantized),
      std::abs(deleted.flushed.quantized), std::abs(other.scaled),
      std::abs(other.preserved.quantized), std::abs(other.flushed.quantized), printed,
      agree_preserved, agree_flushed);
  m.values = {{"value_0.0051", "1", std::abs(deleted.preserved.quantized)},
              {"value_0.0051_flushed", "1", std::abs(deleted.flushed.quantized)},
              {"value_0.0102", "1", std::abs(other.preserved.quantized)},
              {"value_0.0102_flushed", "1", std::abs(other.flushed.quantized)},
              {"printed_casts", "1", static_cast<double>(printed)},
              {"agree_preserved", "1", static_cast<double>(agree_preserved)},
              {"agree_flushed", "1", static_cast<double>(agree_flushed)}};
  return m;
}

Verdict judge_l6(Values values) {
  const double printed = value_of(values, "printed_casts");
  if (value_of(values, "agree_preserved") == printed) return Verdict::holds;
  return value_of(values, "agree_flushed") == printed ? Verdict::holds_with_correction
                                                      : Verdict::does_not_hold;
}

Measurement measure_l7(const ClaimContext&) {
  constexpr double kElements = 128.0;
  const double fp32_on_fp8 = 4.0 / kElements;
  const double fp32_on_bf16 = 4.0 / (2.0 * kElements);
  const double e8m0_on_fp8 = 1.0 / kElements;
  Measurement m;
  m.figure = fmt::format(
      "one FP32 scale for 128 elements: {:.3g} % of FP8 elements, {:.3g} % of BF16 ones; an E8M0 "
      "scale: {:.2g} %",
      100.0 * fp32_on_fp8, 100.0 * fp32_on_bf16, 100.0 * e8m0_on_fp8);
  m.values = {{"fp32_scale_fp8_elements", "1", fp32_on_fp8},
              {"fp32_scale_bf16_elements", "1", fp32_on_bf16},
              {"e8m0_scale_fp8_elements", "1", e8m0_on_fp8}};
  return m;
}

Verdict judge_l7(Values values) {
  const auto met = [&](std::string_view name) {
    const double share = value_of(values, name);
    return share >= 0.00045 && share < 0.00055;
  };
  if (met("fp32_scale_fp8_elements")) return Verdict::holds;
  return met("fp32_scale_bf16_elements") || met("e8m0_scale_fp8_elements")
             ? Verdict::holds_with_correction
             : Verdict::does_not_hold;
}

Measurement measure_l8(const ClaimContext&) {
  // DeepSeek-V3, section 4.2: 14.8e12 tokens, at most 15360 sequences of 4096 a step.
  constexpr double kTokens = 14.8e12;
  constexpr double kTokensPerStep = 15360.0 * 4096.0;
  const double reductions = 61.0 * 4.0 * 16000.0;
  const double steps = kTokens / kTokensPerStep;
  Measurement m;
  m.figure = fmt::format(
      "61 * 4 * 16000 = {:.3g}; but {:.3g} tokens in batches of at most {:.3g} take at least "
      "{:.0f} steps",
      reductions, kTokens, kTokensPerStep, steps);
  m.values = {{"reductions", "1", reductions}, {"least_steps", "steps", steps}};
  return m;
}

Verdict judge_l8(Values values) {
  if (std::abs(value_of(values, "reductions") / 4e6 - 1.0) >= 0.05) return Verdict::does_not_hold;
  return std::abs(value_of(values, "least_steps") / 16000.0 - 1.0) < 0.25
             ? Verdict::holds
             : Verdict::holds_with_correction;
}

}  // namespace

std::vector<Claim> listing_claims() {
  return {
      {"L1", kTutorial, "The listing's E4M3 grid has 112 positive normals, the last 384, 416, 448.",
       "the listing's enumeration, and every positive E4M3 code",
       "holds if the grid has 112 values, ends at 448, and E4M3 has 112 positive normals",
       measure_l1, judge_l1},
      {"L2", kTutorial, "The listing's to_e4m3(250) is 256.",
       "the listing transcribed, and E4M3 (nearest even, saturating)",
       "holds if the listing returns 256; with a correction if only E4M3 does", measure_l2,
       judge_l2},
      {"L3", kTutorial,
       "The NumPy listing prints crushed = 3/128 and rel_err 0.043 per tensor, 0 and 0.011 per "
       "tile.",
       "the listing transcribed, on the stored draws of numpy.random.default_rng(0)",
       "holds if it prints these figures; with a correction if it does with E4M3 in its place",
       measure_l3, judge_l3},
      {"L4", kTutorial,
       "The NumPy listing's sum has an error of 2.70 %, and of 0.06 % with promotion.",
       "as L3; K = 1024, N(0,1); and 400 draws of our own",
       "holds if it prints these figures; with a correction if promotion still lowers the error "
       "over 10 times and in over 90 % of the draws",
       measure_l4, judge_l4},
      {"L5", kTutorial,
       "The PyTorch listing gives a relative error of 0.6 % per tile and 20 % per tensor, 30 to 50 "
       "times as much.",
       "BF16 N(0, 0.3^2) [64, 1024] with one outlier of 200, tiles 1x128, 20 other draws (not "
       "torch.randn's bits); relative L2 error of the whole tensor",
       "holds if the median ratio is 30 to 50 and the per-tensor error within 25 % of 20 %; with a "
       "correction if only the ratio is",
       measure_l5, judge_l5},
      {"L6", kTutorial,
       "In the five-value walk-through 0.0051 becomes 0 and 0.0102 becomes 0.0176.",
       "outliers 220 and 4400, per tensor and in tiles of 3, E4M3 with subnormals and flushed; "
       "agreement to one unit of the fourth decimal",
       "holds if every printed cast agrees with subnormals; with a correction if every one agrees "
       "with them flushed",
       measure_l6, judge_l6},
      {"L7", kTutorial, "One scale for 128 values costs about 0.05 % of the activation memory.",
       "bytes of a scale over bytes of 128 elements",
       "holds if an FP32 scale on FP8 elements rounds to 0.05 %; with a correction if on BF16 "
       "elements or as E8M0",
       measure_l7, judge_l7, Basis::arithmetic},
      {"L8", kTutorial, "61 layers * 4 * 16 000 steps are about 4e6 biased reductions.",
       "the product, and DeepSeek-V3's tokens over its largest batch (its report, section 4.2)",
       "holds if the product is within 5 % of 4e6 and the steps within 25 % of 16 000; with a "
       "correction if the product only",
       measure_l8, judge_l8, Basis::arithmetic},
  };
}

}  // namespace fp8lab::experiments

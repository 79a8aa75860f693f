#include "fp8lab/verify/product_causes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/term_variants.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/attempt.hpp"
#include "fp8lab/verify/cast_causes.hpp"
#include "fp8lab/verify/code_mistakes.hpp"
#include "fp8lab/verify/k_blocks.hpp"
#include "fp8lab/verify/kernel_causes.hpp"
#include "fp8lab/verify/measured_epilogue.hpp"
#include "fp8lab/verify/measured_view.hpp"
#include "fp8lab/verify/scale_mistakes.hpp"
#include "fp8lab/verify/stand_in.hpp"

namespace fp8lab {
namespace {

constexpr double kProbeShare = 0.25;  // of their mismatches that it must explain to be computed

/// Puts every mistake that a product can have before a judge. Each is computed on a few elements
/// first, and on the sample if it explains some of their mismatches.
class ProductHypotheses {
 public:
  ProductHypotheses(const Product& product, const Sample& sample, const Product& sampled,
                    Judge& judge, int threads)
      : product_(product),
        sample_(sample),
        sampled_(sampled),
        judge_(judge),
        threads_(threads),
        probe_(judge.probe(sampled.rows(), sampled.columns())),
        probed_(take(sampled, probe_)) {
    for (const std::int64_t row : probe_.rows)
      probe_of_whole_.rows.push_back(sample.rows[static_cast<std::size_t>(row)]);
    for (const std::int64_t column : probe_.columns)
      probe_of_whole_.columns.push_back(sample.columns[static_cast<std::size_t>(column)]);
  }

  void run(std::span<const float> golden) {
    std::vector<CastMistake> mistakes =
        cast_mistakes(product_.output.format, product_.output.policy);
    std::ranges::move(rarer_cast_mistakes(product_.output.format, product_.output.policy),
                      std::back_inserter(mistakes));
    for (const CastMistake& mistake : mistakes)
      if (!mistake.of_result) cast(golden, mistake);
    scales();
    places_of_c();
    formats();
    operands();
    pointers();
    unmasked_tails();
    promotions();
    rounded_sums();
    accumulators();
    for (const int parts : {2, 4, 8, 16})
      add(fmt::format("split_k_{}", parts),
          fmt::format("K split in {} parts, summed in FP32 in order", parts),
          [=](const Product& p) { return compute_split_k(p, parts); });
    for (const KernelMistake& mistake : kernel_mistakes(sampled_))
      add(mistake.name, mistake.text, mistake.output);
    exchanged_scales_of_lines();
    blocks_of_k(golden);
    for (const CastMistake& mistake : mistakes)
      if (mistake.of_result) cast(golden, mistake);
    clamped(golden);  // a limit of 0 is relu, which has a name
    if (judge_.any_cause()) return;
    for (const KernelMistake& mistake : kernel_mistakes(sampled_)) nearly(mistake, golden);
    tables_of_codes();
  }

  /// A mistake that was measured. Tables of codes are judged by FP64 sums.
  void measured(const MeasuredMistake& mistake) {
    const auto wrong = [&](const Sample& sample) {
      return attempt([&] { return mistake.take(sample); });
    };
    if (mistake.added) {
      in_fp64(
          mistake.name, mistake.text, probed_, [&] { return sampled_; }, {}, {}, mistake.error,
          &mistake);
    } else if (!mistake.take) {
      in_fp64(
          mistake.name, mistake.text, probed_, [&] { return sampled_; }, mistake.a, mistake.b);
    } else if (!mistake.rough) {
      taken_or_in_fp64(mistake.name, mistake.text, wrong);
    } else if (const std::optional<Product> few = wrong(probe_of_whole_)) {
      in_fp64(
          mistake.name, mistake.text, *few, [&] { return *wrong(sample_); }, {}, {}, mistake.error);
    }
  }

  /// One factor for all outputs, measured: the scale of a whole tensor, or alpha, is another
  /// number.
  void factor(std::span<const float> golden) {
    constexpr std::size_t kFewest = 16;  // mismatches that one factor must explain
    std::vector<double> ratios;
    for (std::size_t i = 0; i < golden.size(); ++i) {
      const double ratio = judge_.got_value(i) / static_cast<double>(golden[i]);
      if (!judge_.is_right(i) && std::isfinite(ratio)) ratios.push_back(ratio);
    }
    if (ratios.size() < kFewest) return;
    const auto middle = ratios.begin() + std::ssize(ratios) / 2;
    std::nth_element(ratios.begin(), middle, ratios.end());
    const Format& f = format(product_.output.format);
    const double ratio = known_factor(*middle, std::ldexp(1.0, -std::min(f.mantissa_bits, 20) - 1));
    if (ratio == 0.0) return;
    std::vector<double> values;
    std::vector<double> tolerances;
    for (const float x : golden) {
      values.push_back(ratio * static_cast<double>(x));
      tolerances.push_back(std::max(
          std::ldexp(std::abs(values.back()), -std::min(f.mantissa_bits, 21)), f.min_subnormal()));
    }
    const GemmProblem& p = product_.problem;
    const bool levels = p.scale_a.tensor_scale != 1.0F || p.scale_b.tensor_scale != 1.0F;
    judge_.consider_in_fp64(
        levels ? "other_tensor_scale" : "other_factor",
        fmt::format("{} is {:.6g} times the right one",
                    levels ? "a tensor scale" : "a scale of the whole sum, or alpha,", ratio),
        values, tolerances);
  }

 private:
  /// A quotient of largest finite values, or a number of few bits, where one is near.
  static double known_factor(double x, double near_it) {
    for (const double known : {448.0 / 240.0, 240.0 / 448.0, 448.0 / 57344.0, 57344.0 / 448.0})
      if (std::abs(x - known) <= near_it * std::abs(x)) return known;
    if (x == 0.0) return x;
    return of_few_bits(x, 0, 4,
                       [&](double at) { return std::abs(at - x) <= 0.25 * near_it * std::abs(x); });
  }

  using Result = std::optional<std::vector<float>>;

  /// `output` gives the wrong result of the elements of a product, or nothing.
  void add(const std::string& name, const std::string& text,
           const std::function<Result(const Product&)>& output) {
    const Result few = attempt([&] { return output(probed_); });
    if (!few) return;
    if (!plausible(*few)) return judge_.dismiss();
    if (const Result all = attempt([&] { return output(sampled_); })) consider(name, text, *all);
  }
  /// A mistake in an FP32 output, whose last bits are those of another order of operations.
  void nearly(const KernelMistake& mistake, std::span<const float> golden) {
    if (product_.output.format != FormatId::f32) return;
    const auto tolerance = [&](float value, std::size_t place) {
      return 0x1p-20 *
             (std::abs(static_cast<double>(value)) + std::abs(static_cast<double>(golden[place])));
    };
    const Result few = attempt([&] { return mistake.output(probed_); });
    if (!few || !explains_enough([&](std::size_t place, std::size_t at) {
          return judge_.evidence(place, static_cast<double>((*few)[at]),
                                 tolerance((*few)[at], place));
        }))
      return;
    const Result all = attempt([&] { return mistake.output(sampled_); });
    if (!all) return;
    const std::vector<double> values(all->begin(), all->end());
    std::vector<double> tolerances;
    for (std::size_t i = 0; i < values.size(); ++i) tolerances.push_back(tolerance((*all)[i], i));
    judge_.consider_in_fp64(mistake.name, mistake.text + " (but for the last bits)", values,
                            tolerances);
  }
  /// A product that went wrong, of these elements or of whichever are asked for.
  void add(const std::string& name, const std::string& text, const Product& wrong) {
    const Result few = attempt([&] { return compute(take(wrong, probe_), threads_); });
    if (!few) return;
    if (!plausible(*few)) return judge_.dismiss();
    if (const Result all = attempt([&] { return compute(wrong, threads_); }))
      consider(name, text, *all);
  }
  /// `wrong` gives the wrong product of a sample of the whole one, or nothing.
  void taken(const std::string& name, const std::string& text,
             const std::function<std::optional<Product>(const Sample&)>& wrong) {
    const Result few = attempt([&]() -> Result {
      const std::optional<Product> product = wrong(probe_of_whole_);
      return product ? Result(compute(*product, threads_)) : std::nullopt;
    });
    if (!few) return;
    if (!plausible(*few)) return judge_.dismiss();
    if (const Result all = attempt([&] { return compute(*wrong(sample_), threads_); }))
      consider(name, text, *all);
  }
  void whole(const std::string& name, const std::string& text,
             const std::optional<Product>& wrong) {
    if (wrong) taken(name, text, [&](const Sample& sample) { return take(*wrong, sample); });
  }

  [[nodiscard]] std::vector<std::uint32_t> codes_of(const std::vector<float>& output) const {
    return code_words(product_.output.format, cast_output(output, product_.output, threads_));
  }
  /// Whether it is a cause.
  bool consider(const std::string& name, const std::string& text,
                const std::vector<float>& output) {
    return judge_.consider(name, text, codes_of(output));
  }
  /// Whether it explains enough of the mismatches that were looked at first.
  [[nodiscard]] bool plausible(const std::vector<float>& few) const {
    const std::vector<std::uint32_t> codes = codes_of(few);
    return explains_enough([&](std::size_t place, std::size_t at) {
      return judge_.explains(place, codes[at]) ? Judge::Evidence::explains
                                               : Judge::Evidence::denies;
    });
  }
  /// `evidence(place, at)`: what it says of the mismatch at a place, element `at` of the probe.
  template <typename EvidenceAt>
  [[nodiscard]] bool explains_enough(const EvidenceAt& evidence) const {
    std::size_t mismatches = 0;
    std::size_t explained = 0;
    std::size_t at = 0;
    for (const std::int64_t row : probe_.rows)
      for (const std::int64_t column : probe_.columns) {
        const auto place = static_cast<std::size_t>(row * sampled_.columns() + column);
        const std::size_t element = at++;
        if (judge_.is_right(place)) continue;
        const Judge::Evidence found = evidence(place, element);
        mismatches += found == Judge::Evidence::undecided ? 0 : 1;
        explained += found == Judge::Evidence::explains ? 1 : 0;
      }
    return explained > 0 &&
           static_cast<double>(explained) >= kProbeShare * static_cast<double>(mismatches);
  }

  void cast(std::span<const float> golden, const CastMistake& mistake) {
    std::vector<std::uint32_t> codes(golden.size());
    std::transform(golden.begin(), golden.end(), codes.begin(), mistake.code);
    judge_.consider(mistake.name, mistake.text, codes);
  }
  void exchanged_scales_of_lines() {
    const Epilogue& e = product_.epilogue;
    if (e.row_scales.empty() || e.row_scales.size() != e.column_scales.size()) return;
    Product other = product_;
    std::swap(other.epilogue.row_scales, other.epilogue.column_scales);
    whole("exchanged_row_and_column_scales", "the scales of rows on columns, and the reverse",
          other);
  }
  void clamped(std::span<const float> golden) {
    std::vector<std::uint32_t> got(golden.size());
    for (std::size_t i = 0; i < got.size(); ++i) got[i] = judge_.got(i);
    if (const auto mistake =
            clamp_mistake(product_.output.format, product_.output.policy, golden, got))
      cast(golden, *mistake);
  }

  void scales() {
    if (product_.problem.scale_a.empty() && product_.problem.scale_b.empty()) return;
    const std::vector<ScaleMistake> mistakes = scale_mistakes(product_);
    for (const auto& [side, letter, text] :
         {std::tuple{Side::a, "a", "A's scale"}, std::tuple{Side::b, "b", "B's scale"},
          std::tuple{Side::both, "a_and_b", "both scales"}})
      for (const ScaleMistake& mistake : mistakes)
        taken_or_in_fp64(fmt::format(fmt::runtime(mistake.name), letter),
                         fmt::format(fmt::runtime(mistake.text), text),
                         [&, side = side](const Sample& sample) {
                           return mistake.take(product_, sample, side);
                         });
    whole("swapped_scales", "A's scales on B and B's on A", with_swapped_scales(product_));
    for (const ScaleOrder order : scale_orders()) {
      if (order == product_.problem.scale_order || product_.problem.scale_a.empty()) continue;
      Product other = sampled_;
      other.problem.scale_order = order;
      add(fmt::format("scale_order_{}", to_string(order)),
          fmt::format("scales applied in the order {}", to_string(order)), other);
    }
  }

  /// A wrong product that perhaps no instruction computes: its bits if one does, and otherwise its
  /// FP64 sums.
  void taken_or_in_fp64(const std::string& name, const std::string& text,
                        const std::function<std::optional<Product>(const Sample&)>& wrong) {
    const std::optional<Product> few = wrong(probe_of_whole_);
    if (!few) return;
    const Result result = attempt([&] { return compute(*few, threads_); });
    if (result && plausible(*result)) {
      const Result all = attempt([&] { return compute(*wrong(sample_), threads_); });
      if (all && consider(name, text, *all)) return;
    }
    // A kernel that scales in software has other bits than the instruction that does.
    if (result && !applies_scales(product_.problem)) return judge_.dismiss();
    in_fp64(name, text, *few, [&] { return *wrong(sample_); });
  }

  /// A mistake whose outputs are FP64 sums. `few` and what `all` returns are the probe and the
  /// sample with it.
  void in_fp64(const std::string& name, const std::string& text, const Product& few,
               const std::function<Product()>& all, const CodeValue& a = {},
               const CodeValue& b = {}, double error = 0.0, const MeasuredMistake* with = nullptr) {
    if (!product_.epilogue.empty()) return judge_.dismiss();
    const auto add = [&](StandIn sums, const Sample& sample) {
      if (with == nullptr) return sums;
      const std::vector<double> more = with->added(sample);
      for (std::size_t i = 0; i < more.size(); ++i) sums.values[i] += more[i];
      return sums;
    };
    const StandIn probe = add(stand_in(few, a, b), probe_of_whole_);
    const std::vector<double> tolerances = tolerances_of(probe, error);
    const auto evidence = [&](std::size_t place, std::size_t at) {
      return judge_.evidence(place, probe.values[at], tolerances[at]);
    };
    if (!explains_enough(evidence)) return judge_.dismiss();
    const StandIn sums = add(stand_in(all(), a, b), sample_);
    judge_.consider_in_fp64(name, text + " (within the error of the instruction)", sums.values,
                            tolerances_of(sums, error));
  }

  /// How far a kernel's outputs may be from FP64 sums: four times as far as the right output is
  /// from its own, relative to the magnitudes of their terms, or as sums in FP32 are, and the
  /// rounding of the output. `error`: of sums under measured numbers, see `MeasuredMistake`.
  [[nodiscard]] std::vector<double> tolerances_of(const StandIn& sums, double error) {
    constexpr double kMargin = 4.0;
    if (!error_share_) error_share_ = share_of_error();
    const Format& f = format(product_.output.format);
    std::vector<double> tolerances;
    for (std::size_t i = 0; i < sums.values.size(); ++i) {
      const double step =
          std::max(std::ldexp(std::abs(sums.values[i]), -f.mantissa_bits), f.min_subnormal());
      tolerances.push_back((kMargin * *error_share_ + error) * sums.magnitudes[i] + step);
    }
    return tolerances;
  }

  /// The largest error of the right sums of the probe, relative to the magnitudes of their terms,
  /// and at least that of a few additions in FP32.
  [[nodiscard]] double share_of_error() const {
    const StandIn exact = stand_in(probed_);
    const std::vector<float> right = compute(probed_, threads_);
    double share = 0x1p-22;
    for (std::size_t i = 0; i < right.size(); ++i) {
      const double error = std::abs(static_cast<double>(right[i]) - exact.values[i]);
      if (std::isfinite(error) && exact.magnitudes[i] > 0.0)
        share = std::max(share, error / exact.magnitudes[i]);
    }
    return share;
  }

  void places_of_c() {
    const GemmProblem& p = sampled_.problem;
    if (p.c == nullptr) return;
    for (const CPlacement place : possible_c_placements(p)) {
      if (place == c_placement(p)) continue;
      Product other = sampled_;
      other.problem.c_enters = place;
      add(fmt::format("c_in_{}", to_string(place)),
          fmt::format("C entered at another place: as c_enters={}", to_string(place)), other);
    }
    Product other = sampled_;
    other.problem.c = nullptr;
    add("missing_c", "C left out", other);
  }

  void formats() {
    whole("fnuz_inputs", "FNUZ/FN mix-up: the codes were read with the other bias",
          with_fnuz_codes(product_));
    for (const auto& [side, letter] : {std::pair{Side::a, "a"}, std::pair{Side::b, "b"}})
      whole(fmt::format("fnuz_{}", letter),
            fmt::format("FNUZ/FN mix-up: {}'s codes were read with the other bias",
                        side == Side::a ? "A" : "B"),
            with_codes_read_as(product_, side, fnuz_counterpart));
    const GemmProblem& p = product_.problem;
    for (const auto& [side, letter, of] :
         {std::tuple{Side::a, "a", "A's codes"}, std::tuple{Side::b, "b", "B's codes"},
          std::tuple{Side::both, "a_and_b", "the codes of both"}}) {
      const std::optional<FormatId> other =
          other_format_of_width(side == Side::b ? p.b.format : p.a.format);
      if (!other) continue;
      const std::optional<Product> wrong =
          with_codes_read_as(product_, side, other_format_of_width);
      taken_or_in_fp64(fmt::format("{}_codes_{}", format(*other).name, letter),
                       fmt::format("{} are {}, read as {}, or the reverse", of, format(*other).name,
                                   format(side == Side::b ? p.b.format : p.a.format).name),
                       [&](const Sample& sample) -> std::optional<Product> {
                         if (!wrong) return std::nullopt;
                         return take(*wrong, sample);
                       });
    }
  }

  void operands() {
    whole("transposed_b", "B read in the other memory order", with_transposed_b(product_));
    if (const std::optional<Product> flushed = with_flushed_inputs(sampled_))
      add("flushed_input_subnormals", "subnormal operands read as zeros", *flushed);
    for (const auto& [side, letter, of] :
         {std::tuple{Side::a, "a", "A"}, std::tuple{Side::b, "b", "B"},
          std::tuple{Side::both, "a_and_b", "A and B"}})
      for (const OtherQuantization& other : quantization_mistakes(product_))
        taken(fmt::format("{}_{}", other.name, letter), fmt::format("{} {}", of, other.text),
              [&, side = side](const Sample& sample) {
                return take_with_recast_codes(product_, sample, side, other.cast);
              });
    for (const auto& [side, letter, of] :
         {std::tuple{Side::a, "a", "A's codes"}, std::tuple{Side::b, "b", "B's codes"},
          std::tuple{Side::both, "a_and_b", "the codes of both"}})
      taken(fmt::format("exchanged_nibbles_{}", letter),
            fmt::format("the two halves of each byte of {} exchanged", of),
            [&, side = side](const Sample& sample) {
              return take_with_exchanged_nibbles(product_, sample, side);
            });
    const GemmProblem& p = sampled_.problem;
    const std::int64_t tile = p.promotion_interval > 0 ? p.promotion_interval : 128;
    if (p.a.k > tile) {
      const std::int64_t last = (p.a.k - 1) / tile * tile;
      dropped("dropped_last_k_tile", fmt::format("the terms from {} on left out", last), last,
              p.a.k);
      dropped("dropped_first_k_tile", fmt::format("the first {} terms left out", tile), 0, tile);
    }
    for (const std::int64_t step : {128, 64, 32, 16})
      if (const std::int64_t tail = p.a.k % step; tail != 0 && tail < p.a.k)
        dropped("dropped_k_tail",
                fmt::format("the last {}, beyond multiples of {}, left out", counted(tail, "term"),
                            step),
                p.a.k - tail, p.a.k);
    const std::int64_t half = round_up(p.a.k / 2, tile);
    if (half == 0 || half >= p.a.k) return;
    dropped("dropped_first_half_of_k", fmt::format("the first {} terms left out", half), 0, half);
    dropped("dropped_last_half_of_k", fmt::format("the terms from {} on left out", half), half,
            p.a.k);
  }

  void dropped(const std::string& name, const std::string& text, std::int64_t begin,
               std::int64_t end) {
    add(name, text, without_terms(sampled_, begin, end));
  }

  /// Loads behind the end of K that no mask stops: the memory there is that of the next row.
  void unmasked_tails() {
    for (const std::int64_t step : {16, 32, 64, 128, 256})
      if (product_.problem.a.k % step != 0)
        taken("unmasked_k_tail",
              fmt::format("K padded to a multiple of {} with what lies behind each row: the next "
                          "row's terms",
                          step),
              [&](const Sample& sample) {
                return take_with_longer_rows(product_, sample,
                                             round_up(product_.problem.a.k, step));
              });
  }

  /// Codes read by another table.
  void tables_of_codes() {
    for (const auto& [side, letter, of] :
         {std::tuple{Side::a, "a", "A"}, std::tuple{Side::b, "b", "B"},
          std::tuple{Side::both, "a_and_b", "A and B"}}) {
      const FormatId id = side == Side::b ? sampled_.problem.b.format : sampled_.problem.a.format;
      for (const CodeMistake& mistake : code_mistakes(id)) {
        const auto reads = [of_side = side, &mistake](Side one, const CodeMatrix& m) -> CodeValue {
          if (of_side != one && of_side != Side::both) return {};
          return [&f = format(m.format), value = mistake.value](std::uint32_t code) {
            return value(f, code);
          };
        };
        in_fp64(
            fmt::format(fmt::runtime(mistake.name), letter),
            fmt::format(fmt::runtime(mistake.text), of), probed_, [&] { return sampled_; },
            reads(Side::a, sampled_.problem.a), reads(Side::b, sampled_.problem.b));
      }
    }
  }

  /// Pointers along K that are off: one element, one vector of 16 bytes.
  void pointers() {
    for (const auto& [side, letter, of] :
         {std::tuple{Side::a, "a", "A"}, std::tuple{Side::b, "b", "B"}})
      for (const std::int64_t by : {1, -1, 16, -16})
        taken(fmt::format("k_offset_{}_{}", by, letter),
              fmt::format("{} read {} {}", of, counted(std::abs(by), "term"),
                          by > 0 ? "too far" : "early"),
              [&, side = side](const Sample& sample) {
                return take_with_moved_terms(product_, sample, side, by);
              });
  }

  /// Whether partial sums are scaled, one after the other, in FP32.
  [[nodiscard]] bool scaled_in_blocks() const {
    return !applies_scales(sampled_.problem) && fp8lab::scaled_in_blocks(sampled_.problem);
  }

  void promotions() {
    add("missing_promotion", "the first promotion does not happen", compute_missing_promotion);
    const GemmProblem& p = sampled_.problem;
    for (const std::int64_t interval : {0, 32, 64, 128, 256, 512, 1024}) {
      const bool possible = interval % p.model.terms == 0 && interval < p.a.k;
      if (interval == p.promotion_interval || !possible) continue;
      const std::string name =
          interval == 0 ? "no_promotion" : fmt::format("promotion_{}", interval);
      const std::string text = interval == 0
                                   ? "no promotion to FP32 at all"
                                   : fmt::format("promotion to FP32 every {} terms", interval);
      if (scaled_in_blocks() && (interval == 0 || p.promotion_interval % interval != 0)) {
        promoted_over_scales(name, text, interval == 0 ? p.a.k : interval);
        continue;
      }
      Product other = sampled_;
      other.problem.promotion_interval = interval;
      other.problem.c_enters = c_placement(p);
      if (interval == 0 && p.c_enters == CPlacement::promoted_sum)
        other.problem.c_enters = CPlacement::epilogue;
      add(name, text, other);
    }
  }

  /// Intervals with more than one scale in them, of which one is applied to the whole sum.
  void promoted_over_scales(const std::string& name, const std::string& text,
                            std::int64_t interval) {
    const std::int64_t whole_steps = (interval + sampled_.problem.model.terms - 1) /
                                     sampled_.problem.model.terms * sampled_.problem.model.terms;
    for (const bool first : {false, true})
      add(name,
          fmt::format("{}, under the {} scale of each interval", text, first ? "first" : "last"),
          [=](const Product& p) {
            return compute_in_intervals(p, {.interval = whole_steps, .first_scale = first});
          });
  }

  /// The FP32 sum of promoted parts held in a narrower format.
  void rounded_sums() {
    const std::int64_t own = sampled_.problem.promotion_interval;
    std::set<std::int64_t> intervals{own > 0 ? own : 128};
    if (!scaled_in_blocks()) intervals.insert({32, 64, 128});
    for (const FormatId id : {FormatId::bf16, FormatId::f16})
      for (const std::int64_t interval : intervals)
        add(fmt::format("{}_accumulator", format(id).name),
            fmt::format("the sum rounded to {} every {} terms", format(id).name, interval),
            [=](const Product& p) {
              return compute_in_intervals(p, {.interval = interval, .rounded = id});
            });
  }

  void accumulators() {
    std::vector<AccumulatorModel> seen{product_.problem.model};
    for (const InstructionModel& model : instruction_models()) {
      const bool known = std::find(seen.begin(), seen.end(), model.accumulator) != seen.end();
      if (known || !stands_beside(model, product_)) continue;
      seen.push_back(model.accumulator);
      const Product other = with_accumulator(sampled_, model.accumulator);
      if (other.problem.promotion_interval != sampled_.problem.promotion_interval) continue;
      add(fmt::format("accumulator_{}", model.name),
          fmt::format("accumulated as {} does", model.name), other);
    }
  }

  void blocks_of_k(std::span<const float> golden) {
    std::vector<float> right;
    std::vector<std::uint32_t> got;
    for (const std::int64_t row : probe_.rows)
      for (const std::int64_t column : probe_.columns) {
        const auto place = static_cast<std::size_t>(row * sampled_.columns() + column);
        right.push_back(golden[place]);
        got.push_back(judge_.got(place));
      }
    std::vector<float> wrong(got.size());
    std::transform(got.begin(), got.end(), wrong.begin(), [&](std::uint32_t code) {
      return static_cast<float>(decode(format(product_.output.format), code));
    });
    const std::int64_t own = sampled_.problem.promotion_interval;
    std::set<std::int64_t> sizes{own > 0 ? own : 128};
    if (!scaled_in_blocks()) sizes.insert({64, 128});
    if (applies_scales(sampled_.problem)) sizes.insert({32, 256});
    for (const std::int64_t block : sizes)
      for (const BlockMistake& mistake : likely_block_mistakes(probed_, right, wrong, block))
        add(mistake.name, mistake.text, with_k_blocks(sampled_, block, mistake.sources));
  }

  const Product& product_;
  const Sample& sample_;
  const Product& sampled_;
  Judge& judge_;
  int threads_;
  Sample probe_;  ///< rows and columns of `sampled_`
  Product probed_;
  Sample probe_of_whole_;                ///< the same of `product_`
  std::optional<double> error_share_{};  ///< see `share_of_error`
};

}  // namespace

void try_measured_beside(const MeasuredPart& part, const Product& sampled, Judge& judge) {
  if (sampled.epilogue.gated() || sampled.problem.a.k == 0) return;
  ProductHypotheses hypotheses(part.product, part.sample, sampled, judge, part.threads);
  for (const auto measure : {measure_scales, measure_terms}) {
    if (judge.any_whole_cause()) break;
    Measurement found;
    attempt([&] { return measure(part, found), true; });
    for (const MeasuredMistake& mistake : found.mistakes)
      if (!mistake.last) hypotheses.measured(mistake);
  }
  judge.prefer_whole_causes();
}

std::vector<std::string> try_measured(const MeasuredPart& part, const Product& sampled,
                                      std::span<const float> golden, Judge& judge) {
  ProductHypotheses hypotheses(part.product, part.sample, sampled, judge, part.threads);
  std::vector<std::string> lines;
  std::vector<MeasuredMistake> vague;  // they absorb mistakes of the other operand
  const bool measurable = !sampled.epilogue.gated() && sampled.problem.a.k > 0;
  const auto stage = [&](void (*measure)(const MeasuredPart&, Measurement&)) {
    if (judge.any_cause() || !measurable) return;
    Measurement found;
    attempt([&] { return measure(part, found), true; });
    for (const MeasuredMistake& mistake : found.mistakes)
      if (mistake.last)
        vague.push_back(mistake);
      else
        hypotheses.measured(mistake);
    lines.insert(lines.end(), found.lines.begin(), found.lines.end());
  };
  const auto epilogue = [&] {
    if (judge.any_cause()) return;
    const auto measured = attempt(
        [&] { return measure_epilogue(part.product, part.sample, sampled, judge, part.threads); });
    for (const std::string& line : measured.value_or(std::vector<std::string>{}))
      lines.push_back(line);
  };
  // A factor of the sum is alpha's where there is an epilogue, and otherwise a scale's.
  const auto factor = [&] {
    if (!judge.any_cause()) hypotheses.factor(golden);
  };
  stage(measure_scales);
  if (sampled.epilogue.empty()) factor();
  stage(measure_terms);
  stage(measure_codes);
  stage(measure_both_scales);
  const bool is_explained = judge.any_cause();
  for (const MeasuredMistake& mistake : vague)
    if (!judge.any_cause()) hypotheses.measured(mistake);
  if (!is_explained) judge.call_vague();
  epilogue();
  if (!sampled.epilogue.empty()) factor();
  return lines;
}

void try_mistakes(const Product& product, const Sample& sample, const Product& sampled,
                  std::span<const float> golden, Judge& judge, int threads) {
  ProductHypotheses(product, sample, sampled, judge, threads).run(golden);
}

}  // namespace fp8lab

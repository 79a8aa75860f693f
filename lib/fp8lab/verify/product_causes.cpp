#include "fp8lab/verify/product_causes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/scale_variants.hpp"
#include "fp8lab/product/term_variants.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/cast_causes.hpp"
#include "fp8lab/verify/k_blocks.hpp"
#include "fp8lab/verify/kernel_causes.hpp"

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
    casts(golden);
    scales();
    places_of_c();
    formats();
    operands();
    pointers();
    promotions();
    rounded_sums();
    accumulators();
    for (const int parts : {2, 4, 8, 16})
      add(fmt::format("split_k_{}", parts),
          fmt::format("K split in {} parts, summed in FP32 in order", parts),
          [=](const Product& p) { return compute_split_k(p, parts); });
    for (const KernelMistake& mistake : kernel_mistakes(sampled_))
      add(mistake.name, mistake.text, mistake.output);
    blocks_of_k(golden);
  }

 private:
  using Result = std::optional<std::vector<float>>;

  /// `output` gives the wrong result of the elements of a product, or nothing.
  void add(const std::string& name, const std::string& text,
           const std::function<Result(const Product&)>& output) {
    const Result few = output(probed_);
    if (!few) return;
    if (!plausible(*few)) return judge_.dismiss();
    consider(name, text, *output(sampled_));
  }
  /// A product that went wrong, of these elements or of whichever are asked for.
  void add(const std::string& name, const std::string& text, const Product& wrong) {
    if (!plausible(compute(take(wrong, probe_), threads_))) return judge_.dismiss();
    consider(name, text, compute(wrong, threads_));
  }
  /// `wrong` gives the wrong product of a sample of the whole one, or nothing.
  void taken(const std::string& name, const std::string& text,
             const std::function<std::optional<Product>(const Sample&)>& wrong) {
    const std::optional<Product> few = wrong(probe_of_whole_);
    if (!few) return;
    if (!plausible(compute(*few, threads_))) return judge_.dismiss();
    consider(name, text, compute(*wrong(sample_), threads_));
  }
  void whole(const std::string& name, const std::string& text,
             const std::optional<Product>& wrong) {
    if (wrong) taken(name, text, [&](const Sample& sample) { return take(*wrong, sample); });
  }

  [[nodiscard]] std::vector<std::uint32_t> codes_of(const std::vector<float>& output) const {
    return code_words(product_.output.format, cast_output(output, product_.output, threads_));
  }
  void consider(const std::string& name, const std::string& text,
                const std::vector<float>& output) {
    judge_.consider(name, text, codes_of(output));
  }
  /// Whether it explains enough of the mismatches that were looked at first.
  [[nodiscard]] bool plausible(const std::vector<float>& few) const {
    const std::vector<std::uint32_t> codes = codes_of(few);
    std::size_t mismatches = 0;
    std::size_t explained = 0;
    std::size_t at = 0;
    for (const std::int64_t row : probe_.rows)
      for (const std::int64_t column : probe_.columns) {
        const auto place = static_cast<std::size_t>(row * sampled_.columns() + column);
        const std::uint32_t code = codes[at++];
        if (judge_.is_right(place)) continue;
        ++mismatches;
        explained += judge_.explains(place, code) ? 1 : 0;
      }
    return explained > 0 &&
           static_cast<double>(explained) >= kProbeShare * static_cast<double>(mismatches);
  }

  void casts(std::span<const float> golden) {
    for (const CastMistake& mistake :
         cast_mistakes(product_.output.format, product_.output.policy)) {
      std::vector<std::uint32_t> codes(golden.size());
      std::transform(golden.begin(), golden.end(), codes.begin(), mistake.code);
      judge_.consider(mistake.name, mistake.text, codes);
    }
  }

  void scales() {
    if (product_.problem.a_scales.empty() && product_.problem.b_scales.empty()) return;
    for (const auto& [side, letter, text] :
         {std::tuple{Side::a, "a", "A's scale"}, std::tuple{Side::b, "b", "B's scale"},
          std::tuple{Side::both, "a_and_b", "both scales"}}) {
      values_of_scales(side, letter, text);
      places_of_scales(side, letter, text);
    }
    whole("swapped_scales", "A's scales on B and B's on A", with_swapped_scales(product_));
    for (const ScaleOrder order : scale_orders()) {
      if (order == product_.problem.scale_order || product_.problem.a_scales.empty()) continue;
      Product other = sampled_;
      other.problem.scale_order = order;
      add(fmt::format("scale_order_{}", to_string(order)),
          fmt::format("scales applied in the order {}", to_string(order)), other);
    }
  }

  void values_of_scales(Side side, const std::string& letter, const std::string& text) {
    whole("missing_scale_" + letter, text + " not applied", without_scales(product_, side));
    whole("doubled_scale_" + letter, text + " applied twice", with_doubled_scales(product_, side));
    whole("inverted_scale_" + letter, text + " inverted: divided instead of multiplied",
          with_inverted_scales(product_, side));
    whole(fmt::format("e8m0_scale_{}_without_requantizing", letter),
          text + " rounded up to a power of two (E8M0), with unchanged codes",
          with_power_of_two_scales(product_, side));
    for (const FormatId id : {FormatId::bf16, FormatId::f16})
      whole(fmt::format("{}_scale_{}", format(id).name, letter),
            fmt::format("{} rounded to {}", text, format(id).name),
            with_rounded_scales(product_, side, id));
  }

  void places_of_scales(Side side, const std::string& letter, const std::string& text) {
    whole("wrong_scale_axis_" + letter, text + " read along the wrong axis",
          with_transposed_scales(product_, side));
    whole("stale_scale_" + letter, text + " of the tile of K before",
          with_scales_moved_along_k(product_, side, -1));
    whole("next_scale_" + letter, text + " of the next tile of K",
          with_scales_moved_along_k(product_, side, 1));
    whole("first_scale_" + letter, text + " of the first tile of K throughout",
          with_first_scale_of_k(product_, side));
    for (const std::int64_t by : {1, -1})
      whole(fmt::format("scale_{}_of_{}_row", letter, by > 0 ? "next" : "previous"),
            fmt::format("{} of the {} row of tiles", text, by > 0 ? "next" : "previous"),
            with_scales_moved_along_rows(product_, side, by));
    for (const std::int64_t group : {16, 32, 64, 256, 512})
      whole(fmt::format("scale_group_{}_{}", group, letter),
            fmt::format("{} read as if a tile had {} terms of K", text, group),
            with_scale_group_along_k(product_, side, group));
    for (const std::int64_t group : {1, 32, 64, 128, 256})
      whole(fmt::format("scale_row_group_{}_{}", group, letter),
            fmt::format("{} read as if a tile had {} rows", text, group),
            with_scale_group_along_rows(product_, side, group));
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
          other_fp8_format(side == Side::b ? p.b.format : p.a.format);
      if (other)
        whole(fmt::format("{}_codes_{}", format(*other).name, letter),
              fmt::format("{} are {}, read as {}, or the reverse", of, format(*other).name,
                          format(side == Side::b ? p.b.format : p.a.format).name),
              with_codes_read_as(product_, side, other_fp8_format));
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

  [[nodiscard]] bool scaled_in_blocks() const { return fp8lab::scaled_in_blocks(sampled_.problem); }

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
  Sample probe_of_whole_;  ///< the same of `product_`
};

}  // namespace

void try_mistakes(const Product& product, const Sample& sample, const Product& sampled,
                  std::span<const float> golden, Judge& judge, int threads) {
  ProductHypotheses(product, sample, sampled, judge, threads).run(golden);
}

}  // namespace fp8lab

#include "fp8lab/identify/hypotheses.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/partial_sums.hpp"
#include "fp8lab/tensors/codes.hpp"

namespace fp8lab {
namespace {

std::int64_t side_along_k(const InverseScales& scales, const CodeMatrix& m) {
  return ScaleLookup(scales, m).varies_along_k() ? scales.k_block : 0;
}

/// Largest number of terms that have the same scales; 0 where scales never change along K.
std::int64_t scale_tile(const GemmProblem& p) {
  return std::gcd(side_along_k(p.scale_a, p.a), side_along_k(p.scale_b, p.b));
}

std::vector<std::int64_t> promotion_intervals(const GemmProblem& p, int terms) {
  const std::int64_t tile = scale_tile(p);
  std::vector<std::int64_t> intervals;
  const auto add = [&](std::int64_t interval) {
    const bool known = std::find(intervals.begin(), intervals.end(), interval) != intervals.end();
    const bool fits =
        interval % terms == 0 && (tile == 0 || (interval > 0 && tile % interval == 0));
    if (fits && !known) intervals.push_back(interval);
  };
  add(0);
  const std::int64_t end = tile > 0 ? tile : p.a.k - 1;
  for (std::int64_t interval = 16; interval <= end; interval *= 2) add(interval);
  if (tile > 0) add(tile);
  return intervals;
}

/// The problem under another model. What a model of TF32 reads of binary32 words is all of them for
/// one of binary32.
GemmProblem under(GemmProblem p, const AccumulatorModel& model) {
  p.model = model;
  const bool words = p.a.format == FormatId::tf32 && p.b.format == FormatId::tf32;
  if (words && !takes_formats(model, FormatId::tf32, FormatId::tf32))
    p.a.format = p.b.format = FormatId::f32;
  return p;
}

std::vector<CPlacement> places_of_c(const GemmProblem& p, std::int64_t interval) {
  if (p.c == nullptr) return {CPlacement::unnamed};
  GemmProblem promoted = p;
  promoted.promotion_interval = interval;
  return possible_c_placements(promoted);
}

/// Whether scales come after sums that do not depend on them.
bool scaled_after_sum(const GemmProblem& p) { return scaled_as_a_whole(p) && !applies_scales(p); }

/// Whether a code, without its sign but of FNUZ formats, is NaN.
bool is_nan(const Format& f, std::uint32_t code) {
  return unpack(f, code).value_class == ValueClass::nan;
}

template <typename Code>
std::vector<std::uint32_t> canonical_words_of(FormatId id, std::span<const std::byte> codes) {
  const Format f = format(id);
  const std::uint32_t nan = nan_code(id);
  std::vector<std::uint32_t> result(codes.size() / sizeof(Code));
  for (std::size_t i = 0; i < result.size(); ++i) {
    Code code = 0;
    std::memcpy(&code, codes.data() + i * sizeof(Code), sizeof(Code));
    result[i] = is_nan(f, code) ? nan : code;
  }
  return result;
}

std::vector<std::uint32_t> canonical_words(FormatId id, std::span<const std::byte> codes) {
  switch (format(id).storage_bits) {
    case 8:
      return canonical_words_of<std::uint8_t>(id, codes);
    case 16:
      return canonical_words_of<std::uint16_t>(id, codes);
    default:
      return canonical_words_of<std::uint32_t>(id, codes);
  }
}

}  // namespace

std::vector<NamedAccumulator> accumulators_for(const GemmProblem& p,
                                               std::span<const std::string> more, bool zeros_show) {
  std::vector<NamedAccumulator> result;
  const auto consider = [&](const InstructionModel& model) {
    const GemmProblem asked = under(p, model.accumulator);
    const bool reads = model.a_format == asked.a.format && model.b_format == asked.b.format;
    if (!reads && model.standing != Standing::definition) return;
    if (!takes_formats(model.accumulator, asked.a.format, asked.b.format)) return;
    // Without scales of its own a block-scaled instruction is its unscaled neighbour.
    if (traits_of(model.accumulator).takes_scales && !applies_scales(asked)) return;
    const auto known = std::find_if(result.begin(), result.end(), [&](const NamedAccumulator& one) {
      return zeros_show ? one.accumulator == model.accumulator
                        : equal_but_for_zero_sign(one.accumulator, model.accumulator);
    });
    if (known == result.end())
      result.push_back({model.accumulator, {model.name}});
    else
      known->names.push_back(model.name);
  };
  for (const InstructionModel& model : instruction_models()) consider(model);
  for (const std::string& name : more) consider(find_instruction_model(name));
  return result;
}

std::vector<OutputRounding> output_roundings(FormatId output) {
  const OutputCast usual = default_output(output);
  if (output == FormatId::f32)
    return {{"kept", usual},
            {"through_bf16", usual, FormatId::bf16},
            {"through_f16", usual, FormatId::f16}};
  std::vector<OutputRounding> result{{"nearest_even", usual}};
  OutputCast other = usual;
  other.policy.rounding = RoundingMode::toward_zero;
  result.push_back({"toward_zero", other});
  other.policy.rounding = RoundingMode::nearest_away;
  result.push_back({"nearest_away", other});
  const bool narrow = format(output).storage_bits == 8;
  other = {output, narrow ? kNvidiaNosat : kNvidiaSatfinite};
  result.push_back({narrow ? "nearest_even_not_saturating" : "nearest_even_saturating", other});
  if (output != FormatId::f16) result.push_back({"through_f16", usual, FormatId::f16});
  if (output != FormatId::bf16) result.push_back({"through_bf16", usual, FormatId::bf16});
  return result;
}

std::uint32_t nan_code(FormatId id) {
  const Format& f = format(id);
  return f.has_nan_for_negative_zero() ? f.sign_mask() : f.magnitude_mask();
}

std::uint32_t canonical_code(FormatId id, std::uint32_t code) {
  return is_nan(format(id), code) ? nan_code(id) : code;
}

std::vector<std::uint32_t> round_output(std::span<const float> d, const OutputRounding& rounding) {
  const FormatId id = rounding.cast.format;
  if (!rounding.through) return canonical_words(id, cast_output(d, rounding.cast, 1));
  const OutputCast first = default_output(*rounding.through);
  const std::vector<float> narrow = decode_codes(first.format, cast_output(d, first, 1));
  return canonical_words(id, cast_output(narrow, rounding.cast, 1));
}

std::vector<Accumulation> accumulations(const GemmProblem& p,
                                        std::span<const NamedAccumulator> accumulators) {
  const bool scaled = !p.scale_a.empty() || !p.scale_b.empty();
  const std::span<const ScaleOrder> orders =
      scale_orders().first(scaled ? scale_orders().size() : 1);
  std::vector<Accumulation> result;
  for (const int parts : {1, 2, 4, 8, 16})
    for (std::size_t i = 0; i < accumulators.size(); ++i) {
      const GemmProblem problem = under(p, accumulators[i].accumulator);
      // Scales inside the instruction have no order, and need no promotion; their second level,
      // which comes after it, has one.
      const bool inside = applies_scales(problem);
      const bool ordered =
          !inside || problem.scale_a.tensor_scale != 1.0F || problem.scale_b.tensor_scale != 1.0F;
      if (inside && parts > 1) continue;
      const int terms = accumulators[i].accumulator.terms;
      for (const std::int64_t interval :
           inside ? std::vector<std::int64_t>{0} : promotion_intervals(p, terms)) {
        const std::int64_t step = interval > 0 ? interval : terms;
        if (parts > 1 && (p.a.k + step - 1) / step < parts) continue;
        for (const CPlacement place : places_of_c(problem, interval))
          for (const ScaleOrder order : ordered ? orders : orders.first(1))
            result.push_back({i, interval, order, parts, place});
      }
    }
  return result;
}

Product product_under(const Product& product, const Accumulation& accumulation,
                      std::span<const NamedAccumulator> accumulators) {
  Product changed = product;
  changed.problem = under(product.problem, accumulators[accumulation.accumulator].accumulator);
  changed.problem.promotion_interval = accumulation.promotion_interval;
  changed.problem.scale_order = accumulation.scale_order;
  changed.problem.c_enters = accumulation.c_enters;
  changed.split = {};
  return changed;
}

bool share_sums(const Product& product, std::span<const NamedAccumulator> accumulators,
                const Accumulation& one, const Accumulation& other) {
  Accumulation same = other;
  same.scale_order = one.scale_order;
  return same == one && scaled_after_sum(product_under(product, one, accumulators).problem);
}

std::vector<float> sums_of(const Product& product, const Accumulation& accumulation,
                           std::span<const NamedAccumulator> accumulators, int threads) {
  Product changed = product_under(product, accumulation, accumulators);
  changed.split.parts = accumulation.split_k;
  if (accumulation.split_k > 1) changed.split.tile = split_tile(changed);
  if (scaled_after_sum(changed.problem)) {
    drop_outer_scales(changed);
    if (enters_at(changed.problem, CPlacement::epilogue)) {
      changed.problem.c = nullptr;
      changed.problem.c_enters = CPlacement::unnamed;
    }
  }
  return compute_sums(changed, threads);
}

std::vector<float> result_of(const Product& product, const Accumulation& accumulation,
                             std::span<const NamedAccumulator> accumulators,
                             std::span<const float> sums) {
  const GemmProblem problem = product_under(product, accumulation, accumulators).problem;
  std::vector<float> result(sums.begin(), sums.end());
  if (scaled_after_sum(problem)) scale_sums(problem, result);
  return finish(product, std::move(result));
}

}  // namespace fp8lab

// Steps whose aligned products are 32-bit integers: NVIDIA's of few terms, and CDNA3's.
// docs/lab/gemm.md, "Short steps" and "Few rows".

#include <algorithm>
#include <utility>

#include "fp8lab/gemm/methods/methods.hpp"
#include "fp8lab/gemm/pack.hpp"
#include "fp8lab/gemm/rounding_scope.hpp"

namespace fp8lab::gemm_detail {
namespace {

/// The largest sum of so many products in units of 2^-(mantissa bits of both).
std::int64_t largest_sum(const Format& a, const Format& b, int terms) {
  const auto largest = [](const Format& x) {
    return (std::int64_t{2} << x.mantissa_bits) - 1;  // times 2^-mantissa_bits
  };
  return terms * largest(a) * largest(b);
}

/// Whether the sum of c and so many products fits 32-bit integers, in units of the last aligned
/// bit: c is below 2 units of 2^F, and so are significands.
bool fits_words(const AccumulatorModel& m, const Format& a, const Format& b, int terms) {
  constexpr int kFloatBits = 24;  // of an exact product
  const int bits = a.mantissa_bits + b.mantissa_bits;
  const int f = m.alignment_fraction_bits;
  if (bits + 2 > kFloatBits || f > 25) return false;
  const std::int64_t sum = largest_sum(a, b, terms) + (std::int64_t{2} << bits);
  return terms <= 32 && sum << f < std::int64_t{1} << (31 + bits);
}

/// Whether the second stage of such steps has the short form, see docs/lab/gemm.md.
bool has_short_second_stage(const MethodRequest& r) {
  const AccumulatorModel& m = r.model();
  const int f = m.alignment_fraction_bits;
  return m.second_stage_fraction_bits == 32 && f >= 23 &&
         largest_sum(*r.a, *r.b, m.terms) << f <
             std::int64_t{1} << (29 + r.a->mantissa_bits + r.b->mantissa_bits);
}

WordRounding word_rounding(const AccumulatorModel& m) {
  return {.alignment_fraction_bits = m.alignment_fraction_bits,
          .output_fraction_bits = m.output_fraction_bits,
          .second_stage_fraction_bits = m.second_stage_fraction_bits,
          .half_output = m.output_format == FormatId::f16,
          .exponent_floor = std::max(kWordExponentFloor, m.min_alignment_exponent),
          .c_exponent_floor = smallest_c_exponent(m)};
}

/// Up to how many rows kernels along k are faster: as for binary32, but reductions cost a short
/// step more.
std::int64_t most_word_dot_rows(std::int64_t terms) {
  return terms >= 16 ? kMostWordDotRows : terms >= 8 ? 4 : 2;
}

WordDotLayout choose_word_dots(const MethodRequest& r, bool takes_bytes, bool takes_others) {
  const GemmProblem& p = r.problem;
  const int terms = r.model().terms;
  if (p.a.rows > most_word_dot_rows(terms) || p.b.rows < kColumnsPerRow * p.a.rows) return {};
  const WordDotLayout layout = word_dot_layout(*r.b, terms);
  const bool taken = layout.kind == LineCodes::bytes ? takes_bytes : takes_others;
  return taken ? layout : WordDotLayout{};
}

class InWords : public MethodOf<float> {
 public:
  explicit InWords(const MethodRequest& r) : rounding_(word_rounding(r.model())) {
    form_.terms = r.model().terms;
    form_.as = PackedAs::words;
  }

  /// All sums are multiples of 2^(-60 - 31), which the least alignment keeps.
  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t k) const override {
    const ProductRange range(a, b, k);
    return range.low >= -60 && range.sum_top < 80 && a.largest <= 60 && b.largest <= 60;
  }

 protected:
  [[nodiscard]] bool takes_c(float /*c*/, int exponent, const RowSummary& /*a*/,
                             const RowSummary& /*b*/) const override {
    return exponent >= -60 && exponent < 120;
  }

  [[nodiscard]] WordDotBlock dots_of(const TileSteps<float>& steps) const {
    return lines_of<WordDotBlock>(steps, steps.rows.word_dots, form_.word_dots);
  }

  WordRounding rounding_;
};

/// Scales of the instruction, one a step, are powers of two: kernels along k add their exponents.
class FusedWords final : public InWords {
 public:
  explicit FusedWords(const MethodRequest& r) : InWords(r), scaled_(r.scaled) {
    rounding_.two_sums = !fits_words(r.model(), *r.a_values, *r.b_values, r.model().terms);
    // Both sums get half the terms, which are dealt by twos of four.
    const bool takes_bytes = !rounding_.two_sums || form_.terms % 4 == 0;
    form_.word_dots = choose_word_dots(r, takes_bytes, true);
    form_.scale_exponents = true;
    sums_.promotion = SumForm::Promotion::plain;
    sums_.half_c = r.half_output();
  }

  [[nodiscard]] std::string_view name() const override { return "fused words"; }

  /// Steps in 32-bit integers leave exponents that are far from 0 to binary64.
  [[nodiscard]] MethodPtr for_other_data(const MethodRequest& request) const override {
    return plan_fused_double(request);
  }

  /// Binary64 takes one operation a product for half the lanes, instead of four; with AVX-512 the
  /// rest of a step does not outweigh that (docs/lab/gemm.md, "AVX-512").
  [[nodiscard]] MethodPtr for_target(const MethodRequest& r, Target target) const override {
    const int least = r.half_output() ? 32 : 16;
    const bool wins = target == Target::avx512 && !form_.along_k() && form_.terms >= least;
    return wins ? plan_fused_double_of_words(r) : nullptr;
  }

  void run(const TileSteps<float>& steps) const override {
    const UnitKernels& kernels = *steps.kernels.units;
    if (form_.along_k()) {
      WordDotBlock block = dots_of(steps);
      block.scaled = scaled_;
      if (scaled_) {
        block.scale_a = steps.rows.scales.from(steps.first);
        block.scale_b = steps.panel.scales().from(steps.first);
      }
      const TowardZero toward_zero;
      return kernels.word_dots->plain(block, rounding_);
    }
    const StepBlock<float> block = block_of(steps);
    const TowardZero toward_zero;
    kernels.words.fused(block, rounding_);
  }

 private:
  bool scaled_;
};

/// CDNA3's: of all terms, or of even and odd ones apart.
class TwoStage final : public InWords {
 public:
  explicit TwoStage(const MethodRequest& r)
      : InWords(r), even_odd_(r.kind == AccumulationKind::even_odd_dot_product) {
    rounding_.short_second_stage = !even_odd_ && has_short_second_stage(r);
    form_.word_dots = choose_word_dots(r, true, !even_odd_);
    sums_.drops_negative_zero = true;
  }

  [[nodiscard]] std::string_view name() const override { return "two stages"; }

  void run(const TileSteps<float>& steps) const override {
    const UnitKernels& kernels = *steps.kernels.units;
    if (form_.along_k()) {
      WordDotBlock block = dots_of(steps);
      block.two_stage = true;
      const auto run = even_odd_ ? kernels.word_dots->even_odd : kernels.word_dots->plain;
      return run(block, rounding_);
    }
    const auto run = even_odd_ ? kernels.words.even_odd : kernels.words.two_stage;
    run(block_of(steps), rounding_);
  }

 private:
  bool even_odd_;
};

}  // namespace

/// Sums of at most two 32-bit integers take less time than binary64.
MethodPtr plan_fused_words(const MethodRequest& r) {
  constexpr int kMostFloor = 60;  // bytes hold it
  const AccumulatorModel& m = r.model();
  const int half = m.terms - m.terms / 2;
  const bool fits = r.has_fused_steps() && (r.rounds_to_half() || r.truncates()) &&
                    fits_words(m, *r.a_values, *r.b_values, half) &&
                    m.min_alignment_exponent <= kMostFloor;
  if (!fits) return nullptr;
  auto method = std::make_unique<FusedWords>(r);
  return r.scaled && !method->form().along_k() ? nullptr : std::move(method);
}

MethodPtr plan_two_stage(const MethodRequest& r) {
  const AccumulatorModel& m = r.model();
  const int second = m.second_stage_fraction_bits;
  const bool fits = (r.kind == AccumulationKind::two_stage_dot_product ||
                     r.kind == AccumulationKind::even_odd_dot_product) &&
                    fits_words(m, *r.a, *r.b, m.terms) && second >= m.alignment_fraction_bits &&
                    second <= 32;
  return fits ? std::make_unique<TwoStage>(r) : nullptr;
}

}  // namespace fp8lab::gemm_detail

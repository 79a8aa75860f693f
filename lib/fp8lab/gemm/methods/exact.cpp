// Exact sums of all products, rounded once, and steps that are exact but for their last rounding:
// fused ones whose F loses no product bit, CDNA1's, and those of processors. docs/lab/gemm.md,
// "Exact steps and sums", "CDNA1" and "Few rows".

#include <algorithm>
#include <cmath>

#include "fp8lab/gemm/aligned_array.hpp"
#include "fp8lab/gemm/methods/method.hpp"
#include "fp8lab/gemm/methods/methods.hpp"
#include "fp8lab/gemm/methods/two_words.hpp"
#include "fp8lab/gemm/pack.hpp"
#include "fp8lab/gemm/rounding_scope.hpp"

namespace fp8lab::gemm_detail {
namespace {

// Sums along k, for few rows: B is neither packed nor transposed.

/// Up to how many rows sums along k are faster than panels: of one sum for many steps, and of one a
/// step, whose lanes are added up each time.
constexpr std::int64_t kMostLineRows = 8;
constexpr std::int64_t kMostLineRowsOfSteps = 4;

/// Whether a product has so few rows, and steps of as many terms as the kernels take.
bool sums_along_k(const GemmProblem& problem, std::int64_t terms, std::int64_t most_rows);

/// The exact sums of the products of a tile's steps.
class ExactLines {
 public:
  /// One sum a step, or one of all steps together.
  ExactLines(const TileSteps<double>& steps, bool together);

  /// The sums of a row as the products of steps of one term.
  [[nodiscard]] StepBlock<double> block(const TileSteps<double>& steps, std::int64_t row) const;

 private:
  std::int64_t width_;
  std::int64_t sums_;  ///< a row and column
  AlignedArray<double> ones_;
  AlignedArray<double> values_;  ///< [rows][sums][width]
};

constexpr std::int64_t kColumnsAhead = 4;  // whose codes are fetched meanwhile
constexpr std::int64_t kCacheLine = 64;

bool sums_along_k(const GemmProblem& problem, std::int64_t terms, std::int64_t most_rows) {
  return terms == kLineTerms && problem.a.rows <= most_rows &&
         problem.b.rows >= kColumnsPerRow * problem.a.rows;
}

ExactLines::ExactLines(const TileSteps<double>& steps, bool together)
    : width_(steps.kernels.width<double>()),
      sums_(together ? 1 : steps.count),
      ones_(sums_),
      values_(steps.rows.rows * sums_ * width_) {
  const std::int64_t rows = steps.rows.rows;
  const std::int64_t terms = steps.count * kLineTerms;
  PanelLines lines;
  steps.panel.place(lines, steps.first);
  const auto decode = steps.kernels.decode<float>(lines.storage_bits).rows;
  const std::int64_t bytes = terms * lines.storage_bits / 8;
  AlignedArray<float> column(terms + kMaxWidth);
  std::fill_n(ones_.data(), sums_, 1.0);
  std::fill_n(values_.data(), rows * sums_ * width_, 0.0);
  for (std::int64_t j = 0; j < lines.columns; ++j) {
    const unsigned char* codes = lines.codes + j * lines.code_stride;
    if (j + kColumnsAhead < lines.columns)
      for (std::int64_t i = 0; i < bytes; i += kCacheLine)
        __builtin_prefetch(codes + kColumnsAhead * lines.code_stride + i);
    decode({.codes = codes,
            .row_stride = 0,
            .rows = 1,
            .steps = steps.count,
            .terms = kLineTerms,
            .layout = lines.layout,
            .fused = false,
            .values = column.data()});
    steps.kernels.sums.line_sums({.rows = rows,
                                  .steps = steps.count,
                                  .a = steps.rows.values.data() + steps.first * rows * kLineTerms,
                                  .b = column.data(),
                                  .together = together,
                                  .to = values_.data() + j,
                                  .row_stride = sums_ * width_,
                                  .step_stride = width_});
  }
}

StepBlock<double> ExactLines::block(const TileSteps<double>& steps, std::int64_t row) const {
  StepBlock<double> block;
  block.rows = 1;
  block.steps = sums_;
  block.terms = 1;
  block.a = ones_.data();
  block.b = values_.data() + row * sums_ * width_;
  block.state = steps.state + row * width_;
  return block;
}

constexpr int kMostExactBits = 100;  // of sums in two words that follow the data

/// Fused steps.
class ExactSteps final : public MethodOf<double> {
 public:
  explicit ExactSteps(const MethodRequest& r, TwoWords words = {})
      : rounding_(step_rounding(r.model(), true)), words_(words) {
    form_.terms = r.model().terms;
    form_.lines = !words.used() && sums_along_k(r.problem, form_.terms, kMostLineRowsOfSteps);
    sums_.marks_overflow = words.used();
  }

  [[nodiscard]] std::string_view name() const override { return "exact steps"; }

  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t k) const override {
    if (words_.used()) return true;
    const ProductRange range(a, b, k);
    return ProductRange(a, b, form_.terms).sum_top - range.low <= kDoubleBits &&
           range.sum_top < 120 && range.low > -120 &&
           range.sum_top + 1 - rounding_.alignment_fraction_bits <= range.low;
  }

  [[nodiscard]] MethodPtr for_other_data(const MethodRequest& r) const override {
    const RowSummary a = widest_row(*r.a);
    const RowSummary b = widest_row(*r.b);
    const int f = rounding_.alignment_fraction_bits;
    if (a.largest + b.largest - f > a.lowest + b.lowest) return nullptr;
    TwoWords words = find_two_words(*r.a, *r.b, form_.terms);
    if (!words.used()) return nullptr;
    words.limit = std::min(words.limit, std::ldexp(words.lowest, f + 1));
    return std::make_unique<ExactSteps>(r, words);
  }

  void run(const TileSteps<double>& steps) const override {
    if (form_.lines) {
      const ExactLines sums(steps, false);
      const TowardZero toward_zero;
      for (std::int64_t row = 0; row < steps.rows.rows; ++row)
        steps.kernels.sums.exact_steps(sums.block(steps, row), rounding_);
      return;
    }
    const StepBlock<double> block = block_of(steps);
    const TowardZero toward_zero;
    if (words_.used())
      steps.kernels.sums.two_word_steps(block, rounding_, words_);
    else
      steps.kernels.sums.exact_steps(block, rounding_);
  }

 protected:
  /// Neither may c truncate a product nor a product c.
  [[nodiscard]] bool takes_c(float c, int exponent, const RowSummary& a,
                             const RowSummary& b) const override {
    if (words_.used()) return take_start(words_, c);
    const int f = rounding_.alignment_fraction_bits;
    return exponent + 2 - f <= a.lowest + b.lowest && exponent - 23 >= a.largest + b.largest - f &&
           exponent > -100 && exponent < 120;
  }

 private:
  StepRounding rounding_;
  TwoWords words_;
};

/// CDNA1's, of any data.
class CheckedSteps final : public MethodOf<double> {
 public:
  explicit CheckedSteps(const MethodRequest& r) {
    form_.terms = r.model().terms;
    sums_.drops_negative_zero = true;
  }

  [[nodiscard]] std::string_view name() const override { return "exact steps"; }

  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t k) const override {
    const ProductRange range(a, b, k);
    return range.sum_top < 120 && range.low > -120 && range.sum_top - range.low <= kMostExactBits;
  }

  void run(const TileSteps<double>& steps) const override {
    steps.kernels.units->checked.exact_steps(block_of(steps));
  }

 protected:
  [[nodiscard]] bool takes_c(float /*c*/, int exponent, const RowSummary& a,
                             const RowSummary& b) const override {
    // K's length is not known here: 24 bits of it are enough for any.
    const int top = std::max(a.largest + b.largest + 2 + 24, exponent + 2);
    const int low = std::min(a.lowest + b.lowest, exponent - 23);
    return exponent < 120 && low > -120 && top - low <= kMostExactBits;
  }
};

/// Rounded sums of a step's products, of any data, which c is added to. With block scales all codes
/// are numbers.
class CheckedSums final : public MethodOf<double> {
 public:
  explicit CheckedSums(const MethodRequest& r) {
    form_.terms = r.model().terms;
    form_.all_numbers = form_.scales_values = r.kind == AccumulationKind::scaled_rounded_sum;
    sums_.drops_negative_zero = true;
  }

  [[nodiscard]] std::string_view name() const override { return "rounded sums"; }

  /// No sum is below 2^-126, whatever the unit makes of such numbers.
  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t k) const override {
    const ProductRange range(a, b, form_.terms);
    return ProductRange(a, b, k).sum_top < 120 && range.low > -120 &&
           range.sum_top - range.low <= kMostExactBits;
  }

  void run(const TileSteps<double>& steps) const override {
    steps.kernels.units->checked.rounded_sums(block_of(steps));
  }

 protected:
  [[nodiscard]] bool takes_c(float /*c*/, int exponent, const RowSummary& /*a*/,
                             const RowSummary& /*b*/) const override {
    return exponent < 120 && exponent - 23 >= -126;
  }
};

/// Exact steps to FP16, of c and products that binary64 holds together.
class HalfSteps final : public MethodOf<double> {
 public:
  explicit HalfSteps(const MethodRequest& r) {
    form_.terms = r.model().terms;
    form_.group = 1;
    sums_.half_c = true;
  }

  [[nodiscard]] std::string_view name() const override { return "exact steps"; }

  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t /*k*/) const override {
    constexpr int kTopOfC = 16;
    constexpr int kLowOfC = -24;
    const ProductRange range(a, b, form_.terms);
    return std::max(range.sum_top, kTopOfC) + 1 - std::min(range.low, kLowOfC) <= kDoubleBits;
  }

  void run(const TileSteps<double>& steps) const override {
    steps.kernels.units->checked.half_steps(block_of(steps));
  }

  void start(std::span<const float> c, double* state) const override {
    for (std::size_t i = 0; i < c.size(); ++i)
      if (std::isfinite(c[i])) state[i] = static_cast<double>(c[i]);
  }
};

}  // namespace

MethodPtr plan_exact_steps(const MethodRequest& r) {
  const AccumulatorModel& m = r.model();
  const bool nearest =
      !r.half_output() && m.rounding == RoundingMode::nearest_even && m.output_fraction_bits == 23;
  const int lowest =
      r.a->min_exponent() - r.a->mantissa_bits + r.b->min_exponent() - r.b->mantissa_bits;
  const bool keeps_tiny = m.min_alignment_exponent - m.alignment_fraction_bits <= lowest;
  const bool fits = r.has_fused_steps() && !r.scaled && (r.truncates() || nearest) &&
                    m.alignment_fraction_bits >= 23 && keeps_tiny;
  return fits ? std::make_unique<ExactSteps>(r) : nullptr;
}

MethodPtr plan_checked_steps(const MethodRequest& r) {
  constexpr int kMostTerms = 32;
  const bool fits = r.kind == AccumulationKind::exact_dot_product && !r.half_output() &&
                    r.model().terms <= kMostTerms;
  return fits ? std::make_unique<CheckedSteps>(r) : nullptr;
}

MethodPtr plan_rounded_sums(const MethodRequest& r) {
  constexpr int kMostTerms = 64;
  const bool fits = r.kind == AccumulationKind::rounded_sum && r.model().terms <= kMostTerms;
  return fits ? std::make_unique<CheckedSums>(r) : nullptr;
}

MethodPtr plan_wide_scaled_sums(const MethodRequest& r) { return std::make_unique<CheckedSums>(r); }

MethodPtr plan_half_steps(const MethodRequest& r) {
  const bool fits = r.kind == AccumulationKind::exact_dot_product && r.half_output();
  return fits ? std::make_unique<HalfSteps>(r) : nullptr;
}

namespace {

class Exact final : public MethodOf<double> {
 public:
  explicit Exact(const MethodRequest& r, TwoWords words = {}) : words_(words) {
    form_.terms = r.plain_terms();
    form_.lines = !words.used() && sums_along_k(r.problem, form_.terms, kMostLineRows);
    sums_.adds_c_last = true;
    sums_.low_states = words.used();
  }

  [[nodiscard]] std::string_view name() const override { return "exact"; }

  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t k) const override {
    const ProductRange range(a, b, k);
    return words_.used() ||
           (range.sum_top - range.low <= kDoubleBits && range.sum_top < 126 && range.low > -149);
  }

  [[nodiscard]] MethodPtr for_other_data(const MethodRequest& r) const override {
    const TwoWords words = find_two_words(*r.a, *r.b, r.problem.a.k);
    return words.used() ? std::make_unique<Exact>(r, words) : nullptr;
  }

  void run(const TileSteps<double>& steps) const override {
    if (form_.lines) {
      const ExactLines sums(steps, true);
      for (std::int64_t row = 0; row < steps.rows.rows; ++row)
        steps.kernels.sums.plain_double(sums.block(steps, row));
      return;
    }
    const StepBlock<double> block = block_of(steps);
    if (!words_.used()) return steps.kernels.sums.plain_double(block);
    const TowardZero toward_zero;
    steps.kernels.sums.two_word_sums(block, words_);
  }

  void extract(const Kernels& kernels, const RowOfSums<double>& row) const override {
    const TowardZero toward_zero;
    if (words_.used())
      kernels.sums.round_two_words(row.state, row.low_state, row.c, words_, row.out, row.width);
    else
      kernels.sums.round_exact(row.state, row.c, row.out, row.width);
  }

 protected:
  [[nodiscard]] bool takes_c(float c, int exponent, const RowSummary& /*a*/,
                             const RowSummary& /*b*/) const override {
    return words_.used() ? take_start(words_, c) : exponent < 120;
  }

 private:
  TwoWords words_;
};

}  // namespace

MethodPtr plan_exact(const MethodRequest& r) {
  return r.kind == AccumulationKind::exact ? std::make_unique<Exact>(r) : nullptr;
}

}  // namespace fp8lab::gemm_detail

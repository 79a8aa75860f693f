// Fused steps: one FMA a product, in binary32 where formats and F are small, else in binary64.
// docs/lab/gemm.md, "Fused steps" and "Few rows".

#include <bit>
#include <cmath>
#include <type_traits>

#include "fp8lab/gemm/methods/methods.hpp"
#include "fp8lab/gemm/pack.hpp"
#include "fp8lab/gemm/rounding_scope.hpp"

namespace fp8lab::gemm_detail {
namespace {

/// Whether the sum of a step, in units of the last aligned bit, stays inside
/// the binade of the magic number with `mantissa_bits`.
bool sum_fits(const AccumulatorModel& m, int mantissa_bits) {
  if (m.alignment_fraction_bits + 3 >= mantissa_bits) return false;
  // Each product is below 4 units of 2^F, c below 2, the sign counts below terms + 1.
  const std::int64_t largest =
      (std::int64_t{4 * m.terms + 2} << m.alignment_fraction_bits) + m.terms + 1;
  return largest < std::int64_t{1} << (mantissa_bits - 1);
}

bool is_narrow(const Format& f) { return f.has_sign && f.exponent_bits <= 5 && f.code_bits() <= 8; }

/// Up to how many rows of A dot kernels are faster than those that transpose B: measured, see
/// docs/lab/gemm.md. Their vectors hold 32 terms, of whatever model.
std::int64_t most_dot_rows(std::int64_t terms) { return terms == 32 ? 5 : terms >= 16 ? 1 : 0; }

/// The same for columns that fill a quarter of a panel at most: of so many.
constexpr std::int64_t kFewColumns = 8;
constexpr std::int64_t kMostRowsOfFewColumns = 32;

/// The layout of B for dot kernels, unless others are faster. Packing A of other formats takes
/// longer, which weighs more with few columns.
DotLayout choose_dots(const MethodRequest& r) {
  const GemmProblem& p = r.problem;
  if (!has_half_fields(*r.b)) return {};
  const bool packs_fast = has_half_fields(*r.a);
  const std::int64_t terms = r.model().terms;
  const bool few_rows =
      p.a.rows <= most_dot_rows(terms) && (packs_fast || p.b.rows >= kColumnsPerRow * p.a.rows);
  const bool few_columns = packs_fast && terms == kDotTerms && p.b.rows <= kFewColumns &&
                           p.a.rows <= kMostRowsOfFewColumns;
  return few_rows || few_columns ? DotLayout{r.b->exponent_bits, r.b->bias} : DotLayout{};
}

template <typename T>
class Fused : public MethodOf<T> {
 public:
  explicit Fused(const MethodRequest& r)
      : rounding_(step_rounding(r.model(), std::is_same_v<T, double>)) {
    this->form_.terms = r.model().terms;
    this->form_.as = PackedAs::fused;
    this->sums_.promotion = SumForm::Promotion::marked;
    this->sums_.half_c = r.half_output();
  }

  /// The same with folded panels.
  Fused(const Fused& other, std::int64_t fold) : rounding_(other.rounding_) {
    this->form_ = other.form_;
    this->sums_ = other.sums_;
    this->form_.fold = fold;
  }

  /// c is held with the lowest bit set: alignment keeps far fewer bits.
  void start(std::span<const float> c, T* state) const override {
    using Word = typename PackedTypes<T>::Word;
    for (std::size_t i = 0; i < c.size(); ++i)
      if (c[i] != 0.0F && std::isfinite(c[i]))
        state[i] = std::bit_cast<T>(std::bit_cast<Word>(static_cast<T>(c[i])) | Word{1});
  }

 protected:
  [[nodiscard]] const StepRounding& rounding() const { return rounding_; }

  /// `method` with its panels folded, where columns fill a part of them; null if they do not.
  template <typename FusedOf>
  static MethodPtr folded(const FusedOf& method, const MethodRequest& r, Target target) {
    const GemmProblem& p = r.problem;
    const PackForm& form = method.form();
    const bool fits = (form.terms == 16 || form.terms == 32) && !form.along_k() && form.fold == 1;
    if (!fits || p.a.rows == 1) return nullptr;
    const KernelTable& kernels = *kernel_table(target);
    std::int64_t fold = kernels.most_fold<T>();
    while (fold > 1 && p.b.rows * fold > kernels.width<T>()) fold /= 2;
    return fold > 1 ? std::make_unique<FusedOf>(method, fold) : nullptr;
  }

  StepRounding rounding_;
};

class FusedFloat final : public Fused<float> {
 public:
  explicit FusedFloat(const MethodRequest& r) : Fused(r) { form_.dots = choose_dots(r); }
  FusedFloat(const FusedFloat& other, std::int64_t fold) : Fused(other, fold) {}

  [[nodiscard]] std::string_view name() const override { return "fused float"; }

  void run(const TileSteps<float>& steps) const override {
    if (form_.dots.used()) return run_dots(steps);
    const StepBlock<float> block = block_of(steps);
    const TowardZero toward_zero;
    steps.kernels.fused.in_float(block, rounding());
  }

  [[nodiscard]] MethodPtr for_target(const MethodRequest& r, Target target) const override {
    return folded(*this, r, target);
  }

  void extract(const Kernels& /*kernels*/, const RowOfSums<float>& row) const override {
    for (std::int64_t j = 0; j < row.width; ++j)
      row.out[j] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(row.state[j]) & ~1u);
  }

 protected:
  /// The magic number of the largest and of the smallest alignment must exist.
  [[nodiscard]] bool takes_c(float /*c*/, int exponent, const RowSummary& /*a*/,
                             const RowSummary& /*b*/) const override {
    return exponent < 117 && exponent + 23 - rounding().alignment_fraction_bits < 128 &&
           exponent >= -45;
  }

 private:
  void run_dots(const TileSteps<float>& steps) const {
    const auto block = lines_of<DotBlock>(steps, steps.rows.dots, form_.dots);
    const TowardZero toward_zero;
    steps.kernels.dots.in_float(block, rounding());
  }
};

/// All products are multiples of binary32's least number.
bool has_coarse_products(const MethodRequest& r) {
  constexpr int kLeast = -149;
  const auto lowest = [](const Format& f) { return f.min_exponent() - f.mantissa_bits; };
  return !r.scaled && lowest(*r.a) + lowest(*r.b) >= kLeast;
}

class FusedDouble final : public Fused<double> {
 public:
  FusedDouble(const MethodRequest& r, bool coarse_products) : Fused(r) {
    rounding_.in_place = r.truncates() && r.model().output_fraction_bits == 23 && coarse_products;
  }
  FusedDouble(const FusedDouble& other, std::int64_t fold) : Fused(other, fold) {}

  [[nodiscard]] std::string_view name() const override { return "fused double"; }

  [[nodiscard]] bool takes(const RowSummary& a, const RowSummary& b,
                           std::int64_t k) const override {
    return ProductRange(a, b, k).sum_top < 126;
  }

  void run(const TileSteps<double>& steps) const override {
    const StepBlock<double> block = block_of(steps);
    const TowardZero toward_zero;
    steps.kernels.fused.in_double(block, rounding());
  }

  [[nodiscard]] MethodPtr for_target(const MethodRequest& r, Target target) const override {
    return r.scaled ? nullptr : folded(*this, r, target);
  }
};

}  // namespace

MethodPtr plan_fused_float(const MethodRequest& r) {
  constexpr int kMostFraction = 15;  // products times 1 + 2^-19 stay apart
  const AccumulatorModel& m = r.model();
  const bool fits = r.has_fused_steps() && !r.scaled && is_narrow(*r.a) && is_narrow(*r.b) &&
                    r.a->mantissa_bits + r.b->mantissa_bits <= 6 &&
                    m.alignment_fraction_bits <= kMostFraction && sum_fits(m, 23) &&
                    (r.rounds_to_half() || (r.truncates() && m.output_fraction_bits <= 22));
  return fits ? std::make_unique<FusedFloat>(r) : nullptr;
}

namespace {

MethodPtr fused_in_double(const MethodRequest& r, bool coarse_products) {
  constexpr int kMostFraction = 36;
  // What stands for zeros in operands that are packed with their scales is below any alignment
  // from here on.
  constexpr int kLeastScaledAlignment = -200;
  const AccumulatorModel& m = r.model();
  const bool fits = r.has_fused_steps() && (r.rounds_to_half() || r.truncates()) &&
                    m.alignment_fraction_bits <= kMostFraction && sum_fits(m, 52) &&
                    (!r.scaled || m.min_alignment_exponent >= kLeastScaledAlignment);
  return fits ? std::make_unique<FusedDouble>(r, coarse_products) : nullptr;
}

}  // namespace

MethodPtr plan_fused_double(const MethodRequest& r) {
  return fused_in_double(r, has_coarse_products(r));
}

MethodPtr plan_fused_double_of_words(const MethodRequest& r) { return fused_in_double(r, true); }

}  // namespace fp8lab::gemm_detail

#include "fp8lab/gemm/tile.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/gemm/reference.hpp"

namespace fp8lab::gemm_detail {
namespace {

// A slab of eight panels and of one row block stays in L2 together.
constexpr std::int64_t kSlabTerms = 512;
// With few rows decoded values are read as often only: they stay in L1.
constexpr std::int64_t kTermsOfFewRows = 64;

}  // namespace

template <typename T>
Job<T>::Job(const PlannedProduct& product, const MethodOf<T>& by, const Kernels& k)
    : problem(product.problem),
      specified(product.specified),
      kernels(k),
      method(by),
      form(by.form()),
      sums(by.sums()),
      intervals(product.intervals),
      a_scales(problem.a_scales, problem.a),
      b_scales(problem.b_scales, problem.b),
      width(k.width<T>() / form.fold),
      steps((problem.a.k + form.terms - 1) / form.terms),
      slab_steps(std::min(std::max<std::int64_t>(1, kSlabTerms / form.terms), steps)),
      decoded_steps(
          form.along_k() || problem.a.rows > kFewRows
              ? slab_steps
              : std::min(std::max<std::int64_t>(1, kTermsOfFewRows / form.terms), slab_steps)),
      scaled(fp8lab::scaled(problem)),
      scaled_in_blocks(fp8lab::scaled_in_blocks(problem)),
      positive_zero(problem.model.zero_sign == ZeroSign::positive || intervals.start_from_zero),
      unit_scales(product.unit_scales) {}

template <typename T>
Tile<T>::Tile(const Job<T>& job)
    : job_(job),
      panel_(job.kernels, job.form, job.problem.b, job.slab_steps, job.decoded_steps,
             job.unit_scales),
      b_scales_(static_cast<std::size_t>(job.width)),
      partial_(static_cast<std::size_t>(job.width)) {}

/// C as the model sees it: FP16 models round it first, unless FP32 arithmetic adds to it.
template <typename T>
float Tile<T>::start_value(std::int64_t row, std::int64_t column) const {
  const float c = job_.problem.c[(row_ + row) * job_.problem.b.rows + column_ + column];
  const bool in_fp32 = job_.promotes_from_c() && !job_.intervals.to_half;
  if (!job_.sums.half_c || in_fp32) return c;
  const Format& half = format(FormatId::f16);
  return static_cast<float>(fp8lab::decode(half, encode(half, kNvidiaNosat, c)));
}

template <typename T>
void Tile<T>::reset(std::int64_t row, std::int64_t rows) {
  std::fill_n(state(row), rows * job_.width, T{0});
  if (job_.sums.low_states) std::fill_n(low_state(row), rows * job_.width, T{0});
}

template <typename T>
void Tile<T>::start(std::int64_t row, std::int64_t rows, std::int64_t column) {
  row_ = row;
  column_ = column;
  panel_.start(column);
  const std::int64_t padded_rows = round_up(rows, job_.form.fold);
  const std::int64_t size = padded_rows * job_.width;
  if (size > state_size_) {
    state_ = AlignedArray<T>(size);
    if (job_.sums.low_states) low_state_ = AlignedArray<T>(size);
    if (has_final()) final_ = AlignedArray<float>(size);
    if (job_.intervals.separate_steps) first_ = AlignedArray<float>(size);
  }
  state_size_ = std::max(size, state_size_);
  reset(0, padded_rows);
  if (has_final()) std::fill_n(final_.data(), size, 0.0F);
  if (job_.problem.c != nullptr) load_c(rows);
}

template <typename T>
void Tile<T>::load_c(std::int64_t rows) {
  const bool c_in_final = job_.promotes_from_c() || job_.sums.adds_c_last;
  if (!job_.starts_from_c() && !job_.promotes_from_c()) return;
  std::array<float, kMaxWidth> row{};
  const auto c = std::span(row).first(static_cast<std::size_t>(panel_.columns()));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::size_t j = 0; j < c.size(); ++j) c[j] = start_value(r, static_cast<std::int64_t>(j));
    if (c_in_final)
      std::ranges::copy(c, final(r));
    else
      job_.method.start(c, state(r));
  }
}

template <typename T>
void Tile<T>::run_steps(const PackedRows<T>& block, std::int64_t row, std::int64_t first,
                        std::int64_t steps) {
  TileSteps<T> run{.kernels = job_.kernels, .rows = block, .panel = panel_};
  run.first = first;
  run.count = steps;
  run.state = state(row);
  if (job_.sums.low_states) run.low_state = low_state(row);
  job_.method.run(run);
}

template <typename T>
void Tile<T>::accumulate(const PackedRows<T>& block, std::int64_t row, std::int64_t first,
                         std::int64_t steps) {
  const std::int64_t interval = job_.interval_steps();
  const std::int64_t most = job_.intervals.separate_steps ? 1 : interval;  // from one start
  for (std::int64_t step = first; step < first + steps;) {
    const std::int64_t end = std::min(first + steps, (step / most + 1) * most);
    run_steps(block, row, step, end - step);
    step = end;
    if (job_.intervals.separate_steps && step % interval != 0)
      promote_rows(row, block.rows, true);
    else if (job_.problem.promotion_interval != 0 && (step % interval == 0 || step == job_.steps))
      promote(row, block.rows, step);
  }
}

/// The accumulators of one row as binary32; `c` is what a sum that adds it last adds, or null.
template <typename T>
void Tile<T>::extract(std::int64_t row, const float* c, float* out) const {
  RowOfSums<T> sums{.state = state(row), .c = c, .out = out, .width = job_.width};
  if (job_.sums.low_states) sums.low_state = low_state(row);
  job_.method.extract(job_.kernels, sums);
  if (job_.positive_zero)  // -0 + 0 is +0, everything else stays
    for (std::int64_t j = 0; j < job_.width; ++j) out[j] += 0.0F;
}

template <typename T>
void Tile<T>::load_b_scales(std::int64_t k) {
  job_.b_scales.rows_at(column_, k,
                        std::span(b_scales_).first(static_cast<std::size_t>(panel_.columns())));
}

template <typename T>
void Tile<T>::promote_rows(std::int64_t row, std::int64_t rows, bool stash) {
  Promotion<T> promotion{.state = state(row),
                         .final = final(row),
                         .stash = stash,
                         .to_half = job_.intervals.to_half,
                         .marked = job_.sums.promotion == SumForm::Promotion::marked,
                         .positive_zero = job_.positive_zero,
                         .count = rows * job_.width};
  if (job_.intervals.separate_steps) promotion.first = first_.data() + row * job_.width;
  if constexpr (std::is_same_v<T, float>)
    job_.kernels.sums.promote_float(promotion);
  else
    job_.kernels.sums.promote_double(promotion);
}

template <typename T>
void Tile<T>::promote_scaled_rows(std::int64_t row, std::int64_t rows, std::int64_t k) {
  load_b_scales(k);
  a_scales_.resize(static_cast<std::size_t>(rows));
  job_.a_scales.rows_at(row_ + row, k, a_scales_);
  const ScaledPromotion<T> promotion{.state = state(row),
                                     .final = final(row),
                                     .marked = job_.sums.promotion == SumForm::Promotion::marked,
                                     .positive_zero = job_.positive_zero,
                                     .order = job_.problem.scale_order,
                                     .a_scales = a_scales_.data(),
                                     .b_scales = b_scales_.data(),
                                     .rows = rows,
                                     .width = job_.width};
  if constexpr (std::is_same_v<T, float>)
    job_.kernels.sums.promote_scaled_float(promotion);
  else
    job_.kernels.sums.promote_scaled_double(promotion);
}

template <typename T>
void Tile<T>::promote(std::int64_t row, std::int64_t rows, std::int64_t last_step) {
  const bool by_kernel = job_.sums.promotion != SumForm::Promotion::rows;
  if (by_kernel && !job_.scaled_in_blocks) return promote_rows(row, rows, false);
  static constexpr std::array<float, kMaxWidth> kZeros{};
  const std::int64_t interval = job_.interval_steps();
  const std::int64_t k = (last_step - 1) / interval * interval * job_.form.terms;
  if (by_kernel) return promote_scaled_rows(row, rows, k);
  Combine combine{.order = job_.problem.scale_order, .partial = partial_.data()};
  if (job_.scaled_in_blocks) {
    load_b_scales(k);
    combine.b_scales = b_scales_.data();
  }
  for (std::int64_t r = row; r < row + rows; ++r) {
    extract(r, kZeros.data(), partial_.data());
    combine.a_scale = job_.scaled_in_blocks ? job_.a_scales.at(row_ + r, k) : 1.0F;
    combine.final = final(r);
    job_.kernels.sums.combine(combine, job_.width);
  }
  reset(row, rows);
}

template <typename T>
void Tile<T>::finish(std::int64_t rows, std::span<float> d) {
  const GemmProblem& p = job_.problem;
  const bool scaled_last = job_.scaled && !job_.scaled_in_blocks;
  if (scaled_last) load_b_scales(0);
  std::vector<float> out(static_cast<std::size_t>(job_.width));
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* sum = partial_.data();
    if (p.promotion_interval != 0)
      sum = final(r);
    else
      extract(r, has_final() ? final(r) : nullptr, partial_.data());
    const std::int64_t at = (row_ + r) * p.b.rows + column_;
    if (scaled_last) {
      std::ranges::fill(out, 0.0F);
      if (p.c != nullptr) std::copy_n(p.c + at, panel_.columns(), out.begin());
      job_.kernels.sums.combine({.order = p.scale_order,
                                 .partial = sum,
                                 .a_scale = job_.a_scales.at(row_ + r, 0),
                                 .b_scales = b_scales_.data(),
                                 .final = out.data()},
                                job_.width);
      sum = out.data();
    }
    std::copy_n(sum, panel_.columns(), d.begin() + at);
  }
}

template <typename T>
void Tile<T>::repair(std::span<const RowSummary> summaries, std::int64_t row, std::span<float> d) {
  const GemmProblem& p = job_.problem;
  RowSummary worst_a;
  RowSummary worst_b;
  std::vector<RowSummary> b_summaries;
  for (const RowSummary& a : summaries) worst_a.add(a);
  for (std::int64_t j = 0; j < panel_.columns(); ++j) {
    b_summaries.push_back(panel_.summary(j));
    worst_b.add(b_summaries.back());
  }
  const bool nan = worst_a.nan || worst_b.nan;
  const bool special = !job_.sums.takes_infinities && (worst_a.infinite || worst_b.infinite);
  const bool checks_c = job_.starts_from_c() && !job_.sums.takes_everything;
  if (!nan && !special && !checks_c && !job_.sums.marks_overflow &&
      job_.method.takes(worst_a, worst_b, p.a.k))
    return;

  std::vector<std::vector<Unpacked>> b_rows(static_cast<std::size_t>(job_.width));
  for (std::int64_t r = 0; r < std::ssize(summaries); ++r) {
    const RowSummary& a = summaries[static_cast<std::size_t>(r)];
    std::vector<Unpacked> a_row;
    for (std::int64_t j = 0; j < panel_.columns(); ++j) {
      const RowSummary& b = b_summaries[static_cast<std::size_t>(j)];
      const std::int64_t at = (row_ + row + r) * p.b.rows + column_ + j;
      if (a.nan || b.nan) {
        d[static_cast<std::size_t>(at)] = std::bit_cast<float>(kCanonicalNan);
        continue;
      }
      const bool overflowed =
          job_.sums.marks_overflow && std::isnan(d[static_cast<std::size_t>(at)]);
      const bool infinite = !job_.sums.takes_infinities && (a.infinite || b.infinite);
      if (!overflowed && !infinite && job_.method.takes(a, b, p.a.k) &&
          (!job_.starts_from_c() || job_.method.takes_start(start_value(row + r, j), a, b)))
        continue;
      auto& b_row = b_rows[static_cast<std::size_t>(j)];
      const GemmProblem& given = job_.specified;
      if (a_row.empty()) a_row = unpack_row(given.a, row_ + row + r);
      if (b_row.empty()) b_row = unpack_row(given.b, column_ + j);
      d[static_cast<std::size_t>(at)] = reference_element(
          given, job_.a_scales, job_.b_scales, a_row, b_row, row_ + row + r, column_ + j,
          job_.unit_scales == nullptr ? BlockScaleRows{} : *job_.unit_scales);
    }
  }
}

template struct Job<float>;
template struct Job<double>;
template class Tile<float>;
template class Tile<double>;

}  // namespace fp8lab::gemm_detail

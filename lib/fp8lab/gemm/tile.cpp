#include "fp8lab/gemm/tile.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/gemm/reference.hpp"
#include "fp8lab/gemm/rounding_scope.hpp"

namespace fp8lab::gemm_detail {
namespace {

// A slab of eight panels and of one row block stays in L2 together.
constexpr std::int64_t kSlabTerms = 512;
// With few rows decoded values are read as often only: they stay in L1.
constexpr std::int64_t kTermsOfFewRows = 64;

/// c as fused kernels hold it, with the lowest bit set: alignment keeps far fewer bits.
template <typename T>
T marked(float c) {
  using Word = typename PackedTypes<T>::Word;
  return std::bit_cast<T>(std::bit_cast<Word>(static_cast<T>(c)) | Word{1});
}

}  // namespace

template <typename T>
Job<T>::Job(const PlannedProduct& product, const Kernels& k)
    : problem(product.problem),
      specified(product.specified),
      kernels(k),
      plan(product.plan),
      a_scales(problem.a_scales, problem.a),
      b_scales(problem.b_scales, problem.b),
      width(k.width<T>()),
      steps((problem.a.k + plan.terms - 1) / plan.terms),
      slab_steps(std::min(std::max<std::int64_t>(1, kSlabTerms / plan.terms), steps)),
      decoded_steps(
          plan.along_k() || problem.a.rows > kFewRows
              ? slab_steps
              : std::min(std::max<std::int64_t>(1, kTermsOfFewRows / plan.terms), slab_steps)),
      scaled(fp8lab::scaled(problem)),
      scaled_in_blocks(fp8lab::scaled_in_blocks(problem)),
      a_unit_scales(product.a_unit_scales),
      b_unit_scales(product.b_unit_scales),
      specified_scales(product.specified_scales) {}

template <typename T>
Tile<T>::Tile(const Job<T>& job)
    : job_(job),
      panel_(job.kernels, job.plan, job.problem.b, job.slab_steps, job.decoded_steps,
             job.b_unit_scales),
      b_scales_(static_cast<std::size_t>(job.width)),
      partial_(static_cast<std::size_t>(job.width)) {}

/// C as the model sees it: FP16 models round it first, unless FP32 arithmetic adds to it.
template <typename T>
float Tile<T>::start_value(std::int64_t row, std::int64_t column) const {
  const float c = job_.problem.c[(row_ + row) * job_.problem.b.rows + column_ + column];
  const Plan& plan = job_.plan;
  const bool in_fp32 = job_.promotes_from_c() && !plan.promotes_to_half;
  const bool fused = plan.fused() || plan.method == Method::fused_words;
  if (!plan.rounding.half_output || !fused || in_fp32) return c;
  const Format& half = format(FormatId::f16);
  return static_cast<float>(fp8lab::decode(half, encode(half, kNvidiaNosat, c)));
}

template <typename T>
void Tile<T>::reset(std::int64_t row, std::int64_t rows) {
  std::fill_n(state(row), rows * job_.width, T{0});
  if (job_.two_word_sums()) std::fill_n(low_state(row), rows * job_.width, T{0});
}

template <typename T>
void Tile<T>::start(std::int64_t row, std::int64_t rows, std::int64_t column) {
  row_ = row;
  column_ = column;
  panel_.start(column);
  const std::int64_t size = rows * job_.width;
  if (size > state_size_) {
    state_ = AlignedArray<T>(size);
    if (job_.two_word_sums()) low_state_ = AlignedArray<T>(size);
  }
  state_size_ = std::max(size, state_size_);
  reset(0, rows);
  const bool exact = job_.plan.method == Method::exact;
  if (job_.problem.promotion_interval != 0 || exact)
    final_.assign(static_cast<std::size_t>(size), 0.0F);
  if (job_.plan.separate_steps) first_.resize(static_cast<std::size_t>(size));
  if (job_.problem.c != nullptr) load_c(rows);
}

template <typename T>
void Tile<T>::load_c(std::int64_t rows) {
  const bool c_in_final = job_.promotes_from_c() || job_.plan.method == Method::exact;
  if (!job_.starts_from_c() && !job_.promotes_from_c()) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < panel_.columns(); ++j) {
      const float c = start_value(r, j);
      if (c_in_final) {
        final(r)[j] = c;
        continue;
      }
      if (job_.plan.takes_everything()) {
        const bool dropped = job_.plan.method == Method::flushed_pairs && std::fabs(c) < 0x1p-126F;
        state(r)[j] = dropped ? T{0} : static_cast<T>(c);
        continue;
      }
      if (c == 0.0F || !std::isfinite(c)) continue;
      state(r)[j] = job_.plan.fused() ? marked<T>(c) : static_cast<T>(c);
    }
  }
}

template <typename T>
void Tile<T>::run_kernel(const StepBlock<T>& block) const {
  const Plan& plan = job_.plan;
  const Kernels& kernels = job_.kernels;
  if constexpr (std::is_same_v<T, float>) {
    if (plan.method == Method::float32 || plan.method == Method::multiply_adds)
      return kernels.sums.plain_float(block);
    if (plan.method == Method::two_stage)
      return kernels.units->words.two_stage(block, plan.words_rounding);
    if (plan.method == Method::even_odd)
      return kernels.units->words.even_odd(block, plan.words_rounding);
    if (plan.method == Method::flushed_pairs) {
      const FlushedResults flushed;
      return kernels.units->pairs.flushed(block, plan.group);
    }
    const TowardZero rounding;
    if (plan.fused())
      kernels.fused.in_float(block, plan.rounding);
    else if (plan.method == Method::fused_words)
      kernels.units->words.fused(block, plan.words_rounding);
    else
      kernels.sequential.truncated_float(block, plan.sums);
  } else {
    if (plan.method == Method::exact && !plan.words.used()) return kernels.sums.plain_double(block);
    if (plan.method == Method::checked_steps) return kernels.units->checked.exact_steps(block);
    if (plan.method == Method::nearest_double)
      return kernels.sequential.nearest_double(block, plan.sums);
    const TowardZero rounding;
    if (plan.fused())
      kernels.fused.in_double(block, plan.rounding);
    else if (plan.method == Method::truncated_double)
      kernels.sequential.truncated_double(block, plan.sums);
    else if (plan.method == Method::nearest_of_odd)
      kernels.sequential.nearest_of_odd_double(block, plan.sums);
    else if (plan.method == Method::exact)
      kernels.sums.two_word_sums(block, plan.words);
    else if (plan.words.used())
      kernels.sums.two_word_steps(block, plan.rounding, plan.words);
    else
      kernels.sums.exact_steps(block, plan.rounding);
  }
}

template <typename T>
void Tile<T>::run_steps(const PackedRows<T>& block, std::int64_t row, std::int64_t first,
                        std::int64_t steps) {
  StepBlock<T> s;
  s.rows = block.rows;
  s.steps = steps;
  s.terms = job_.plan.terms;
  s.a = block.values.data() + first * block.rows * s.terms;
  if (job_.plan.has_exponents())
    s.a_exponents = block.exponents.data() + first * block.rows * s.terms;
  if (job_.plan.fused()) s.a_signs = block.signs.data() + first * block.rows;
  panel_.place(s, first);
  s.state = state(row);
  if (job_.two_word_sums()) s.low_state = low_state(row);
  if (job_.plan.method == Method::scaled_groups)
    run_groups(s, row, first);
  else
    run_kernel(s);
}

template <typename T>
void Tile<T>::run_groups(const StepBlock<T>& block, std::int64_t row, std::int64_t first) const {
  if constexpr (std::is_same_v<T, float>) {
    const Plan& plan = job_.plan;
    const std::int64_t group = first * (plan.terms / kGroupTerms);
    const TowardZero rounding;
    job_.kernels.units->groups.scaled(
        {.steps = block,
         .a = job_.a_unit_scales->from(group, row_ + row),
         .b = job_.b_unit_scales->from(group, column_),
         .alignment_fraction_bits = plan.words_rounding.alignment_fraction_bits,
         .output_fraction_bits = plan.words_rounding.output_fraction_bits,
         .exponent_floor =
             std::max(job_.problem.model.min_alignment_exponent, kDoubleExponentFloor - 1023)});
  }
}

template <typename T>
void Tile<T>::run_dots(const PackedRows<T>& block, std::int64_t row, std::int64_t first,
                       std::int64_t steps) {
  if (job_.plan.word_dots.used()) return run_word_dots(block, row, first, steps);
  if constexpr (std::is_same_v<T, float>) {
    DotBlock s;
    s.rows = block.rows;
    s.steps = steps;
    s.terms = job_.plan.terms;
    s.a = block.dots.from(first);
    s.layout = job_.plan.dots;
    panel_.place(s, first);
    s.state = state(row);
    const TowardZero rounding;
    job_.kernels.dots.in_float(s, job_.plan.rounding);
  }
}

template <typename T>
void Tile<T>::run_word_dots(const PackedRows<T>& block, std::int64_t row, std::int64_t first,
                            std::int64_t steps) {
  if constexpr (std::is_same_v<T, float>) {
    const Plan& plan = job_.plan;
    const WordDotKernels& kernels = *job_.kernels.units->word_dots;
    WordDotBlock s;
    s.rows = block.rows;
    s.steps = steps;
    s.terms = plan.terms;
    s.a = block.word_dots.from(first);
    s.layout = plan.word_dots;
    panel_.place(s, first);
    s.state = state(row);
    s.two_stage = plan.method != Method::fused_words;
    if (plan.method == Method::two_stage) return kernels.plain(s, plan.words_rounding);
    if (plan.method == Method::even_odd) return kernels.even_odd(s, plan.words_rounding);
    const TowardZero rounding;
    kernels.plain(s, plan.words_rounding);
  }
}

template <typename T>
void Tile<T>::accumulate(const PackedRows<T>& block, std::int64_t row, std::int64_t first,
                         std::int64_t steps) {
  const std::int64_t interval = job_.interval_steps();
  const std::int64_t most = job_.plan.separate_steps ? 1 : interval;  // from one start
  for (std::int64_t step = first; step < first + steps;) {
    const std::int64_t end = std::min(first + steps, (step / most + 1) * most);
    if (job_.plan.along_k())
      run_dots(block, row, step, end - step);
    else
      run_steps(block, row, step, end - step);
    step = end;
    if (job_.plan.separate_steps && step % interval != 0)
      promote_fused(row, block.rows, true);
    else if (job_.problem.promotion_interval != 0 && (step % interval == 0 || step == job_.steps))
      promote(row, block.rows, step);
  }
}

/// The accumulators of one row as binary32; `c` is what an exact sum adds, or null.
template <typename T>
void Tile<T>::extract(std::int64_t row, const float* c, float* out) const {
  const T* from = state(row);
  if constexpr (std::is_same_v<T, float>) {
    const bool fused = job_.plan.fused();
    const bool plain =
        job_.plan.method == Method::float32 || job_.plan.method == Method::truncated_float;
    for (std::int64_t j = 0; j < job_.width; ++j)
      // Fused states carry a mark in the lowest bit; a plain sum of zero is +0.
      out[j] = fused   ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(from[j]) & ~1u)
               : plain ? from[j] + 0.0F
                       : canonical(from[j]);
  } else if (job_.plan.method == Method::exact) {
    const TowardZero rounding;
    if (job_.two_word_sums())
      job_.kernels.sums.round_two_words(from, low_state(row), c, job_.plan.words, out, job_.width);
    else
      job_.kernels.sums.round_exact(from, c, out, job_.width);
  } else {
    for (std::int64_t j = 0; j < job_.width; ++j) out[j] = static_cast<float>(from[j]);
  }
}

template <typename T>
void Tile<T>::load_b_scales(std::int64_t k) {
  for (std::int64_t j = 0; j < panel_.columns(); ++j)
    b_scales_[static_cast<std::size_t>(j)] = job_.b_scales.at(column_ + j, k);
}

template <typename T>
void Tile<T>::promote_fused(std::int64_t row, std::int64_t rows, bool stash) {
  Promotion<T> promotion{.state = state(row),
                         .final = final(row),
                         .stash = stash,
                         .to_half = job_.plan.promotes_to_half,
                         .marked = job_.plan.fused(),
                         .count = rows * job_.width};
  if (job_.plan.separate_steps) promotion.first = first_.data() + row * job_.width;
  if constexpr (std::is_same_v<T, float>)
    job_.kernels.sums.promote_float(promotion);
  else
    job_.kernels.sums.promote_double(promotion);
}

template <typename T>
void Tile<T>::promote(std::int64_t row, std::int64_t rows, std::int64_t last_step) {
  const bool fused = job_.plan.fused() || job_.plan.method == Method::fused_words;
  if (fused && !job_.scaled_in_blocks) return promote_fused(row, rows, false);
  static constexpr std::array<float, kMaxWidth> kZeros{};
  const std::int64_t interval = job_.interval_steps();
  const std::int64_t k = (last_step - 1) / interval * interval * job_.plan.terms;
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
      extract(r, final_.empty() ? nullptr : final(r), partial_.data());
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
void Tile<T>::repair(const PackedRows<T>& block, std::int64_t row, std::span<float> d) {
  const GemmProblem& p = job_.problem;
  RowSummary worst_a;
  RowSummary worst_b;
  std::vector<RowSummary> b_summaries;
  for (const RowSummary& a : block.summaries) worst_a.add(a);
  for (std::int64_t j = 0; j < panel_.columns(); ++j) {
    b_summaries.push_back(panel_.summary(j));
    worst_b.add(b_summaries.back());
  }
  const bool nan = worst_a.nan || worst_b.nan;
  const bool special = !job_.plan.keeps_infinities && (worst_a.infinite || worst_b.infinite);
  const bool checks_c = job_.starts_from_c() && !job_.plan.takes_everything();
  if (!nan && !special && !checks_c && !job_.marks_overflow() &&
      kernel_takes(job_.plan, worst_a, worst_b, p.a.k))
    return;

  std::vector<std::vector<Unpacked>> b_rows(static_cast<std::size_t>(job_.width));
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const RowSummary& a = block.summaries[static_cast<std::size_t>(r)];
    std::vector<Unpacked> a_row;
    for (std::int64_t j = 0; j < panel_.columns(); ++j) {
      const RowSummary& b = b_summaries[static_cast<std::size_t>(j)];
      const std::int64_t at = (row_ + row + r) * p.b.rows + column_ + j;
      if (a.nan || b.nan) {
        d[static_cast<std::size_t>(at)] = std::bit_cast<float>(kCanonicalNan);
        continue;
      }
      const bool overflowed = job_.marks_overflow() && std::isnan(d[static_cast<std::size_t>(at)]);
      const bool infinite = !job_.plan.keeps_infinities && (a.infinite || b.infinite);
      if (!overflowed && !infinite && kernel_takes(job_.plan, a, b, p.a.k) &&
          (!job_.starts_from_c() || kernel_takes_start(job_.plan, start_value(row + r, j), a, b)))
        continue;
      auto& b_row = b_rows[static_cast<std::size_t>(j)];
      const GemmProblem& given = job_.specified;
      if (a_row.empty()) a_row = unpack_row(given.a, row_ + row + r);
      if (b_row.empty()) b_row = unpack_row(given.b, column_ + j);
      d[static_cast<std::size_t>(at)] = reference_element(
          given, job_.a_scales, job_.b_scales, a_row, b_row, row_ + row + r, column_ + j,
          job_.specified_scales == nullptr ? BlockScaleRows{} : *job_.specified_scales);
    }
  }
}

template struct Job<float>;
template struct Job<double>;
template class Tile<float>;
template class Tile<double>;

}  // namespace fp8lab::gemm_detail

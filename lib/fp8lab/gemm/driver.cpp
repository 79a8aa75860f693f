#include "fp8lab/gemm/driver.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/first_error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/methods/methods.hpp"
#include "fp8lab/gemm/operand_scales.hpp"
#include "fp8lab/gemm/pack.hpp"
#include "fp8lab/gemm/reference.hpp"
#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab::gemm_detail {
namespace {

// The outputs of some rows in one panel of columns: kernels called step by step, with what FP32
// arithmetic does between and after them.

/// With up to so many rows, what is decoded of B is read little more often than that.
constexpr std::int64_t kFewRows = 16;

/// What is the same for all tiles of one product.
template <typename T>
struct Job {
  Job(const PlannedProduct& product, const MethodOf<T>& by, const Kernels& k);

  const GemmProblem& problem;
  const GemmProblem& specified;  ///< what the reference computes: see PlannedProduct
  const Kernels& kernels;
  const MethodOf<T>& method;
  const PackForm& form;
  const SumForm& sums;
  IntervalSums intervals;
  ScaleLookup scale_a;
  ScaleLookup scale_b;
  std::int64_t width;
  std::int64_t steps;
  std::int64_t slab_steps;     ///< of B that a tile loads at a time
  std::int64_t decoded_steps;  ///< of these that it decodes at a time
  bool scaled;
  bool scaled_in_blocks;
  bool positive_zero;  ///< a sum of -0 becomes +0
  const BlockScaleRows* unit_scales;

  /// Panels are read as often as they are packed, or little more often.
  [[nodiscard]] bool has_few_rows() const { return problem.a.rows <= kFewRows; }
  /// A can be packed for some steps after the others.
  [[nodiscard]] bool packs_by_slabs() const { return !form.along_k() && unit_scales == nullptr; }
  /// C is what FP32 promotion adds to.
  [[nodiscard]] bool promotes_from_c() const {
    return problem.c != nullptr && problem.promotion_interval != 0 && (!scaled || scaled_in_blocks);
  }
  /// C is what the accumulator itself starts from.
  [[nodiscard]] bool starts_from_c() const {
    return problem.c != nullptr && !scaled && problem.promotion_interval == 0;
  }
  /// Steps after which the accumulator is promoted; all of them without promotion.
  [[nodiscard]] std::int64_t interval_steps() const {
    return problem.promotion_interval == 0 ? steps : problem.promotion_interval / form.terms;
  }
};

/// Runs inside a FloatEnvironment to nearest.
template <typename T>
class Tile {
 public:
  explicit Tile(const Job<T>& job);

  void start(std::int64_t row, std::int64_t rows, std::int64_t column);
  /// Fetches steps [first, first + steps) of B, then decodes a part of them.
  void load(std::int64_t first, std::int64_t steps) { panel_.load(first, steps); }
  void decode(std::int64_t first, std::int64_t steps) { panel_.decode(first, steps); }
  /// Adds the steps that were decoded last, for a block's rows, which begin at `row`.
  void accumulate(const PackedRows<T>& block, std::int64_t row, std::int64_t first,
                  std::int64_t steps);
  void finish(std::int64_t rows, std::span<float> d);
  /// Overwrites what the kernel could not take of the rows from `row` on, which hold `summaries`:
  /// NaN rows and columns by NaN, whatever else is out of its range by the reference.
  void repair(std::span<const RowSummary> summaries, std::int64_t row, std::span<float> d);

 private:
  void load_c(std::int64_t rows);
  void run_steps(const PackedRows<T>& block, std::int64_t row, std::int64_t first,
                 std::int64_t steps);
  void promote(std::int64_t row, std::int64_t rows, std::int64_t last_step);
  /// The same by one kernel for all rows, of methods that have it.
  void promote_rows(std::int64_t row, std::int64_t rows, bool stash);
  /// The same with scales along K, of terms from `k` on.
  void promote_scaled_rows(std::int64_t row, std::int64_t rows, std::int64_t k);
  void extract(std::int64_t row, const float* c, float* out) const;
  void load_b_scales(std::int64_t k);
  [[nodiscard]] bool has_final() const {
    return job_.problem.promotion_interval != 0 || job_.sums.adds_c_last;
  }
  [[nodiscard]] float start_value(std::int64_t row, std::int64_t column) const;
  void reset(std::int64_t row, std::int64_t rows);

  [[nodiscard]] T* state(std::int64_t row) { return state_.data() + row * job_.width; }
  [[nodiscard]] const T* state(std::int64_t row) const { return state_.data() + row * job_.width; }
  [[nodiscard]] T* low_state(std::int64_t row) { return low_state_.data() + row * job_.width; }
  [[nodiscard]] const T* low_state(std::int64_t row) const {
    return low_state_.data() + row * job_.width;
  }
  [[nodiscard]] float* final(std::int64_t row) { return final_.data() + row * job_.width; }

  const Job<T>& job_;
  PackedPanel<T> panel_;
  std::int64_t row_ = 0;
  std::int64_t column_ = 0;
  std::int64_t state_size_ = 0;
  AlignedArray<T> state_;
  AlignedArray<T> low_state_;  ///< of exact sums in two words
  AlignedArray<float> final_;  ///< FP32 sums of promoted partials, or C where it starts from C
  AlignedArray<float> first_;  ///< of separate steps, the first ones' sums
  std::vector<float> a_scales_;
  std::vector<float> b_scales_;
  std::vector<float> partial_;
};

// A slab of eight panels and of one row block stays in L2 together.
constexpr std::int64_t kSlabTerms = 512;
// With few rows decoded values are read as often only: they stay in L1.
constexpr std::int64_t kTermsOfFewRows = 64;

template <typename T>
Job<T>::Job(const PlannedProduct& product, const MethodOf<T>& by, const Kernels& k)
    : problem(product.problem),
      specified(product.specified),
      kernels(k),
      method(by),
      form(by.form()),
      sums(by.sums()),
      intervals(product.intervals),
      scale_a(problem.scale_a, problem.a),
      scale_b(problem.scale_b, problem.b),
      width(k.width<T>() / form.fold),
      steps((problem.a.k + form.terms - 1) / form.terms),
      slab_steps(std::min(std::max<std::int64_t>(1, kSlabTerms / form.terms), steps)),
      decoded_steps(
          form.along_k() || problem.a.rows > kFewRows
              ? slab_steps
              : std::min(std::max<std::int64_t>(1, kTermsOfFewRows / form.terms), slab_steps)),
      scaled(fp8lab::scaled(problem)),
      scaled_in_blocks(fp8lab::scaled_in_blocks(problem)),
      positive_zero((problem.model.zero_sign == ZeroSign::positive && !sums.has_own_zeros) ||
                    intervals.start_from_zero),
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
  job_.scale_b.rows_at(column_, k,
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
  job_.scale_a.rows_at(row_ + row, k, a_scales_);
  const ScaledPromotion<T> promotion{.state = state(row),
                                     .final = final(row),
                                     .marked = job_.sums.promotion == SumForm::Promotion::marked,
                                     .positive_zero = job_.positive_zero,
                                     .order = job_.problem.scale_order,
                                     .scale_a = a_scales_.data(),
                                     .scale_b = b_scales_.data(),
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
    combine.scale_b = b_scales_.data();
  }
  for (std::int64_t r = row; r < row + rows; ++r) {
    extract(r, kZeros.data(), partial_.data());
    combine.a_scale = job_.scaled_in_blocks ? job_.scale_a.at(row_ + r, k) : 1.0F;
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
                                 .a_scale = job_.scale_a.at(row_ + r, 0),
                                 .scale_b = b_scales_.data(),
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
          given, job_.scale_a, job_.scale_b, a_row, b_row, row_ + row + r, column_ + j,
          job_.unit_scales == nullptr ? BlockScaleRows{} : *job_.unit_scales);
    }
  }
}

constexpr std::int64_t kRowBlock = 64;  // rows whose state stays in L1
constexpr std::int64_t kPanels = 8;     // a task: their slabs stay in L2 together
// Few rows read B once: along K, without other panels between its slabs.
constexpr std::int64_t kPanelsOfFewRows = 1;
// Of A packed at a time: little, so that it stays in cache, but for rows enough to
// be worth packing B again.
constexpr std::int64_t kPackedBytes = std::int64_t{16} << 20;
constexpr std::int64_t kMostPackedBytes = std::int64_t{64} << 20;
constexpr std::int64_t kChunkRows = 512;

/// Some rows of A. Their packed form for all of K, which several tasks read, is null where a task
/// packs them itself, slab by slab.
template <typename T>
struct RowBlock {
  std::int64_t begin = 0;
  std::int64_t rows = 0;
  std::unique_ptr<PackedRows<T>> packed;
  std::vector<CodeRange> ranges;  ///< of each row's codes that were packed
};

/// Packs all of a block.
template <typename T>
void pack(const Job<T>& job, RowBlock<T>& block) {
  block.packed = std::make_unique<PackedRows<T>>(job.kernels, job.form, job.problem.a,
                                                 job.unit_scales, block.rows, job.steps);
  block.packed->load(block.begin, block.rows, 0, job.steps, block.ranges);
}

/// Neighbouring panels over the same rows, so that a packed block of A is read
/// from far away once for all of them.
template <typename T>
class TileRow {
 public:
  TileRow(const Job<T>& job, std::int64_t panels) : job_(job) {
    for (std::int64_t i = 0; i < panels; ++i) tiles_.push_back(std::make_unique<Tile<T>>(job));
  }

  void run(std::span<RowBlock<T>> blocks, std::int64_t column, std::span<float> d) {
    const std::int64_t row = blocks.front().begin;
    const std::int64_t rows = blocks.back().begin + blocks.back().rows - row;
    const std::int64_t panels = ceil_divide(job_.problem.b.rows - column, job_.width);
    const auto used = std::span(tiles_).first(
        static_cast<std::size_t>(std::min(panels, static_cast<std::int64_t>(tiles_.size()))));
    for (std::size_t i = 0; i < used.size(); ++i)
      used[i]->start(row, rows, column + static_cast<std::int64_t>(i) * job_.width);
    for (std::int64_t slab = 0; slab < job_.steps; slab += job_.slab_steps) {
      const std::int64_t steps = std::min(job_.slab_steps, job_.steps - slab);
      for (const auto& tile : used) tile->load(slab, steps);
      run_slab(blocks, used, slab, steps);
    }
    for (const auto& tile : used) tile->finish(rows, d);
    for (const RowBlock<T>& block : blocks) {
      const std::vector<RowSummary> summaries = summaries_of(block);
      for (const auto& tile : used) tile->repair(summaries, block.begin - row, d);
    }
  }

 private:
  using Tiles = std::span<const std::unique_ptr<Tile<T>>>;

  /// Steps [first, first + steps), which were loaded. Only few rows, which are one block, decode a
  /// part of them at a time.
  void run_slab(std::span<RowBlock<T>> blocks, Tiles tiles, std::int64_t first,
                std::int64_t steps) {
    std::int64_t decoded = -1;
    for (RowBlock<T>& block : blocks) {
      const PackedRows<T>& packed = block.packed ? *block.packed : own(block, first, steps);
      for (std::int64_t step = first; step < first + steps; step += job_.decoded_steps) {
        const std::int64_t count = std::min(job_.decoded_steps, first + steps - step);
        if (decoded != step)
          for (const auto& tile : tiles) tile->decode(step, count);
        decoded = step;
        for (const auto& tile : tiles)
          tile->accumulate(packed, block.begin - blocks.front().begin, step, count);
      }
    }
  }

  std::vector<RowSummary> summaries_of(const RowBlock<T>& block) const {
    std::vector<RowSummary> summaries;
    for (const CodeRange& range : block.ranges) {
      const RowSummary codes =
          summarize(format(job_.problem.a.format), range, job_.form.all_numbers);
      const auto row = std::ssize(summaries);
      summaries.push_back(block.packed ? block.packed->scales.scaled(codes, row) : codes);
    }
    return summaries;
  }

  const PackedRows<T>& own(RowBlock<T>& block, std::int64_t first, std::int64_t steps) {
    if (!own_)
      own_ = std::make_unique<PackedRows<T>>(job_.kernels, job_.form, job_.problem.a,
                                             job_.unit_scales, kRowBlock, job_.slab_steps);
    own_->load(block.begin, block.rows, first, steps, block.ranges);
    return *own_;
  }

  const Job<T>& job_;
  std::vector<std::unique_ptr<Tile<T>>> tiles_;
  std::unique_ptr<PackedRows<T>> own_;
};

/// How a product is cut into tasks: as wide and tall as may be, since each task
/// packs its part of B, but with work for every thread.
struct Cut {
  std::int64_t panels;  ///< a task
  std::int64_t blocks;  ///< of rows a task
};

Cut cut_tasks(std::int64_t panels, std::int64_t blocks, int threads, std::int64_t most_panels) {
  Cut cut{std::min(most_panels, panels), blocks};
  if (threads == 1) return cut;
  const auto tasks = [&] {
    return ceil_divide(panels, cut.panels) * ceil_divide(blocks, cut.blocks);
  };
  constexpr std::int64_t kTallTask = 8;
  while (tasks() < 4 * threads && cut.blocks > kTallTask) cut.blocks = ceil_divide(cut.blocks, 2);
  while (tasks() < 4 * threads && cut.panels > 1) cut.panels = ceil_divide(cut.panels, 2);
  while (tasks() < threads && cut.blocks > 1) cut.blocks = ceil_divide(cut.blocks, 2);
  return cut;
}

/// Rows of a block: fewer where full ones would leave threads without work, but enough to be worth
/// packing B for them.
std::int64_t rows_of_block(std::int64_t rows, std::int64_t panels, int threads) {
  std::int64_t size = kRowBlock;
  while (size > kFewRows && ceil_divide(rows, size) * panels < threads) size /= 2;
  return size;
}

/// Rows [begin, begin + rows) of the product, tile by tile.
template <typename T>
void multiply_rows(const Job<T>& job, std::int64_t begin, std::int64_t rows, std::span<float> d,
                   int threads) {
  const std::int64_t panels = ceil_divide(job.problem.b.rows, job.width);
  const std::int64_t block_rows = rows_of_block(rows, panels, threads);
  const std::int64_t count = ceil_divide(rows, block_rows);
  const Cut cut =
      cut_tasks(panels, count, threads, job.has_few_rows() ? kPanelsOfFewRows : kPanels);
  const std::int64_t groups = ceil_divide(count, cut.blocks);
  const std::int64_t tasks = ceil_divide(panels, cut.panels) * groups;
  const bool shared = cut.panels < panels || !job.packs_by_slabs();
  std::vector<RowBlock<T>> blocks(static_cast<std::size_t>(count));
  FirstError error;
  // No more threads than find work: another one would pack in a cache that nobody reads.
  const int team =
      static_cast<int>(std::min<std::int64_t>(threads, shared ? std::max(count, tasks) : tasks));
#pragma omp parallel num_threads(team)
  {
    const FloatEnvironment environment;
#pragma omp for schedule(dynamic)
    for (std::int64_t i = 0; i < count; ++i)
      error.guard([&] {
        RowBlock<T>& block = blocks[static_cast<std::size_t>(i)];
        block.begin = begin + i * block_rows;
        block.rows = std::min(block_rows, begin + rows - block.begin);
        block.ranges.resize(static_cast<std::size_t>(block.rows));
        if (shared) pack(job, block);
      });
    std::unique_ptr<TileRow<T>> tiles;
#pragma omp for schedule(dynamic)
    for (std::int64_t i = 0; i < tasks; ++i)
      error.guard([&] {
        const std::int64_t first = i % groups * cut.blocks;
        if (!tiles) tiles = std::make_unique<TileRow<T>>(job, cut.panels);
        const std::int64_t size = std::min(cut.blocks, count - first);
        tiles->run(std::span(blocks).subspan(static_cast<std::size_t>(first),
                                             static_cast<std::size_t>(size)),
                   i / groups * cut.panels * job.width, d);
      });
  }
  error.rethrow();
}

template <typename T>
void multiply(const PlannedProduct& product, const MethodOf<T>& method, const Kernels& kernels,
              std::span<float> d, int threads) {
  const Job<T> job(product, method, kernels);
  const std::int64_t m = product.problem.a.rows;
  const auto row_bytes = job.steps * method.form().terms * static_cast<std::int64_t>(sizeof(T) + 4);
  const std::int64_t rows =
      std::max(kPackedBytes / row_bytes, std::min(kChunkRows, kMostPackedBytes / row_bytes));
  const std::int64_t chunk = std::max<std::int64_t>(1, rows / kRowBlock) * kRowBlock;
  for (std::int64_t row = 0; row < m; row += chunk)
    multiply_rows(job, row, std::min(chunk, m - row), d, threads);
}

}  // namespace

MethodPtr plan_for_data(const MethodRequest& request, const BlockScaleRows& scales, Target target,
                        int threads) {
  MethodPtr planned = plan_method(request);
  if (!planned) return nullptr;
  const GemmProblem& p = request.problem;
  const PackForm& form = planned->form();
  const auto range = [&](Side side) {
    return form.any_scales ? RowSummary{.largest = 0, .lowest = 0} : range_of_scales(scales, side);
  };
  const RowSummary scale_a = range(Side::a);
  const RowSummary scale_b = range(Side::b);
  const auto takes = [&](const RowSummary& a, const RowSummary& b) {
    return planned->takes(scaled_by(a, scale_a), scaled_by(b, scale_b), p.a.k);
  };
  MethodPtr other = planned->for_other_data(request);
  const bool all =
      takes(widest_row(*request.a, form.all_numbers), widest_row(*request.b, form.all_numbers));
  if (!all && !other) return planned;
  if (!all) {
    const KernelTable& kernels = *kernel_table(target);
    const RowSummary in_a = summarize<double>(kernels, p.a, form.all_numbers, threads);
    const RowSummary in_b = summarize<double>(kernels, p.b, form.all_numbers, threads);
    if (!takes(in_a, in_b)) return other;
  }
  while (MethodPtr faster = planned->for_target(request, target)) planned = std::move(faster);
  return planned;
}

void run_planned(const PlannedProduct& product, std::span<float> d, Target target, int threads) {
  const Kernels kernels{*kernel_table(target), unit_kernels(target)};
  if (const auto* in_float = dynamic_cast<const MethodOf<float>*>(&product.method))
    multiply(product, *in_float, kernels, d, threads);
  if (const auto* in_double = dynamic_cast<const MethodOf<double>*>(&product.method))
    multiply(product, *in_double, kernels, d, threads);
}

}  // namespace fp8lab::gemm_detail

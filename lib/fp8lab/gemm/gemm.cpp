#include "fp8lab/gemm/gemm.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <exception>
#include <memory>
#include <mutex>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/pack.hpp"
#include "fp8lab/gemm/plan.hpp"
#include "fp8lab/gemm/reference.hpp"
#include "fp8lab/gemm/rounding_scope.hpp"

namespace fp8lab {
namespace gemm_detail {
namespace {

constexpr std::int64_t kRowBlock = 64;  // rows whose state stays in L1
// A slab of kPanels panels and of one row block stays in L2 together.
constexpr std::int64_t kSlabTerms = 512;
constexpr std::int64_t kPanels = 8;
// Of A packed at a time: little, so that it stays in cache, but for rows enough to
// be worth packing B again.
constexpr std::int64_t kPackedBytes = std::int64_t{16} << 20;
constexpr std::int64_t kMostPackedBytes = std::int64_t{64} << 20;
constexpr std::int64_t kChunkRows = 512;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// What is the same for all tiles of one product.
template <typename T>
struct Job {
  const GemmProblem& problem;
  const KernelTable& kernels;
  Plan plan;
  ScaleLookup a_scales;
  ScaleLookup b_scales;
  std::int64_t width;
  std::int64_t steps;
  bool scaled;
  bool scaled_in_blocks;

  Job(const GemmProblem& p, const KernelTable& k, const Plan& chosen)
      : problem(p),
        kernels(k),
        plan(chosen),
        a_scales(p.a_scales, p.a),
        b_scales(p.b_scales, p.b),
        width(std::is_same_v<T, float> ? k.float_width : k.double_width),
        steps(ceil_divide(p.a.k, chosen.terms)),
        scaled(!p.a_scales.empty() || !p.b_scales.empty()),
        scaled_in_blocks(a_scales.varies_along_k() || b_scales.varies_along_k()) {}

  /// C is what the accumulator itself starts from.
  [[nodiscard]] bool starts_from_c() const {
    return problem.c != nullptr && !scaled && problem.promotion_interval == 0;
  }
  /// Steps after which the accumulator is promoted; all of them without promotion.
  [[nodiscard]] std::int64_t interval_steps() const {
    return problem.promotion_interval == 0 ? steps : problem.promotion_interval / plan.terms;
  }
};

/// c as fused kernels hold it, with the lowest bit set: alignment keeps far fewer bits.
template <typename T>
T marked(float c) {
  using Word = typename PackedTypes<T>::Word;
  return std::bit_cast<T>(std::bit_cast<Word>(static_cast<T>(c)) | Word{1});
}

/// The outputs of some row blocks in one panel.
template <typename T>
class Tile {
 public:
  Tile(const Job<T>& job, const CodePacker<T>& packer)
      : job_(job),
        slab_steps_(std::min(std::max<std::int64_t>(1, kSlabTerms / job.plan.terms), job.steps)),
        panel_(packer, job.kernels, job.plan, job.problem.b, job.width, slab_steps_),
        b_scales_(static_cast<std::size_t>(job.width)),
        partial_(static_cast<std::size_t>(job.width)) {}

  [[nodiscard]] std::int64_t slab_steps() const { return slab_steps_; }
  void start(std::int64_t row, std::int64_t rows, std::int64_t column);
  void fill(std::int64_t first, std::int64_t steps) { panel_.fill(first, steps); }
  /// Steps [first, first + steps) of the slab that was filled, for rows from `row` on.
  void accumulate(const PackedRows<T>& block, std::int64_t row, std::int64_t first,
                  std::int64_t steps);
  void finish(std::int64_t rows, std::span<float> d);
  void repair(const PackedRows<T>& block, std::int64_t row, std::span<float> d);

 private:
  void load_c(std::int64_t rows);
  void run_kernel(const StepBlock<T>& block) const;
  void promote(std::int64_t row, std::int64_t rows, std::int64_t last_step);
  void extract(std::int64_t row, const float* c, float* out) const;
  void load_b_scales(std::int64_t k);
  [[nodiscard]] float start_value(std::int64_t row, std::int64_t column) const;
  void reset(std::int64_t row, std::int64_t rows);

  [[nodiscard]] T* state(std::int64_t row) { return state_.data() + row * job_.width; }
  [[nodiscard]] const T* state(std::int64_t row) const { return state_.data() + row * job_.width; }
  [[nodiscard]] float* final(std::int64_t row) { return final_.data() + row * job_.width; }

  const Job<T>& job_;
  std::int64_t slab_steps_;
  PackedPanel<T> panel_;
  std::int64_t row_ = 0;
  std::int64_t column_ = 0;
  AlignedArray<T> state_;
  std::vector<float> final_;  ///< FP32 sums of promoted partials, or C where it starts from C
  std::vector<float> b_scales_;
  std::vector<float> partial_;
};

/// The accumulator's start as the model sees it: FP16 models round c first.
template <typename T>
float Tile<T>::start_value(std::int64_t row, std::int64_t column) const {
  const float c = job_.problem.c[(row_ + row) * job_.problem.b.rows + column_ + column];
  if (!job_.plan.rounding.half_output || !job_.plan.fused()) return c;
  const Format& half = format(FormatId::f16);
  return static_cast<float>(decode(half, encode(half, kNvidiaNosat, c)));
}

template <typename T>
void Tile<T>::reset(std::int64_t row, std::int64_t rows) {
  T zero = 0;
  if (job_.plan.fused()) zero = std::is_same_v<T, float> ? T(kTinyFloat) : T(kTinyDouble);
  std::fill_n(state(row), rows * job_.width, zero);
}

template <typename T>
void Tile<T>::start(std::int64_t row, std::int64_t rows, std::int64_t column) {
  row_ = row;
  column_ = column;
  panel_.start(column);
  const std::int64_t size = rows * job_.width;
  state_ = AlignedArray<T>(size);
  reset(0, rows);
  const bool exact = job_.plan.method == Method::exact;
  if (job_.problem.promotion_interval != 0 || exact)
    final_.assign(static_cast<std::size_t>(size), 0.0F);
  if (job_.problem.c != nullptr) load_c(rows);
}

template <typename T>
void Tile<T>::load_c(std::int64_t rows) {
  const GemmProblem& p = job_.problem;
  const bool exact = job_.plan.method == Method::exact;
  const bool c_in_final = p.promotion_interval != 0 && (!job_.scaled || job_.scaled_in_blocks);
  if (!job_.starts_from_c() && !c_in_final) return;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < panel_.columns(); ++j) {
      if (c_in_final || exact) {
        final(r)[j] = p.c[(row_ + r) * p.b.rows + column_ + j];
        continue;
      }
      const float c = start_value(r, j);
      if (c == 0.0F || !std::isfinite(c)) continue;
      state(r)[j] = job_.plan.fused() ? marked<T>(c) : static_cast<T>(c);
    }
  }
}

template <typename T>
void Tile<T>::run_kernel(const StepBlock<T>& block) const {
  const Plan& plan = job_.plan;
  const bool toward_zero = plan.fused() || plan.method == Method::exact_steps;
  const ScopedRounding rounding(toward_zero ? FE_TOWARDZERO : FE_TONEAREST);
  if constexpr (std::is_same_v<T, float>) {
    if (plan.fused())
      job_.kernels.fused_float(block, plan.rounding);
    else
      job_.kernels.plain_float(block);
  } else {
    if (plan.fused())
      job_.kernels.fused_double(block, plan.rounding);
    else if (plan.method == Method::exact_steps)
      job_.kernels.exact_steps(block, plan.rounding);
    else
      job_.kernels.plain_double(block);
  }
}

template <typename T>
void Tile<T>::accumulate(const PackedRows<T>& block, std::int64_t row, std::int64_t first,
                         std::int64_t steps) {
  const std::int64_t interval = job_.interval_steps();
  for (std::int64_t step = first; step < first + steps;) {
    const std::int64_t end = std::min(first + steps, (step / interval + 1) * interval);
    StepBlock<T> s;
    s.rows = block.rows;
    s.steps = end - step;
    s.terms = job_.plan.terms;
    s.a = block.values.data() + step * block.rows * s.terms;
    if (job_.plan.fused()) {
      s.a_exponents = block.exponents.data() + step * block.rows * s.terms;
      s.a_signs = block.signs.data() + step * block.rows;
    }
    panel_.place(s, step - first);
    s.state = state(row);
    run_kernel(s);
    step = end;
    if (job_.problem.promotion_interval != 0 && (step % interval == 0 || step == job_.steps))
      promote(row, block.rows, step);
  }
}

/// The accumulators of one row as binary32; `c` is what an exact sum adds, or null.
template <typename T>
void Tile<T>::extract(std::int64_t row, const float* c, float* out) const {
  const T* from = state(row);
  if constexpr (std::is_same_v<T, float>) {
    const bool fused = job_.plan.fused();
    for (std::int64_t j = 0; j < job_.width; ++j)
      // Fused states carry a mark in the lowest bit; a plain sum of zero is +0.
      out[j] = fused ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(from[j]) & ~1u)
                     : from[j] + 0.0F;
  } else if (job_.plan.method == Method::exact) {
    const ScopedRounding rounding(FE_TOWARDZERO);
    job_.kernels.round_exact(from, c, out, job_.width);
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
void Tile<T>::promote(std::int64_t row, std::int64_t rows, std::int64_t last_step) {
  static constexpr std::array<float, kMaxWidth> kZeros{};
  const ScopedRounding rounding(FE_TONEAREST);
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
    job_.kernels.combine(combine, job_.width);
  }
  reset(row, rows);
}

template <typename T>
void Tile<T>::finish(std::int64_t rows, std::span<float> d) {
  const GemmProblem& p = job_.problem;
  const ScopedRounding rounding(FE_TONEAREST);
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
      job_.kernels.combine({.order = p.scale_order,
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

/// Overwrites what the kernel could not take: NaN rows and columns by NaN,
/// whatever else is out of its range by the reference.
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
  const bool special = worst_a.nan || worst_a.infinite || worst_b.nan || worst_b.infinite;
  if (!special && !job_.starts_from_c() && kernel_takes(job_.plan, worst_a, worst_b, p.a.k)) return;

  const ScopedRounding rounding(FE_TONEAREST);
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
      if (!a.infinite && !b.infinite && kernel_takes(job_.plan, a, b, p.a.k) &&
          (!job_.starts_from_c() || kernel_takes_start(job_.plan, start_value(row + r, j), a, b)))
        continue;
      auto& b_row = b_rows[static_cast<std::size_t>(j)];
      if (a_row.empty()) a_row = unpack_row(p.a, row_ + row + r);
      if (b_row.empty()) b_row = unpack_row(p.b, column_ + j);
      d[static_cast<std::size_t>(at)] = reference_element(p, job_.a_scales, job_.b_scales, a_row,
                                                          b_row, row_ + row + r, column_ + j);
    }
  }
}

/// Neighbouring panels over the same rows, so that a packed block of A is read
/// from far away once for all of them.
template <typename T>
class TileRow {
 public:
  TileRow(const Job<T>& job, const CodePacker<T>& packer, std::int64_t panels) : job_(job) {
    for (std::int64_t i = 0; i < panels; ++i)
      tiles_.push_back(std::make_unique<Tile<T>>(job, packer));
  }

  void run(std::span<const std::unique_ptr<PackedRows<T>>> blocks, std::int64_t row,
           std::int64_t column, std::span<float> d) {
    std::int64_t rows = 0;
    for (const auto& block : blocks) rows += block->rows;
    const std::int64_t panels = ceil_divide(job_.problem.b.rows - column, job_.width);
    const auto used = std::span(tiles_).first(
        static_cast<std::size_t>(std::min(panels, static_cast<std::int64_t>(tiles_.size()))));
    for (std::size_t i = 0; i < used.size(); ++i)
      used[i]->start(row, rows, column + static_cast<std::int64_t>(i) * job_.width);
    const std::int64_t slab = used.front()->slab_steps();
    for (std::int64_t first = 0; first < job_.steps; first += slab) {
      const std::int64_t steps = std::min(slab, job_.steps - first);
      for (const auto& tile : used) tile->fill(first, steps);
      std::int64_t at = 0;
      for (const auto& block : blocks) {
        for (const auto& tile : used) tile->accumulate(*block, at, first, steps);
        at += block->rows;
      }
    }
    for (const auto& tile : used) {
      tile->finish(rows, d);
      std::int64_t at = 0;
      for (const auto& block : blocks) {
        tile->repair(*block, at, d);
        at += block->rows;
      }
    }
  }

 private:
  const Job<T>& job_;
  std::vector<std::unique_ptr<Tile<T>>> tiles_;
};

/// How a product is cut into tasks: as wide and tall as may be, since each task
/// packs its part of B, but with work for every thread.
struct Cut {
  std::int64_t panels;  ///< a task
  std::int64_t blocks;  ///< of rows a task
};

Cut cut_tasks(std::int64_t panels, std::int64_t blocks, int threads) {
  Cut cut{std::min(kPanels, panels), blocks};
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

/// Rethrows the first exception of a parallel region after it.
class FirstError {
 public:
  template <typename Work>
  void guard(const Work& work) noexcept {
    try {
      work();
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

/// Rows [begin, begin + rows) of the product, tile by tile.
template <typename T>
void multiply_rows(const Job<T>& job, std::int64_t begin, std::int64_t rows, std::span<float> d,
                   int threads) {
  const CodeMatrix& a = job.problem.a;
  const CodePacker<T> a_packer(job.plan, a, CodePacker<T>::Side::a);
  const CodePacker<T> b_packer(job.plan, job.problem.b, CodePacker<T>::Side::b);
  const std::int64_t count = ceil_divide(rows, kRowBlock);
  const std::int64_t panels = ceil_divide(job.problem.b.rows, job.width);
  const Cut cut = cut_tasks(panels, count, threads);
  const std::int64_t groups = ceil_divide(count, cut.blocks);
  const std::int64_t tasks = ceil_divide(panels, cut.panels) * groups;
  std::vector<std::unique_ptr<PackedRows<T>>> blocks(static_cast<std::size_t>(count));
  const std::span<const std::unique_ptr<PackedRows<T>>> all(blocks);
  FirstError error;
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(dynamic)
    for (std::int64_t i = 0; i < count; ++i)
      error.guard([&] {
        const std::int64_t row = i * kRowBlock;
        blocks[static_cast<std::size_t>(i)] = std::make_unique<PackedRows<T>>(
            a_packer, job.kernels, job.plan, a, begin + row, std::min(kRowBlock, rows - row));
      });
    std::unique_ptr<TileRow<T>> tiles;
#pragma omp for schedule(dynamic)
    for (std::int64_t i = 0; i < tasks; ++i)
      error.guard([&] {
        const std::int64_t first = i % groups * cut.blocks;
        if (!tiles) tiles = std::make_unique<TileRow<T>>(job, b_packer, cut.panels);
        const auto size = static_cast<std::size_t>(std::min(cut.blocks, count - first));
        tiles->run(all.subspan(static_cast<std::size_t>(first), size), begin + first * kRowBlock,
                   i / groups * cut.panels * job.width, d);
      });
  }
  error.rethrow();
}

template <typename T>
void multiply(const GemmProblem& problem, const KernelTable& kernels, const Plan& plan,
              std::span<float> d, int threads) {
  const Job<T> job(problem, kernels, plan);
  const std::int64_t m = problem.a.rows;
  const auto row_bytes = job.steps * plan.terms * static_cast<std::int64_t>(sizeof(T) + 4);
  const std::int64_t rows =
      std::max(kPackedBytes / row_bytes, std::min(kChunkRows, kMostPackedBytes / row_bytes));
  const std::int64_t chunk = std::max<std::int64_t>(1, rows / kRowBlock) * kRowBlock;
  for (std::int64_t row = 0; row < m; row += chunk)
    multiply_rows(job, row, std::min(chunk, m - row), d, threads);
}

}  // namespace
}  // namespace gemm_detail

void gemm_with_target(const GemmProblem& problem, std::span<float> d, Target target, int threads) {
  using namespace gemm_detail;
  validate(problem, d.size());
  require_available(target);
  require(threads >= 0, "threads", "a number >= 0", fmt::format("{}", threads));
  if (threads == 0) threads = omp_get_max_threads();
  const KernelTable* kernels = kernel_table(target);
  const Plan plan = make_plan(problem);
  if (kernels == nullptr || plan.method == Method::reference || d.empty() || problem.a.k == 0)
    return gemm_reference(problem, d, threads);
  if (plan.in_double())
    multiply<double>(problem, *kernels, plan, d, threads);
  else
    multiply<float>(problem, *kernels, plan, d, threads);
}

void gemm(const GemmProblem& problem, std::span<float> d, int threads) {
  gemm_with_target(problem, d, current_target(), threads);
}

std::string_view gemm_method(const GemmProblem& problem) {
  return gemm_detail::to_string(gemm_detail::make_plan(problem).method);
}

}  // namespace fp8lab

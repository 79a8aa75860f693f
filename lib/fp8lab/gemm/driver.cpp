#include "fp8lab/gemm/driver.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/first_error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/gemm/methods/methods.hpp"
#include "fp8lab/gemm/operand_scales.hpp"
#include "fp8lab/gemm/tile.hpp"

namespace fp8lab::gemm_detail {
namespace {

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
      const RowSummary codes = summarize(format(job_.problem.a.format), range);
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
  const RowSummary a_scales = range_of_scales(scales, Side::a);
  const RowSummary b_scales = range_of_scales(scales, Side::b);
  const auto takes = [&](const RowSummary& a, const RowSummary& b) {
    return planned->takes(scaled_by(a, a_scales), scaled_by(b, b_scales), p.a.k);
  };
  MethodPtr other = planned->for_other_data(request);
  const bool all = takes(widest_row(*request.a), widest_row(*request.b));
  if (!all && !other) return planned;
  if (!all) {
    const KernelTable& kernels = *kernel_table(target);
    const RowSummary in_a = summarize<double>(kernels, p.a, threads);
    const RowSummary in_b = summarize<double>(kernels, p.b, threads);
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

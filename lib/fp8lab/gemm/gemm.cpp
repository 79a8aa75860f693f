#include "fp8lab/gemm/gemm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/first_error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/gemm/c_placement.hpp"
#include "fp8lab/gemm/halves.hpp"
#include "fp8lab/gemm/operand_scales.hpp"
#include "fp8lab/gemm/tile.hpp"
#include "fp8lab/gemm/turned.hpp"

namespace fp8lab {
namespace gemm_detail {
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

/// Neighbouring panels over the same rows, so that a packed block of A is read
/// from far away once for all of them.
template <typename T>
class TileRow {
 public:
  TileRow(const Job<T>& job, std::int64_t panels) : job_(job) {
    for (std::int64_t i = 0; i < panels; ++i) tiles_.push_back(std::make_unique<Tile<T>>(job));
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
    for (std::int64_t slab = 0; slab < job_.steps; slab += job_.slab_steps) {
      const std::int64_t end = std::min(slab + job_.slab_steps, job_.steps);
      for (const auto& tile : used) tile->load(slab, end - slab);
      for (std::int64_t first = slab; first < end; first += job_.decoded_steps) {
        const std::int64_t steps = std::min(job_.decoded_steps, end - first);
        for (const auto& tile : used) tile->decode(first, steps);
        std::int64_t at = 0;
        for (const auto& block : blocks) {
          for (const auto& tile : used) tile->accumulate(*block, at, first, steps);
          at += block->rows;
        }
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

/// Rows [begin, begin + rows) of the product, tile by tile.
template <typename T>
void multiply_rows(const Job<T>& job, std::int64_t begin, std::int64_t rows, std::span<float> d,
                   int threads) {
  const CodeMatrix& a = job.problem.a;
  const std::int64_t count = ceil_divide(rows, kRowBlock);
  const std::int64_t panels = ceil_divide(job.problem.b.rows, job.width);
  const Cut cut =
      cut_tasks(panels, count, threads, job.has_few_rows() ? kPanelsOfFewRows : kPanels);
  const std::int64_t groups = ceil_divide(count, cut.blocks);
  const std::int64_t tasks = ceil_divide(panels, cut.panels) * groups;
  std::vector<std::unique_ptr<PackedRows<T>>> blocks(static_cast<std::size_t>(count));
  const std::span<const std::unique_ptr<PackedRows<T>>> all(blocks);
  FirstError error;
#pragma omp parallel num_threads(threads)
  {
    const FloatEnvironment environment;
#pragma omp for schedule(dynamic)
    for (std::int64_t i = 0; i < count; ++i)
      error.guard([&] {
        const std::int64_t row = i * kRowBlock;
        blocks[static_cast<std::size_t>(i)] =
            std::make_unique<PackedRows<T>>(job.kernels, job.plan, a, begin + row,
                                            std::min(kRowBlock, rows - row), job.a_unit_scales);
      });
    std::unique_ptr<TileRow<T>> tiles;
#pragma omp for schedule(dynamic)
    for (std::int64_t i = 0; i < tasks; ++i)
      error.guard([&] {
        const std::int64_t first = i % groups * cut.blocks;
        if (!tiles) tiles = std::make_unique<TileRow<T>>(job, cut.panels);
        const auto size = static_cast<std::size_t>(std::min(cut.blocks, count - first));
        tiles->run(all.subspan(static_cast<std::size_t>(first), size), begin + first * kRowBlock,
                   i / groups * cut.panels * job.width, d);
      });
  }
  error.rethrow();
}

/// Gives an exact method two words if its operands' codes could need, and do need, them.
void choose_words(const GemmProblem& p, const KernelTable& kernels, int threads, Plan& plan) {
  const Format& a = format(p.a.format);
  const Format& b = format(p.b.format);
  const TwoWords words = find_two_words(plan, a, b, p.a.k);
  if (!words.used() || kernel_takes(plan, widest_row(a), widest_row(b), p.a.k)) return;
  const RowSummary in_a = summarize<double>(kernels, p.a, threads);
  const RowSummary in_b = summarize<double>(kernels, p.b, threads);
  if (!kernel_takes(plan, in_a, in_b, p.a.k)) plan.words = words;
}

template <typename T>
void multiply(const PlannedProduct& product, const Kernels& kernels, std::span<float> d,
              int threads) {
  const Job<T> job(product, kernels);
  const std::int64_t m = product.problem.a.rows;
  const auto row_bytes = job.steps * product.plan.terms * static_cast<std::int64_t>(sizeof(T) + 4);
  const std::int64_t rows =
      std::max(kPackedBytes / row_bytes, std::min(kChunkRows, kMostPackedBytes / row_bytes));
  const std::int64_t chunk = std::max<std::int64_t>(1, rows / kRowBlock) * kRowBlock;
  for (std::int64_t row = 0; row < m; row += chunk)
    multiply_rows(job, row, std::min(chunk, m - row), d, threads);
}

}  // namespace

void gemm_planned(PlannedProduct product, std::span<float> d, Target target, int threads) {
  const Kernels kernels{*kernel_table(target), unit_kernels(target)};
  choose_words(product.problem, kernels, threads, product.plan);
  if (product.plan.in_double())
    multiply<double>(product, kernels, d, threads);
  else
    multiply<float>(product, kernels, d, threads);
}

namespace {

/// The plan for the problem's data: steps in 32-bit integers leave exponents that are far from 0 to
/// binary64.
Plan plan_for_data(const GemmProblem& p, Target target, int threads) {
  const Plan plan = make_plan(p);
  const RowSummary all_a = widest_row(format(p.a.format));
  const RowSummary all_b = widest_row(format(p.b.format));
  if (plan.method != Method::fused_words || kernel_takes(plan, all_a, all_b, p.a.k)) return plan;
  const KernelTable& kernels = *kernel_table(target);
  const RowSummary in_a = summarize<double>(kernels, p.a, threads);
  const RowSummary in_b = summarize<double>(kernels, p.b, threads);
  return kernel_takes(plan, in_a, in_b, p.a.k) ? plan : make_plan(p, false);
}

/// The product under an instruction that applies scales of its own, or could: they are 1 then.
void gemm_scaled_by_unit(const GemmProblem& given, const Plan& plan, std::span<float> d,
                         Target target, int threads) {
  using Side = OperandScales::Side;
  const BlockScaleRows scales(given);
  const GemmProblem problem = without_unit_scales(given);
  const bool groups = plan.method == Method::scaled_groups;
  const std::int64_t terms = groups ? kGroupTerms : plan.terms;
  const OperandScales a(problem, scales, Side::a, terms, groups);
  const OperandScales b(problem, scales, Side::b, terms, groups);
  gemm_planned({problem, problem, plan, &a, &b, &scales}, d, target, threads);
}

}  // namespace
}  // namespace gemm_detail

void gemm_with_target(const GemmProblem& problem, std::span<float> d, Target target, int threads) {
  using namespace gemm_detail;
  validate(problem, d.size());
  require_available(target);
  threads = team_size(threads);
  if (kernel_table(target) == nullptr || d.empty() || problem.a.k == 0)
    return gemm_reference(problem, d, threads);
  if (!enters_in_passing(problem)) return gemm_with_c(problem, d, target, threads);
  if (runs_turned(problem)) return gemm_turned(problem, d, target, threads);
  if (runs_by_halves(problem)) return gemm_by_halves(problem, d, target, threads);
  const Plan plan = plan_for_data(problem, target, threads);
  if (plan.method == Method::reference) return gemm_reference(problem, d, threads);
  if (traits_of(problem.model).takes_scales)
    return gemm_scaled_by_unit(problem, plan, d, target, threads);
  gemm_planned({problem, problem, plan}, d, target, threads);
}

void gemm(const GemmProblem& problem, std::span<float> d, int threads) {
  gemm_with_target(problem, d, current_target(), threads);
}

std::string_view gemm_method(const GemmProblem& problem) {
  if (gemm_detail::runs_by_halves(problem)) return "fp16 halves";
  return gemm_detail::to_string(gemm_detail::make_plan(problem).method);
}

}  // namespace fp8lab

#include "fp8lab/product/execution.hpp"

#include <algorithm>
#include <utility>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/gemm/run.hpp"
#include "fp8lab/product/partial_sums.hpp"
#include "fp8lab/product/split_k.hpp"

namespace fp8lab {
namespace {

constexpr double kToldWork = 1e10;       // terms: less is done before anyone asks
constexpr std::int64_t kToldRows = 512;  // so many that packing B again costs little
constexpr double kSmallWork = 1 << 20;   // terms: threads take longer to start than to add them

Execution execution_of(const Product& product, int threads) {
  const double work =
      static_cast<double>(product.sum_count()) * static_cast<double>(product.problem.a.k);
  const Target target = current_target();
  return {.method = {}, .target = target, .threads = work < kSmallWork ? 1 : team_size(threads)};
}

std::vector<float> compute_whole(const GemmProblem& problem, Execution& ran) {
  std::vector<float> d(static_cast<std::size_t>(problem.a.rows * problem.b.rows));
  ran.method = run_gemm(problem, d, ran.target, ran.threads);
  return d;
}

std::vector<float> compute_parts(const Product& product, Execution& ran) {
  std::vector<std::vector<float>> sums;
  for (const Product& part : split_parts(product)) {
    Execution of_part = ran;
    sums.push_back(compute_whole(part.problem, of_part));
    if (sums.size() == 1) ran.method = of_part.method;
  }
  std::vector<float> sum = add_up(std::move(sums), product.split.order);
  scale_sums(product.problem, sum);
  return sum;
}

std::vector<float> compute_sums(const Product& product, int threads, Execution& ran) {
  ran = execution_of(product, threads);
  return product.split.parts > 1 ? compute_parts(product, ran)
                                 : compute_whole(product.problem, ran);
}

/// Rows [begin, end) of a problem, which begin at a tile of A's scales.
GemmProblem rows_of(const GemmProblem& problem, std::int64_t begin, std::int64_t end) {
  GemmProblem part = problem;
  const std::int64_t width = format(problem.a.format).bytes();
  part.a.data =
      static_cast<const std::byte*>(problem.a.data) + begin * problem.a.row_stride * width;
  part.a.rows = end - begin;
  if (problem.c != nullptr) part.c = problem.c + begin * problem.b.rows;
  InverseScales& scales = part.scale_a;
  if (scales.empty() || scales.row_block >= problem.a.rows) return part;
  const std::int64_t k_block = scales.k_block == 0 ? problem.a.k : scales.k_block;
  const std::int64_t columns = ceil_divide(problem.a.k, k_block);
  const std::int64_t first = begin / scales.row_block;
  const std::int64_t last = ceil_divide(end, scales.row_block);
  scales.values = scales.values.subspan(static_cast<std::size_t>(first * columns),
                                        static_cast<std::size_t>((last - first) * columns));
  return part;
}

/// The sums, some rows at a time.
std::vector<float> compute_told(const Product& product, int threads, Execution& ran,
                                const Progress& progress) {
  constexpr std::string_view kStep = "the golden output";
  const GemmProblem& p = product.problem;
  const double work = static_cast<double>(product.sum_count()) * static_cast<double>(p.a.k);
  const bool one_tile = p.scale_a.empty() || p.scale_a.row_block >= p.a.rows;
  const std::int64_t side = one_tile ? 1 : p.scale_a.row_block;
  const std::int64_t step = ceil_divide(kToldRows, side) * side;
  tell(progress, kStep, 0.0);
  if (!progress || product.split.parts > 1 || work < kToldWork || step >= p.a.rows)
    return compute_sums(product, threads, ran);
  ran = execution_of(product, threads);
  std::vector<float> d(product.sum_count());
  for (std::int64_t row = 0; row < p.a.rows; row += step) {
    const std::int64_t end = std::min(row + step, p.a.rows);
    const auto at = static_cast<std::size_t>(row * p.b.rows);
    const std::string_view method =
        run_gemm(rows_of(p, row, end),
                 std::span(d).subspan(at, static_cast<std::size_t>((end - row) * p.b.rows)),
                 ran.target, ran.threads);
    if (row == 0) ran.method = method;
    tell(progress, kStep, static_cast<double>(end) / static_cast<double>(p.a.rows));
  }
  return d;
}

}  // namespace

std::vector<float> compute_sums(const Product& product, int threads) {
  Execution ran;
  return compute_sums(product, threads, ran);
}

std::vector<float> finish(const Product& product, std::vector<float> sums, int threads) {
  if (product.epilogue.empty()) return sums;
  return finish(product.epilogue, std::move(sums), product.rows(), product.problem.b.rows, false,
                threads)
      .values;
}

std::vector<float> compute(const Product& product, int threads) {
  return finish(product, compute_sums(product, threads), threads);
}

Finished compute_finished(const Product& product, bool with_reach, int threads, Execution& ran) {
  return finish(product.epilogue, compute_sums(product, threads, ran), product.rows(),
                product.problem.b.rows, with_reach, threads);
}

Finished compute_finished(const Product& product, bool with_reach, int threads, Execution& ran,
                          const Progress& progress) {
  return finish(product.epilogue, compute_told(product, threads, ran, progress), product.rows(),
                product.problem.b.rows, with_reach, threads);
}

Finished compute_finished(const Product& product, bool with_reach, int threads) {
  Execution ran;
  return compute_finished(product, with_reach, threads, ran);
}

}  // namespace fp8lab

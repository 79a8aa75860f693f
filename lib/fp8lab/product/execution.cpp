#include "fp8lab/product/execution.hpp"

#include <utility>

#include "fp8lab/core/threads.hpp"
#include "fp8lab/product/partial_sums.hpp"
#include "fp8lab/product/split_k.hpp"

namespace fp8lab {
namespace {

constexpr double kSmallWork = 1 << 20;  // terms: threads take longer to start than to add them

Execution execution_of(const Product& product, int threads) {
  const double work =
      static_cast<double>(product.sum_count()) * static_cast<double>(product.problem.a.k);
  const Target target = current_target();
  return {.method = target == Target::scalar ? "reference" : gemm_method(product.problem),
          .target = target,
          .threads = work < kSmallWork ? 1 : team_size(threads)};
}

std::vector<float> compute_sums(const Product& product, int threads, Execution& ran) {
  ran = execution_of(product, threads);
  if (product.split.parts > 1) {
    std::vector<float> sums = sum_of_parts(product, ran.threads);
    scale_sums(product.problem, sums);
    return sums;
  }
  std::vector<float> d(product.sum_count());
  gemm_with_target(product.problem, d, ran.target, ran.threads);
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

Finished compute_finished(const Product& product, bool with_reach, int threads) {
  Execution ran;
  return compute_finished(product, with_reach, threads, ran);
}

}  // namespace fp8lab

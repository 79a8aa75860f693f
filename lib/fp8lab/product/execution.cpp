#include "fp8lab/product/execution.hpp"

#include "fp8lab/core/threads.hpp"

namespace fp8lab {
namespace {

constexpr double kSmallWork = 1 << 20;  // terms: threads take longer to start than to add them

Execution execution_of(const Product& product, int threads) {
  const double work =
      static_cast<double>(product.size()) * static_cast<double>(product.problem.a.k);
  const Target target = current_target();
  return {.method = target == Target::scalar ? "reference" : gemm_method(product.problem),
          .target = target,
          .threads = work < kSmallWork ? 1 : team_size(threads)};
}

}  // namespace

std::vector<float> compute(const Product& product, int threads, Execution& ran) {
  ran = execution_of(product, threads);
  std::vector<float> d(product.size());
  gemm_with_target(product.problem, d, ran.target, ran.threads);
  return d;
}

std::vector<float> compute(const Product& product, int threads) {
  Execution ran;
  return compute(product, threads, ran);
}

}  // namespace fp8lab

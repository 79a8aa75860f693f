#include "fp8lab/linear/multiply.hpp"

#include <algorithm>
#include <cmath>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/linear/multiply_kernel.hpp"

namespace fp8lab::train {
namespace {

// Products between two visits of an output: a panel of B then stays in the first cache.
constexpr std::int64_t kDepth = 256;
// Rows of A that a task packs: a multiple of every kernel's rows.
constexpr std::int64_t kTaskRows = 64;

/// Rows [first, first + count) and terms [k, k + depth) as [depth][width], zeros beyond count.
void pack(Operand<float> x, std::int64_t first, std::int64_t count, std::int64_t k,
          std::int64_t depth, std::int64_t width, float* to) {
  if (count < width) std::fill(to, to + depth * width, 0.0F);
  if (x.row_stride == 1) {
    for (std::int64_t i = 0; i < depth; ++i)
      std::copy_n(x.data + first + (k + i) * x.k_stride, count, to + i * width);
    return;
  }
  for (std::int64_t r = 0; r < count; ++r) {
    const float* from = x.data + (first + r) * x.row_stride + k * x.k_stride;
    for (std::int64_t i = 0; i < depth; ++i) to[i * width + r] = from[i * x.k_stride];
  }
}

struct Slab {
  std::int64_t k = 0;
  std::int64_t depth = 0;
};

/// One task: rows [first, first + kTaskRows) of D with all panels of B.
void multiply_rows(const detail::MultiplyKernel& kernel, Operand<float> a, const float* packed_b,
                   Output<float> d, const ProductSize& size, Slab slab, std::int64_t first) {
  const FloatEnvironment environment;
  const std::int64_t count = std::min(kTaskRows, size.m - first);
  const std::int64_t blocks = ceil_divide(count, kernel.rows);
  std::vector<float> packed_a(static_cast<std::size_t>(blocks * kernel.rows * slab.depth));
  for (std::int64_t block = 0; block < blocks; ++block)
    pack(a, first + block * kernel.rows, std::min(kernel.rows, count - block * kernel.rows), slab.k,
         slab.depth, kernel.rows, packed_a.data() + block * kernel.rows * slab.depth);
  std::vector<float> edge(static_cast<std::size_t>(kernel.rows * kernel.width));
  for (std::int64_t j = 0; j < size.n; j += kernel.width) {
    const std::int64_t columns = std::min(kernel.width, size.n - j);
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t row = block * kernel.rows;
      const std::int64_t rows = std::min(kernel.rows, count - row);
      float* out = d.data + (first + row) * d.row_stride + j;
      const float* a_block = packed_a.data() + row * slab.depth;
      const float* b_panel = packed_b + j * slab.depth;
      if (rows == kernel.rows && columns == kernel.width) {
        kernel.block(slab.depth, a_block, b_panel, out, d.row_stride);
        continue;
      }
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy_n(out + r * d.row_stride, columns, edge.data() + r * kernel.width);
      kernel.block(slab.depth, a_block, b_panel, edge.data(), kernel.width);
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy_n(edge.data() + r * kernel.width, columns, out + r * d.row_stride);
    }
  }
}

}  // namespace

void multiply_with_target(Operand<float> a, Operand<float> b, Output<float> d, ProductSize size,
                          int threads, Target target) {
  require_available(target);
  const detail::MultiplyKernel kernel = detail::multiply_kernel(target);
  for (std::int64_t i = 0; i < size.m; ++i) std::fill_n(d.data + i * d.row_stride, size.n, 0.0F);
  const std::int64_t panels = ceil_divide(size.n, kernel.width);
  const std::int64_t tasks = ceil_divide(size.m, kTaskRows);
  std::vector<float> packed_b(
      static_cast<std::size_t>(panels * kernel.width * std::min(kDepth, size.k)));
  for (std::int64_t k = 0; k < size.k; k += kDepth) {
    const Slab slab{k, std::min(kDepth, size.k - k)};
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const std::int64_t j = panel * kernel.width;
      pack(b, j, std::min(kernel.width, size.n - j), k, slab.depth, kernel.width,
           packed_b.data() + j * slab.depth);
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::int64_t task = 0; task < tasks; ++task)
      multiply_rows(kernel, a, packed_b.data(), d, size, slab, task * kTaskRows);
  }
}

void multiply(Operand<float> a, Operand<float> b, Output<float> d, ProductSize size, int threads) {
  multiply_with_target(a, b, d, size, threads, current_target());
}

void multiply(Operand<double> a, Operand<double> b, Output<double> d, ProductSize size,
              int /*threads*/) {
  const FloatEnvironment environment;
  for (std::int64_t i = 0; i < size.m; ++i)
    for (std::int64_t j = 0; j < size.n; ++j) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < size.k; ++k)
        sum = std::fma(a.data[i * a.row_stride + k * a.k_stride],
                       b.data[j * b.row_stride + k * b.k_stride], sum);
      d.data[i * d.row_stride + j] = sum;
    }
}

}  // namespace fp8lab::train

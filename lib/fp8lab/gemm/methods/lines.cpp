#include "fp8lab/gemm/methods/lines.hpp"

#include <algorithm>

#include "fp8lab/gemm/pack.hpp"

namespace fp8lab::gemm_detail {
namespace {

constexpr std::int64_t kColumnsAhead = 4;  // whose codes are fetched meanwhile
constexpr std::int64_t kCacheLine = 64;

}  // namespace

bool sums_along_k(const GemmProblem& problem, std::int64_t terms, std::int64_t most_rows) {
  return terms == kLineTerms && problem.a.rows <= most_rows &&
         problem.b.rows >= kColumnsPerRow * problem.a.rows;
}

ExactLines::ExactLines(const TileSteps<double>& steps, bool together)
    : width_(steps.kernels.width<double>()),
      sums_(together ? 1 : steps.count),
      ones_(sums_),
      values_(steps.rows.rows * sums_ * width_) {
  const std::int64_t rows = steps.rows.rows;
  const std::int64_t terms = steps.count * kLineTerms;
  PanelLines lines;
  steps.panel.place(lines, steps.first);
  const auto decode = steps.kernels.decode<float>(lines.storage_bits).rows;
  const std::int64_t bytes = terms * lines.storage_bits / 8;
  AlignedArray<float> column(terms + kMaxWidth);
  std::fill_n(ones_.data(), sums_, 1.0);
  std::fill_n(values_.data(), rows * sums_ * width_, 0.0);
  for (std::int64_t j = 0; j < lines.columns; ++j) {
    const unsigned char* codes = lines.codes + j * lines.code_stride;
    if (j + kColumnsAhead < lines.columns)
      for (std::int64_t i = 0; i < bytes; i += kCacheLine)
        __builtin_prefetch(codes + kColumnsAhead * lines.code_stride + i);
    decode({.codes = codes,
            .row_stride = 0,
            .rows = 1,
            .steps = steps.count,
            .terms = kLineTerms,
            .layout = lines.layout,
            .fused = false,
            .values = column.data()});
    steps.kernels.sums.line_sums({.rows = rows,
                                  .steps = steps.count,
                                  .a = steps.rows.values.data() + steps.first * rows * kLineTerms,
                                  .b = column.data(),
                                  .together = together,
                                  .to = values_.data() + j,
                                  .row_stride = sums_ * width_,
                                  .step_stride = width_});
  }
}

StepBlock<double> ExactLines::block(const TileSteps<double>& steps, std::int64_t row) const {
  StepBlock<double> block;
  block.rows = 1;
  block.steps = sums_;
  block.terms = 1;
  block.a = ones_.data();
  block.b = values_.data() + row * sums_ * width_;
  block.state = steps.state + row * width_;
  return block;
}

}  // namespace fp8lab::gemm_detail

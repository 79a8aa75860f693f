#include "fp8lab/verify/references.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "fp8lab/core/parallel.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/stand_in.hpp"

namespace fp8lab {
namespace {

/// One operand as the reference reads it, [rows, k].
std::vector<double> dequantized(const CodeMatrix& m, const InverseScales& scales,
                                const Originals& original) {
  std::vector<double> values(static_cast<std::size_t>(m.rows * m.k));
  const ScaleLookup lookup(scales, m);
  for (std::int64_t row = 0; row < m.rows; ++row)
    for (std::int64_t k = 0; k < m.k; ++k) {
      const auto at = static_cast<std::size_t>(row * m.k + k);
      values[at] = original ? static_cast<double>((*original)[at])
                            : decode(format(m.format), code_at(m, row, k)) *
                                  static_cast<double>(lookup.at(row, k));
    }
  return values;
}

/// What the product's epilogue makes of an exact sum.
std::vector<double> exact_outputs(const Product& p, const std::vector<double>& sums) {
  const Epilogue& e = p.epilogue;
  const std::int64_t n = p.problem.b.rows;
  std::vector<double> values;
  const auto v = [&](std::int64_t i, std::int64_t j) {
    return static_cast<double>(e.alpha) * sums[static_cast<std::size_t>(i * n + j)];
  };
  for (std::int64_t i = 0; i < p.rows(); ++i)
    for (std::int64_t j = 0; j < p.columns(); ++j) {
      double w = activation_value(e, v(i, j));
      if (e.gated()) w *= v(i, p.columns() + j);
      values.push_back(e.output_scale ? w * static_cast<double>(*e.output_scale) : w);
    }
  return values;
}

std::vector<double> fp64_reference(const Product& p, bool originals, int threads) {
  const GemmProblem& q = p.problem;
  const std::vector<double> a = dequantized(q.a, q.scale_a, originals ? p.a_original : nullptr);
  const std::vector<double> b = dequantized(q.b, q.scale_b, originals ? p.b_original : nullptr);
  std::vector<double> sums(p.sum_count());
  parallel_for(q.a.rows, team_size(threads), [&](std::int64_t i) {
    for (std::int64_t j = 0; j < q.b.rows; ++j) {
      const double* x = a.data() + i * q.a.k;
      const double* y = b.data() + j * q.a.k;
      std::array<double, 8> part{};
      std::int64_t k = 0;
      for (; k + 8 <= q.a.k; k += 8)
        for (std::size_t l = 0; l < 8; ++l)
          part[l] += x[k + static_cast<std::int64_t>(l)] * y[k + static_cast<std::int64_t>(l)];
      double sum = 0.0;
      for (const double one : part) sum += one;
      for (; k < q.a.k; ++k) sum += x[k] * y[k];
      sums[static_cast<std::size_t>(i * q.b.rows + j)] = sum;
    }
  });
  return exact_outputs(p, sums);
}

}  // namespace

Reference reference_of(std::vector<double> values, const OutputCast& output) {
  std::vector<float> narrow(values.size());
  std::transform(values.begin(), values.end(), narrow.begin(),
                 [](double x) { return static_cast<float>(x); });
  std::vector<std::byte> codes = cast_output(narrow, output, 1);
  return {std::move(values), std::move(codes)};
}

std::array<Reference, kReferences> references_of(const Product& p, const ExpectOptions& o) {
  std::vector<double> fp64 = fp64_reference(p, o.against_originals, o.threads);
  std::vector<double> fp32;
  if (o.against_originals) {
    for (const double x : fp64) fp32.push_back(static_cast<double>(static_cast<float>(x)));
  } else {
    Product plain = with_accumulator(p, find_instruction_model("fp32").accumulator);
    // FP32 has no scales of its own: each block's sum is scaled and added.
    if (applies_scales(p.problem)) plain.problem.promotion_interval = common_scale_block(p.problem);
    plain.split = {};
    for (const float x : compute(plain, o.threads)) fp32.push_back(static_cast<double>(x));
  }
  std::vector<float> narrow(fp32.size());
  std::transform(fp32.begin(), fp32.end(), narrow.begin(),
                 [](double x) { return static_cast<float>(x); });
  const OutputCast to_bf16 = default_output(FormatId::bf16);
  std::vector<double> bf16;
  for (const float x : decode_codes(FormatId::bf16, cast_output(narrow, to_bf16, 1)))
    bf16.push_back(static_cast<double>(x));
  return {reference_of(std::move(fp64), p.output), reference_of(std::move(fp32), p.output),
          reference_of(std::move(bf16), p.output)};
}

}  // namespace fp8lab

#include "fp8lab/linear/products.hpp"

#include <bit>
#include <limits>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/encode.hpp"

namespace fp8lab::train {
namespace {

std::vector<std::uint16_t> to_bf16(std::span<const float> x, int threads) {
  std::vector<std::uint16_t> codes(x.size());
  encode(x, std::span(codes),
         {.format = FormatId::bf16, .policy = kNvidiaNosat, .threads = threads});
  return codes;
}

/// A or its transpose as [rows, k] of BF16 codes.
CodeMatrix bf16_operand(const std::vector<std::uint16_t>& codes, const Matrix<float>& x,
                        bool transposed) {
  if (transposed) return {FormatId::bf16, codes.data(), x.columns, x.rows, 1, x.columns};
  return {FormatId::bf16, codes.data(), x.rows, x.columns, x.columns, 1};
}

/// A BF16 product fits binary32, so that an FMA rounds what `fp32` rounds: the sum.
/// No tensor core adds so, nor multiplies FP32: these references run on no backend.
bool sums_in_float32(const GemmSettings& settings) {
  return settings.accumulator.kind == AccumulationKind::float32 && settings.promotion_interval == 0;
}

void float32_product(const LinearRecipe& recipe, const Matrix<float>& a, bool a_transposed,
                     const Matrix<float>& b, bool b_transposed, Matrix<float>& d, int threads) {
  recipe.float32_multiply(a_transposed ? a.transposed_view() : a.view(),
                          b_transposed ? b.transposed_view() : b.view(),
                          {d.values.data(), d.columns},
                          {d.rows, d.columns, a_transposed ? a.rows : a.columns}, threads);
}

}  // namespace

CodedOperand codes_of(const QuantizedTensor& tensor) { return {tensor.matrix(), tensor.inverse()}; }

void fp8_product(const GemmSettings& settings, const CodedOperand& a, const CodedOperand& b,
                 std::span<float> d, int threads, const Backend& backend) {
  GemmProblem problem;
  problem.model = settings.accumulator;
  problem.a = a.codes;
  problem.b = b.codes;
  problem.scale_a = a.scales;
  problem.scale_b = b.scales;
  problem.promotion_interval = settings.promotion_interval;
  problem.scale_order = settings.scale_order;
  gemm_on(backend, problem, d, threads);
}

void plain_product(const LinearRecipe& recipe, const GemmSettings& settings, const Matrix<float>& a,
                   bool a_transposed, const Matrix<float>& b, bool b_transposed, Matrix<float>& d,
                   int threads, const Backend& backend) {
  if (settings.arithmetic == Arithmetic::bf16) {
    if (sums_in_float32(settings)) {
      Matrix<float> a_rounded = a;
      Matrix<float> b_rounded = b;
      round_to_bf16(a_rounded.values, threads);
      round_to_bf16(b_rounded.values, threads);
      float32_product(recipe, a_rounded, a_transposed, b_rounded, b_transposed, d, threads);
      return;
    }
    const auto a_codes = to_bf16(a.values, threads);
    const auto b_codes = to_bf16(b.values, threads);
    GemmProblem problem;
    problem.model = settings.accumulator;
    problem.a = bf16_operand(a_codes, a, a_transposed);
    problem.b = bf16_operand(b_codes, b, b_transposed);
    problem.promotion_interval = settings.promotion_interval;
    gemm_on(backend, problem, d.values, threads);
    return;
  }
  float32_product(recipe, a, a_transposed, b, b_transposed, d, threads);
}

void round_to_bf16(std::span<float> x, int threads) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr Format kBf16 = format(FormatId::bf16);
  constexpr std::uint32_t kPositiveNan = encode(kBf16, kNvidiaNosat, kNan) << 16;
  constexpr std::uint32_t kNegativeNan = encode(kBf16, kNvidiaNosat, -kNan) << 16;
  const auto count = static_cast<std::int64_t>(x.size());
  float* const values = x.data();
  // A carry out of the significand raises the exponent, at last to that of Inf.
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    const std::uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    const std::uint32_t nan = bits >> 31 != 0 ? kNegativeNan : kPositiveNan;
    values[i] = std::bit_cast<float>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
  }
}

}  // namespace fp8lab::train

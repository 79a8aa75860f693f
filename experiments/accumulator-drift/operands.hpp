#pragma once
// The operands of the accumulator-drift experiment: matrices A [m,k] and
// B [n,k] of three distributions, in BF16 as a training step would hold them,
// and quantized to E4M3 with one scale each.

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/tensor_source.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab::experiments {

enum class Distribution : std::uint8_t {
  uniform,     ///< U[0, 1): every product positive
  normal,      ///< N(0, 1), independent: products of zero mean
  correlated,  ///< N(0, 1) with E[a_ik b_jk] = correlation for every i and j
  ones,        ///< all 1
  own,         ///< of the sources of the spec
};
std::string_view to_string(Distribution distribution);
/// Throws `Error`.
Distribution find_distribution(std::string_view name);

/// A [m,k] and B [n,k], row-major BF16 codes.
struct Bf16Operands {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::vector<std::uint16_t> a;
  std::vector<std::uint16_t> b;
};

struct OperandSpec {
  Distribution distribution = Distribution::uniform;
  std::int64_t m = 16;
  std::int64_t n = 16;
  std::int64_t k = 1024;
  double correlation = 0.5;             ///< of `Distribution::correlated` only
  const TensorSource* own_a = nullptr;  ///< of `Distribution::own`, else null
  const TensorSource* own_b = nullptr;
};

/// Draws of their own for every distribution and k: points of a sweep are independent.
Bf16Operands make_operands(const OperandSpec& spec, std::uint64_t seed);

/// E4M3 codes with one scale a matrix: scale = 448 / amax in binary32
/// (1 where amax is 0), value = code * inverse_scale.
struct QuantizedOperands {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::vector<std::uint8_t> a;
  std::vector<std::uint8_t> b;
  double inverse_scale = 1.0;  ///< of a product: inverse_scale_a * inverse_scale_b

  [[nodiscard]] CodeMatrix a_matrix() const {
    return CodeMatrix::row_major(FormatId::e4m3fn, a, m, k);
  }
  [[nodiscard]] CodeMatrix b_matrix() const {
    return CodeMatrix::row_major(FormatId::e4m3fn, b, n, k);
  }
};
QuantizedOperands quantize(const Bf16Operands& operands, const Backend& backend = {});
/// The same through a cast policy and without scales, as the naive-FP8 tutorial's listing casts.
QuantizedOperands quantize_unscaled(const Bf16Operands& operands, const CastPolicy& policy,
                                    const Backend& backend = {});

/// The sums of all products [m,n], row-major, in code units. Exact: products are
/// multiples of 2^-18 below 2^18, so binary64 holds sums of up to 2^17 of them.
std::vector<double> exact_product(const QuantizedOperands& operands);
/// The same of BF16 operands in binary64 arithmetic (16-bit products, relative error < 1e-12).
std::vector<double> exact_product(const Bf16Operands& operands);

}  // namespace fp8lab::experiments

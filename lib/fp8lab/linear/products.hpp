#pragma once
// The three products of a linear layer without state, for `LinearProducts` and for frameworks
// that store codes and states themselves.

#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/linear/linear_recipe.hpp"

namespace fp8lab::train {

/// The codes and scales of an FP8 operand [rows, k].
struct CodedOperand {
  CodeMatrix codes;
  InverseScales scales;
};

/// A view of a tensor, which must outlive the result.
CodedOperand codes_of(const QuantizedTensor& tensor);

/// Whether the recipes of their roles cast the operands.
inline bool is_fp8(const GemmSettings& settings) { return settings.arithmetic == Arithmetic::fp8; }

/// d [m, n] = a [m, k] . b [n, k]^T in binary32, before the rounding to the output's format, on
/// `backend`. Throws `Error` for shapes or scales that do not fit.
void fp8_product(const GemmSettings& settings, const CodedOperand& a, const CodedOperand& b,
                 std::span<float> d, int threads, const Backend& backend = {});

/// D = A B^T, where either operand can be transposed first, in BF16 or FP32 as in `settings`.
/// `threads` >= 1. `backend` computes sums of matrix units; the host computes sums in FP32.
void plain_product(const LinearRecipe& recipe, const GemmSettings& settings, const Matrix<float>& a,
                   bool a_transposed, const Matrix<float>& b, bool b_transposed, Matrix<float>& d,
                   int threads, const Backend& backend = {});

/// Rounds every value to BF16, to nearest even; overflow gives an infinity.
void round_to_bf16(std::span<float> x, int threads);

}  // namespace fp8lab::train

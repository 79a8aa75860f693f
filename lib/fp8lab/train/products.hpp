#pragma once
// The three products of a linear layer, without state: what `LinearProducts` runs, and what a
// framework runs that keeps codes and states itself.

#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/train/linear_recipe.hpp"

namespace fp8lab::train {

/// An FP8 operand [rows, k] that was cast.
struct CodedOperand {
  CodeMatrix codes;
  InverseScales scales;
};

/// Of a tensor that must outlive the result.
CodedOperand codes_of(const QuantizedTensor& tensor);

/// Whether its operands are to be cast by the recipes of their roles.
inline bool is_fp8(const GemmSettings& settings) { return settings.arithmetic == Arithmetic::fp8; }

/// d [m, n] = a [m, k] . b [n, k]^T in binary32, not yet rounded to the output's format; on
/// `backend`. Throws `Error` for shapes or scales that do not fit.
void fp8_product(const GemmSettings& settings, const CodedOperand& a, const CodedOperand& b,
                 std::span<float> d, int threads, const Backend& backend = {});

/// D = A B^T, or with either operand transposed first, in BF16 or FP32 as `settings` says.
/// `threads` >= 1. `backend` runs what a matrix unit adds; sums in FP32 are the host's.
void plain_product(const LinearRecipe& recipe, const GemmSettings& settings, const Matrix<float>& a,
                   bool a_transposed, const Matrix<float>& b, bool b_transposed, Matrix<float>& d,
                   int threads, const Backend& backend = {});

/// Every value to the nearest BF16 one, ties to even; what overflows is an infinity.
void round_to_bf16(Matrix<float>& x, int threads);

}  // namespace fp8lab::train

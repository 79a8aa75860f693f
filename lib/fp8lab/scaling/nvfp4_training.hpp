#pragma once
// What TransformerEngine's NVFP4BlockScaling does beside the scales of `te_nvfp4`: a random
// Hadamard transform of what enters wgrad, and stochastic rounding of gradients. *From literature*:
// its common/recipe/__init__.py (000b637e), pytorch's NVFP4 tensor and arXiv 2509.25149; the
// package runs on Blackwell alone and was not compared.
//
//                fprop              dgrad               wgrad
// activation     te_nvfp4                               transform
// weight         te_nvfp4, 16x16    te_nvfp4, 16x16
// gradient                          stochastic          transform, stochastic
//
// Known differences: TransformerEngine draws with cuRAND's Philox by thread, and `cvt.rs` uses
// fewer bits of a draw; the order of the transform's sums is not documented.

#include <array>
#include <cstdint>
#include <vector>

#include "fp8lab/core/random.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab {

/// The signs that TransformerEngine's transform for wgrad has, always the same.
inline constexpr std::array<std::int8_t, 16> kHadamardSigns{1,  1,  1,  -1, 1,  -1, -1, -1,
                                                            -1, -1, -1, 1,  -1, 1,  -1, -1};

/// Each run of 16 elements of a row times D H: D the signs above on the diagonal, H[i, j] =
/// (-1)^popcount(i & j) / 4 (Sylvester's matrix, orthogonal and symmetric). A sum is binary32 in
/// the order of i, rounded to BF16, as tensors are there. Operands of wgrad are transformed along
/// the tokens that it sums over, so their product stays.
///
/// Throws `Error` for k that 16 does not divide, sizes that disagree, and elements that are no BF16
/// numbers. NaN and Inf spread over their run.
std::vector<float> random_hadamard(const FloatMatrix& x);

/// The tensor under a recipe of two levels, with scales as `quantize` gives them and elements
/// rounded stochastically: x * factor goes up with the probability of the discarded fraction
/// (to 2^-32), by draw r * k + c of `draws` for element [r, c] (Philox4x32-10, core/random.hpp);
/// magnitudes above 6 saturate. Depends on neither threads nor target. Throws `Error` for another
/// recipe, and where `quantize` does.
QuantizedTensor quantize_stochastic(const Recipe& recipe, const FloatMatrix& x,
                                    const RandomStream& draws, int threads = 0);

}  // namespace fp8lab

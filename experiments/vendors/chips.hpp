#pragma once
// What the chips of the vendors experiment make of the same tensors.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/quantize.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/gemm/backend.hpp"

namespace fp8lab::experiments {

/// How an operand becomes codes: scale = largest / amax, in FP32.
struct Coding {
  FormatId format = FormatId::e4m3fn;
  double largest = 448.0;  ///< what the amax becomes; the format's largest number or less

  friend bool operator==(const Coding&, const Coding&) = default;
};

/// One column of the comparison.
struct Chip {
  std::string label;
  AccumulatorModel model;
  Coding a;
  Coding b;
  std::int64_t promotion_interval = 0;  ///< terms; 0: one accumulator for all of K
};

/// The instruction with the formats it reads, each scaled to its largest number. Throws `Error`
/// for one that does not read 8-bit floating point.
Chip make_chip(std::string_view instruction, std::int64_t promotion_interval);

/// Whether an operand of the chip has FNUZ codes.
bool reads_fnuz(const Chip& chip);

/// The same chip with the scales of the OCP formats, halved for FNUZ operands: E4M3FNUZ ends at
/// 224, half of 448, and each of its codes stands for half of what the same code of E4M3FN does, so
/// that quantized tensors are equal.
Chip aligned_with_ocp(const Chip& chip);

/// "e4m3fn", or "e4m3fn x e5m2" where the operands differ.
std::string format_text(const Chip& chip);

/// A [m, k] and B [n, k], row-major.
struct Tensors {
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  std::vector<float> a;
  std::vector<float> b;
};

/// Errors of one chip's FP32 outputs, scales applied. Parts are |x - y|_2 / |reference|_2, where
/// the reference is the FP64 product of the unquantized tensors: total <= format + accumulator. A
/// reference of zeros gives 0 for equal outputs, else infinity.
struct ChipErrors {
  double total = 0.0;             ///< the chip's outputs against the reference
  double format = 0.0;            ///< exact sums of its codes against the reference
  double accumulator = 0.0;       ///< its outputs against exact sums of its codes
  double bias = 0.0;              ///< sum sign(r)(d - r) / sum |r|, against the reference
  double accumulator_bias = 0.0;  ///< the same against the exact sums of its codes

  /// Of the squared error, 0 to 1: accumulator^2 / (format^2 + accumulator^2); 0 without errors.
  [[nodiscard]] double accumulator_share() const;
};

/// What one chip is from another on the same tensors, outputs rounded to BF16 (nearest even).
struct ChipDifference {
  double differ = 0.0;         ///< share of outputs with other BF16 bits, 0 to 1
  double differ_format = 0.0;  ///< the same where both accumulate exactly: codes and scales alone
  double largest = 0.0;        ///< largest difference over the root mean square of the reference
};

struct Measured {
  std::vector<ChipErrors> chips;            ///< in the order of the chips
  std::vector<ChipDifference> differences;  ///< of (0, 1), (0, 2) ... (1, 2) ...
};

/// Quantizes the tensors for each chip, with one scale for each `block`, and multiplies them.
/// Exact sums are rounded once to FP32, and scales are applied in FP32, as chips' kernels do it.
Measured measure_chips(const Tensors& tensors, const std::vector<Chip>& chips, ScaleBlock block,
                       const Backend& backend = {});

/// One chip's quantized A under its coding: nearest even, saturating.
Quantized quantize_for(const Coding& coding, const std::vector<float>& x, std::size_t rows,
                       std::size_t k, ScaleBlock block, const Backend& backend = {});

}  // namespace fp8lab::experiments

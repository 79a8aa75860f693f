#pragma once
// Steps of 32-bit integers whose lanes run along k: for few rows, since B is neither packed nor
// transposed. docs/lab/gemm.md, "Few rows", explains the method.

#include <cstdint>

#include "fp8lab/gemm/aligned_array.hpp"
#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/unit_kernels.hpp"

namespace fp8lab {
struct Format;
}

namespace fp8lab::gemm_detail {

/// Up to how many rows these kernels take.
inline constexpr std::int64_t kMostWordDotRows = 8;
/// Bytes of a column's codes that a step reads at most.
inline constexpr int kWordDotBytes = 32;

/// How codes become binary32.
enum class LineCodes : std::uint8_t {
  none,          ///< word dots are not used
  halves,        ///< FP16
  upper_halves,  ///< BF16
  words,         ///< TF32 in words of binary32
  bytes,         ///< 8 bits or fewer, of whose fields FP16 has room
};

/// Codes of B, and how many of a column are read for a step, whose own terms come first.
struct WordDotLayout {
  LineCodes kind = LineCodes::none;
  CodeLayout codes;
  int terms = 0;  ///< kWordDotBytes of codes, or half of them

  [[nodiscard]] bool used() const { return kind != LineCodes::none; }
  [[nodiscard]] int code_bytes() const {
    return kind == LineCodes::bytes ? 1 : kind == LineCodes::words ? 4 : 2;
  }
};

/// That of B for steps of so many terms; unused where kernels do not take it.
WordDotLayout word_dot_layout(const Format& b, std::int64_t terms);

/// Rows of A, each array [steps][rows][terms of the layout], a step's terms followed by zeros.
/// `values` are times 2^(15 - bias of B) for bytes, and in the kernels' order; `exponents` are
/// signed integers of the width of B's codes, kWordExponentOfZero of zeros.
struct WordDotRows {
  const float* values = nullptr;
  const void* exponents = nullptr;
};

/// Some steps of some rows of A times `width` columns of B, a multiple of 16, whose codes are read
/// as they lie in memory: columns are code_stride bytes apart. What is beyond a step's terms must
/// be finite, or of the same column. state is as in StepBlock.
struct WordDotBlock {
  std::int64_t rows = 0;
  std::int64_t steps = 0;
  std::int64_t terms = 0;
  WordDotRows a;
  const unsigned char* codes = nullptr;
  std::int64_t code_stride = 0;
  const unsigned char* next_codes = nullptr;  ///< codes to fetch meanwhile, alike
  std::int64_t next_stride = 0;
  /// [width][2][kWordDotBytes]: lanes raised to the codes' magnitudes, and lowered to those of
  /// codes that are not zero, less 1.
  unsigned char* ranges = nullptr;
  WordDotLayout layout;
  std::int64_t width = 0;
  bool two_stage = false;  ///< CDNA3's steps
  /// Exponents of scales, powers of two, for each step of a row and a column: of products that the
  /// instruction scales.
  bool scaled = false;
  GroupScales scale_a;
  GroupScales scale_b;
  float* state = nullptr;
};

/// As WordKernels, for few rows.
struct WordDotKernels {
  int byte_chunk = 0;  ///< of codes of 8 bits: see PackedWordDotRows
  /// Fused steps, which need rounding toward zero, and steps of two stages.
  void (*plain)(const WordDotBlock&, const WordRounding&);
  /// Steps of two stages of bytes.
  void (*even_odd)(const WordDotBlock&, const WordRounding&);
};

/// Those of `target`; null for the scalar target.
const WordDotKernels* word_dot_kernels(Target target);

/// The arrays of WordDotRows.
class PackedWordDotRows {
 public:
  PackedWordDotRows() = default;
  /// From packed values and exponents of steps of `terms` terms (see StepBlock). Values of bytes
  /// are in chunks, of each of which the terms of even place come first.
  PackedWordDotRows(const StepBlock<float>& from, const WordDotLayout& layout, int byte_chunk);
  /// The arrays from step `step` on.
  [[nodiscard]] WordDotRows from(std::int64_t step) const;

 private:
  std::int64_t rows_ = 0;
  std::int64_t terms_ = 0;
  std::int64_t code_bytes_ = 0;
  AlignedArray<float> values_;
  AlignedArray<unsigned char> exponents_;
};

/// WordDotBlock's ranges of so many columns that hold nothing yet.
void clear_lane_ranges(unsigned char* ranges, std::int64_t columns);

/// What the lanes of one column in WordDotBlock's ranges say.
CodeRange range_of_lanes(const unsigned char* ranges, int code_bytes);

}  // namespace fp8lab::gemm_detail

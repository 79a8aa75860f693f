#pragma once
// Packing: operands of any format and stride, decoded into the arrays that the
// kernels read, in steps. Packing also notes what each row holds.

#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/gemm/aligned_array.hpp"
#include "fp8lab/gemm/gemm.hpp"
#include "fp8lab/gemm/kernels.hpp"
#include "fp8lab/gemm/operand_scales.hpp"
#include "fp8lab/gemm/pack_form.hpp"
#include "fp8lab/gemm/unit_kernels.hpp"
#include "fp8lab/gemm/word_dots.hpp"

namespace fp8lab::gemm_detail {

/// Whether FP16 has room for all fields of a format's codes: not for the largest FNUZ numbers.
bool has_half_fields(const Format& f);

/// Codes of rows of A, [rows][row_stride], steps * terms of each.
struct DotSource {
  const unsigned char* codes = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t rows = 0;
  std::int64_t steps = 0;
  std::int64_t terms = 0;
};

/// The arrays of DotRows.
class PackedDotRows {
 public:
  PackedDotRows() = default;
  /// Packs codes of the format `a`, of 8 bits or less, for these kernels.
  PackedDotRows(const DotSource& from, const Format& a, const DotLayout& b,
                const DotKernels& kernels);
  /// The arrays from step `step` on.
  [[nodiscard]] DotRows from(std::int64_t step) const;

 private:
  void look_up(const DotSource& from, const Format& a, const DotLayout& b, std::int64_t chunk);

  std::int64_t rows_ = 0;
  AlignedArray<float> values_;
  AlignedArray<std::uint8_t> exponents_;
  AlignedArray<std::int8_t> signs_;
  AlignedArray<std::int8_t> zeros_;
};

/// All kernels of one target.
struct Kernels : KernelTable {
  const UnitKernels* units = nullptr;
};

/// Where the fields of the format's codes are in its storage.
CodeLayout code_layout(const Format& format);

/// What codes of that range say about a row; with `all_numbers`, none is NaN or Inf.
RowSummary summarize(const Format& format, const CodeRange& range, bool all_numbers = false);

/// Copies the codes (row, first .. first + count) to `to`, then zeros up to
/// `padded` codes.
void gather_codes(const CodeMatrix& matrix, std::int64_t row, std::int64_t first,
                  std::int64_t count, std::int64_t padded, unsigned char* to);

/// Fetches the codes (row, first .. first + count) as far as they exist.
void prefetch_codes(const CodeMatrix& matrix, std::int64_t row, std::int64_t first,
                    std::int64_t count);

/// Codes of 8 or 16 bits below the smallest normal number become +0.
void flush_codes(const Format& format, unsigned char* codes, std::int64_t count);

/// What all rows of a matrix hold together.
template <typename T>
RowSummary summarize(const KernelTable& kernels, const CodeMatrix& matrix, bool all_numbers,
                     int threads);

/// Some steps of some rows of A: see StepBlock.
template <typename T>
struct PackedRows {
  /// Room for so many rows and steps. `unit_scales`: those that the instruction applies; null if it
  /// applies none. Holds references.
  PackedRows(const Kernels& kernels, const PackForm& form, const CodeMatrix& a,
             const BlockScaleRows* unit_scales, std::int64_t most_rows, std::int64_t most_steps);
  /// Packs steps [first_step, first_step + step_count) of `count` rows from `begin` on in place of
  /// what was there, and adds what their codes reach to `ranges`, one a row. Forms along k and
  /// scales of the instruction need all of K at once.
  void load(std::int64_t begin, std::int64_t count, std::int64_t first_step,
            std::int64_t step_count, std::span<CodeRange> ranges);

  std::int64_t rows = 0;
  std::int64_t padded_rows = 0;  ///< of the arrays, a multiple of the form's fold: zeros at the end
  std::int64_t first = 0;        ///< step
  std::int64_t steps = 0;
  AlignedArray<T> values;
  AlignedArray<std::uint32_t> exponents;
  AlignedArray<std::uint32_t> signs;
  PackedDotRows dots;                ///< instead of the others, for dot kernels
  PackedWordDotRows word_dots;       ///< beside the others
  AlignedArray<std::int16_t> twice;  ///< of scaled groups along k, beside the others
  OperandScales scales;

 private:
  AlignedArray<unsigned char> gather(std::int64_t begin, std::int64_t stride,
                                     std::span<CodeRange> ranges) const;
  void scale_steps();
  void find_exponents(const WordKernels& kernels, int smallest);

  const Kernels* kernels_;
  const PackForm* form_;
  const CodeMatrix* a_;
};

/// Codes of a panel's columns as they lie in memory, for kernels of plain values.
struct PanelLines {
  const unsigned char* codes = nullptr;
  std::int64_t code_stride = 0;  ///< bytes from one column to the next
  std::int64_t width = 0;
  std::int64_t columns = 0;
  int storage_bits = 8;
  CodeLayout layout;
};

/// A panel of columns (rows of B), as wide as kernels want it, refilled for one
/// slab of steps after the other. Columns past the matrix's last are zeros.
template <typename T>
class PackedPanel {
 public:
  /// Loads at most `slab_steps` at a time and decodes at most `decoded_steps`.
  PackedPanel(const Kernels& kernels, const PackForm& form, const CodeMatrix& b,
              std::int64_t slab_steps, std::int64_t decoded_steps,
              const BlockScaleRows* unit_scales);
  /// Starts over with the columns from `begin`.
  void start(std::int64_t begin);
  /// Fetches the codes of steps [first, first + steps) and adds them to the columns' summaries.
  void load(std::int64_t first, std::int64_t steps);
  /// Decodes steps [first, first + steps) of those that were loaded.
  void decode(std::int64_t first, std::int64_t steps);
  /// The panel's arrays from step `step` of those that were decoded on.
  void place(StepBlock<T>& block, std::int64_t step) const;
  /// Codes that were loaded, as they lie in memory, for forms along k: from step `step` on.
  void place(DotBlock& block, std::int64_t step);
  void place(WordDotBlock& block, std::int64_t step);
  void place(GroupDotBlock& block, std::int64_t step);
  void place(PanelLines& lines, std::int64_t step);
  [[nodiscard]] RowSummary summary(std::int64_t column) const;
  [[nodiscard]] std::int64_t columns() const { return columns_; }
  [[nodiscard]] const OperandScales& scales() const { return scales_; }

 private:
  [[nodiscard]] CodeRange range_of_column(std::int64_t column) const;
  void join_signs(std::int64_t steps);
  void load_rows(std::int64_t first, std::int64_t steps);
  void scale_steps(std::int64_t first, std::int64_t steps);
  /// Where B has these codes.
  [[nodiscard]] const unsigned char* codes_at(std::int64_t row, std::int64_t term) const;
  [[nodiscard]] NextCodes next_codes(std::int64_t step) const;

  template <typename Block>
  void place_codes(Block& block, std::int64_t step) const;
  template <typename Block>
  void place_next(Block& block, std::int64_t step) const;
  void find_exponents(std::int64_t steps);

  const CodeKernels<T>* kernels_;
  const DecodeKernels<T>* decode_kernels_;
  const UnitKernels* unit_kernels_;
  const CodeMatrix* b_;
  OperandScales scales_;
  std::int64_t terms_;
  bool flushes_;
  bool all_numbers_;
  bool fused_;
  bool packs_scales_;
  bool has_exponents_;
  bool dots_;                ///< of any kind
  bool word_dots_;           ///< of 32-bit integers
  bool group_dots_;          ///< of scaled groups
  bool lines_;               ///< of plain values
  std::int64_t line_terms_;  ///< with dots, terms that kernels read for a step
  bool copied_ = false;      ///< with dots: whether `rows_` has the codes that were loaded
  std::int64_t fold_;        ///< terms beside each other in what kernels take for a row of codes
  std::int64_t width_;
  std::int64_t code_bytes_;
  std::int64_t slab_terms_;
  bool fetches_;             ///< kernels fetch what the next call of `load` copies
  std::int64_t row_stride_;  ///< of `rows_`
  std::int64_t begin_ = 0;
  std::int64_t columns_ = 0;
  std::int64_t loaded_ = 0;            ///< first step of `codes_`
  std::int64_t decoded_ = 0;           ///< first step of `values_`
  AlignedArray<unsigned char> rows_;   ///< some rows' codes, as they lie in memory
  AlignedArray<unsigned char> codes_;  ///< [terms][width]
  AlignedArray<T> values_;
  AlignedArray<typename PackedTypes<T>::Exponent> exponents_;
  AlignedArray<std::uint32_t> signs_;
  AlignedArray<std::uint32_t> folded_signs_;  ///< [steps][fold][width], of every fold-th term
  std::vector<CodeRange> ranges_;             ///< [fold][width], of every fold-th term
  /// Instead of ranges with dots, a vector a column: the largest ones; with word dots see
  /// WordDotBlock.
  AlignedArray<unsigned char> lane_ranges_;
};

}  // namespace fp8lab::gemm_detail

#pragma once
// The scales that a block-scaled instruction applies, as its kernels read them.

#include <cstdint>
#include <vector>

#include "fp8lab/gemm/block_scales.hpp"
#include "fp8lab/gemm/pack_form.hpp"
#include "fp8lab/gemm/unit_kernels.hpp"

namespace fp8lab::gemm_detail {

enum class Side : std::uint8_t { a, b };

/// What a row like `summary` holds with scales like `scales`, which is a row of scales.
RowSummary scaled_by(RowSummary summary, const RowSummary& scales);

/// What all scales of one operand reach together; 1 without scales.
RowSummary range_of_scales(const BlockScaleRows& scales, Side side);

/// The scales of some rows of one operand, for groups of terms of which each has one: [group][row].
class OperandScales {
 public:
  OperandScales() = default;
  /// Of at most so many rows of a matrix, for the groups of whole steps, as the form says. Holds
  /// references. `scales` is null if the instruction applies none; if it is empty, all are 1.
  OperandScales(const CodeMatrix& matrix, const BlockScaleRows* scales, Side side,
                const PackForm& form, std::int64_t rows);
  /// Reads the scales of `count` rows from `begin` on, in place of those before. Other rows' are
  /// 1.
  void read(std::int64_t begin, std::int64_t count);

  [[nodiscard]] bool used() const { return codes_ != nullptr; }
  [[nodiscard]] double scale(std::int64_t group, std::int64_t row) const {
    return scales_[index(group, row)];
  }
  [[nodiscard]] int exponent(std::int64_t group, std::int64_t row) const {
    return exponents_[index(group, row)];
  }
  /// From this group on; null what the form does not ask for.
  [[nodiscard]] GroupScales from(std::int64_t group) const;
  /// What a row of codes holds, with its scales.
  [[nodiscard]] RowSummary scaled(const RowSummary& summary, std::int64_t row) const;

 private:
  /// A scale as kernels and their limits read it.
  struct ReadScale {
    double value = 0.0;  ///< 0 for a NaN, too
    int exponent = 0;
    RowSummary range;
  };
  friend RowSummary range_of_scales(const BlockScaleRows& scales, Side side);
  static ReadScale read_scale(FormatId id, std::uint32_t code);
  static std::vector<ReadScale> read_scales(FormatId id);

  [[nodiscard]] std::size_t index(std::int64_t group, std::int64_t row) const {
    return static_cast<std::size_t>(group * rows_ + row);
  }
  void read_codes(std::int64_t begin, std::int64_t count);
  void note_codes(std::int64_t begin, std::int64_t row);

  const CodeMatrix* matrix_ = nullptr;
  const BlockScaleRows* codes_ = nullptr;
  Side side_ = Side::a;
  std::int64_t rows_ = 0;
  std::int64_t group_terms_ = 1;
  std::int64_t groups_ = 0;
  std::vector<ReadScale> known_;  ///< of all codes
  std::vector<double> scales_;    ///< empty if the form asks for exponents alone
  std::vector<std::int32_t> exponents_;
  std::vector<std::uint32_t> nonzero_;
  std::vector<RowSummary> ranges_;  ///< of each row's scales
};

}  // namespace fp8lab::gemm_detail

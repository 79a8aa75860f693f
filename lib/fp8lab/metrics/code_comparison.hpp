#pragma once
// Comparison of two outputs by bits and by values, in one pass over their storage
// codes. It works in chunks, so tensors may be larger than memory.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "fp8lab/metrics/ulp.hpp"

namespace fp8lab {

/// |y - x| <= absolute + relative |x|, as in `torch.testing.assert_close`.
struct Tolerance {
  double relative = 0.0;
  double absolute = 0.0;
};

/// One element whose codes differ.
struct CodeMismatch {
  std::int64_t index = 0;
  std::uint32_t expected = 0;  ///< storage codes
  std::uint32_t got = 0;
  std::uint64_t ulp = 0;  ///< distance; `kNanDistance` if one is NaN
};

/// Numbers of differences by rectangular tiles of the output.
struct MismatchMap {
  std::int64_t rows = 0;              ///< tiles
  std::int64_t columns = 0;           ///< tiles
  std::int64_t tile_rows = 1;         ///< elements
  std::int64_t tile_columns = 1;      ///< elements
  std::int64_t row_length = 1;        ///< columns of the output
  std::vector<std::uint64_t> counts;  ///< row-major [rows, columns]
};

/// A map of an output [rows, columns] with at most `most` tiles per side.
MismatchMap make_map(std::int64_t rows, std::int64_t columns, std::int64_t most = 32);

struct CodeComparison {
  /// `mismatches` counts values; +0 and -0 are equal there. Figures are NaN where no pair is
  /// finite, as in `compare`.
  Comparison values;
  std::uint64_t bit_mismatches = 0;     ///< codes that differ; two NaN codes count as the same
  std::uint64_t nan_payloads = 0;       ///< pairs of different NaN codes
  double mean_absolute_relative = 0.0;  ///< sum of |y - x| over sum of |x|
  UlpHistogram ulp;                     ///< in steps of the output format
  /// In steps of E4M3's significand with an unbounded exponent, after rounding both
  /// to it: distances that FP8 could represent at any scale.
  UlpHistogram fp8;
  std::optional<CodeMismatch> first;  ///< the first by index
  std::optional<CodeMismatch> worst;  ///< the first with the largest distance; NaN is the largest
  std::vector<std::uint64_t> far;     ///< pairs outside each of the tolerances

  [[nodiscard]] bool bitwise() const { return bit_mismatches == 0; }
};

struct CodeComparisonOptions {
  std::vector<Tolerance> tolerances{};
  MismatchMap* map = nullptr;  ///< output, if not null
  int threads = 0;             ///< 0: all of OpenMP's; the result does not depend on it
};

/// Compares two tensors part by part, in order. The result does not depend on threads.
/// The last bits of its sums depend on the parts.
class CodeComparer {
 public:
  /// The format has at most 16 code bits, or is f32. Throws `Error` for others.
  explicit CodeComparer(const Format& f, CodeComparisonOptions options = {});
  ~CodeComparer();
  CodeComparer(const CodeComparer&) = delete;
  CodeComparer& operator=(const CodeComparer&) = delete;

  /// Adds the next elements of both. Throws `Error` if the sizes differ or are not a
  /// multiple of the element size.
  void add(std::span<const std::byte> expected, std::span<const std::byte> got);

  /// The result. Non-finite pairs count as in `Comparison`.
  [[nodiscard]] CodeComparison finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Compares two whole tensors.
CodeComparison compare_codes(const Format& f, std::span<const std::byte> expected,
                             std::span<const std::byte> got, CodeComparisonOptions options = {});

}  // namespace fp8lab

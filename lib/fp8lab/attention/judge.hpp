#pragma once
// How well outputs that a hypothesis gives fit those of a kernel.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/attention/variant.hpp"

namespace fp8lab {

/// Outputs of some rows, one row of d_v values after the other.
struct OutputRows {
  std::vector<AttentionRows> rows;
  std::vector<float> o;
};

/// Some heads, rows and columns of O: where outputs are wrong.
struct OutputRegion {
  std::vector<char> heads;  ///< whether each is part of it
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int64_t column_begin = 0;
  std::int64_t column_end = 0;

  [[nodiscard]] bool has(std::int64_t head, std::int64_t row) const {
    return heads[static_cast<std::size_t>(head)] != 0 && row >= row_begin && row < row_end;
  }
  /// "head 2, rows 64 to 127", without what is all of it; "" for all of O.
  [[nodiscard]] std::string text(const AttentionShape& shape) const;
};

struct OutputFit {
  std::int64_t wrong = 0;         ///< elements whose golden value is not the kernel's
  std::int64_t explained = 0;     ///< of these, elements that have the kernel's value here
  std::int64_t contradicted = 0;  ///< elements that are right, and have another value here
  double distance = 0.0;          ///< relative L2 distance from the kernel's output
  double row_distance = 0.0;      ///< of the farthest row, relative to the usual norm of a row

  [[nodiscard]] std::int64_t mismatches() const { return wrong - explained + contradicted; }
};

/// How much a hypothesis explains, the most first.
enum class Explains : std::uint8_t {
  all,     ///< every bit
  most,    ///< 9 of 10 wrong elements, and few right ones contradict it
  within,  ///< the distance is that of a right kernel with other roundings
  nothing,
};

/// Compares outputs of hypotheses with `got` [heads, m, d_v]. Elements that `set_aside` marks
/// count as right everywhere.
class OutputJudge {
 public:
  /// `golden` [heads, m, d_v] in binary32, before its cast to `output`.
  OutputJudge(const AttentionShape& shape, std::span<const float> got,
              const std::vector<float>& golden, FormatId output, double tolerance);

  /// Leaves out pairs of a number and a NaN or infinity; returns their positions.
  std::vector<std::size_t> set_aside_non_finite();

  [[nodiscard]] float rounded(float value) const;
  [[nodiscard]] std::vector<float> rounded(std::vector<float> values) const;

  /// The fit of values of the output's format; with a region, golden values are taken outside it.
  [[nodiscard]] OutputFit fit(const OutputRows& expected, const OutputRegion* only = nullptr) const;
  /// That of the golden output.
  [[nodiscard]] const OutputFit& golden_fit() const { return golden_fit_; }
  [[nodiscard]] bool passes() const;
  [[nodiscard]] Explains explains(const OutputFit& fit) const;
  /// The fit of the golden output of some rows.
  [[nodiscard]] OutputFit golden_fit(const std::vector<AttentionRows>& rows) const;
  /// Of hypotheses with these fits to a sample, those worth computing in full: the best, at most
  /// `most`, in their order. `golden`: the fit of the sample's golden output.
  [[nodiscard]] std::vector<std::size_t> promising(std::span<const OutputFit> fits,
                                                   const OutputFit& golden, std::size_t most) const;

  /// Whether an element or a row is wrong, beyond the tolerance if there is one.
  [[nodiscard]] bool wrong(std::size_t element) const;
  [[nodiscard]] const std::vector<char>& wrong_rows() const { return wrong_rows_; }
  [[nodiscard]] const OutputRegion& region() const { return region_; }

  [[nodiscard]] const AttentionShape& shape() const { return shape_; }
  [[nodiscard]] std::span<const float> got() const { return got_; }
  /// In the output's format, and before the cast.
  [[nodiscard]] const std::vector<float>& golden() const { return golden_; }
  [[nodiscard]] const std::vector<float>& unrounded() const { return unrounded_; }
  [[nodiscard]] FormatId output() const { return output_; }
  [[nodiscard]] double tolerance() const { return tolerance_; }

 private:
  [[nodiscard]] bool worth_trying(const OutputFit& fit, const OutputFit& golden) const;
  void find_wrong_rows();
  void find_region();

  AttentionShape shape_;
  std::span<const float> got_;
  const std::vector<float>& unrounded_;
  std::vector<float> golden_;
  FormatId output_;
  double tolerance_;
  std::vector<char> aside_;  ///< empty, or whether each element is left out
  double usual_ = 0.0;       ///< root mean square of golden elements
  OutputFit golden_fit_;
  std::vector<char> wrong_rows_;
  OutputRegion region_;
};

}  // namespace fp8lab

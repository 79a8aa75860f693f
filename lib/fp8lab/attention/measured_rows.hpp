#pragma once
// Wrong rows of an output of attention, and what exact attention would give there.

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/attention/mistakes.hpp"

namespace fp8lab {

/// Squared relative distance up to which the cast of P and the accumulator explain a difference.
inline constexpr double kExplained = 0.01;

/// One wrong row: its place, what it should see, and its scores under its own K head.
struct MeasuredRow {
  std::int64_t head = 0;
  std::int64_t row = 0;
  SeenColumns seen{};
  std::vector<double> scores{};  ///< of all columns, in natural logarithms
};

/// exp of scores over that of the largest; 0 of columns that are not seen.
struct RowWeights {
  std::vector<double> p;
  double sink = 0.0;     ///< of the row sum alone
  double largest = 0.0;  ///< the score that has the weight 1
};

/// Sums of products of outputs o with got g, over rows.
struct OutputProducts {
  double oo = 0.0;
  double og = 0.0;
  double gg = 0.0;

  /// Relative squared distance of got from o.
  [[nodiscard]] double apart() const { return gg > 0.0 ? (oo - 2.0 * og + gg) / gg : 1.0; }
  /// The same with the best factor of o.
  [[nodiscard]] double apart_scaled() const {
    return oo > 0.0 && gg > 0.0 ? 1.0 - og * og / (oo * gg) : 1.0;
  }
};

class MeasuredRows {
 public:
  MeasuredRows(const AttentionInputs& inputs, const AttentionOptions& options,
               std::span<const float> got, std::span<const AttentionRows> rows);

  [[nodiscard]] const AttentionInputs& inputs() const { return inputs_; }
  [[nodiscard]] const AttentionOptions& options() const { return options_; }
  [[nodiscard]] const AttentionShape& shape() const { return shape_; }
  [[nodiscard]] const std::vector<MeasuredRow>& all() const { return rows_; }
  /// About `most` of them that see something, evenly.
  [[nodiscard]] std::vector<const MeasuredRow*> some(std::size_t most) const;
  /// Columns of V that are enough to tell hypotheses apart.
  [[nodiscard]] std::int64_t few_columns() const;

  [[nodiscard]] std::vector<double> scores(const MeasuredRow& row, std::int64_t q_head,
                                           std::int64_t k_head) const;
  /// Scores of a row of Q [d] with K's columns in another place: K's element [j, c] is that of
  /// `from(j, c)`.
  [[nodiscard]] std::vector<double> scores_from(
      const MeasuredRow& row,
      const std::function<std::int64_t(std::int64_t, std::int64_t)>& from) const;
  /// Of scores times `factor`, with the head's sink.
  [[nodiscard]] RowWeights weights(const MeasuredRow& row, const std::vector<double>& s,
                                   SeenColumns seen, double factor = 1.0) const;
  [[nodiscard]] const float* v_row(std::int64_t kv_head, std::int64_t column) const;
  /// The first `columns` of p V / sum of p.
  [[nodiscard]] std::vector<double> output(const RowWeights& w, std::int64_t kv_head,
                                           std::int64_t columns) const;
  [[nodiscard]] double got_at(const MeasuredRow& row, std::int64_t column) const;
  void add_products(const MeasuredRow& row, const std::vector<double>& o,
                    OutputProducts& sums) const;
  /// Distance of got from what `output_of` a row gives, over `rows`.
  [[nodiscard]] double apart(
      const std::vector<const MeasuredRow*>& rows,
      const std::function<std::vector<double>(const MeasuredRow&)>& output_of) const;

 private:
  [[nodiscard]] double score_of(double sum) const;

  const AttentionInputs& inputs_;
  const AttentionOptions& options_;
  std::span<const float> got_;
  AttentionShape shape_;
  std::vector<float> q_;
  std::vector<float> k_;
  std::vector<float> v_;
  std::vector<MeasuredRow> rows_;
};

/// Which columns rows see, the weights of tiles, the order of V's rows. Adds what explains the
/// rows to `mistakes`, and sentences to `lines`.
void measure_columns(const MeasuredRows& rows, AttentionMistakes& mistakes,
                     std::vector<std::string>& lines);
/// Pages of K and V in other places, left out or more than once; columns of K in other places.
void measure_pages(const MeasuredRows& rows, AttentionMistakes& mistakes);
/// What else the scores hold: a soft cap, a bias of positions, a sink.
void measure_scores(const MeasuredRows& rows, AttentionMistakes& mistakes);

}  // namespace fp8lab

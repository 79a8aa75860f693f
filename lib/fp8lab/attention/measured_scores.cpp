#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "fp8lab/attention/measured_rows.hpp"
#include "fp8lab/core/parallel.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kScoredRows = 16;

/// The least of `value` at 2^a for a in [low, high], to 2^-12 of an octave; its argument.
double least_at(double low, double high, const std::function<double(double)>& value) {
  double step = 0.25;
  double best = low;
  double least = std::numeric_limits<double>::infinity();
  const auto look = [&](double at) {
    const double found = value(std::exp2(at));
    if (!(found < least)) return;
    least = found;
    best = at;
  };
  for (double at = low; at <= high; at += step) look(at);
  for (int i = 0; i < 10; ++i) {
    step /= 2.0;
    const double middle = best;
    look(middle - step);
    look(middle + step);
  }
  return std::exp2(best);
}

class ScoreMeasurement {
 public:
  ScoreMeasurement(const MeasuredRows& rows, AttentionMistakes& mistakes)
      : rows_(rows), mistakes_(mistakes), shape_(rows.shape()), some_(rows.some(kScoredRows)) {}

  void run() {
    if (some_.empty()) return;
    if (rows_.options().soft_cap == 0.0F) soft_cap();
    slopes();
    sinks();
  }

 private:
  [[nodiscard]] std::vector<double> output(const MeasuredRow& row,
                                           const std::function<double(double, std::int64_t)>& of,
                                           double sink = 0.0) const {
    std::vector<double> s = row.scores;
    for (std::size_t j = 0; j < s.size(); ++j) s[j] = of(s[j], static_cast<std::int64_t>(j));
    RowWeights w = rows_.weights(row, s, row.seen);
    if (sink > 0.0) w.sink = sink * std::exp(-w.largest);
    return rows_.output(w, row.head / shape_.group, rows_.few_columns());
  }

  void soft_cap() {
    const auto apart = [&](double cap) {
      return rows_.apart(some_, [&](const MeasuredRow& row) {
        return output(row, [&](double s, std::int64_t) { return cap * std::tanh(s / cap); });
      });
    };
    double cap = least_at(-2.0, 8.0, apart);
    if (apart(cap) > kExplained) return;
    // Kernels have whole numbers.
    if (std::abs(std::round(cap) / cap - 1.0) < 0.03 && cap > 0.9) cap = std::round(cap);
    mistakes_.add("soft_cap",
                  fmt::format("scores s become {0:.4g} tanh(s / {0:.4g}) (measured)", cap),
                  [&](AttentionMistake& m) { m.options.soft_cap = static_cast<float>(cap); });
  }

  [[nodiscard]] std::map<std::int64_t, std::vector<const MeasuredRow*>> by_head() const {
    constexpr std::size_t kRowsOfHead = 4;
    std::map<std::int64_t, std::vector<const MeasuredRow*>> found;
    for (const MeasuredRow& row : rows_.all())
      if (row.seen.end > row.seen.begin && found[row.head].size() < kRowsOfHead)
        found[row.head].push_back(&row);
    return found;
  }

  /// ALiBi: a slope of each head.
  void slopes() {
    std::vector<float> slopes(static_cast<std::size_t>(shape_.heads), 0.0F);
    for (const auto& head_and_rows : by_head()) {
      const std::vector<const MeasuredRow*>& rows = head_and_rows.second;
      const auto apart = [&](double slope) {
        return rows_.apart(rows, [&](const MeasuredRow& row) {
          return output(row, [&](double s, std::int64_t j) {
            return s + slope * static_cast<double>(j - row.row - shape_.n + shape_.m);
          });
        });
      };
      const double slope = least_at(-16.0, 1.0, apart);
      const double found = apart(slope);
      if (found > kExplained) return;
      // A right head has none.
      if (found > 0.9 * apart(0.0)) continue;
      const double power = std::exp2(std::round(2.0 * std::log2(slope)) / 2.0);
      slopes[static_cast<std::size_t>(head_and_rows.first)] =
          static_cast<float>(std::abs(power / slope - 1.0) < 0.05 ? power : slope);
    }
    if (std::ranges::all_of(slopes, [](float one) { return one == 0.0F; })) return;
    std::string text;
    for (std::size_t head = 0; head < slopes.size() && head < 8; ++head)
      text += fmt::format("{}{:.4g}", head == 0 ? "" : ", ", slopes[head]);
    mistakes_.add("position_bias",
                  fmt::format("scores have a bias of positions (ALiBi): slopes {} of heads, times "
                              "j - i - n + m (measured)",
                              text),
                  [&](AttentionMistake& m) { m.variant.slopes = slopes; });
  }

  /// A score without a value in the row sum of each head.
  void sinks() {
    std::vector<float> sinks(static_cast<std::size_t>(shape_.heads), -100.0F);
    for (const auto& head_and_rows : by_head()) {
      const std::vector<const MeasuredRow*>& rows = head_and_rows.second;
      const auto apart = [&](double weight) {
        return rows_.apart(rows, [&](const MeasuredRow& row) {
          return output(
              row, [](double s, std::int64_t) { return s; }, weight);
        });
      };
      const double weight = least_at(-12.0, 16.0, apart);
      const double found = apart(weight);
      if (found > kExplained) return;
      if (found > 0.9 * apart(0.0)) continue;
      const double sink = std::log(weight);
      const double rounded = std::round(sink * 2.0) / 2.0;
      sinks[static_cast<std::size_t>(head_and_rows.first)] =
          static_cast<float>(std::abs(sink - rounded) < 0.02 ? rounded : sink);
    }
    if (std::ranges::all_of(sinks, [](float one) { return one == -100.0F; })) return;
    std::string text;
    for (std::size_t head = 0; head < sinks.size() && head < 8; ++head)
      text += fmt::format("{}{:.4g}", head == 0 ? "" : ", ", sinks[head]);
    mistakes_.add("sink",
                  fmt::format("the row sums hold a score without a value, a sink: {} of heads "
                              "(measured)",
                              text),
                  [&](AttentionMistake& m) { m.options.sinks = sinks; });
  }

  const MeasuredRows& rows_;
  AttentionMistakes& mistakes_;
  AttentionShape shape_;
  std::vector<const MeasuredRow*> some_;
};

}  // namespace

void measure_scores(const MeasuredRows& rows, AttentionMistakes& mistakes) {
  ScoreMeasurement(rows, mistakes).run();
}

}  // namespace fp8lab

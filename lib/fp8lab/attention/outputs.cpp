#include "fp8lab/attention/outputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "fp8lab/cast/cast.hpp"

namespace fp8lab {
namespace {

/// Rows or columns of which a rule is found.
constexpr std::size_t kMostSampled = 24;
constexpr std::int64_t kFewestElements = 16;

/// Wrong elements; within a tolerance, of which some are right by chance, all of wrong rows.
std::vector<std::size_t> wrong_elements(const OutputJudge& judge) {
  const OutputRegion& region = judge.region();
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < judge.got().size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t column = at % judge.shape().d_v;
    const bool in_row = judge.wrong_rows()[static_cast<std::size_t>(at / judge.shape().d_v)] != 0 &&
                        column >= region.column_begin && column < region.column_end;
    if (judge.tolerance() > 0.0 ? in_row : judge.wrong(i)) found.push_back(i);
  }
  return found;
}

std::vector<std::int64_t> wrong_rows(const OutputJudge& judge) {
  std::vector<std::int64_t> rows;
  for (std::size_t row = 0; row < judge.wrong_rows().size(); ++row)
    if (judge.wrong_rows()[row] != 0) rows.push_back(static_cast<std::int64_t>(row));
  return rows;
}

/// About `most` of them, evenly.
std::vector<std::int64_t> some_of(const std::vector<std::int64_t>& all, std::size_t most) {
  if (all.size() <= most) return all;
  std::vector<std::int64_t> some;
  for (std::size_t i = 0; i < most; ++i) some.push_back(all[i * all.size() / most]);
  return some;
}

class Outputs {
 public:
  explicit Outputs(const OutputJudge& judge)
      : judge_(judge), elements_(wrong_elements(judge)), rows_(wrong_rows(judge)) {}

  std::vector<OutputMistake> all() {
    if (elements_.empty()) return {};
    constant();
    factor();
    factors_of_heads();
    casts();
    rows();
    memory();
    columns();
    return std::move(found_);
  }

 private:
  /// Values at all wrong elements, and golden ones elsewhere.
  void add_at_wrong(std::string name, std::string text,
                    const std::function<float(std::size_t)>& value) {
    found_.push_back({std::move(name), std::move(text), [this_judge = &judge_, value] {
                        std::vector<float> o = this_judge->golden();
                        for (const std::size_t i : wrong_elements(*this_judge)) o[i] = value(i);
                        return o;
                      }});
  }

  void constant() {
    std::map<float, std::size_t> counts;
    for (const std::size_t i : elements_)
      if (!std::isnan(judge_.got()[i])) ++counts[judge_.got()[i]];
    const auto most = std::ranges::max_element(
        counts, {}, [](const auto& value_and_count) { return value_and_count.second; });
    if (most == counts.end() || most->second * 10 < elements_.size() * 9) return;
    if (elements_.size() < kFewestElements && most->first != 0.0F) return;
    const float value = most->first;
    add_at_wrong(value == 0.0F ? "never_written" : "one_value",
                 value == 0.0F ? "the outputs are 0: never written"
                               : fmt::format("all outputs are {:g}", value),
                 [value](std::size_t) { return value; });
  }

  void factor() {
    if (elements_.size() < kFewestElements) return;
    double products = 0.0;
    double squares = 0.0;
    for (const std::size_t i : elements_) {
      const auto right = static_cast<double>(judge_.unrounded()[i]);
      products += right * static_cast<double>(judge_.got()[i]);
      squares += right * right;
    }
    double by = products / squares;
    if (!std::isfinite(by) || by == 0.0 || std::abs(by - 1.0) < 1e-5) return;
    const double power = std::exp2(std::round(std::log2(std::abs(by))));
    const bool exact = std::abs(std::abs(by) / power - 1.0) < 1e-3;
    if (exact) by = std::copysign(power, by);
    const std::string text =
        by == -1.0 ? "the outputs are negated"
        : exact ? fmt::format("the outputs are {}2^{:g} times the right ones", by < 0.0 ? "-" : "",
                              std::log2(power))
                : fmt::format("the outputs are {:.5g} times the right ones (measured)", by);
    add_at_wrong(by == -1.0 ? "negated" : "output_factor", text,
                 [this_judge = &judge_, by](std::size_t i) {
                   return this_judge->rounded(
                       static_cast<float>(by * static_cast<double>(this_judge->unrounded()[i])));
                 });
    found_.back().fitted = !exact;
  }

  /// A factor of each head, as a wrong scale of V gives it.
  void factors_of_heads() {
    const AttentionShape& s = judge_.shape();
    const std::int64_t size = s.m * s.d_v;
    std::vector<double> products(static_cast<std::size_t>(s.heads), 0.0);
    std::vector<double> squares(products.size(), 0.0);
    for (const std::size_t i : elements_) {
      const std::size_t head = i / static_cast<std::size_t>(size);
      const auto right = static_cast<double>(judge_.unrounded()[i]);
      products[head] += right * static_cast<double>(judge_.got()[i]);
      squares[head] += right * right;
    }
    std::string text;
    for (std::size_t head = 0; head < products.size(); ++head) {
      products[head] = squares[head] > 0.0 ? products[head] / squares[head] : 1.0;
      if (text.size() < 60)
        text += fmt::format("{}{:.5g}", text.empty() ? "" : ", ", products[head]);
    }
    if (s.heads == 1 || elements_.size() < kFewestElements * products.size()) return;
    // No scale makes zeros: such heads were not written, or hold another mistake.
    if (std::ranges::any_of(products, [](double by) { return by == 0.0; })) return;
    add_at_wrong(
        "output_factor",
        "the outputs of heads are " + text +
            " times the right ones (measured): another scale of V" +
            (s.m == 1 ? ", or something else in the row sum (a sink): one row does not tell" : ""),
        [this_judge = &judge_, products, size](std::size_t i) {
          return this_judge->rounded(
              static_cast<float>(products[i / static_cast<std::size_t>(size)] *
                                 static_cast<double>(this_judge->unrounded()[i])));
        });
    found_.back().fitted = true;
  }

  void casts() {
    const auto everywhere = [&](std::string text, const std::function<float(float)>& cast) {
      found_.push_back({"output_cast", std::move(text), [this_judge = &judge_, cast] {
                          std::vector<float> o = this_judge->unrounded();
                          for (float& value : o) value = cast(value);
                          return o;
                        }});
    };
    const auto through = [](FormatId id, const CastPolicy& policy, float value) {
      return static_cast<float>(round_trip(format(id), policy, value));
    };
    const FormatId own = judge_.output();
    for (const FormatId id : {FormatId::bf16, FormatId::f16, FormatId::e4m3fn, FormatId::e5m2})
      if (id != own)
        everywhere(fmt::format("O is rounded to {} first", format(id).name),
                   [this_judge = &judge_, through, id](float value) {
                     return this_judge->rounded(through(id, kNvidiaSatfinite, value));
                   });
    if (own == FormatId::f32) return;
    const auto rounding = [&](const char* text, const CastPolicy& policy) {
      everywhere(text, [own, policy, through](float value) { return through(own, policy, value); });
    };
    const bool wide = format(own).storage_bits > 8;
    CastPolicy policy = wide ? kNvidiaNosat : kNvidiaSatfinite;
    policy.rounding = RoundingMode::toward_zero;
    rounding("O is cut (rounded toward zero) in its cast", policy);
    policy.rounding = RoundingMode::nearest_away;
    rounding("O is rounded away from zero at ties", policy);
    rounding(wide ? "O saturates in its cast" : "O does not saturate in its cast",
             wide ? kNvidiaSatfinite : kNvidiaNosat);
  }

  // -- Rows in another place --

  [[nodiscard]] const float* got_row(std::int64_t row) const {
    return judge_.got().data() + row * judge_.shape().d_v;
  }
  [[nodiscard]] const float* golden_row(std::int64_t row) const {
    return judge_.golden().data() + row * judge_.shape().d_v;
  }
  [[nodiscard]] double apart(std::int64_t got, std::int64_t golden, std::int64_t width) const {
    double squares = 0.0;
    for (std::int64_t c = 0; c < width; ++c) {
      const double one =
          static_cast<double>(got_row(got)[c]) - static_cast<double>(golden_row(golden)[c]);
      squares += one * one;
    }
    return squares;
  }

  /// The right row that stands in each of some wrong rows, or -1.
  [[nodiscard]] std::int64_t source_of(std::int64_t row) const {
    const std::int64_t width = judge_.shape().d_v;
    const std::int64_t few = std::min<std::int64_t>(width, 16);
    const std::int64_t all = judge_.shape().heads * judge_.shape().m;
    std::int64_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::int64_t other = 0; other < all; ++other) {
      const double squares = apart(row, other, few);
      if (squares < least) {
        least = squares;
        best = other;
      }
    }
    double norm = 0.0;
    for (std::int64_t c = 0; c < width; ++c)
      norm += static_cast<double>(golden_row(best)[c]) * static_cast<double>(golden_row(best)[c]);
    const double limit = judge_.tolerance() > 0.0 ? 4.0 * judge_.tolerance() : 1e-3;
    return norm > 0.0 && apart(row, best, width) <= limit * limit * norm ? best : -1;
  }

  using Rule = std::function<std::int64_t(std::int64_t head, std::int64_t row)>;
  void add_rule(const std::string& name, std::string text, const Rule& rule) {
    found_.push_back({name, std::move(text), [this_judge = &judge_, rule] {
                        const AttentionShape& s = this_judge->shape();
                        std::vector<float> o = this_judge->golden();
                        for (std::int64_t at = 0; at < s.heads * s.m; ++at) {
                          if (this_judge->wrong_rows()[static_cast<std::size_t>(at)] == 0) continue;
                          const std::int64_t from = rule(at / s.m, at % s.m);
                          if (from < 0 || from >= s.heads * s.m) continue;
                          const float* row = this_judge->golden().data() + from * s.d_v;
                          std::copy(row, row + s.d_v, o.begin() + at * s.d_v);
                        }
                        return o;
                      }});
  }

  void rows() {
    const AttentionShape& s = judge_.shape();
    std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
    for (const std::int64_t row : some_of(rows_, kMostSampled)) {
      const std::int64_t source = source_of(row);
      if (source >= 0 && source != row) pairs.emplace_back(row, source);
    }
    if (pairs.size() * 2 < std::min(kMostSampled, rows_.size())) return;
    layouts();
    heads(pairs);
    const auto [row, source] = pairs.front();
    if (row / s.m == source / s.m) {
      const std::int64_t step = source % s.m - row % s.m;
      add_rule("rows_shifted",
               fmt::format("row i holds row i {} {}", step < 0 ? '-' : '+', std::abs(step)),
               [=, m = s.m](std::int64_t head, std::int64_t i) {
                 return i + step >= 0 && i + step < m ? head * m + i + step : -1;
               });
      add_rule("rows_shifted",
               fmt::format("row i holds row (i {} {}) mod m", step < 0 ? '-' : '+', std::abs(step)),
               [=, m = s.m](std::int64_t head, std::int64_t i) {
                 return head * m + (i + step + m) % m;
               });
      add_rule("rows_shifted",
               fmt::format("row i holds row i {} {}, and behind a head's rows come those of the {}",
                           step < 0 ? '-' : '+', std::abs(step), step < 0 ? "one before" : "next"),
               [=, all = s.heads * s.m, m = s.m](std::int64_t head, std::int64_t i) {
                 return (head * m + i + step + all) % all;
               });
      const std::int64_t bits = (source % s.m) ^ (row % s.m);
      add_rule("rows_permuted", fmt::format("row i holds row i xor {}", bits),
               [=, m = s.m](std::int64_t head, std::int64_t i) {
                 return (i ^ bits) < m ? head * m + (i ^ bits) : -1;
               });
      add_rule("rows_permuted", "the rows of each head are in reverse",
               [m = s.m](std::int64_t head, std::int64_t i) { return head * m + m - 1 - i; });
    }
    each_row();
  }

  void layouts() {
    const AttentionShape& s = judge_.shape();
    if (s.heads == 1) return;
    add_rule("layout", "O is stored as [m, heads, d_v], not as [heads, m, d_v]",
             [=](std::int64_t head, std::int64_t i) {
               const std::int64_t line = head * s.m + i;
               return line % s.heads * s.m + line / s.heads;
             });
    add_rule("layout", "O is read as [m, heads, d_v] where it is [heads, m, d_v]",
             [=](std::int64_t head, std::int64_t i) { return i * s.heads + head; });
  }

  void heads(const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs) {
    const AttentionShape& s = judge_.shape();
    std::map<std::int64_t, std::int64_t> of;
    for (const auto& [row, source] : pairs)
      if (row % s.m == source % s.m) of[row / s.m] = source / s.m;
    for (const std::int64_t row : rows_)  // heads of which no row was sampled
      if (!of.contains(row / s.m)) {
        const std::int64_t source = source_of(row);
        of[row / s.m] = source >= 0 && source % s.m == row % s.m ? source / s.m : row / s.m;
      }
    std::string text;
    for (const auto& [head, other] : of)
      if (head != other && text.size() < 60)
        text += fmt::format("{}head {} holds head {}", text.empty() ? "" : ", ", head, other);
    if (text.empty()) return;
    add_rule("heads_exchanged", text, [of, m = s.m](std::int64_t head, std::int64_t i) {
      const auto found = of.find(head);
      return found == of.end() ? -1 : found->second * m + i;
    });
  }

  /// Whatever rows stand there.
  void each_row() {
    constexpr std::size_t kMostPairs = std::size_t{1} << 26;
    if (rows_.size() * judge_.wrong_rows().size() > kMostPairs) return;
    std::map<std::int64_t, std::int64_t> of;
    for (const std::int64_t row : rows_) of[row] = source_of(row);
    const std::int64_t m = judge_.shape().m;
    std::string text;
    for (const auto& [row, source] : of)
      if (source >= 0 && text.size() < 60)
        text += fmt::format("{}[{}, {}] holds row [{}, {}]", text.empty() ? "row " : ", ", row / m,
                            row % m, source / m, source % m);
    if (!text.empty())
      add_rule("rows_permuted", text, [of, m](std::int64_t head, std::int64_t i) {
        const auto found = of.find(head * m + i);
        return found == of.end() ? -1 : found->second;
      });
  }

  // -- Columns in another place --

  void memory() {
    const AttentionShape& s = judge_.shape();
    found_.push_back({"layout", "each head of O is stored as [d_v, m], not as [m, d_v]",
                      [this_judge = &judge_, s] {
                        std::vector<float> o(this_judge->golden().size());
                        for (std::int64_t h = 0; h < s.heads; ++h)
                          for (std::int64_t at = 0; at < s.m * s.d_v; ++at)
                            o[static_cast<std::size_t>(h * s.m * s.d_v + at)] =
                                this_judge->golden()[static_cast<std::size_t>(
                                    h * s.m * s.d_v + at % s.m * s.d_v + at / s.m)];
                        return o;
                      }});
  }

  void columns() {
    const std::int64_t width = judge_.shape().d_v;
    const std::vector<std::int64_t> rows = some_of(rows_, kMostSampled);
    std::vector<std::int64_t> from(static_cast<std::size_t>(width));
    std::int64_t moved = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      std::int64_t best = c;
      double least = std::numeric_limits<double>::infinity();
      for (std::int64_t other = 0; other < width; ++other) {
        double squares = 0.0;
        for (const std::int64_t row : rows) {
          const double one =
              static_cast<double>(got_row(row)[c]) - static_cast<double>(golden_row(row)[other]);
          squares += one * one;
        }
        if (squares < least || (squares == least && other == c)) {
          least = squares;
          best = other;
        }
      }
      from[static_cast<std::size_t>(c)] = best;
      moved += best == c ? 0 : 1;
    }
    if (moved == 0 || rows.size() < 2) return;
    found_.push_back({"columns_permuted", columns_text(from), [this_judge = &judge_, from, width] {
                        std::vector<float> o = this_judge->golden();
                        for (std::size_t i = 0; i < o.size(); ++i) {
                          const auto at = static_cast<std::int64_t>(i);
                          if (this_judge->wrong_rows()[i / static_cast<std::size_t>(width)] == 0)
                            continue;
                          o[i] = this_judge->golden()[static_cast<std::size_t>(
                              at - at % width + from[static_cast<std::size_t>(at % width)])];
                        }
                        return o;
                      }});
  }

  static std::string columns_text(const std::vector<std::int64_t>& from) {
    std::size_t first = 0;
    while (from[first] == static_cast<std::int64_t>(first)) ++first;
    const auto at = static_cast<std::int64_t>(first);
    const std::int64_t step = from[first] - at;
    const std::int64_t bits = from[first] ^ at;
    const auto width = static_cast<std::int64_t>(from.size());
    bool shifted = true;
    bool flipped = true;
    for (std::int64_t c = 0; c < width; ++c) {
      shifted &= from[static_cast<std::size_t>(c)] == (c + step + width) % width;
      flipped &= from[static_cast<std::size_t>(c)] == (c ^ bits);
    }
    if (flipped) return fmt::format("column c holds column c xor {}", bits);
    if (shifted)
      return fmt::format("column c holds column (c {} {}) mod d_v", step < 0 ? '-' : '+',
                         std::abs(step));
    return fmt::format("columns are permuted: column {} holds column {}", at, from[first]);
  }

  const OutputJudge& judge_;
  std::vector<std::size_t> elements_;
  std::vector<std::int64_t> rows_;
  std::vector<OutputMistake> found_;
};

}  // namespace

std::vector<OutputMistake> output_mistakes(const OutputJudge& judge) {
  return Outputs(judge).all();
}

}  // namespace fp8lab

#include "fp8lab/attention/measured.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "fp8lab/core/parallel.hpp"

namespace fp8lab {
namespace {

/// Squared relative distance up to which the cast of P and the accumulator explain a difference.
constexpr double kExplained = 0.01;
/// Columns of V that decide where a few are enough.
constexpr std::int64_t kFewColumns = 16;

double squared(double x) { return x * x; }

/// One wrong row: its place, what it should see, and its scores under its own K head.
struct MeasuredRow {
  std::int64_t head = 0;
  std::int64_t row = 0;
  SeenColumns seen{};
  std::vector<double> scores{};  ///< softmax_scale * Q K^T of all columns
};

class Measurement {
 public:
  Measurement(const AttentionInputs& inputs, const AttentionOptions& options,
              std::span<const float> got, std::span<const AttentionRows> rows,
              AttentionMistakes& mistakes)
      : inputs_(inputs),
        options_(options),
        got_(got),
        mistakes_(mistakes),
        shape_(attention_shape(inputs)),
        q_(dequantize(inputs.q)),
        k_(dequantize(inputs.k)),
        v_(dequantize(inputs.v)) {
    for (const AttentionRows& part : rows)
      for (std::int64_t row = part.begin; row < part.end; ++row)
        rows_.push_back({part.head, row, seen_columns(shape_, options_, row), {}});
    parallel_for(static_cast<std::int64_t>(rows_.size()), threads_of(options_),
                 [&](std::int64_t i) {
                   MeasuredRow& row = rows_[static_cast<std::size_t>(i)];
                   row.scores = scores(row, row.head, row.head / shape_.group);
                 });
  }

  AttentionMeasurement run() {
    factors();
    heads();
    ends();
    tiles();
    rows_of_v();
    AttentionMeasurement found{std::move(lines_), {}};
    if (factors_.empty()) return found;
    found.logit_factors.assign(static_cast<std::size_t>(shape_.heads), 1.0);
    for (const auto& [head, factors] : factors_)
      found.logit_factors[static_cast<std::size_t>(head)] = factors.logits;
    return found;
  }

 private:
  [[nodiscard]] std::vector<double> scores(const MeasuredRow& row, std::int64_t q_head,
                                           std::int64_t k_head) const {
    const double scale = static_cast<double>(softmax_scale(inputs_, options_));
    const float* q = q_.data() + (q_head * shape_.m + row.row) * shape_.d;
    const float* k = k_.data() + k_head * shape_.n * shape_.d;
    std::vector<double> s(static_cast<std::size_t>(shape_.n));
    for (double& one : s) {
      double sum = 0.0;
      for (std::int64_t i = 0; i < shape_.d; ++i)
        sum += static_cast<double>(q[i]) * static_cast<double>(k[i]);
      one = scale * sum;
      k += shape_.d;
    }
    return s;
  }

  /// exp of the scores times `factor`, of the columns `seen`; others are 0.
  [[nodiscard]] static std::vector<double> weights(const std::vector<double>& s, SeenColumns seen,
                                                   double factor = 1.0) {
    std::vector<double> p(s.size(), 0.0);
    double most = -std::numeric_limits<double>::infinity();
    const auto begin = static_cast<std::size_t>(seen.begin);
    const auto end = static_cast<std::size_t>(seen.end);
    for (std::size_t j = begin; j < end; ++j) most = std::max(most, factor * s[j]);
    for (std::size_t j = begin; j < end; ++j) p[j] = std::exp(factor * s[j] - most);
    return p;
  }

  [[nodiscard]] const float* v_row(std::int64_t kv_head, std::int64_t column) const {
    return v_.data() + (kv_head * shape_.n + column) * shape_.d_v;
  }

  /// The first `columns` of p V / sum of p.
  [[nodiscard]] std::vector<double> output(const std::vector<double>& p, std::int64_t kv_head,
                                           std::int64_t columns) const {
    std::vector<double> o(static_cast<std::size_t>(columns), 0.0);
    double sum = 0.0;
    for (std::int64_t j = 0; j < shape_.n; ++j) {
      const double one = p[static_cast<std::size_t>(j)];
      if (one == 0.0) continue;
      sum += one;
      for (std::int64_t c = 0; c < columns; ++c)
        o[static_cast<std::size_t>(c)] += one * static_cast<double>(v_row(kv_head, j)[c]);
    }
    for (double& one : o) one = sum > 0.0 ? one / sum : 0.0;
    return o;
  }

  [[nodiscard]] double got_at(const MeasuredRow& row, std::int64_t column) const {
    return static_cast<double>(
        got_[static_cast<std::size_t>((row.head * shape_.m + row.row) * shape_.d_v + column)]);
  }

  /// Sums of products of outputs o with got g, over rows.
  struct Products {
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
  void add_products(const MeasuredRow& row, const std::vector<double>& o, Products& sums) const {
    for (std::size_t c = 0; c < o.size(); ++c) {
      const double g = got_at(row, static_cast<std::int64_t>(c));
      if (!std::isfinite(g)) continue;
      sums.oo += o[c] * o[c];
      sums.og += o[c] * g;
      sums.gg += g * g;
    }
  }

  // -- Factors of logits and outputs --

  struct Factors {
    double logits = 1.0;
    double outputs = 1.0;
    double apart = 1.0;
  };

  [[nodiscard]] std::map<std::int64_t, std::vector<const MeasuredRow*>> rows_by_head(
      std::size_t most) const {
    std::map<std::int64_t, std::vector<const MeasuredRow*>> by_head;
    for (const MeasuredRow& row : rows_)
      if (by_head[row.head].size() < most && row.seen.end > row.seen.begin)
        by_head[row.head].push_back(&row);
    return by_head;
  }

  [[nodiscard]] Products products_at(const std::vector<const MeasuredRow*>& rows,
                                     double factor) const {
    Products sums;
    const std::int64_t columns = std::min(kFewColumns, shape_.d_v);
    for (const MeasuredRow* row : rows)
      add_products(
          *row, output(weights(row->scores, row->seen, factor), row->head / shape_.group, columns),
          sums);
    return sums;
  }

  [[nodiscard]] Factors factors_of(const std::vector<const MeasuredRow*>& rows) const {
    constexpr int kOctaves = 12;
    constexpr double kStep = 0.25;
    double best = 0.0;
    double least = std::numeric_limits<double>::infinity();
    const auto apart = [&](double log2_factor) {
      return products_at(rows, std::exp2(log2_factor)).apart_scaled();
    };
    for (int i = 0; i <= 2 * static_cast<int>(kOctaves / kStep); ++i) {
      const double at = -kOctaves + i * kStep;
      const double found = apart(at);
      if (found < least) {
        least = found;
        best = at;
      }
    }
    double step = kStep;
    for (int i = 0; i < 10; ++i) {  // down to 1/4096 of an octave
      step /= 2.0;
      for (const double at : {best - step, best + step}) {
        const double found = apart(at);
        if (found < least) {
          least = found;
          best = at;
        }
      }
    }
    const Products sums = products_at(rows, std::exp2(best));
    return {std::exp2(best), sums.og / sums.oo, least};
  }

  void factors() {
    constexpr std::size_t kRowsOfHead = 4;
    const auto by_head = rows_by_head(kRowsOfHead);
    std::vector<std::pair<std::int64_t, std::vector<const MeasuredRow*>>> heads(by_head.begin(),
                                                                                by_head.end());
    std::vector<Factors> found(heads.size());
    parallel_for(static_cast<std::int64_t>(heads.size()), threads_of(options_),
                 [&](std::int64_t i) {
                   found[static_cast<std::size_t>(i)] =
                       factors_of(heads[static_cast<std::size_t>(i)].second);
                 });
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < heads.size(); ++i) {
      if (found[i].apart > kExplained) continue;
      factors_[heads[i].first] = found[i];
      if (texts.size() < 8)
        texts.push_back(fmt::format("head {}: {:.3g} and {:.3g}", heads[i].first, found[i].logits,
                                    found[i].outputs));
    }
    if (texts.empty()) return;
    lines_.push_back(
        fmt::format("factors of the logits and of the outputs: {}", fmt::join(texts, "; ")));
    if (factors_.size() == heads.size()) add_factors();
  }

  /// A known scale that is `wanted`, within what was measured.
  [[nodiscard]] std::optional<float> known_scale(double wanted) const {
    constexpr double kNear = 0.03;
    std::optional<float> best;
    double least = kNear;
    const auto try_one = [&](float scale) {
      const double apart = std::abs(wanted / static_cast<double>(scale) - 1.0);
      if (apart >= least) return;
      least = apart;
      best = scale;
    };
    for (const AttentionOperand* x : {&inputs_.q, &inputs_.k, &inputs_.v})
      for (const float scale : x->inverse_scales) try_one(scale);
    try_one(1.0F);
    return best;
  }

  /// The scales of an operand times the factors of its heads, where all are known scales.
  [[nodiscard]] std::optional<std::vector<float>> scales_by(const AttentionOperand& x,
                                                            double Factors::*factor) const {
    std::vector<float> scales;
    const std::int64_t heads_of_one = shape_.heads / x.heads;
    bool other = false;
    for (std::int64_t head = 0; head < x.heads; ++head) {
      const float own = scale_of(x, head);
      double wanted = static_cast<double>(own);
      for (const auto& [of, factors] : factors_)
        if (of / heads_of_one == head) wanted = static_cast<double>(own) * factors.*factor;
      const std::optional<float> known = known_scale(wanted);
      if (!known) return std::nullopt;
      scales.push_back(*known);
      other |= *known != own;
    }
    return other ? std::optional(scales) : std::nullopt;
  }

  void add_factors() {
    const auto qs = scales_by(inputs_.q, &Factors::logits);
    const auto ks = scales_by(inputs_.k, &Factors::logits);
    const auto vs = scales_by(inputs_.v, &Factors::outputs);
    const auto text = [](const char* name, const std::vector<float>& scales) {
      return fmt::format(
          "{}'s scales are {:.6g}{} (measured)", name,
          fmt::join(scales.begin(),
                    scales.begin() + std::min<std::ptrdiff_t>(6, std::ssize(scales)), ", "),
          scales.size() > 6 ? ", ..." : "");
    };
    const auto add = [&](const std::string& said, const auto& q, const auto& k, const auto& v) {
      mistakes_.add("wrong_scale", said, [&](AttentionMistake& m) {
        const auto set = [&](AttentionOperand& x, const auto& scales) {
          if (scales)
            x = mistakes_.operands().with_scales(
                x, [&](std::int64_t head) { return (*scales)[static_cast<std::size_t>(head)]; });
        };
        set(m.inputs.q, q);
        set(m.inputs.k, k);
        set(m.inputs.v, v);
      });
    };
    const std::optional<std::vector<float>> none;
    if (qs) add(text("Q", *qs), qs, none, none);
    if (ks) add(text("K", *ks), none, ks, none);
    if (vs) add(text("V", *vs), none, none, vs);
    if (qs && vs) add(text("Q", *qs) + ", " + text("V", *vs), qs, none, vs);
    if (ks && vs) add(text("K", *ks) + ", " + text("V", *vs), none, ks, vs);
  }

  // -- Heads --

  void heads() {
    const std::int64_t kv_heads = inputs_.k.heads;
    if (kv_heads == 1 && shape_.heads == 1) return;
    constexpr std::size_t kRowsOfHead = 2;
    std::vector<std::int64_t> of_k(static_cast<std::size_t>(shape_.heads));
    for (std::int64_t h = 0; h < shape_.heads; ++h)
      of_k[static_cast<std::size_t>(h)] = h / shape_.group;
    std::vector<std::int64_t> of_v = of_k;
    std::vector<std::int64_t> of_q(of_k.size());
    for (std::int64_t h = 0; h < shape_.heads; ++h) of_q[static_cast<std::size_t>(h)] = h;
    bool other_kv = false;
    bool other_q = false;
    for (const auto& [head, rows] : rows_by_head(kRowsOfHead)) {
      const auto h = static_cast<std::size_t>(head);
      double least = kExplained;
      for (std::int64_t k = 0; k < kv_heads; ++k) {
        const std::vector<double> apart = apart_by_v(rows, head, k);
        for (std::int64_t v = 0; v < kv_heads; ++v)
          if (apart[static_cast<std::size_t>(v)] < least) {
            least = apart[static_cast<std::size_t>(v)];
            of_k[h] = k;
            of_v[h] = v;
            other_kv |= k != head / shape_.group || v != head / shape_.group;
          }
      }
      for (std::int64_t q = 0; q < shape_.heads; ++q) {
        const double apart =
            apart_by_v(rows, q, head / shape_.group)[static_cast<std::size_t>(head / shape_.group)];
        if (q == head || apart >= least) continue;
        least = apart;
        of_q[h] = q;
        other_q = true;
      }
    }
    if (other_kv) add_heads(of_k, of_v);
    if (other_q) add_q_heads(of_q);
  }

  /// Distances of rows under Q's head `q` and K's head `k`, for each head of V.
  [[nodiscard]] std::vector<double> apart_by_v(const std::vector<const MeasuredRow*>& rows,
                                               std::int64_t q, std::int64_t k) const {
    const std::int64_t columns = std::min(kFewColumns, shape_.d_v);
    std::vector<Products> sums(static_cast<std::size_t>(inputs_.v.heads));
    for (const MeasuredRow* row : rows) {
      const std::vector<double> p = weights(scores(*row, q, k), row->seen);
      for (std::size_t v = 0; v < sums.size(); ++v)
        add_products(*row, output(p, static_cast<std::int64_t>(v), columns), sums[v]);
    }
    std::vector<double> apart;
    for (const Products& one : sums) apart.push_back(one.apart());
    return apart;
  }

  static std::string mapping_text(const char* what, const std::vector<std::int64_t>& of) {
    return fmt::format(
        "{} {}{}", what,
        fmt::join(of.begin(), of.begin() + std::min<std::ptrdiff_t>(12, std::ssize(of)), " "),
        of.size() > 12 ? " ..." : "");
  }

  void add_heads(const std::vector<std::int64_t>& of_k, const std::vector<std::int64_t>& of_v) {
    const auto at = [](const std::vector<std::int64_t>& of) {
      return [of](std::int64_t head) { return of[static_cast<std::size_t>(head)]; };
    };
    const auto right = [this](std::int64_t head) { return head / shape_.group; };
    for (const bool scales : {true, false})
      mistakes_.add("head_mapping",
                    fmt::format("heads of Q read {} and {}{} (measured)",
                                mapping_text("K heads", of_k), mapping_text("V heads", of_v),
                                scales ? "" : ", with the right heads' scales"),
                    [&](AttentionMistake& m) {
                      ChangedOperands& operands = mistakes_.operands();
                      const std::function<std::int64_t(std::int64_t)> own = right;
                      m.inputs.k = operands.with_heads(inputs_.k, shape_.heads, at(of_k),
                                                       scales ? at(of_k) : own);
                      m.inputs.v = operands.with_heads(inputs_.v, shape_.heads, at(of_v),
                                                       scales ? at(of_v) : own);
                    });
  }

  void add_q_heads(const std::vector<std::int64_t>& of_q) {
    const auto from = [&](std::int64_t head) { return of_q[static_cast<std::size_t>(head)]; };
    for (const bool scales : {true, false})
      mistakes_.add("head_mapping",
                    fmt::format("{}{} in the place of heads 0 1 ... (measured)",
                                mapping_text("heads of Q", of_q),
                                scales ? "" : ", with the right heads' scales"),
                    [&](AttentionMistake& m) {
                      const std::function<std::int64_t(std::int64_t)> own = [](std::int64_t head) {
                        return head;
                      };
                      m.inputs.q = mistakes_.operands().with_heads(
                          inputs_.q, shape_.heads, from,
                          scales ? std::function<std::int64_t(std::int64_t)>(from) : own);
                    });
  }

  // -- The columns that rows see --

  /// For each end b of what a row sees from `begin` on (or each begin with the right end), the
  /// relative squared distance of its output.
  [[nodiscard]] std::vector<double> apart_by_end(const MeasuredRow& row, bool right) const {
    const std::int64_t columns = std::min(kFewColumns, shape_.d_v);
    const std::vector<double> p = weights(row.scores, {0, shape_.n});
    std::vector<double> o(static_cast<std::size_t>(columns), 0.0);
    std::vector<double> found(static_cast<std::size_t>(shape_.n) + 1, 1.0);
    double gg = 0.0;
    for (std::int64_t c = 0; c < columns; ++c) gg += squared(got_at(row, c));
    double sum = 0.0;
    const std::int64_t first = right ? row.seen.begin : row.seen.end - 1;
    const std::int64_t last = right ? shape_.n : -1;
    for (std::int64_t j = first; j != last; j += right ? 1 : -1) {
      const double one = p[static_cast<std::size_t>(j)];
      sum += one;
      double apart = 0.0;
      for (std::int64_t c = 0; c < columns; ++c) {
        double& own = o[static_cast<std::size_t>(c)];
        own += one * static_cast<double>(v_row(row.head / shape_.group, j)[c]);
        apart += squared(own / sum - got_at(row, c));
      }
      found[static_cast<std::size_t>(right ? j + 1 : j)] = gg > 0.0 ? apart / gg : 1.0;
    }
    return found;
  }

  /// One way in which the ends of rows depend on the row.
  struct Ends {
    std::string name;
    std::string text;
    std::function<std::int64_t(std::int64_t)> of_row;
    double apart = 0.0;
  };

  void ends() {
    constexpr std::size_t kMostRows = 32;
    for (const bool right : {true, false}) {
      std::vector<const MeasuredRow*> rows;
      for (std::size_t i = 0; i < rows_.size() && rows.size() < kMostRows; ++i)
        if (rows_[i].seen.end > rows_[i].seen.begin) rows.push_back(&rows_[i]);
      if (rows.empty()) return;
      std::vector<std::vector<double>> apart(rows.size());
      parallel_for(static_cast<std::int64_t>(rows.size()), threads_of(options_),
                   [&](std::int64_t i) {
                     apart[static_cast<std::size_t>(i)] =
                         apart_by_end(*rows[static_cast<std::size_t>(i)], right);
                   });
      const auto mean = [&](const std::function<std::int64_t(std::int64_t)>& of_row) {
        double sum = 0.0;
        for (std::size_t i = 0; i < rows.size(); ++i)
          sum += apart[i][static_cast<std::size_t>(
              std::clamp<std::int64_t>(of_row(rows[i]->row), 0, shape_.n))];
        return sum / static_cast<double>(rows.size());
      };
      const double expected = mean([&](std::int64_t row) {
        const SeenColumns seen = seen_columns(shape_, options_, row);
        return right ? seen.end : seen.begin;
      });
      std::vector<Ends> found = right ? right_ends() : left_ends();
      for (Ends& one : found) one.apart = mean(one.of_row);
      std::ranges::stable_sort(found, {}, &Ends::apart);
      constexpr std::size_t kMostTried = 6;
      for (std::size_t i = 0; i < std::min(kMostTried, found.size()); ++i)
        if (found[i].apart < kExplained && found[i].apart < 0.5 * expected)
          add_ends(found[i], right);
    }
  }

  [[nodiscard]] std::int64_t right_window() const {
    return options_.causal ? 0 : options_.window_right;
  }

  [[nodiscard]] std::vector<Ends> right_ends() const {
    std::vector<Ends> found;
    const std::int64_t apart = shape_.n - shape_.m;
    const std::int64_t own = right_window();
    for (std::int64_t by = -shape_.n; by <= shape_.n; ++by) {
      const bool corner = own != kNoWindow && apart != 0 && by == own - apart;
      found.push_back(
          {corner                                        ? "mask_alignment"
           : own != kNoWindow && std::abs(by - own) == 1 ? "mask_off_by_one"
                                                         : "mask",
           corner
               ? fmt::format("the mask starts in the upper left corner: row i sees columns up to "
                             "i + {}, not i + n - m + {}",
                             own, own)
               : fmt::format("row i sees columns up to i + n - m {} {} (measured)",
                             by < 0 ? '-' : '+', std::abs(by)),
           [=](std::int64_t row) { return row + apart + by + 1; }, 0.0});
    }
    for (std::int64_t end = 1; end < shape_.n; ++end)
      found.push_back({"columns_unread",
                       fmt::format("columns from {} on are not read (measured)", end),
                       [=, this](std::int64_t row) {
                         return std::min(end, seen_columns(shape_, options_, row).end);
                       },
                       0.0});
    if (own == kNoWindow) return found;
    const std::int64_t tile = options_.kv_tile;
    const std::int64_t block = options_.q_tile;
    const auto usual = [=](std::int64_t row) { return row + apart + own + 1; };
    found.push_back({"mask_of_tiles", "nothing is hidden in the tile at the mask's edge",
                     [=](std::int64_t row) { return (usual(row) + tile - 1) / tile * tile; }, 0.0});
    found.push_back({"mask_of_tiles", "the tile at the mask's edge is left out",
                     [=](std::int64_t row) { return usual(row) / tile * tile; }, 0.0});
    found.push_back({"mask_of_tiles", "all rows of a block see what its last row sees",
                     [=, m = shape_.m](std::int64_t row) {
                       return usual(std::min(m, row / block * block + block) - 1);
                     },
                     0.0});
    found.push_back(
        {"mask_of_tiles", "all tiles that a row of the block sees are seen by all of them",
         [=, m = shape_.m](std::int64_t row) {
           return (usual(std::min(m, row / block * block + block) - 1) + tile - 1) / tile * tile;
         },
         0.0});
    return found;
  }

  [[nodiscard]] std::vector<Ends> left_ends() const {
    std::vector<Ends> found;
    const std::int64_t apart = shape_.n - shape_.m;
    const std::int64_t own = options_.window_left;
    for (std::int64_t by = -shape_.n; by <= shape_.n; ++by)
      found.push_back({own != kNoWindow && std::abs(by - own) == 1 ? "mask_off_by_one" : "mask",
                       fmt::format("row i sees columns from i + n - m {} {} on (measured)",
                                   by < 0 ? '+' : '-', std::abs(by)),
                       [=](std::int64_t row) { return row + apart - by; }, 0.0});
    for (std::int64_t begin = 1; begin < shape_.n; ++begin)
      found.push_back({"columns_unread",
                       fmt::format("columns before {} are not read (measured)", begin),
                       [=, this](std::int64_t row) {
                         return std::max(begin, seen_columns(shape_, options_, row).begin);
                       },
                       0.0});
    if (own == kNoWindow) return found;
    const std::int64_t tile = options_.kv_tile;
    found.push_back({"mask_of_tiles", "nothing is hidden in the tile at the window's left edge",
                     [=](std::int64_t row) {
                       return std::max<std::int64_t>(row + apart - own, 0) / tile * tile;
                     },
                     0.0});
    return found;
  }

  void add_ends(const Ends& one, bool right) {
    mistakes_.add(one.name, one.text, [&](AttentionMistake& m) {
      for (std::int64_t row = 0; row < shape_.m; ++row) {
        SeenColumns seen = seen_columns(shape_, options_, row);
        const std::int64_t end = std::clamp<std::int64_t>(one.of_row(row), 0, shape_.n);
        (right ? seen.end : seen.begin) = end;
        seen.begin = std::min(seen.begin, seen.end);
        m.variant.seen.push_back(seen);
      }
    });
  }

  // -- Weights of tiles --

  void tiles() {
    const std::int64_t count = (shape_.n + options_.kv_tile - 1) / options_.kv_tile;
    if (count < 2) return;
    // At least two equations for each weight.
    const std::int64_t joined = (2 * count + shape_.d_v - 1) / shape_.d_v;
    const std::int64_t groups = (count + joined - 1) / joined;
    std::vector<std::vector<double>> found(static_cast<std::size_t>(groups));
    for (const MeasuredRow& row : rows_) {
      const std::vector<double> w = tile_weights(row, joined, groups);
      for (std::size_t t = 0; t < w.size(); ++t)
        if (std::isfinite(w[t])) found[t].push_back(w[t]);
    }
    std::vector<std::pair<double, std::int64_t>> unlike;
    std::vector<double> middle;
    for (std::int64_t t = 0; t < groups; ++t) {
      std::vector<double>& w = found[static_cast<std::size_t>(t)];
      if (w.empty()) {
        middle.push_back(1.0);
        continue;
      }
      std::ranges::nth_element(w, w.begin() + std::ssize(w) / 2);
      middle.push_back(w[w.size() / 2]);
      const double apart = std::abs(middle.back() - 1.0);
      if (apart > 0.4) unlike.emplace_back(-apart, t);
    }
    if (unlike.empty()) return;
    std::ranges::sort(unlike);
    if (middle.size() <= 16)
      lines_.push_back(
          fmt::format("weights of the tiles of K and V, from the first column on: {:.2g}",
                      fmt::join(middle, " ")));
    else
      lines_.push_back(fmt::format("weight of the tiles from column {} on: {:.2g}",
                                   unlike.front().second * joined * options_.kv_tile,
                                   middle[static_cast<std::size_t>(unlike.front().second)]));
    constexpr std::size_t kMostTried = 3;
    for (std::size_t i = 0; i < std::min(kMostTried, unlike.size()); ++i)
      for (std::int64_t t = unlike[i].second * joined;
           t < std::min(count, (unlike[i].second + 1) * joined); ++t)
        mistakes_.add_tile(t);
  }

  /// Weights of groups of tiles in one row relative to the usual one; NaN where it sees nothing.
  [[nodiscard]] std::vector<double> tile_weights(const MeasuredRow& row, std::int64_t joined,
                                                 std::int64_t groups) const {
    const std::vector<double> p = weights(row.scores, row.seen);
    Eigen::MatrixXd a = Eigen::MatrixXd::Zero(shape_.d_v, groups);
    for (std::int64_t j = row.seen.begin; j < row.seen.end; ++j) {
      const float* v = v_row(row.head / shape_.group, j);
      const std::int64_t group = j / options_.kv_tile / joined;
      for (std::int64_t c = 0; c < shape_.d_v; ++c)
        a(c, group) += p[static_cast<std::size_t>(j)] * static_cast<double>(v[c]);
    }
    std::vector<std::int64_t> used;
    for (std::int64_t g = 0; g < groups; ++g)
      if (a.col(g).norm() > 0.02 * a.norm()) used.push_back(g);
    std::vector<double> w(static_cast<std::size_t>(groups),
                          std::numeric_limits<double>::quiet_NaN());
    if (used.size() < 2) return w;
    Eigen::MatrixXd part(shape_.d_v, std::ssize(used));
    for (std::int64_t i = 0; i < std::ssize(used); ++i)
      part.col(i) = a.col(used[static_cast<std::size_t>(i)]);
    Eigen::VectorXd g(shape_.d_v);
    for (std::int64_t c = 0; c < shape_.d_v; ++c) g(c) = got_at(row, c);
    const Eigen::VectorXd solved = part.colPivHouseholderQr().solve(g);
    std::vector<double> sorted(solved.data(), solved.data() + solved.size());
    std::ranges::nth_element(sorted, sorted.begin() + std::ssize(sorted) / 2);
    const double usual = sorted[sorted.size() / 2];
    for (std::size_t i = 0; i < used.size(); ++i)
      w[static_cast<std::size_t>(used[i])] = solved(static_cast<std::int64_t>(i)) / usual;
    return w;
  }

  // -- The order of V's rows --

  void rows_of_v() {
    for (const std::int64_t group : {8, 16}) {
      if (shape_.n % group != 0) continue;
      const std::int64_t unknowns = group * group;
      if (std::ssize(rows_) * shape_.d_v < 2 * unknowns) continue;
      const Eigen::VectorXd solved = solve_rows(group);
      std::vector<std::int64_t> from;
      std::vector<char> taken(static_cast<std::size_t>(group), 0);
      for (std::int64_t r = 0; r < group; ++r) {
        Eigen::Index best = 0;
        const double most = solved.segment(r * group, group).maxCoeff(&best);
        if (most < 0.5 || taken[static_cast<std::size_t>(best)] != 0) break;
        taken[static_cast<std::size_t>(best)] = 1;
        from.push_back(best);
      }
      if (std::ssize(from) != group) continue;
      bool other = false;
      for (std::int64_t r = 0; r < group; ++r) other |= from[static_cast<std::size_t>(r)] != r;
      if (!other) continue;
      mistakes_.add("permuted_rows",
                    fmt::format("in each group of {} rows of V, rows {} in the places of 0 1 ... "
                                "(measured)",
                                group, fmt::join(from, " ")),
                    [&](AttentionMistake& m) {
                      m.inputs.v = mistakes_.operands().with_rows(
                          inputs_.v, shape_.n, [&](std::int64_t row) {
                            return row - row % group + from[static_cast<std::size_t>(row % group)];
                          });
                    });
      return;
    }
  }

  /// Least squares for M of got = sum over r and k of M[r, k] sum over groups of p[r] v[k].
  [[nodiscard]] Eigen::VectorXd solve_rows(std::int64_t group) const {
    const std::int64_t unknowns = group * group;
    Eigen::MatrixXd squares = Eigen::MatrixXd::Zero(unknowns, unknowns);
    Eigen::VectorXd products = Eigen::VectorXd::Zero(unknowns);
    Eigen::MatrixXd equations(shape_.d_v, unknowns);
    for (const MeasuredRow& row : rows_) {
      const std::vector<double> p = weights(row.scores, row.seen);
      double sum = 0.0;
      for (const double one : p) sum += one;
      equations.setZero();
      for (std::int64_t j = row.seen.begin; j < row.seen.end; ++j) {
        const double one = p[static_cast<std::size_t>(j)] / sum;
        for (std::int64_t k = 0; k < group; ++k) {
          const float* v = v_row(row.head / shape_.group, j - j % group + k);
          for (std::int64_t c = 0; c < shape_.d_v; ++c)
            equations(c, j % group * group + k) += one * static_cast<double>(v[c]);
        }
      }
      Eigen::VectorXd g(shape_.d_v);
      for (std::int64_t c = 0; c < shape_.d_v; ++c) g(c) = got_at(row, c);
      if (!g.allFinite()) continue;
      squares.selfadjointView<Eigen::Lower>().rankUpdate(equations.transpose());
      products += equations.transpose() * g;
    }
    return squares.selfadjointView<Eigen::Lower>().ldlt().solve(products);
  }

  const AttentionInputs& inputs_;
  const AttentionOptions& options_;
  std::span<const float> got_;
  AttentionMistakes& mistakes_;
  AttentionShape shape_;
  std::vector<float> q_;
  std::vector<float> k_;
  std::vector<float> v_;
  std::vector<MeasuredRow> rows_;
  std::map<std::int64_t, Factors> factors_;
  std::vector<std::string> lines_;
};

}  // namespace

AttentionMeasurement measure_attention(const AttentionInputs& inputs,
                                       const AttentionOptions& options, std::span<const float> got,
                                       std::span<const AttentionRows> rows,
                                       AttentionMistakes& mistakes) {
  return Measurement(inputs, options, got, rows, mistakes).run();
}

}  // namespace fp8lab

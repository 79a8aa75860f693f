#include "fp8lab/attention/measured.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "fp8lab/attention/measured_rows.hpp"
#include "fp8lab/core/parallel.hpp"

namespace fp8lab {
namespace {

/// The factors of logits and outputs of each head, and the heads that it reads.
class HeadMeasurement {
 public:
  HeadMeasurement(const MeasuredRows& rows, AttentionMistakes& mistakes,
                  std::vector<std::string>& lines)
      : rows_(rows),
        inputs_(rows.inputs()),
        options_(rows.options()),
        mistakes_(mistakes),
        shape_(rows.shape()),
        lines_(lines) {}

  /// The factor of the logits of each head; empty if none was found.
  std::vector<double> run() {
    factors();
    heads();
    std::vector<double> found;
    if (factors_.empty()) return found;
    found.assign(static_cast<std::size_t>(shape_.heads), 1.0);
    for (const auto& [head, factors] : factors_)
      found[static_cast<std::size_t>(head)] = factors.logits;
    return found;
  }

 private:
  // -- Factors of logits and outputs --

  struct Factors {
    double logits = 1.0;
    double outputs = 1.0;
    double apart = 1.0;
  };

  [[nodiscard]] std::map<std::int64_t, std::vector<const MeasuredRow*>> rows_by_head(
      std::size_t most) const {
    std::map<std::int64_t, std::vector<const MeasuredRow*>> by_head;
    for (const MeasuredRow& row : rows_.all())
      if (by_head[row.head].size() < most && row.seen.end > row.seen.begin)
        by_head[row.head].push_back(&row);
    return by_head;
  }

  [[nodiscard]] OutputProducts products_at(const std::vector<const MeasuredRow*>& rows,
                                           double factor) const {
    OutputProducts sums;
    const std::int64_t columns = rows_.few_columns();
    for (const MeasuredRow* row : rows)
      rows_.add_products(*row,
                         rows_.output(rows_.weights(*row, row->scores, row->seen, factor),
                                      row->head / shape_.group, columns),
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
    const OutputProducts sums = products_at(rows, std::exp2(best));
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
    const std::int64_t columns = rows_.few_columns();
    std::vector<OutputProducts> sums(static_cast<std::size_t>(inputs_.v.heads));
    for (const MeasuredRow* row : rows) {
      const RowWeights p = rows_.weights(*row, rows_.scores(*row, q, k), row->seen);
      for (std::size_t v = 0; v < sums.size(); ++v)
        rows_.add_products(*row, rows_.output(p, static_cast<std::int64_t>(v), columns), sums[v]);
    }
    std::vector<double> apart;
    for (const OutputProducts& one : sums) apart.push_back(one.apart());
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

  const MeasuredRows& rows_;
  const AttentionInputs& inputs_;
  const AttentionOptions& options_;
  AttentionMistakes& mistakes_;
  AttentionShape shape_;
  std::vector<std::string>& lines_;
  std::map<std::int64_t, Factors> factors_;
};

}  // namespace

AttentionMeasurement measure_attention(const AttentionInputs& inputs,
                                       const AttentionOptions& options, std::span<const float> got,
                                       std::span<const AttentionRows> rows,
                                       AttentionMistakes& mistakes) {
  const MeasuredRows measured(inputs, options, got, rows);
  AttentionMeasurement found;
  found.logit_factors = HeadMeasurement(measured, mistakes, found.lines).run();
  measure_columns(measured, mistakes, found.lines);
  measure_pages(measured, mistakes);
  measure_scores(measured, mistakes);
  return found;
}

}  // namespace fp8lab

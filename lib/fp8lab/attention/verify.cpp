#include "fp8lab/attention/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "fp8lab/attention/judge.hpp"
#include "fp8lab/attention/measured.hpp"
#include "fp8lab/attention/mistakes.hpp"
#include "fp8lab/attention/non_finite.hpp"
#include "fp8lab/attention/outputs.hpp"
#include "fp8lab/attention/shape.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/parallel.hpp"

namespace fp8lab {
namespace {

/// Products of the sample that all mistakes are tried on, and mistakes that are computed in full.
constexpr std::int64_t kSampledProducts = std::int64_t{1} << 22;
constexpr std::size_t kMostInFull = 12;
constexpr std::size_t kMostCauses = 4;

/// Rows of a mistaken kernel, in the output's format.
OutputRows outputs_of(const AttentionMistake& mistake, const std::vector<AttentionRows>& rows,
                      const OutputJudge& judge, int threads) {
  const std::int64_t d_v = judge.shape().d_v;
  OutputRows found{rows, {}};
  std::vector<std::size_t> first{0};
  for (const AttentionRows& part : rows)
    first.push_back(first.back() + static_cast<std::size_t>((part.end - part.begin) * d_v));
  found.o.assign(first.back(), 0.0F);
  const std::int64_t n = mistake.inputs.k.rows;
  parallel_for(std::ssize(rows), threads, [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    std::vector<AttentionTile> tiles = attention_tiles(n, mistake.options.kv_tile);
    attention_rows(mistake.inputs, mistake.options, mistake.variant, rows[at],
                   std::span(found.o).subspan(first[at], first[at + 1] - first[at]), tiles);
  });
  found.o = judge.rounded(std::move(found.o));
  return found;
}

/// Wrong rows of different blocks and heads: at most 16 of a block.
std::vector<AttentionRows> sample_of(const OutputJudge& judge, const AttentionOptions& options) {
  const AttentionShape& s = judge.shape();
  constexpr std::int64_t kRowsOfBlock = 16;
  std::vector<AttentionRows> wrong;
  for (AttentionRows block : attention_blocks(s, options.q_tile)) {
    const auto is_wrong = [&](std::int64_t row) {
      return judge.wrong_rows()[static_cast<std::size_t>(block.head * s.m + row)] != 0;
    };
    const std::int64_t first = block.begin;
    while (block.begin < block.end && !is_wrong(block.begin)) ++block.begin;
    // Whole groups: rows of mistaken threads exchange what they know.
    block.begin -= (block.begin - first) % kRowsOfBlock;
    while (block.end > block.begin && !is_wrong(block.end - 1)) --block.end;
    for (; block.begin < block.end; block.begin += kRowsOfBlock)
      wrong.push_back({block.head, block.begin, std::min(block.begin + kRowsOfBlock, block.end)});
  }
  const std::int64_t products = kRowsOfBlock * s.n * (s.d + s.d_v);
  const auto most =
      static_cast<std::size_t>(std::max<std::int64_t>(kSampledProducts / products, 6));
  if (wrong.size() <= most) return wrong;
  std::vector<AttentionRows> some;
  for (std::size_t i = 0; i < most; ++i) some.push_back(wrong[i * wrong.size() / most]);
  return some;
}

/// A few wrong rows of each head, for what is measured.
std::vector<AttentionRows> rows_of_heads(const OutputJudge& judge) {
  const AttentionShape& s = judge.shape();
  constexpr std::size_t kRowsOfHead = 8;
  std::vector<AttentionRows> found;
  for (std::int64_t head = 0; head < s.heads; ++head) {
    std::vector<std::int64_t> wrong;
    for (std::int64_t row = 0; row < s.m; ++row)
      if (judge.wrong_rows()[static_cast<std::size_t>(head * s.m + row)] != 0) wrong.push_back(row);
    const std::size_t count = std::min(kRowsOfHead, wrong.size());
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t step = wrong.size() / count;
      // Not all at one place of a tile.
      const std::int64_t row = wrong[i * step + i * 5 % step];
      found.push_back({head, row, row + 1});
    }
  }
  return found;
}

class Explanation {
 public:
  Explanation(const AttentionInputs& inputs, const AttentionOptions& options,
              const OutputJudge& judge)
      : options_(options), judge_(judge), mistakes_(inputs, options), inputs_(inputs) {}

  void run(AttentionVerdict& verdict) {
    all_ = attention_blocks(judge_.shape(), options_.q_tile);
    sample_ = sample_of(judge_, options_);
    golden_of_sample_ = judge_.golden_fit(sample_);
    for (const OutputMistake& mistake : output_mistakes(judge_))
      consider(mistake.name, mistake.text, {all_, mistake.outputs()}, mistake.fitted);
    // Outputs that were not written say nothing of what was computed.
    const bool written = found_.empty() || found_.front().cause.name != "never_written";
    if (written) {
      mistakes_.add_known();
      try_mistakes(0);
    }
    if (written && best_ != Explains::all) {
      const std::size_t known = mistakes_.all().size();
      AttentionMeasurement measured =
          measure_attention(inputs_, options_, judge_.got(), rows_of_heads(judge_), mistakes_);
      try_mistakes(known);
      if (best_ == Explains::nothing && !measured.logit_factors.empty())
        refine(measured.logit_factors);
      verdict.measured = std::move(measured.lines);
    }
    take_best(verdict);
    if (!verdict.causes.empty()) verdict.measured.clear();
  }

 private:
  struct Found {
    AttentionCause cause;
    Explains explains;
    bool fitted;
  };

  /// Mistakes from number `first` on: all on the sample, the best in full.
  void try_mistakes(std::size_t first) {
    const std::vector<AttentionMistake>& all = mistakes_.all();
    std::vector<OutputFit> fits(all.size() - first);
    parallel_for(std::ssize(fits), threads_of(options_), [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      fits[at] = judge_.fit(outputs_of(all[first + at], sample_, judge_, 1));
    });
    // In their order, so that simpler ones come first.
    for (const std::size_t i : judge_.promising(fits, golden_of_sample_, kMostInFull)) {
      const AttentionMistake& mistake = all[first + i];
      consider(mistake.name, mistake.text, outputs_of(mistake, all_, judge_, threads_of(options_)));
    }
  }

  /// The right kernel with Q's scales times `factors`, on some rows of each head.
  void refine(std::vector<double>& factors) {
    const std::vector<AttentionRows> rows = rows_of_heads(judge_);
    ChangedOperands operands;
    const auto kernel = [&](const std::vector<double>& by) {
      AttentionMistake mistake{"", "", inputs_, options_, {}};
      mistake.inputs.q = operands.with_scales(inputs_.q, [&](std::int64_t head) {
        return static_cast<float>(by[static_cast<std::size_t>(head)] *
                                  static_cast<double>(scale_of(inputs_.q, head)));
      });
      return mistake;
    };
    // All heads at once, each by the distance of its own rows.
    std::vector<double> least(factors.size(), INFINITY);
    for (double step = 0.02; step > 1e-6; step /= 4.0) {
      const std::vector<double> around = factors;
      for (int i = -4; i <= 4; ++i) {
        std::vector<double> tried = around;
        for (double& one : tried) one *= 1.0 + step * i / 4.0;
        const OutputRows outputs = outputs_of(kernel(tried), rows, judge_, threads_of(options_));
        take_nearest(outputs, tried, factors, least);
      }
    }
    add_refined(factors, kernel(factors));
  }

  void take_nearest(const OutputRows& outputs, const std::vector<double>& tried,
                    std::vector<double>& factors, std::vector<double>& least) const {
    const auto width = static_cast<std::size_t>(judge_.shape().d_v);
    std::vector<double> apart(factors.size(), 0.0);
    for (std::size_t row = 0; row < outputs.rows.size(); ++row) {
      const AttentionRows& at = outputs.rows[row];
      const float* got =
          judge_.got().data() + (at.head * judge_.shape().m + at.begin) * judge_.shape().d_v;
      for (std::size_t c = 0; c < width; ++c) {
        const double one =
            static_cast<double>(got[c]) - static_cast<double>(outputs.o[row * width + c]);
        if (std::isfinite(one)) apart[static_cast<std::size_t>(at.head)] += one * one;
      }
    }
    for (std::size_t head = 0; head < factors.size(); ++head)
      if (apart[head] < least[head]) {
        least[head] = apart[head];
        factors[head] = tried[head];
      }
  }

  /// One factor of all heads is that of the softmax.
  void add_refined(const std::vector<double>& factors, const AttentionMistake& kernel) {
    const auto [low, high] = std::ranges::minmax(factors);
    const auto scale = static_cast<double>(softmax_scale(inputs_, options_));
    if (high / low < 1.001) {
      const double measured = scale * factors.front();
      consider("softmax_scale",
               fmt::format("the softmax's scale is {:.5g}, not {:.5g} (measured)", measured, scale),
               outputs_of(kernel, all_, judge_, threads_of(options_)));
      return;
    }
    std::string text;
    for (std::size_t head = 0; head < factors.size() && head < 8; ++head)
      text += fmt::format("{}{:.5g}", head == 0 ? "" : ", ", factors[head]);
    consider("wrong_scale",
             fmt::format("the logits of heads are {} times the right ones (measured): other scales "
                         "of Q or K",
                         text),
             outputs_of(kernel, all_, judge_, threads_of(options_)));
  }

  /// Keeps what explains the output everywhere, or in the region that is wrong.
  void consider(const std::string& name, const std::string& text, const OutputRows& outputs,
                bool fitted = false) {
    OutputFit fit = judge_.fit(outputs);
    Explains explains = judge_.explains(fit);
    std::string where;
    if (explains != Explains::all) {
      const OutputFit part = judge_.fit(outputs, &judge_.region());
      const Explains in_part = judge_.explains(part);
      if (in_part < explains) {
        fit = part;
        explains = in_part;
        where = judge_.region().text(judge_.shape());
      }
    }
    if (explains == Explains::nothing) return;
    best_ = std::min(best_, explains);
    found_.push_back({{name, where.empty() ? text : text + " (in " + where + ")", fit.mismatches(),
                       fit.distance},
                      explains,
                      fitted});
  }

  void take_best(AttentionVerdict& verdict) {
    std::erase_if(found_, [&](const Found& f) { return f.explains != best_; });
    if (found_.empty()) return;
    const bool bits = best_ != Explains::within;
    std::ranges::stable_sort(found_, {}, [&](const Found& f) {
      return bits ? static_cast<double>(f.cause.mismatches) : f.cause.distance;
    });
    // What explains clearly less than another is chance.
    std::erase_if(found_, [&, best = found_.front().cause](const Found& f) {
      return bits ? f.cause.mismatches > 2 * best.mismatches
                  : f.cause.distance > 1.2 * best.distance;
    });
    std::ranges::stable_sort(found_, {}, &Found::fitted);
    for (const Found& f : found_)
      if (verdict.causes.size() < kMostCauses) verdict.causes.push_back(f.cause);
  }

  const AttentionOptions& options_;
  const OutputJudge& judge_;
  AttentionMistakes mistakes_;
  const AttentionInputs& inputs_;
  std::vector<AttentionRows> all_;
  std::vector<AttentionRows> sample_;
  OutputFit golden_of_sample_;
  std::vector<Found> found_;
  Explains best_ = Explains::nothing;
};

/// Heads that are wrong in the same rows.
struct HeadsAlike {
  std::int64_t first_row = 0;
  std::int64_t last_row = 0;
  std::vector<std::int64_t> heads{};
};

std::vector<HeadsAlike> wrong_heads(const OutputJudge& judge) {
  const AttentionShape& s = judge.shape();
  std::vector<HeadsAlike> found;
  for (std::int64_t head = 0; head < s.heads; ++head) {
    const auto wrong = [&](std::int64_t row) {
      return judge.wrong_rows()[static_cast<std::size_t>(head * s.m + row)] != 0;
    };
    std::int64_t first = 0;
    std::int64_t last = s.m - 1;
    while (first < s.m && !wrong(first)) ++first;
    if (first == s.m) continue;
    while (!wrong(last)) --last;
    // Single rows at an end may be right by chance.
    constexpr std::int64_t kNear = 16;
    const auto alike = std::ranges::find_if(found, [&](const HeadsAlike& one) {
      return std::abs(one.first_row - first) < kNear && std::abs(one.last_row - last) < kNear;
    });
    if (alike != found.end())
      alike->heads.push_back(head);
    else
      found.push_back({first, last, {head}});
  }
  return found;
}

/// Two mistakes in different heads: each group of heads as if the others were right.
void explain_heads(const AttentionInputs& inputs, const AttentionOptions& options,
                   const OutputJudge& judge, AttentionVerdict& verdict) {
  constexpr std::size_t kMostGroups = 4;
  const std::vector<HeadsAlike> groups = wrong_heads(judge);
  if (groups.size() < 2 || groups.size() > kMostGroups) return;
  const auto size = static_cast<std::size_t>(judge.shape().m * judge.shape().d_v);
  bool all = true;
  for (const HeadsAlike& group : groups) {
    std::vector<float> alone = judge.golden();
    for (const std::int64_t head : group.heads) {
      const std::size_t first = static_cast<std::size_t>(head) * size;
      std::copy_n(judge.got().begin() + static_cast<std::ptrdiff_t>(first), size,
                  alone.begin() + static_cast<std::ptrdiff_t>(first));
    }
    OutputJudge part(judge.shape(), alone, judge.unrounded(), judge.output(), judge.tolerance());
    (void)part.set_aside_non_finite();
    AttentionVerdict found;
    if (!part.passes()) Explanation(inputs, options, part).run(found);
    all = all && !found.causes.empty();
    if (found.causes.empty()) continue;
    AttentionCause& cause = found.causes.front();
    if (cause.text.find("(in head") == std::string::npos)
      cause.text += fmt::format(" (in {})", part.region().text(judge.shape()));
    verdict.causes.push_back(std::move(cause));
  }
  if (all) verdict.measured.clear();
}

}  // namespace

AttentionVerdict verify_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                                  std::span<const float> got, FormatId output, double tolerance) {
  const FloatEnvironment environment;
  validate(inputs, options);
  const AttentionShape shape = attention_shape(inputs);
  const auto outputs = static_cast<std::size_t>(shape.heads * shape.m * shape.d_v);
  require(got.size() == outputs, "got",
          fmt::format("[heads, m, d_v] = [{}, {}, {}]", shape.heads, shape.m, shape.d_v),
          counted(got.size(), "value"));
  require(tolerance >= 0.0 && std::isfinite(tolerance), "tolerance", "0 (every bit) or more",
          fmt::format("{}", tolerance));
  const std::vector<float> golden = attention(inputs, options).o;
  OutputJudge judge(shape, got, golden, output, tolerance);
  AttentionVerdict verdict{static_cast<std::int64_t>(outputs),
                           judge.golden_fit().mismatches(),
                           judge.golden_fit().distance,
                           judge.passes(),
                           {}};
  if (verdict.pass) return verdict;
  verdict.where = judge.region().text(shape);
  const std::vector<std::size_t> non_finite = judge.set_aside_non_finite();
  if (!non_finite.empty())
    verdict.causes.push_back(non_finite_cause(inputs, options, judge, non_finite));
  if (!judge.passes()) {
    AttentionVerdict finite;
    Explanation(inputs, options, judge).run(finite);
    if (finite.causes.empty()) explain_heads(inputs, options, judge, finite);
    verdict.causes.insert(verdict.causes.end(), finite.causes.begin(), finite.causes.end());
    verdict.measured = std::move(finite.measured);
  }
  return verdict;
}

std::string AttentionVerdict::text() const {
  const auto share = 100.0 * static_cast<double>(mismatches) / static_cast<double>(outputs);
  std::string out =
      fmt::format("{}: {} of {} outputs differ in bits ({:.3g} %), relative L2 distance {:.3g}\n",
                  pass ? "pass" : "mismatch", mismatches, outputs, share, distance);
  if (!where.empty()) out += fmt::format("  where: {}\n", where);
  for (const AttentionCause& cause : causes)
    out += cause.mismatches == 0
               ? fmt::format("  cause: {}: {} (every bit)\n", cause.name, cause.text)
               : fmt::format("  cause: {}: {} (distance {:.3g}, {} outputs still differ)\n",
                             cause.name, cause.text, cause.distance, cause.mismatches);
  if (!pass && causes.empty()) out += "  no known mistake explains the difference\n";
  for (const std::string& line : measured) out += fmt::format("  measured: {}\n", line);
  return out;
}

}  // namespace fp8lab

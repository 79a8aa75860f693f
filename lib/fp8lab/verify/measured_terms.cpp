// Terms, measured: the weight of each block of K in all sampled outputs together, halved down to
// single terms where a block is not right, and the blocks and rows that were read in place of the
// right ones.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/product/term_variants.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/verify/measure.hpp"

namespace fp8lab {
namespace {

constexpr std::int64_t kFirstBlock = 64;  // terms of the first fit
constexpr std::int64_t kMostParts = 160;  // weights of one fit
constexpr double kWholeNumber = 0.02;     // distance of a weight from a whole number
constexpr double kMostUnsure = 0.25;      // the same of a weight with a large error
constexpr double kMostTimes = 16.0;       // how often terms are counted, at most
constexpr double kLikeness = 0.95;        // cosine of the output and what explains it
constexpr double kReadShare = 0.5;        // weight from which a block counts as read
constexpr double kSearchWork = 4e8;       // products of one search
constexpr double kForeignLeft = 3.0;      // squares of the noise that rounding leaves

/// Terms [begin, end) and their measured weight.
struct TermPart {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  double weight = 1.0;
  double error = 0.0;

  /// Whether the weight says how often the terms were counted.
  [[nodiscard]] bool is_count() const {
    const double times = std::round(weight);
    return times >= 0.0 && times <= kMostTimes &&
           std::abs(weight - times) <= std::clamp(4.0 * error, kWholeNumber, kMostUnsure);
  }
  [[nodiscard]] bool is_right() const {
    return std::abs(weight - 1.0) <= std::max(1e-3, 6.0 * error);
  }
};

/// Those of the sample that lie in the area, and more of it.
std::vector<std::int64_t> nearby(const std::vector<std::int64_t>& sample,
                                 const std::vector<std::int64_t>& area, std::int64_t most) {
  std::set<std::int64_t> chosen;
  for (const std::int64_t at : sample)
    if (std::ranges::binary_search(area, at) && std::ssize(chosen) < most) chosen.insert(at);
  for (const std::int64_t at : some(area, most))
    if (std::ssize(chosen) < most) chosen.insert(at);
  return {chosen.begin(), chosen.end()};
}

class TermWeights {
 public:
  explicit TermWeights(const MeasuredPart& part)
      : part_(part),
        view_(part.product, part.got,
              {nearby(part.sample.rows, part.area.rows, 32),
               nearby(part.sample.columns, part.area.columns, 256)},
              part.threads) {
    balance();
  }

  void measure(Measurement& result) {
    if (!(view_.rms() > 0.0)) return;
    weights(result);
    // The surer ones first; each stage is for what those before it do not find.
    for (const auto stage :
         {&TermWeights::periodic_terms, &TermWeights::single_terms, &TermWeights::permuted_terms,
          &TermWeights::moved_terms, &TermWeights::find_sources, &TermWeights::rows_of_operands,
          &TermWeights::foreign_terms})
      if (result.mistakes.empty()) (this->*stage)(result);
  }

 private:
  [[nodiscard]] const GemmProblem& problem() const { return view_.product().problem; }

  /// Numbers by which rows and columns get the same size: those under large scales would drown the
  /// others.
  void balance() {
    Doubles sums = view_.sums();
    for (double& x : sums.reshaped()) x = std::isfinite(x) ? x : 0.0;
    const auto weights = [](const Eigen::VectorXd& norms) {
      Eigen::VectorXd result = norms;
      for (double& x : result) x = x > 0.0 ? 1.0 / x : 0.0;
      return result;
    };
    of_rows_ = weights(sums.rowwise().norm());
    sums.array().colwise() *= of_rows_.array();
    of_columns_ = weights(sums.colwise().norm().transpose());
    sums.array().rowwise() *= of_columns_.transpose().array();
    balanced_ = std::move(sums);
    a_ = view_.a();
    b_ = view_.b();
    const std::int64_t step = common_scale_block(problem());
    for (std::int64_t at = 0; at < view_.k(); at += step) {
      const std::int64_t width = std::min(step, view_.k() - at);
      for (std::int64_t i = 0; i < view_.rows(); ++i)
        a_.row(i).segment(at, width) *= view_.scale_a(i, at) * of_rows_(i);
      for (std::int64_t j = 0; j < view_.columns(); ++j)
        b_.row(j).segment(at, width) *= view_.scale_b(j, at) * of_columns_(j);
    }
  }

  /// Products of terms [begin, end) under their scales, as one column.
  [[nodiscard]] Eigen::VectorXd column(std::int64_t begin, std::int64_t end) const {
    Doubles total = Doubles::Zero(view_.rows(), view_.columns());
    const std::int64_t step = common_scale_block(problem());
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t next = std::min(end, (at / step + 1) * step);
      Doubles products = view_.products(at, next);
      view_.apply_scales(products, at);
      total += products;
      at = next;
    }
    return total.reshaped<Eigen::RowMajor>();
  }
  [[nodiscard]] Eigen::VectorXd target() const { return view_.sums().reshaped<Eigen::RowMajor>(); }

  /// Fits the weights of all parts; true if nothing more than noise is left.
  bool fit(std::vector<TermPart>& parts) {
    Eigen::MatrixXd x(view_.rows() * view_.columns(), std::ssize(parts));
    for (Eigen::Index i = 0; i < x.cols(); ++i) {
      const TermPart& part = parts[static_cast<std::size_t>(i)];
      std::optional<Eigen::VectorXd>& known = columns_[{part.begin, part.end}];
      if (!known) known = column(part.begin, part.end);
      x.col(i) = *known;
    }
    const std::optional<Weights> w = least_squares(x, target());
    fitted_ = w.has_value();
    if (!w) return false;
    for (Eigen::Index i = 0; i < x.cols(); ++i) {
      TermPart& part = parts[static_cast<std::size_t>(i)];
      part.weight = std::isfinite(w->errors(i)) ? w->values(i) : 1.0;
      part.error = std::isfinite(w->errors(i)) ? w->errors(i) : 0.0;
    }
    return view_.fits(w->left);
  }

  void weights(Measurement& result) {
    const std::int64_t k = view_.k();
    const std::int64_t block =
        std::max(kFirstBlock, round_up(ceil_divide(k, std::int64_t{96}), kFirstBlock));
    std::vector<TermPart> parts;
    for (std::int64_t at = 0; at < k; at += block) parts.push_back({at, std::min(at + block, k)});
    bool explained = fit(parts);
    if (!fitted_) return;
    const std::vector<TermPart> blocks = parts;
    const auto off = [](const TermPart& part) { return !part.is_right(); };
    // Narrower parts, where a block is right in part.
    while (!explained && std::ssize(parts) < kMostParts) {
      std::vector<TermPart> next;
      for (const TermPart& part : parts) {
        if (part.is_right() || part.end - part.begin < 2) {
          next.push_back(part);
          continue;
        }
        const std::int64_t middle = (part.begin + part.end) / 2;
        next.push_back({part.begin, middle});
        next.push_back({middle, part.end});
      }
      if (next.size() == parts.size() || std::ssize(next) > kMostParts) break;
      parts = std::move(next);
      explained = fit(parts);
      if (!fitted_) break;
    }
    if (std::ranges::any_of(blocks, off)) lines_of(blocks, result);
    if (explained && std::ranges::any_of(parts, off) &&
        std::ranges::all_of(parts, [](const TermPart& p) { return p.is_count(); }))
      mistake_of(parts, result);
  }

  static void lines_of(const std::vector<TermPart>& parts, Measurement& result) {
    std::string line = "weights of blocks of K (1 is right):";
    int listed = 0;
    for (const TermPart& part : parts) {
      if (part.is_right() || listed++ > 5) continue;
      line += fmt::format(" [{}, {}) {}", part.begin, part.end, measured_text(part.weight));
    }
    result.lines.push_back(line + (listed > 6 ? " ..." : "; all others 1"));
  }

  /// Terms with weight 0 are left out; those with another whole number are counted so often.
  /// `window`: the terms after which the weights repeat, or 0.
  void mistake_of(const std::vector<TermPart>& parts, Measurement& result,
                  std::int64_t window = 0) const {
    std::vector<TermPart> runs;
    for (const TermPart& part : parts) {
      const double weight = std::round(part.weight);
      if (weight == 1.0) continue;
      if (!runs.empty() && runs.back().end == part.begin && runs.back().weight == weight)
        runs.back().end = part.end;
      else
        runs.push_back({part.begin, part.end, weight, 0.0});
    }
    bool dropped = true;
    std::string text;
    for (const TermPart& run : runs) {
      dropped = dropped && run.weight == 0.0;
      text += fmt::format("{}[{}, {}) {}", text.empty() ? "" : ", ", run.begin, run.end,
                          run.weight == 0.0   ? std::string("left out")
                          : run.weight == 2.0 ? std::string("counted twice")
                                              : fmt::format("counted {} times", run.weight));
    }
    if (window > 0)
      text = fmt::format("in each {} terms: {}", window, text_of_window(runs, window));
    else if (runs.size() > 4)
      text = fmt::format("{} runs of terms with another weight than 1, the first {}", runs.size(),
                         text.substr(0, text.find(", [")));
    result.mistakes.push_back({dropped ? "dropped_terms" : "terms_with_other_weight",
                               fmt::format("terms of K (measured): {}", text),
                               [part = &part_.product, runs](const Sample& sample) {
                                 return weighted(take(*part, sample), runs);
                               }});
    // Which part of a split was added twice is not known.
    result.mistakes.back().rough = !dropped && problem_is_split();
  }
  static std::string text_of_window(const std::vector<TermPart>& runs, std::int64_t window) {
    std::string text;
    for (const TermPart& run : runs) {
      if (run.begin >= window) break;
      const std::int64_t end = std::min(run.end, window);
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                          end == run.begin + 1 ? fmt::format("term {}", run.begin)
                                               : fmt::format("terms {} to {}", run.begin, end - 1),
                          run.weight == 0.0 ? std::string("left out")
                                            : fmt::format("counted {:g} times", run.weight));
    }
    return text;
  }
  [[nodiscard]] bool problem_is_split() const { return part_.product.split.parts > 1; }
  static std::optional<Product> weighted(Product product, const std::vector<TermPart>& runs) {
    for (const TermPart& run : runs)
      if (run.weight == 0.0) product = without_terms(product, run.begin, run.end);
    std::int64_t block = 0;
    for (const TermPart& run : runs)
      if (run.weight > 1.0) block = std::gcd(block, std::gcd(run.begin, run.end));
    if (block == 0) return product;
    std::vector<std::int64_t> sources;
    for (const std::int64_t i : all_k_blocks(product.problem.a.k, block)) {
      int times = 1;
      for (const TermPart& run : runs)
        if (run.weight > 1.0 && i * block >= run.begin && i * block < run.end)
          times = static_cast<int>(run.weight);
      for (int n = 0; n < times; ++n) sources.push_back(i);
    }
    return with_k_blocks(product, block, {sources, sources, sources});
  }

  /// The weight that balanced products have in the balanced output.
  [[nodiscard]] double share(const Doubles& products) const {
    const double size = products.squaredNorm();
    return size > 0.0 ? products.cwiseProduct(balanced_).sum() / size : 0.0;
  }
  /// The cosine between the output and the sums with one operand's term k taken from `source(k)`,
  /// under the right scales.
  template <typename Source>
  [[nodiscard]] double cosine_moved(Side side, const Source& source, std::int64_t most) const {
    const std::int64_t k = view_.k();
    const std::int64_t rows = std::min(view_.rows(), most);
    const std::int64_t columns = std::min(view_.columns(), 4 * most);
    const bool of_a = side == Side::a;
    const Doubles& from = of_a ? view_.a() : view_.b();
    const std::int64_t count = of_a ? rows : columns;
    Doubles moved = Doubles::Zero(count, k);
    const std::int64_t step = common_scale_block(problem());
    for (std::int64_t at = 0; at < k; ++at) {
      const std::int64_t place = source(at);
      if (place < 0 || place >= k) continue;
      for (std::int64_t i = 0; i < count; ++i)
        moved(i, at) =
            from(i, place) * (of_a ? view_.scale_a(i, at / step * step) * of_rows_(i)
                                   : view_.scale_b(i, at / step * step) * of_columns_(i));
    }
    const Doubles products = of_a ? Doubles(moved * b_.topRows(columns).transpose())
                                  : Doubles(a_.topRows(rows) * moved.transpose());
    const Doubles sums = balanced_.topLeftCorner(rows, columns);
    const double size = products.norm() * sums.norm();
    return size > 0.0 ? products.cwiseProduct(sums).sum() / size : 0.0;
  }

  /// Whether such terms explain the output, and the right ones explain it less.
  template <typename Source>
  [[nodiscard]] bool explains_better(Side side, const Source& source) const {
    constexpr std::int64_t kLines = 16;
    const double moved = cosine_moved(side, source, kLines);
    return moved >= kLikeness && moved > cosine_moved(
                                             side, [](std::int64_t k) { return k; }, kLines);
  }

  /// The same of blocks of both operands under the scales of the right ones.
  [[nodiscard]] bool explains_better(std::int64_t block, const std::vector<std::int64_t>& from,
                                     const std::vector<std::int64_t>& to) const {
    const auto cosine = [&](const std::vector<std::int64_t>& read) {
      Doubles total = Doubles::Zero(view_.rows(), view_.columns());
      for (std::size_t i = 0; i < from.size(); ++i) {
        Doubles products = view_.products(read[i] * block, (read[i] + 1) * block);
        view_.apply_scales(products, from[i] * block);
        total += products;
      }
      total.array().colwise() *= of_rows_.array();
      total.array().rowwise() *= of_columns_.transpose().array();
      const double size = total.norm() * balanced_.norm();
      return size > 0.0 ? total.cwiseProduct(balanced_).sum() / size : 0.0;
    };
    const double moved = cosine(to);
    return moved >= kLikeness && moved > cosine(from);
  }

  /// Blocks of K that were read in place of the right ones, of A, of B or of both.
  void find_sources(Measurement& result) const {
    const std::int64_t own = problem().promotion_interval;
    std::vector<std::int64_t> sizes{128, 64, 32, 16};
    if (own > 0) std::erase(sizes, own), sizes.insert(sizes.begin(), own);
    for (const std::int64_t block : sizes) {
      const std::int64_t blocks = view_.k() / block;
      const double work = static_cast<double>(view_.rows() * view_.columns() * blocks * view_.k());
      if (blocks < 2 || view_.k() % block != 0 || work > kSearchWork) continue;
      for (const int which : {0, 1, 2})
        if (which != 0 || own == 0 || block % own == 0) sources(block, which, result);
      if (!result.mistakes.empty()) return;
    }
  }
  /// `which`: 0 for both operands, 1 for A, 2 for B.
  void sources(std::int64_t block, int which, Measurement& result) const {
    const std::int64_t blocks = view_.k() / block;
    std::vector<std::int64_t> to;
    std::vector<std::int64_t> from;
    std::vector<std::int64_t> lost;
    for (std::int64_t i = 0; i < blocks; ++i) {
      std::int64_t best = -1;
      double most = kReadShare;
      for (std::int64_t other = 0; other < blocks; ++other) {
        const std::int64_t a = which == 2 ? i : other;
        const std::int64_t b = which == 1 ? i : other;
        Doubles products = view_.products(a * block, (a + 1) * block, b * block);
        view_.apply_scales(products, i * block);
        products.array().colwise() *= of_rows_.array();
        products.array().rowwise() *= of_columns_.transpose().array();
        const double found = share(products);
        if (found > most) {
          most = found;
          best = other;
        }
      }
      if (best < 0) {
        lost.push_back(i);
      } else {
        from.push_back(i);
        to.push_back(best);
      }
    }
    if (from == to || 2 * lost.size() > from.size()) return;
    constexpr const char* kNames[]{"k_blocks_moved", "k_blocks_moved_a", "k_blocks_moved_b"};
    constexpr const char* kOf[]{"A and B", "A", "B"};
    std::string text =
        fmt::format("blocks of {} terms of K (measured): block i holds block {}, of {}", block,
                    rule_of(from, to, blocks).text, kOf[which]);
    if (!lost.empty())
      text += fmt::format("; {} left out, the first at {}", counted(std::ssize(lost), "block"),
                          lost.front() * block);
    const auto term = [&](std::int64_t k) -> std::int64_t {
      const auto found = std::ranges::find(from, k / block);
      return found == from.end()
                 ? -1
                 : to[static_cast<std::size_t>(found - from.begin())] * block + k % block;
    };
    if (which != 0 && !explains_better(which == 1 ? Side::a : Side::b, term)) return;
    if (which == 0 && !explains_better(block, from, to)) return;
    if (which == 0) {
      result.mistakes.push_back(
          {kNames[which], text, [part = &part_.product, block, from, to](const Sample& sample) {
             return std::optional(
                 with_k_blocks(take(*part, sample), block, BlockSources{to, to, from}));
           }});
      return;
    }
    std::map<std::int64_t, std::int64_t> source;
    for (std::size_t i = 0; i < from.size(); ++i) source[from[i]] = to[i];
    result.mistakes.push_back({kNames[which], text,
                               [part = &part_.product, block, source,
                                side = which == 1 ? Side::a : Side::b](const Sample& sample) {
                                 return std::optional(take_with_terms_at(
                                     *part, sample, side, [&](std::int64_t k) -> std::int64_t {
                                       const auto found = source.find(k / block);
                                       return found == source.end()
                                                  ? -1
                                                  : found->second * block + k % block;
                                     }));
                               }});
  }

  /// The weight of each place in windows of K that are all alike: what one lane, or one element of
  /// a vector, sums.
  void periodic_terms(Measurement& result) const {
    constexpr double kExplains = 1e-3;  // of the squares of what is wrong
    const double before = (balanced_ - a_ * b_.transpose()).squaredNorm();
    for (std::int64_t window = 2; window <= std::min<std::int64_t>(128, view_.k() / 2);
         window *= 2) {
      Eigen::MatrixXd x(balanced_.size(), window);
      for (std::int64_t place = 0; place < window; ++place) {
        const auto terms = Eigen::seq(place, view_.k() - 1, window);
        const Doubles of_a = a_(Eigen::all, terms);
        const Doubles of_b = b_(Eigen::all, terms);
        const Doubles products = of_a * of_b.transpose();
        x.col(place) = products.reshaped<Eigen::RowMajor>();
      }
      Eigen::VectorXd y = balanced_.reshaped<Eigen::RowMajor>();
      const std::optional<Weights> w = least_squares(x, y, window);
      if (!w) return;
      std::vector<TermPart> parts;
      for (std::int64_t k = 0; k < view_.k(); ++k)
        parts.push_back({k, k + 1, w->values(k % window), w->errors(k % window)});
      const bool counts = std::ranges::all_of(parts, &TermPart::is_count);
      const auto other = std::count_if(parts.begin(), parts.begin() + window,
                                       [](const auto& p) { return std::round(p.weight) != 1.0; });
      const double left = w->left * w->left * static_cast<double>(y.size());
      if (!counts || other == 0 || other == window || left > kExplains * before) continue;
      mistake_of(parts, result, window);
      return;
    }
  }

  /// The weight of each term in what is wrong, one by one: a few terms that are left out or counted
  /// twice stand out, and the more the better once others are taken off.
  void single_terms(Measurement& result) const {
    constexpr int kPasses = 3;
    constexpr double kExplains = 0.05;
    Doubles left = balanced_ - a_ * b_.transpose();
    for (Eigen::Index i = 0; i < left.size(); ++i)
      if (!std::isfinite(view_.sums().data()[i])) left.data()[i] = 0.0;
    const double before = left.squaredNorm();
    std::vector<TermPart> parts;
    for (std::int64_t k = 0; k < view_.k(); ++k) parts.push_back({k, k + 1});
    for (int pass = 0; pass < kPasses; ++pass) {
      Doubles next = left;
      for (TermPart& part : parts) {
        const double size = a_.col(part.begin).squaredNorm() * b_.col(part.begin).squaredNorm();
        if (size == 0.0) continue;
        const double found = a_.col(part.begin).dot(left * b_.col(part.begin));
        const double more = std::round(found / size);
        if (more == 0.0) continue;
        part.weight += more;
        next -= more * (a_.col(part.begin) * b_.col(part.begin).transpose());
      }
      left = std::move(next);
    }
    const auto other =
        std::ranges::count_if(parts, [](const TermPart& p) { return p.weight != 1.0; });
    if (other > 0 && 3 * other <= view_.k() && left.squaredNorm() < kExplains * before)
      mistake_of(parts, result);
  }

  /// Which term of A meets which term of B, in windows of K that are all alike: a permutation.
  void permuted_terms(Measurement& result) const {
    for (std::int64_t window = 2; window <= 128; window *= 2) {
      if (view_.k() % window != 0) return;
      const Doubles met = meetings(window);
      std::vector<std::int64_t> own;
      std::vector<std::int64_t> source;
      for (std::int64_t k = 0; k < window; ++k) {
        Eigen::Index best = 0;
        const double most = met.col(k).maxCoeff(&best);
        if (most < kReadShare) break;
        own.push_back(k);
        source.push_back(best);
      }
      if (std::ssize(own) < window || own == source) continue;
      const PositionRule rule = rule_of(own, source, window);
      const auto term = [&](std::int64_t at) {
        return at / window * window + rule.source(at % window);
      };
      if (!explains_better(Side::a, term)) continue;
      result.mistakes.push_back(
          {"k_permuted",
           fmt::format("terms of K (measured): in each {} terms A's term {} meets B's term i",
                       window, rule.text),
           [part = &part_.product, rule, window](const Sample& sample) {
             return std::optional(take_with_terms_at(*part, sample, Side::a, [&](std::int64_t at) {
               return at / window * window + rule.source(at % window);
             }));
           }});
      return;
    }
  }
  /// The weight of A's term i times B's term j of the same window, on average over all windows.
  [[nodiscard]] Doubles meetings(std::int64_t window) const {
    Doubles met = Doubles::Zero(window, window);
    Doubles size = Doubles::Zero(window, window);
    for (std::int64_t begin = 0; begin < view_.k(); begin += window) {
      const Doubles a = a_.middleCols(begin, window);
      const Doubles b = b_.middleCols(begin, window);
      met += a.transpose() * balanced_ * b;
      size += a.colwise().squaredNorm().transpose() * b.colwise().squaredNorm();
    }
    return met.cwiseQuotient(size.cwiseMax(1e-300));
  }

  /// Terms of one operand at k + d.
  void moved_terms(Measurement& result) const {
    constexpr std::int64_t kFar = 64;
    const std::int64_t k = view_.k();
    const double each = static_cast<double>(view_.rows() * view_.columns() * k);
    if (each * 4.0 * static_cast<double>(kFar) > 8.0 * kSearchWork) return;
    for (const Side side : {Side::a, Side::b}) {
      const char letter = side == Side::a ? 'A' : 'B';
      for (std::int64_t by = -kFar; by <= kFar; ++by) {
        if (by == 0 || cosine_moved(
                           side, [&](std::int64_t at) { return at + by; }, 8) < 0.9)
          continue;
        result.mistakes.push_back(
            {fmt::format("k_offset_{}_{}", by, side == Side::a ? "a" : "b"),
             fmt::format("{} (measured) read {} {}", letter, counted(std::abs(by), "term"),
                         by > 0 ? "too far" : "early"),
             [part = &part_.product, side, by](const Sample& sample) {
               return std::optional(take_with_moved_terms(*part, sample, side, by));
             }});
      }
    }
  }
  /// Codes of another row under the scales of the right one.
  void rows_of_operands(Measurement& result) const {
    for (const Side side : {Side::a, Side::b}) rows_of(side, result);
  }
  void rows_of(Side side, Measurement& result) const {
    const bool of_a = side == Side::a;
    const GemmProblem& p = part_.product.problem;
    const CodeMatrix& all = of_a ? p.a : p.b;
    const std::int64_t few = std::min<std::int64_t>(of_a ? view_.columns() : view_.rows(), 24);
    const std::int64_t mine = of_a ? view_.rows() : view_.columns();
    const double work = static_cast<double>(all.rows * few * (all.k + mine));
    if (work > kSearchWork || few < 8 || all.rows < 2) return;
    const std::int64_t step = common_scale_block(p);
    const std::int64_t blocks = ceil_divide(all.k, step);
    std::vector<std::int64_t> best(static_cast<std::size_t>(mine), -1);
    std::vector<double> most(best.size(), 0.98);
    for (std::int64_t row = 0; row < all.rows; ++row) {
      Doubles sums = Doubles::Zero(mine, few);
      for (std::int64_t b = 0; b < blocks; ++b) {
        const std::int64_t begin = b * step;
        const std::int64_t width = std::min(step, all.k - begin);
        Eigen::RowVectorXd codes(width);
        for (std::int64_t at = 0; at < width; ++at) {
          const double x = decode(format(all.format), code_at(all, row, begin + at));
          codes(at) = std::isfinite(x) ? x : 0.0;
        }
        const Doubles& others = of_a ? view_.b() : view_.a();
        Eigen::RowVectorXd products = codes * others.block(0, begin, few, width).transpose();
        for (std::int64_t j = 0; j < few; ++j)
          products(j) *= of_a ? view_.scale_b(j, begin) : view_.scale_a(j, begin);
        for (std::int64_t i = 0; i < mine; ++i)
          sums.row(i) += products * (of_a ? view_.scale_a(i, begin) : view_.scale_b(i, begin));
      }
      for (std::int64_t i = 0; i < mine; ++i) {
        const double found = likeness(sums, i, of_a);
        if (found <= most[static_cast<std::size_t>(i)]) continue;
        most[static_cast<std::size_t>(i)] = found;
        best[static_cast<std::size_t>(i)] = row;
      }
    }
    add_rows(side, best, result);
  }
  /// The cosine of a row of sums and the output's.
  [[nodiscard]] double likeness(const Doubles& sums, std::int64_t i, bool of_a) const {
    double xy = 0.0;
    double xx = 0.0;
    double yy = 0.0;
    for (std::int64_t j = 0; j < sums.cols(); ++j) {
      const double y = of_a ? view_.sums()(i, j) : view_.sums()(j, i);
      if (!std::isfinite(y)) continue;
      xy += sums(i, j) * y;
      xx += sums(i, j) * sums(i, j);
      yy += y * y;
    }
    return xx > 0.0 && yy > 0.0 ? xy / std::sqrt(xx * yy) : 0.0;
  }
  void add_rows(Side side, const std::vector<std::int64_t>& best, Measurement& result) const {
    const bool of_a = side == Side::a;
    std::vector<std::int64_t> from;
    std::vector<std::int64_t> to;
    const std::vector<std::int64_t>& own = of_a ? view_.sample().rows : view_.sample().columns;
    for (std::size_t i = 0; i < best.size(); ++i) {
      if (best[i] < 0) continue;
      from.push_back(own[i]);
      to.push_back(best[i]);
    }
    if (from == to || 4 * from.size() < 3 * best.size()) return;
    const GemmProblem& p = part_.product.problem;
    const PositionRule rule = rule_of(from, to, of_a ? p.a.rows : p.b.rows);
    result.mistakes.push_back(
        {of_a ? "codes_of_other_row_a" : "codes_of_other_row_b",
         fmt::format("{}'s codes (measured): row i has those of row {}, under its own scales",
                     of_a ? "A" : "B", rule.text),
         [part = &part_.product, side, rule](const Sample& sample) {
           return take_with_codes_of_rows(*part, sample, side, rule.source);
         }});
  }

  /// What is added to the right sums, as a product of few terms that are in neither operand: loads
  /// behind the end of K that no mask stopped.
  void foreign_terms(Measurement& result) const {
    const std::int64_t k = view_.k();
    Doubles left = view_.sums() - view_.right_output_sums();
    for (double& x : left.reshaped()) x = std::isfinite(x) ? x : 0.0;
    // Squares of singular values, and the vectors of rows.
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(left * left.transpose());
    const Eigen::VectorXd s = solver.eigenvalues().reverse();
    const double total = s.sum();
    const double rounding = kForeignLeft * std::pow(view_.noise() * view_.rms(), 2.0) *
                            static_cast<double>(left.size());
    Eigen::Index rank = 0;
    for (double rest = total; rank < s.size() && rest > rounding; ++rank) rest -= s(rank);
    if (rank == 0 || 3 * rank > 2 * s.size()) return;
    // Any few wrong outputs are a product of few terms: that is said of many rows and columns
    // alone.
    const auto wrong_rows = (left.rowwise().squaredNorm().array() > rounding).count();
    const auto wrong_columns = (left.colwise().squaredNorm().array() > rounding).count();
    if (rank == 1 && numbers_of_lines(left, rounding, result)) return;
    if (2 * rank <= std::min(wrong_rows, wrong_columns))
      result.lines.push_back(fmt::format("what was added to the right sums is a product of {}",
                                         counted(rank, "term")));
    bool tail = false;
    for (const std::int64_t step : {16, 32, 64, 128, 256})
      tail = tail || (k % step != 0 && rank == step - k % step);
    if (!tail) return;
    const Eigen::MatrixXd of_rows = solver.eigenvectors().rightCols(rank);
    const Doubles added = of_rows * (of_rows.transpose() * left);
    result.mistakes.push_back(
        {"unmasked_k_tail",
         fmt::format("K padded to {} with terms that are in neither operand (measured): loads "
                     "behind its end are not masked",
                     k + rank),
         nullptr});
    add_measured(added, result.mistakes.back());
  }

  /// What is added to the right sums where it is one number for all outputs, or one for each
  /// column or row, as a bias is. `rounding`: the squares that rounding leaves.
  bool numbers_of_lines(const Doubles& left, double rounding, Measurement& result) const {
    if (!part_.product.epilogue.empty() || left.rows() < 4 || left.cols() < 4) return false;
    const auto add = [&](const char* name, const std::string& text, const Doubles& added) {
      const Eigen::Index down = left.rows() / added.rows();
      const Eigen::Index across = left.cols() / added.cols();
      if ((left - added.replicate(down, across)).squaredNorm() > rounding) return false;
      result.mistakes.push_back({name, text, nullptr});
      add_measured(added, result.mistakes.back());
      return true;
    };
    const double mean = left.mean();
    return add("number_added", fmt::format("{:.4g} (measured) added to all outputs", mean),
               Doubles::Constant(1, 1, mean)) ||
           add("bias_added", "a number (measured) added to each column, as a bias is",
               left.colwise().mean()) ||
           add("number_added_to_rows", "a number (measured) added to each row",
               left.rowwise().mean());
  }

  /// What was added to the measured outputs, as a mistake says it of others. A single row, or
  /// column, of numbers is that of all.
  void add_measured(const Doubles& added, MeasuredMistake& mistake) const {
    mistake.added = [added, of = view_.sample()](const Sample& sample) {
      const auto place = [](const std::vector<std::int64_t>& list, std::int64_t at,
                            Eigen::Index count) -> std::ptrdiff_t {
        return count == 1 ? 0 : std::ranges::find(list, at) - list.begin();
      };
      std::vector<double> values;
      for (const std::int64_t row : sample.rows)
        for (const std::int64_t column : sample.columns) {
          const std::ptrdiff_t i = place(of.rows, row, added.rows());
          const std::ptrdiff_t j = place(of.columns, column, added.cols());
          const bool known = i < added.rows() && j < added.cols();
          values.push_back(known ? added(i, j) : 0.0);
        }
      return values;
    };
    mistake.error = 1e-3;
  }

  const MeasuredPart& part_;
  MeasuredView view_;
  Eigen::VectorXd of_rows_, of_columns_;  ///< see `balance`
  Doubles balanced_;                      ///< the output, balanced
  Doubles a_, b_;                         ///< values under their scales, balanced
  std::map<std::pair<std::int64_t, std::int64_t>, std::optional<Eigen::VectorXd>> columns_;
  bool fitted_ = false;
};

}  // namespace

void measure_terms(const MeasuredPart& part, Measurement& result) {
  TermWeights(part).measure(result);
}

}  // namespace fp8lab

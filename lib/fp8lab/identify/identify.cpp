#include "fp8lab/identify/identify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/first_error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/identify/hypotheses.hpp"
#include "fp8lab/identify/shared_sums.hpp"
#include "fp8lab/tensors/codes.hpp"

namespace fp8lab {
namespace {

/// A sample, and how many hypotheses are kept beside those that are right on it.
struct Stage {
  std::int64_t side;  // rows and columns
  std::size_t others;
};
constexpr std::array<Stage, 3> kStages{{{2, 64}, {8, 16}, {64, 8}}};
constexpr std::size_t kMostWhole = 32;  // hypotheses that are computed on a larger output

struct Hypothesis {
  std::size_t accumulation = 0;
  std::size_t rounding = 0;
  std::uint64_t matches = 0;
  std::vector<std::uint32_t> codes;  // on the last sample
};

/// Whether an output is zero. The sign of a sum that rounds to zero changes no other output.
bool has_zeros(FormatId id, std::span<const std::byte> got) {
  const Format& f = format(id);
  const std::size_t count = got.size() / static_cast<std::size_t>(f.bytes());
  for (std::size_t i = 0; i < count; ++i)
    if ((code_at(id, got, i) & f.magnitude_mask()) == 0) return true;
  return false;
}

class Search {
 public:
  Search(const Product& product, std::span<const std::byte> got, int threads,
         std::span<const std::string> models)
      : product_(product),
        got_(got),
        threads_(team_size(threads)),
        accumulators_(
            accumulators_for(product.problem, models, has_zeros(product.output.format, got))),
        roundings_(output_roundings(product.output.format)),
        accumulations_(accumulations(product.problem, accumulators_)) {
    const GemmProblem& p = product.problem;
    result_.rows = product.rows();
    result_.columns = product.columns();
    result_.k = p.a.k;
    result_.output = product.output.format;
    result_.scaled = !p.scale_a.empty() || !p.scale_b.empty();
    for (std::size_t a = 0; a < accumulations_.size(); ++a)
      for (std::size_t r = 0; r < roundings_.size(); ++r) alive_.push_back({a, r, 0, {}});
    result_.tried = alive_.size();
  }

  Identification run() {
    for (const Stage& stage : kStages) {
      const Sample next{spread(result_.rows, stage.side), spread(result_.columns, stage.side)};
      const std::size_t size = next.rows.size() * next.columns.size();
      if (size == got_codes_.size()) break;
      sample_ = next;
      judge_sample();
      prune(stage.others);
    }
    make_classes();
    separate();
    if (got_codes_.size() < product_.size()) judge_whole();
    return std::move(result_);
  }

 private:
  [[nodiscard]] std::uint32_t got_at(std::size_t index) const {
    return canonical_code(result_.output, code_at(result_.output, got_, index));
  }

  /// Hypotheses whose sums over K are made together: of equal sums, or of the same partial sums.
  struct Group {
    std::vector<std::size_t> members;  // indices into alive_
    std::size_t sums = 0;              // that differ
    std::size_t products = 0;          // that these take one by one
    bool partial = false;              // they are made of partial sums
  };

  /// Computes every hypothesis that is alive on the sample.
  void judge_sample() {
    const Product sampled = take(product_, sample_);
    got_codes_.clear();
    for (const std::int64_t row : sample_.rows)
      for (const std::int64_t column : sample_.columns)
        got_codes_.push_back(got_at(static_cast<std::size_t>(row * result_.columns + column)));
    const std::vector<Group> groups = groups_of(sampled);
    for (const Group& group : groups)
      result_.sums += (group.partial ? 1 : group.sums) * sampled.sum_count();
    FirstError error;
    const auto count = static_cast<std::int64_t>(groups.size());
#pragma omp parallel for schedule(dynamic) num_threads(threads_)
    for (std::int64_t i = 0; i < count; ++i)
      error.guard([&] {
        const FloatEnvironment environment;
        judge(sampled, groups[static_cast<std::size_t>(i)]);
      });
    error.rethrow();
  }

  [[nodiscard]] bool have_equal_sums(const Hypothesis& one, const Hypothesis& other) const {
    return one.accumulation == other.accumulation ||
           share_sums(product_, accumulators_, accumulations_[one.accumulation],
                      accumulations_[other.accumulation]);
  }

  [[nodiscard]] std::vector<Group> groups_of(const Product& sampled) const {
    std::vector<Group> groups;
    std::map<std::pair<std::size_t, std::int64_t>, std::size_t> of_partial_sums;
    for (std::size_t i = 0; i < alive_.size(); ++i) {
      const Accumulation& how = accumulations_[alive_[i].accumulation];
      const bool again = i > 0 && have_equal_sums(alive_[i - 1], alive_[i]);
      if (has_partial_sums(product_, accumulators_, how)) {
        const auto [at, added] =
            of_partial_sums.insert({{how.accumulator, how.promotion_interval}, groups.size()});
        if (added) groups.emplace_back().partial = true;
        note(i, again, groups[at->second]);
      } else {
        if (!again) groups.emplace_back();
        note(i, again, groups.back());
      }
    }
    leave_costly(sampled, groups);
    return groups;
  }

  void note(std::size_t i, bool again, Group& group) const {
    group.members.push_back(i);
    if (again) return;
    ++group.sums;
    group.products += static_cast<std::size_t>(accumulations_[alive_[i].accumulation].split_k);
  }

  /// Partial sums are products of few terms each: where these are more than they save, every sum
  /// is computed by itself.
  void leave_costly(const Product& sampled, std::vector<Group>& groups) const {
    constexpr std::int64_t kCostOfProduct = 20000;  // in multiply-adds, of starting one
    for (Group& group : groups) {
      if (!group.partial) continue;
      const std::int64_t k = sampled.problem.a.k;
      const auto outputs = static_cast<std::int64_t>(sampled.sum_count());
      const std::int64_t interval =
          accumulations_[alive_[group.members.front()].accumulation].promotion_interval;
      const std::int64_t more_products =
          (k + interval - 1) / interval - static_cast<std::int64_t>(group.products);
      const std::int64_t fewer_sums = static_cast<std::int64_t>(group.sums) - 1;
      if (fewer_sums * outputs * k > more_products * kCostOfProduct) continue;
      group.partial = false;
    }
  }

  void judge(const Product& sampled, const Group& group) {
    const std::vector<std::size_t>& members = group.members;
    const auto how = [&](std::size_t i) -> const Accumulation& {
      return accumulations_[alive_[members[i]].accumulation];
    };
    std::optional<PartialSums> partial;
    if (group.partial) partial.emplace(sampled, accumulators_, how(0));
    std::vector<float> sums;
    std::vector<float> d;
    for (std::size_t i = 0; i < members.size(); ++i) {
      Hypothesis& one = alive_[members[i]];
      const Hypothesis& last = alive_[members[i == 0 ? 0 : i - 1]];
      if (i == 0 || !have_equal_sums(last, one))
        sums = partial ? partial->sums_of(how(i)) : sums_of(sampled, how(i), accumulators_, 1);
      if (i == 0 || one.accumulation != last.accumulation)
        d = result_of(sampled, how(i), accumulators_, sums);
      one.codes = round_output(d, roundings_[one.rounding]);
      one.matches = 0;
      for (std::size_t j = 0; j < one.codes.size(); ++j)
        one.matches += one.codes[j] == got_codes_[j] ? 1 : 0;
    }
  }

  [[nodiscard]] bool right(const Hypothesis& one) const { return one.matches == got_codes_.size(); }

  /// Keeps what is right so far, and the next best, the first tried among equals.
  void prune(std::size_t others) {
    std::vector<std::size_t> wrong;
    for (std::size_t i = 0; i < alive_.size(); ++i)
      if (!right(alive_[i])) wrong.push_back(i);
    std::stable_sort(wrong.begin(), wrong.end(), [&](std::size_t a, std::size_t b) {
      return alive_[a].matches > alive_[b].matches;
    });
    wrong.resize(std::min(wrong.size(), others));
    std::vector<Hypothesis> kept;
    for (std::size_t i = 0; i < alive_.size(); ++i)
      if (right(alive_[i]) || std::find(wrong.begin(), wrong.end(), i) != wrong.end())
        kept.push_back(std::move(alive_[i]));
    alive_ = std::move(kept);
  }

  [[nodiscard]] Explanation explanation_of(const Hypothesis& one) const {
    const Accumulation& how = accumulations_[one.accumulation];
    return {accumulators_[how.accumulator].names,
            how.promotion_interval,
            how.scale_order,
            how.split_k,
            roundings_[one.rounding].name,
            how.c_enters};
  }

  /// Groups hypotheses by what they give; within a group they stay in the order tried.
  void make_classes() {
    std::map<std::vector<std::uint32_t>, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < alive_.size(); ++i) groups[alive_[i].codes].push_back(i);
    for (auto& [codes, members] : groups) classes_.push_back(std::move(members));
    std::sort(classes_.begin(), classes_.end(), [&](const auto& a, const auto& b) {
      const std::uint64_t of_a = alive_[a.front()].matches;
      const std::uint64_t of_b = alive_[b.front()].matches;
      return of_a != of_b ? of_a > of_b : a.front() < b.front();
    });
    for (const std::vector<std::size_t>& members : classes_) {
      result_.ranking.push_back({{}, alive_[members.front()].matches, got_codes_.size()});
      for (const std::size_t member : members)
        result_.ranking.back().members.push_back(explanation_of(alive_[member]));
    }
  }

  void separate() {
    result_.separating_compared = got_codes_.size();
    if (classes_.size() < 2) return;
    const std::vector<std::uint32_t>& first = alive_[classes_[0].front()].codes;
    const std::vector<std::uint32_t>& second = alive_[classes_[1].front()].codes;
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (first[i] == second[i] || ++result_.separating_count > kSeparatingShown) continue;
      result_.separating.push_back({sample_.rows[i / sample_.columns.size()],
                                    sample_.columns[i % sample_.columns.size()], got_codes_[i],
                                    first[i], second[i]});
    }
  }

  [[nodiscard]] std::uint64_t matches_whole(const Hypothesis& one, std::span<const float> d,
                                            std::span<const std::uint32_t> got) const {
    const std::vector<std::uint32_t> codes = round_output(d, roundings_[one.rounding]);
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < codes.size(); ++i) count += codes[i] == got[i] ? 1 : 0;
    return count;
  }

  /// Computes what is right on the sample on all of the output: those that are right
  /// there too are one class, each other one is a class of its own behind it.
  void judge_whole() {
    if (classes_.empty() || !right(alive_[classes_.front().front()])) return;
    const std::vector<std::size_t>& members = classes_.front();
    const std::size_t computed = std::min(members.size(), kMostWhole);
    std::vector<ExplanationClass> whole(1);
    whole.front() = {{}, product_.size(), product_.size()};
    std::vector<std::uint32_t> got(product_.size());
    for (std::size_t i = 0; i < got.size(); ++i) got[i] = got_at(i);
    std::vector<float> sums;
    std::vector<float> d;
    for (std::size_t i = 0; i < computed; ++i) {
      const Hypothesis& one = alive_[members[i]];
      const Accumulation& accumulation = accumulations_[one.accumulation];
      if (i == 0 || !have_equal_sums(alive_[members[i - 1]], one)) {
        sums = sums_of(product_, accumulation, accumulators_, threads_);
        result_.sums += product_.sum_count();
      }
      if (i == 0 || one.accumulation != alive_[members[i - 1]].accumulation)
        d = result_of(product_, accumulation, accumulators_, sums);
      const std::uint64_t matches = matches_whole(one, d, got);
      if (matches == product_.size())
        whole.front().members.push_back(explanation_of(one));
      else
        whole.push_back({{explanation_of(one)}, matches, product_.size()});
    }
    result_.beyond = members.size() - computed;
    if (whole.front().members.empty()) whole.erase(whole.begin());
    std::stable_sort(whole.begin(), whole.end(),
                     [](const auto& a, const auto& b) { return a.matches > b.matches; });
    result_.ranking.erase(result_.ranking.begin());
    result_.ranking.insert(result_.ranking.begin(), whole.begin(), whole.end());
  }

  const Product& product_;
  std::span<const std::byte> got_;
  int threads_;
  std::vector<NamedAccumulator> accumulators_;
  std::vector<OutputRounding> roundings_;
  std::vector<Accumulation> accumulations_;
  std::vector<Hypothesis> alive_;
  Sample sample_;                                  // the last one
  std::vector<std::uint32_t> got_codes_;           // on it
  std::vector<std::vector<std::size_t>> classes_;  // indices into alive_
  Identification result_;
};

}  // namespace

double ExplanationClass::rate() const {
  const FloatEnvironment environment;
  return compared == 0 ? 0.0 : static_cast<double>(matches) / static_cast<double>(compared);
}

Identification identify(const Product& product, std::span<const std::byte> got, int threads,
                        std::span<const std::string> models) {
  const FloatEnvironment environment;
  const FormatId id = product.output.format;
  const std::size_t bytes = product.size() * static_cast<std::size_t>(format(id).bytes());
  require(got.size() == bytes, "got",
          fmt::format("{} bytes, [{}, {}] codes of {}", bytes, product.rows(), product.columns(),
                      format(id).name),
          fmt::format("{}", got.size()));
  require(bytes > 0, "got", "at least one output", "none");
  return Search(product, got, threads, models).run();
}

Identification identify(const Product& product, const Operand& got, int threads,
                        std::span<const std::string> models) {
  const TensorView& d = got.tensor();
  const ElementType type = element_type_of(product.output.format);
  const std::vector<std::int64_t> shape{product.rows(), product.columns()};
  require(d.type == type && d.shape == shape && !d.fortran_order, got.name(),
          fmt::format("row-major {} [m, n] = {}", to_string(type), shape_text(shape)),
          fmt::format("{} {}{}", to_string(d.type), shape_text(d.shape),
                      d.fortran_order ? " in Fortran order" : ""));
  return identify(product, d.bytes, threads, models);
}

}  // namespace fp8lab

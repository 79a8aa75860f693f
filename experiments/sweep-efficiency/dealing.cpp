#include "sweep-efficiency/dealing.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <list>
#include <optional>
#include <queue>
#include <vector>

#include "fp8lab/metrics/sum.hpp"

namespace fp8lab::experiments {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// A result that reaches the dealer.
struct Arrival {
  double time;
  std::int64_t rank;
  std::int64_t point;

  /// The first on top; of those at one time, the lowest rank.
  bool operator<(const Arrival& other) const {
    return time != other.time ? time > other.time : rank > other.rank;
  }
};

/// A point on its way to a rank, or waiting there.
struct Given {
  double arrives;
  std::int64_t point;
};

/// A rank that is not the dealer's.
struct Worker {
  std::deque<Given> waiting;  ///< not begun yet
  double free_since = 0.0;
  bool busy = false;
  std::vector<std::int64_t> unanswered;
  std::list<std::int64_t>::iterator place;  ///< in the order of silence
  bool retired = false;                     ///< its place is among those that owe nothing
};

/// The first look, every `pause` from `since` on, at or after `time`.
double noticed(double since, double time, double pause) {
  return time <= since ? since : since + std::ceil((time - since) / pause) * pause;
}

class Simulation {
 public:
  Simulation(const Dealing& dealing, std::span<const double> costs)
      : d_(dealing),
        costs_(costs),
        done_(costs.size(), false),
        workers_(static_cast<std::size_t>(dealing.ranks)) {}

  DealingOutcome run() {
    deal_first();
    while (done_count_ < costs_.size())
      if (!take_results() && !run_here()) sleep();
    // The dealer's own point ends with its thread, even if another rank has answered meanwhile.
    if (here_) now_ = std::max(now_, here_ends_);
    outcome_.makespan = now_;
    outcome_.drain = now_ - dealt_all_;
    return outcome_;
  }

 private:
  std::optional<std::int64_t> next_point() {
    if (next_ == costs_.size()) return std::nullopt;
    if (++next_ == costs_.size()) dealt_all_ = now_;
    return static_cast<std::int64_t>(next_) - 1;
  }

  double cost(std::int64_t point) const { return costs_[static_cast<std::size_t>(point)]; }
  Worker& worker(std::int64_t rank) { return workers_[static_cast<std::size_t>(rank)]; }

  /// A point less to deal, and one more in the rank's hands; `now_` is after the sending.
  void give(std::int64_t rank, std::int64_t point) {
    Worker& w = worker(rank);
    w.unanswered.push_back(point);
    w.waiting.push_back({now_ + d_.latency, point});
    if (!w.busy) begin(rank);
  }

  void begin(std::int64_t rank) {
    Worker& w = worker(rank);
    if (w.waiting.empty()) return;
    const Given given = w.waiting.front();
    w.waiting.pop_front();
    w.busy = true;
    const double starts = noticed(w.free_since, given.arrives, d_.pause);
    arrivals_.push({starts + cost(given.point) + d_.latency, rank, given.point});
  }

  void deal_first() {
    for (std::int64_t rank = 1; rank < d_.ranks; ++rank) {
      Worker& w = worker(rank);
      const double since = now_;
      for (std::int64_t i = 0; i < d_.in_hand; ++i) {
        const std::optional<std::int64_t> point = next_point();
        if (!point) break;
        now_ += d_.deal;
        outcome_.dealer_busy += d_.deal;
        give(rank, *point);
      }
      silence_since_.resize(workers_.size());
      silence_since_[static_cast<std::size_t>(rank)] = since;
      w.place = silent_.insert(silent_.end(), rank);
    }
  }

  void keep(std::int64_t point) {
    now_ += d_.service;
    outcome_.dealer_busy += d_.service;
    const auto i = static_cast<std::size_t>(point);
    if (!done_[i]) ++done_count_;
    done_[i] = true;
  }

  /// All that has arrived by now: their ranks are free at once, one after the other is served.
  bool take_results() {
    std::vector<Arrival> batch;
    for (; !arrivals_.empty() && arrivals_.top().time <= now_; arrivals_.pop()) {
      batch.push_back(arrivals_.top());
      Worker& w = worker(batch.back().rank);
      w.busy = false;
      w.free_since = now_ + d_.latency;
      begin(batch.back().rank);
    }
    for (const Arrival& arrival : batch) answer(arrival);
    return !batch.empty();
  }

  void answer(const Arrival& arrival) {
    Worker& w = worker(arrival.rank);
    double& since = silence_since_[static_cast<std::size_t>(arrival.rank)];
    longest_ = std::max(longest_, now_ - since);
    since = now_;
    silent_.splice(silent_.end(), w.retired ? retired_ : silent_, w.place);
    w.retired = false;
    std::erase(w.unanswered, arrival.point);
    keep(arrival.point);
    if (static_cast<std::int64_t>(w.unanswered.size()) >= d_.in_hand) return;
    if (const std::optional<std::int64_t> point = next_point()) give(arrival.rank, *point);
  }

  bool run_here() {
    if (!here_) {
      here_ = next_point();
      if (!here_ && overdue_from() <= now_) {
        here_ = overdue_point();
        if (here_) ++outcome_.run_twice;
      }
      if (!here_) return false;
      here_began_ = now_;
      here_ends_ = now_ + cost(*here_);
      return true;
    }
    if (here_ends_ > now_) return false;
    longest_ = std::max(longest_, now_ - here_began_);
    keep(*here_);
    here_.reset();
    return true;
  }

  /// With no point left to deal: the rank that has been silent longest of those that owe a
  /// result. The others leave the list.
  Worker* most_silent() {
    while (!silent_.empty()) {
      Worker& w = worker(silent_.front());
      for (const std::int64_t point : w.unanswered)
        if (!done_[static_cast<std::size_t>(point)]) return &w;
      w.retired = true;
      retired_.splice(retired_.end(), silent_, w.place);
    }
    return nullptr;
  }

  double overdue_from() {
    if (most_silent() == nullptr) return kNever;
    const double patience = 2.0 * longest_ + 1.0;
    return silence_since_[static_cast<std::size_t>(silent_.front())] + patience;
  }

  std::optional<std::int64_t> overdue_point() {
    for (const std::int64_t point : most_silent()->unanswered)
      if (!done_[static_cast<std::size_t>(point)]) return point;
    return std::nullopt;
  }

  void sleep() {
    double until = kNever;
    if (!arrivals_.empty()) until = arrivals_.top().time;
    if (here_) until = std::min(until, here_ends_);
    if (!here_ && next_ == costs_.size()) until = std::min(until, overdue_from());
    // Time must pass even where a pause is less than its resolution.
    now_ =
        std::max({now_ + d_.pause, noticed(now_, until, d_.pause), std::nextafter(now_, kNever)});
  }

  const Dealing& d_;
  std::span<const double> costs_;
  std::vector<bool> done_;
  std::vector<Worker> workers_;  ///< by rank; the dealer's own stays empty
  std::priority_queue<Arrival> arrivals_;
  std::vector<double> silence_since_;
  std::list<std::int64_t> silent_;  ///< ranks, the longest silent first
  std::list<std::int64_t> retired_;
  std::optional<std::int64_t> here_;
  double here_began_ = 0.0;
  double here_ends_ = 0.0;
  double longest_ = 0.0;
  double now_ = 0.0;
  double dealt_all_ = 0.0;
  std::size_t next_ = 0;
  std::size_t done_count_ = 0;
  DealingOutcome outcome_;
};

}  // namespace

DealingOutcome deal_points(const Dealing& dealing, std::span<const double> costs) {
  return Simulation(dealing, costs).run();
}

double shortest_makespan(const Dealing& dealing, std::span<const double> costs) {
  PairwiseSum work;
  for (const double cost : costs) work.add(cost);
  const double longest = costs.empty() ? 0.0 : *std::max_element(costs.begin(), costs.end());
  return std::max({work.total() / static_cast<double>(dealing.ranks), longest,
                   dealing.service * static_cast<double>(costs.size())});
}

}  // namespace fp8lab::experiments

#include "lab/mpi/points.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fp8lab::mpi {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr int kPointTag = 1;
constexpr int kResultTag = 2;
constexpr std::int64_t kNoMorePoints = -1;
// A rank has the next point at hand while its result travels.
constexpr std::size_t kInHand = 2;
// MPI's own waiting keeps a core busy; points that take longer than this do not notice ours.
constexpr std::chrono::microseconds kPause{50};

bool message_waits(int source, int tag, MPI_Status& status) {
  int waits = 0;
  check(MPI_Iprobe(source, tag, MPI_COMM_WORLD, &waits, &status), "MPI_Iprobe");
  return waits != 0;
}

void send_point(int rank, std::int64_t point) {
  check(MPI_Send(&point, 1, MPI_INT64_T, rank, kPointTag, MPI_COMM_WORLD), "MPI_Send");
}

std::int64_t receive_point() {
  MPI_Status status;
  while (!message_waits(0, kPointTag, status)) std::this_thread::sleep_for(kPause);
  std::int64_t point = 0;
  check(MPI_Recv(&point, 1, MPI_INT64_T, 0, kPointTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
        "MPI_Recv");
  return point;
}

/// A result on its way. A long one comes in parts, and a rank may die between
/// two of them: waiting for the rest would wait forever.
struct Arrival {
  std::size_t rank;
  std::string text;
  MPI_Request request;

  bool complete() {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  }
};

/// What a rank has been given and not answered yet.
struct Hand {
  std::vector<std::int64_t> points;
  Clock::time_point since;  ///< when it got the first of them, or last answered
};

class Dealer {
 public:
  Dealer(const Session& session, const SweepPlan& plan, SweepLog& log,
         const OnSweepProgress& on_progress)
      : plan_(plan),
        log_(log),
        on_progress_(on_progress),
        resumed_(log.done_count()),
        next_(plan.shard.index),
        hands_(static_cast<std::size_t>(session.size())) {}

  void run() {
    for (std::size_t rank = 1; rank < hands_.size(); ++rank) {
      hands_[rank].since = Clock::now();
      while (deal(rank)) {
      }
    }
    while (log_.done_count() < plan_.points()) {
      const bool got = take_results() || run_here();
      if (!got) std::this_thread::sleep_for(kPause);
    }
  }

  /// Lets the ranks end; returns how many have not answered. One that is only slow, whose
  /// point rank 0 ran again, is given as long as a point may take.
  int dismiss() {
    const Clock::time_point start = Clock::now();
    const auto busy = [](const Hand& hand) { return !hand.points.empty(); };
    while (std::ranges::any_of(hands_, busy) && Clock::now() - start < patience())
      if (!take_results()) std::this_thread::sleep_for(kPause);
    int lost = 0;
    for (std::size_t rank = 1; rank < hands_.size(); ++rank) {
      if (hands_[rank].points.empty())
        send_point(static_cast<int>(rank), kNoMorePoints);
      else
        ++lost;
    }
    return lost;
  }

 private:
  std::optional<std::int64_t> next_missing() {
    while (next_ < plan_.grid.size() && log_.done(next_)) next_ += plan_.shard.count;
    if (next_ >= plan_.grid.size()) return std::nullopt;
    return std::exchange(next_, next_ + plan_.shard.count);
  }

  bool deal(std::size_t rank) {
    Hand& hand = hands_[rank];
    if (hand.points.size() >= kInHand) return false;
    const std::optional<std::int64_t> point = next_missing();
    if (!point) return false;
    hand.points.push_back(*point);
    send_point(static_cast<int>(rank), *point);
    return true;
  }

  void keep(const PointResult& result) {
    // A point that was run again may come twice, with the same result.
    if (log_.done(result.point)) return;
    log_.append(result);
    if (on_progress_) on_progress_({log_.done_count(), plan_.points(), resumed_});
  }

  void accept_arrivals() {
    MPI_Status status;
    while (message_waits(MPI_ANY_SOURCE, kResultTag, status)) {
      int size = 0;
      check(MPI_Get_count(&status, MPI_CHAR, &size), "MPI_Get_count");
      // The buffer must not move while MPI fills it: it lives in a list.
      Arrival& arrival = arrivals_.emplace_back(
          Arrival{static_cast<std::size_t>(status.MPI_SOURCE),
                  std::string(static_cast<std::size_t>(size), '\0'), MPI_REQUEST_NULL});
      check(MPI_Irecv(arrival.text.data(), size, MPI_CHAR, status.MPI_SOURCE, kResultTag,
                      MPI_COMM_WORLD, &arrival.request),
            "MPI_Irecv");
    }
  }

  bool take_results() {
    accept_arrivals();
    return arrivals_.remove_if([&](Arrival& arrival) {
      if (!arrival.complete()) return false;
      const PointResult result = deserialize(arrival.text);
      Hand& hand = hands_[arrival.rank];
      longest_ = std::max(longest_, Seconds(Clock::now() - hand.since));
      std::erase(hand.points, result.point);
      hand.since = Clock::now();
      keep(result);
      deal(arrival.rank);
      return true;
    }) > 0;
  }

  /// Points of this process run beside the messages, one at a time.
  bool run_here() {
    using namespace std::chrono_literals;
    if (!here_.valid()) {
      std::optional<std::int64_t> point = next_missing();
      if (!point) point = overdue();
      if (!point) return false;
      started_ = Clock::now();
      here_ = std::async(std::launch::async, run_point, std::cref(plan_), *point, 1);
      return true;
    }
    if (here_.wait_for(0s) != std::future_status::ready) return false;
    longest_ = std::max(longest_, Seconds(Clock::now() - started_));
    keep(here_.get());
    return true;
  }

  /// Much longer than any point took.
  [[nodiscard]] Seconds patience() const { return 2 * longest_ + Seconds(1); }

  /// A point of a rank that has been silent for too long.
  std::optional<std::int64_t> overdue() {
    for (const Hand& hand : hands_)
      if (Clock::now() - hand.since > patience())
        for (const std::int64_t point : hand.points)
          if (!log_.done(point)) return point;
    return std::nullopt;
  }

  const SweepPlan& plan_;
  SweepLog& log_;
  const OnSweepProgress& on_progress_;
  std::int64_t resumed_;
  std::int64_t next_;
  std::vector<Hand> hands_;  ///< by rank
  std::list<Arrival> arrivals_;
  std::future<PointResult> here_;
  Clock::time_point started_;
  Seconds longest_{0};
};

}  // namespace

PointRunner points_over_mpi(const Session& session, int& lost_ranks) {
  return [&](const SweepPlan& plan, SweepLog& log, const OnSweepProgress& on_progress) {
    Dealer dealer(session, plan, log, on_progress);
    dealer.run();
    lost_ranks += dealer.dismiss();
  };
}

void serve_points(const Session& /*session*/, const SweepPlan& plan) {
  for (std::int64_t point = receive_point(); point != kNoMorePoints; point = receive_point()) {
    const std::string text = serialize(run_point(plan, point, 1));
    check(MPI_Send(text.data(), static_cast<int>(text.size()), MPI_CHAR, 0, kResultTag,
                   MPI_COMM_WORLD),
          "MPI_Send");
  }
}

void dismiss_ranks(const Session& session) {
  for (int rank = 1; rank < session.size(); ++rank) send_point(rank, kNoMorePoints);
}

}  // namespace fp8lab::mpi

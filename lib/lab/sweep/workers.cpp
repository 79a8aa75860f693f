// Worker processes that run points: one that ends costs the point in its hand and nothing else.

#include <fcntl.h>
#include <fmt/format.h>
#include <omp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/threads.hpp"
#include "lab/sweep/sweep.hpp"

namespace fp8lab {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using Size = std::uint64_t;

// A worker has the next point at hand while its result travels.
constexpr std::size_t kInHand = 2;

bool read_whole(int file, void* data, std::size_t size) {
  for (auto* at = static_cast<char*>(data); size > 0;) {
    const ssize_t count = ::read(file, at, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += count;
    size -= static_cast<std::size_t>(count);
  }
  return true;
}

bool send_whole(int file, const void* data, std::size_t size) {
  for (const auto* at = static_cast<const char*>(data); size > 0;) {
    const ssize_t count = ::send(file, at, size, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += count;
    size -= static_cast<std::size_t>(count);
  }
  return true;
}

/// The life of a worker: points in, results out, until nobody sends any more.
[[noreturn]] void serve(int file, const SweepPlan& plan, pid_t parent) {
  // The process that writes decides when to stop: a worker that a keyboard's signal reached
  // first would look like one whose point had failed.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) std::signal(signal, SIG_IGN);
  std::signal(SIGABRT, SIG_DFL);  // it learns how a worker ended
#ifdef __linux__
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  omp_set_num_threads(1);
  std::int64_t point = 0;
  while (::getppid() == parent && read_whole(file, &point, sizeof point)) {
    const std::string text = serialize(run_point(plan, point, 1));
    const Size size = text.size();
    if (!send_whole(file, &size, sizeof size) || !send_whole(file, text.data(), text.size())) break;
  }
  ::_exit(0);
}

class Worker {
 public:
  /// `close_first`: what the new process must not hold open.
  template <class Close>
  Worker(const SweepPlan& plan, const Close& close_first) {
    std::array<int, 2> files{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, files.data()) != 0)
      throw Error(fmt::format("sweep: cannot start a worker: {}", std::strerror(errno)));
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    const int error = errno;
    if (pid_ == 0) {
      ::close(files[0]);
      close_first();
      serve(files[1], plan, parent);
    }
    ::close(files[1]);
    file_ = files[0];
    if (pid_ > 0) return;
    ::close(file_);
    throw Error(fmt::format("sweep: cannot start a worker: {}", std::strerror(error)));
  }
  ~Worker() {
    ::close(file_);
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  [[nodiscard]] int file() const { return file_; }
  [[nodiscard]] const std::deque<std::int64_t>& hand() const { return hand_; }
  [[nodiscard]] Seconds busy() const { return hand_.empty() ? Seconds(0) : Clock::now() - since_; }

  void give(std::int64_t point) {
    if (hand_.empty()) since_ = Clock::now();
    hand_.push_back(point);
    // Should this fail, the process has ended, which is seen when it is read from.
    (void)send_whole(file_, &point, sizeof point);
  }

  /// Reads what has come; false when the process has ended.
  bool receive() {
    std::array<char, 65536> buffer;
    const ssize_t count = ::recv(file_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    received_.append(buffer.data(), static_cast<std::size_t>(count));
    return count > 0;
  }

  /// The next result that has come whole.
  std::optional<PointResult> take() {
    Size size = 0;
    if (received_.size() < sizeof size) return std::nullopt;
    std::memcpy(&size, received_.data(), sizeof size);
    if (received_.size() - sizeof size < size) return std::nullopt;
    PointResult result = deserialize(std::string_view(received_).substr(sizeof size, size));
    received_.erase(0, sizeof size + size);
    hand_.pop_front();
    since_ = Clock::now();
    return result;
  }

  /// Waits for the end of the process, and says how it came.
  std::string end() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    if (WIFSIGNALED(status))
      return fmt::format("the point's process ended by signal {} ({})", WTERMSIG(status),
                         ::strsignal(WTERMSIG(status)));
    return fmt::format("the point's process ended with exit code {}", WEXITSTATUS(status));
  }

  void stop() const { ::kill(pid_, SIGKILL); }

 private:
  pid_t pid_ = 0;
  int file_ = -1;
  std::deque<std::int64_t> hand_;  ///< in the order in which they are run
  Clock::time_point since_;        ///< when the first of them began
  std::string received_;
};

class Pool {
 public:
  Pool(const SweepPlan& plan, SweepLog& log, const WorkerOptions& options,
       const OnSweepProgress& on_progress)
      : plan_(plan),
        log_(log),
        options_(options),
        on_progress_(on_progress),
        resumed_(log.done_count()),
        next_(plan.shard.index) {}

  void run() {
    const std::int64_t missing = plan_.points() - log_.done_count();
    const auto most = static_cast<std::size_t>(std::min<std::int64_t>(missing, options_.processes));
    workers_.resize(most);
    for (auto& worker : workers_) start(worker);
    for (auto& worker : workers_)
      if (worker) fill(*worker);
    while (log_.done_count() < plan_.points()) {
      wait();
      for (auto& worker : workers_)
        if (worker) serve(worker);
      for (auto& worker : workers_)
        if (worker) fill(*worker);
    }
  }

 private:
  std::optional<std::int64_t> next_missing() {
    if (!returned_.empty()) {
      const std::int64_t point = returned_.front();
      returned_.pop_front();
      return point;
    }
    while (next_ < plan_.grid.size() && log_.done(next_)) next_ += plan_.shard.count;
    if (next_ >= plan_.grid.size()) return std::nullopt;
    return std::exchange(next_, next_ + plan_.shard.count);
  }

  void start(std::unique_ptr<Worker>& worker) {
    try {
      worker = std::make_unique<Worker>(plan_, [this] {
        log_.close_here();
        for (const auto& other : workers_)
          if (other) ::close(other->file());
      });
    } catch (const Error&) {
      // Fewer workers are slower, none is an error.
      if (std::ranges::none_of(workers_, [](const auto& other) { return other != nullptr; })) throw;
    }
  }

  void fill(Worker& worker) {
    while (worker.hand().size() < kInHand) {
      const std::optional<std::int64_t> point = next_missing();
      if (!point) return;
      worker.give(*point);
    }
  }

  /// Returns when a worker has something, or may have run too long.
  void wait() const {
    std::vector<pollfd> files;
    double patience = options_.seconds;
    for (const auto& worker : workers_) {
      if (!worker) continue;
      files.push_back({worker->file(), POLLIN, 0});
      patience = std::min(patience, options_.seconds - worker->busy().count());
    }
    const bool limited = options_.seconds > 0.0;
    const int milliseconds =
        limited ? static_cast<int>(std::clamp(1e3 * patience + 1.0, 0.0, 1e6)) : -1;
    (void)::poll(files.data(), files.size(), milliseconds);
  }

  void serve(std::unique_ptr<Worker>& worker) {
    bool alive = worker->receive();
    while (const std::optional<PointResult> result = worker->take()) keep(*result);
    if (alive && options_.seconds > 0.0 && worker->busy().count() > options_.seconds) {
      worker->stop();
      (void)worker->end();
      replace(worker, fmt::format("the point ran longer than {:g} s", options_.seconds));
      return;
    }
    if (!alive) replace(worker, worker->end());
  }

  /// The point that it ran has failed; what else it held is another's to run.
  void replace(std::unique_ptr<Worker>& worker, const std::string& reason) {
    std::deque<std::int64_t> hand = worker->hand();
    worker.reset();
    if (!hand.empty()) {
      keep({hand.front(), {}, {}, reason});
      hand.pop_front();
    }
    returned_.insert(returned_.end(), hand.begin(), hand.end());
    if (log_.done_count() < plan_.points()) start(worker);
  }

  void keep(const PointResult& result) {
    log_.append(result);
    if (on_progress_) on_progress_({log_.done_count(), plan_.points(), resumed_});
  }

  const SweepPlan& plan_;
  SweepLog& log_;
  const WorkerOptions& options_;
  const OnSweepProgress& on_progress_;
  std::int64_t resumed_;
  std::int64_t next_;
  std::deque<std::int64_t> returned_;  ///< by workers that ended
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace

void run_points_in_processes(const SweepPlan& plan, SweepLog& log, const WorkerOptions& options,
                             const OnSweepProgress& on_progress) {
  require(options.processes >= 1 && options.processes <= kMostThreads, "processes",
          fmt::format("1 to {}", kMostThreads), fmt::format("{}", options.processes));
  require(std::isfinite(options.seconds) && options.seconds >= 0.0, "seconds",
          "a finite number >= 0", fmt::format("{}", options.seconds));
  Pool(plan, log, options, on_progress).run();
}

}  // namespace fp8lab

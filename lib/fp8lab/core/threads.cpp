#include "fp8lab/core/threads.hpp"

#include <omp.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

std::atomic<int> largest_team{1};  // that could be started
std::atomic<int> smallest_failed{kMostThreads + 1};
std::atomic<bool> forked_after_team{false};

/// Threads wait here, so that all of them are there at once.
struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool open = false;
};

void* wait_at(void* gate) {
  auto& g = *static_cast<Gate*>(gate);
  std::unique_lock lock(g.mutex);
  g.opened.wait(lock, [&g] { return g.open; });
  return nullptr;
}

/// How many of `wanted` threads the system starts beside this one.
int start_and_join(int wanted) {
  Gate gate;
  std::vector<pthread_t> threads;
  threads.reserve(static_cast<std::size_t>(wanted));
  for (pthread_t thread{}; static_cast<int>(threads.size()) < wanted; threads.push_back(thread))
    if (pthread_create(&thread, nullptr, wait_at, &gate) != 0) break;
  {
    const std::lock_guard lock(gate.mutex);
    gate.open = true;
  }
  gate.opened.notify_all();
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
  return static_cast<int>(threads.size());
}

void in_forked_child() {
  forked_after_team = true;
  omp_set_num_threads(1);
}

/// A team of `wanted`, or the largest that could be started.
int tried_team(int wanted) {
  static std::mutex trying;
  const std::lock_guard lock(trying);
  if (wanted <= largest_team) return wanted;
  if (wanted >= smallest_failed) return largest_team;
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, in_forked_child);
  const int team = 1 + start_and_join(wanted - 1);
  if (team > largest_team) largest_team = team;
  if (team < wanted) smallest_failed = wanted;
  return team;
}

int wanted_threads(int requested) {
  require(requested >= 0 && requested <= kMostThreads, "threads",
          "0 (all) to " + std::to_string(kMostThreads), std::to_string(requested));
  if (requested > 0) return requested;
  const int all = omp_get_max_threads();
  require(all <= kMostThreads, "OMP_NUM_THREADS", "1 to " + std::to_string(kMostThreads),
          std::to_string(all));
  return all;
}

}  // namespace

int team_size(int requested) {
  const int wanted = wanted_threads(requested);
  if (forked_after_team) return 1;
  if (wanted <= largest_team || omp_in_parallel() != 0) return wanted;
  return tried_team(wanted);
}

ThreadShortage thread_shortage() {
  const int failed = smallest_failed;
  if (failed > kMostThreads) return {};
  return {failed, largest_team};
}

}  // namespace fp8lab

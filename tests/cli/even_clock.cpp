// A clock for tests of benchmarks, loaded before the C library: each look at it is a sixteenth
// of a second after the one before, so that whatever lies between two looks takes as long as
// anything else. With FP8LAB_CLOCK_STEPS, milliseconds with commas between them, looks lie apart
// by these, in turn.

#include <time.h>

#include <atomic>
#include <cstdlib>
#include <vector>

namespace {

constexpr long kStep = 62'500'000;  // nanoseconds
constexpr long kMilli = 1'000'000;
constexpr long kSecond = 1'000'000'000;

/// When each look of a turn is, after its begin.
std::vector<long> looks_of_a_turn() {
  std::vector<long> looks;
  const char* text = std::getenv("FP8LAB_CLOCK_STEPS");
  long at = 0;
  for (char* end = nullptr; text != nullptr && *text != '\0'; text = *end == ',' ? end + 1 : end)
    looks.push_back(at += std::strtol(text, &end, 10) * kMilli);
  if (looks.empty()) looks.push_back(kStep);
  return looks;
}

long next_look() {
  static const std::vector<long> looks = looks_of_a_turn();
  static std::atomic<std::size_t> count{0};
  const std::size_t look = count++;
  return static_cast<long>(look / looks.size()) * looks.back() + looks[look % looks.size()];
}

}  // namespace

extern "C" int clock_gettime(clockid_t id, timespec* now) noexcept {
  if (id == CLOCK_REALTIME) {
    now->tv_sec = ::time(nullptr);
    now->tv_nsec = 0;
    return 0;
  }
  const long nanoseconds = next_look();
  now->tv_sec = nanoseconds / kSecond;
  now->tv_nsec = nanoseconds % kSecond;
  return 0;
}

extern "C" clock_t clock() noexcept { return next_look() / (kSecond / CLOCKS_PER_SEC); }

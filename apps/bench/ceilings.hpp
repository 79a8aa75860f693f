#pragma once
// The limits of this machine, measured in the run that reports them: a
// benchmark reports its own speed as a ratio to one of these figures. The
// machine may be shared, so limits and results are only comparable within a run.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace fp8lab::bench {

/// Whose seconds are counted: the wall's or, on a machine whose cores others use too, the
/// processor's over the threads.
enum class Clock : std::uint8_t { wall, processor };

/// Seconds that `work` takes. Throws what it throws.
double seconds_of(const std::function<void()>& work, Clock clock = Clock::wall, int threads = 1);

/// Times of repeated runs of one piece of work, in seconds.
struct Timing {
  double median = 0.0;
  double best = 0.0;
  double spread = 0.0;  ///< (third quartile - first quartile) / median
  int repetitions = 0;
};

/// Median, best and spread of `seconds`, which must not be empty.
Timing summarize(std::vector<double> seconds);

/// Runs `work` once to warm up, then at least `min_repetitions` times and until
/// `min_seconds` have passed (at most 1000 times).
Timing time_work(const std::function<void()>& work, int min_repetitions = 5,
                 double min_seconds = 0.3, Clock clock = Clock::wall, int threads = 1);

/// Binary32 multiply-adds a second (not flops) of `threads` threads, each with
/// independent FMA chains in registers of the widest vectors of the current target.
double measure_fma_peak(int threads);

/// The same in one burst of about `seconds`: on a shared machine a ceiling for
/// work that took about as long and was disturbed about as much.
double measure_fma_rate(int threads, double seconds, Clock clock = Clock::wall);

/// Bytes a second that `threads` threads stream from arrays far larger than the
/// last-level cache share of a core.
struct StreamBandwidth {
  double read = 0.0;  ///< bytes read a second
  double copy = 0.0;  ///< bytes read plus bytes written a second, ordinary stores
};
StreamBandwidth measure_stream_bandwidth(int threads, std::size_t bytes = std::size_t{256} << 20,
                                         Clock clock = Clock::wall);

}  // namespace fp8lab::bench

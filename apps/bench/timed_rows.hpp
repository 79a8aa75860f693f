#pragma once
// Rows of a benchmark that are timed in turn and compared with a ceiling among them.

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fp8lab::cli {

/// Something to time, the elements it handles and the bytes it moves for each.
struct TimedRow {
  std::string name;
  std::function<void()> work;
  double bytes_per_element = 5.0;
  std::size_t ceiling = 0;  ///< the row whose speed this one is compared with
  std::vector<double> seconds;
};

/// How rows are timed.
struct Rounds {
  int repetitions = 9;
  bool processor_time = false;  ///< where cores are shared; else the wall's
};

/// Seconds on the wall or, on a machine whose cores others use too, of the process's
/// processor time over its threads.
double seconds_now(bool processor_time, int threads);

/// Appends to `seconds`: rows in turn, round by round, so that a noisy minute hits all of them
/// alike. Shows the round on stderr.
void time_rows(std::vector<TimedRow>& rows, const Rounds& rounds, int threads);

/// An object a row of `count` elements: rates in 1e9 elements and 1e9 bytes a second of the median
/// round and of the best, and their ratios to the ceiling's.
nlohmann::json report(const std::vector<TimedRow>& rows, std::size_t count);

}  // namespace fp8lab::cli

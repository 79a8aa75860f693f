#pragma once
// A loop over independent points on the threads of a run.

#include <omp.h>

#include <cstddef>
#include <exception>

#include "fp8lab/core/threads.hpp"
#include "lab/experiment/experiment.hpp"

namespace fp8lab::experiments {

/// Calls point(i) for i in [0, count), in any order, and reports progress
/// between `from` and `to`. The first exception is rethrown after the loop.
template <typename Point>
void parallel_points(const RunContext& context, std::size_t count, Point point, double from = 0.0,
                     double to = 1.0) {
  std::exception_ptr failure;
  std::size_t done = 0;
#pragma omp parallel for schedule(dynamic) num_threads(team_size(context.threads))
  for (std::size_t i = 0; i < count; ++i) {
    try {
      point(i);
    } catch (...) {
#pragma omp critical(fp8lab_point_failed)
      if (!failure) failure = std::current_exception();
    }
    std::size_t finished = 0;
#pragma omp atomic capture
    finished = ++done;
    if (omp_get_thread_num() == 0)
      context.progress(from +
                       (to - from) * static_cast<double>(finished) / static_cast<double>(count));
  }
  if (failure) std::rethrow_exception(failure);
  context.progress(to);
}

}  // namespace fp8lab::experiments

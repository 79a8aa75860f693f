#pragma once
// Parallel loops: each thread in the default floating-point environment, exceptions come out whole.

#include <cstdint>
#include <optional>
#include <type_traits>

#include "fp8lab/core/first_error.hpp"
#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {

/// Calls each(state, i) for i of [0, count), dealt evenly to `threads`; make() gives every thread
/// its state. The first exception is rethrown at the end, and what comes after it is left out.
template <typename Make, typename Each>
void parallel_for_with(std::int64_t count, int threads, const Make& make, const Each& each) {
  using State = std::invoke_result_t<Make>;
  struct Made {  // becomes the state in place: it need not be movable
    const Make& make;
    operator State() const { return make(); }  // NOLINT(google-explicit-constructor)
  };
  FirstError error;
#pragma omp parallel num_threads(threads)
  {
    const FloatEnvironment environment;
    std::optional<State> state;
    error.guard([&] { state.emplace(Made{make}); });
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) error.guard([&] { each(*state, i); });
  }
  error.rethrow();
}

/// Calls each(i) for i of [0, count), dealt evenly to `threads`, with the same promises.
template <typename Each>
void parallel_for(std::int64_t count, int threads, const Each& each) {
  FirstError error;
#pragma omp parallel num_threads(threads)
  {
    const FloatEnvironment environment;
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) error.guard([&] { each(i); });
  }
  error.rethrow();
}

}  // namespace fp8lab

#pragma once
// Parallel loops. Each thread has the default floating-point environment; exceptions are rethrown.

#include <cstdint>
#include <optional>
#include <type_traits>

#include "fp8lab/core/first_error.hpp"
#include "fp8lab/core/float_environment.hpp"

namespace fp8lab {

/// Calls each(state, i) for i in [0, count), divided evenly among `threads`; make() returns the
/// state of a thread. After an exception, later calls are skipped; it is rethrown at the end.
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

/// The same without a state: calls each(i) for i in [0, count).
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

#pragma once
// Hypotheses are computed on changed data that no user gave: a scale that the instruction cannot
// hold, an interval that does not fit. What they throw says nothing about the user's input.

#include <exception>
#include <optional>
#include <type_traits>

namespace fp8lab {

/// What `compute` returns, or nothing if it throws. A result that is optional itself is not
/// wrapped again.
template <typename Compute>
auto attempt(const Compute& compute) {
  using Result = std::invoke_result_t<Compute>;
  if constexpr (requires(Result result) { result.has_value(); }) {
    try {
      return compute();
    } catch (const std::exception&) {
      return Result{};
    }
  } else {
    try {
      return std::optional<Result>(compute());
    } catch (const std::exception&) {
      return std::optional<Result>{};
    }
  }
}

}  // namespace fp8lab

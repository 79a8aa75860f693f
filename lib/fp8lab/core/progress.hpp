#pragma once
// Progress reports of long computations.

#include <functional>
#include <string_view>

namespace fp8lab {

/// Called from time to time, by one thread at a time, with the name of the current work and the
/// finished share of it, 0 to 1. May be empty. It must not throw. Results do not depend on it.
using Progress = std::function<void(std::string_view step, double done)>;

inline void tell(const Progress& progress, std::string_view step, double done) {
  if (progress) progress(step, done);
}

}  // namespace fp8lab

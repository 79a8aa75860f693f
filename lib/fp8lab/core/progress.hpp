#pragma once
// How far a long computation is, told while it runs.

#include <functional>
#include <string_view>

namespace fp8lab {

/// Called now and then, by one thread at a time, with what is being done and how much of that is
/// done, 0 to 1. Empty: nobody is told. It must not throw. Results do not depend on it.
using Progress = std::function<void(std::string_view step, double done)>;

inline void tell(const Progress& progress, std::string_view step, double done) {
  if (progress) progress(step, done);
}

}  // namespace fp8lab

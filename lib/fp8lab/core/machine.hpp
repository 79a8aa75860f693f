#pragma once
// The description of build and machine in result files.

#include <string>

namespace fp8lab {

struct Machine {
  std::string cpu;
  unsigned cores = 0;  ///< hardware threads that this process sees
  std::string os;
  std::string compiler;
};

/// This machine. A name that the system does not give is "unknown".
Machine this_machine();

/// The version of the build, such as `0.1.0`.
std::string build_version();

/// `git describe` of the sources as configured, or empty outside a checkout.
std::string build_git();

}  // namespace fp8lab

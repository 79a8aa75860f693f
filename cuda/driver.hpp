#pragma once
// What the NVIDIA driver on this machine says before CUDA's runtime is asked, whose
// own words for a missing driver are about versions.

#include <string>

namespace fp8lab::cuda {

struct DriverState {
  std::string library;  ///< the driver's library as it was found; empty: none
  int version = 0;      ///< newest CUDA that it serves, as 13000; 0: it does not say
  int devices = 0;
  std::string problem;  ///< what is missing, and what to do; empty: nothing
};

/// Loads libcuda.so.1 and asks it for its version and devices. `needed`: the CUDA version of this
/// build, as 13000. Initialises the driver: not before a fork.
DriverState driver_state(int needed);

}  // namespace fp8lab::cuda

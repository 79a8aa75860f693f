#pragma once
// Delayed scaling over a trace of amaxes.

#include <cstdint>
#include <string>
#include <vector>

#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/backend.hpp"
#include "fp8lab/scaling/delayed.hpp"

namespace fp8lab::experiments {

struct TraceShape {
  std::int64_t steps = 4000;
  double noise_octaves = 0.25;  ///< standard deviation of log2 of the amax
  double drift_octaves = 8.0;
  double jump = 64.0;
  std::int64_t period = 200;
};

/// The amaxes of a trace called steady, drift, step, drop, spike or sawtooth,
/// around 1. Throws `Error` for another name.
std::vector<float> make_trace(const RandomStream& random, const std::string& name,
                              const TraceShape& shape);

/// What one step lost.
struct StepLoss {
  double scale = 1.0;
  double overflow_percent = 0.0;   ///< elements that round above max finite
  double underflow_percent = 0.0;  ///< non-zero elements that became zero
  double wasted_octaves = 0.0;     ///< log2(max finite / (amax * scale)), negative in overflow
};

/// A recipe under test: delayed with these options, or current scaling.
struct Contender {
  bool current = false;
  DelayedOptions delayed;
  [[nodiscard]] std::string name() const;
};

/// Casts `shape` (largest magnitude 1) times each amax of the trace, step by
/// step; the step's amax enters the recipe after its cast.
std::vector<StepLoss> run_trace(const Contender& contender, const Format& f,
                                const std::vector<float>& trace, const std::vector<float>& shape,
                                const Backend& backend = {});

}  // namespace fp8lab::experiments

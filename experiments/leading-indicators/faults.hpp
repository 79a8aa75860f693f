#pragma once
// A NaN in the gradients of a training run, with and without `train::NanGuard`.

#include <cstdint>
#include <string_view>
#include <vector>

#include "train/study.hpp"
#include "training/train/guard.hpp"

namespace fp8lab::experiments {

enum class FaultKind : std::uint8_t {
  none,
  transient,   ///< once, at the fault's step
  persistent,  ///< each time the fault's step is taken
};
std::string_view to_string(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::none;
  std::int64_t step = 0;
};

struct FaultyRun {
  std::vector<double> losses;  ///< of each step's last attempt; NaN where skipped or broken off
  std::vector<float> weights;  ///< at the end
  std::int64_t attempts = 0;   ///< forward and backward passes
  std::int64_t snapshots = 0;
  std::int64_t rollbacks = 0;
  std::int64_t replayed = 0;
  std::int64_t skipped = 0;
  std::size_t snapshot_bytes = 0;  ///< of one
};

/// Trains `variant` while one element of the first gradient becomes NaN. Without
/// a guard (`snapshot_every` 0) the run goes on to its last step, whatever the loss.
FaultyRun run_with_fault(const StudySettings& settings, const Variant& variant, std::uint64_t seed,
                         const Fault& fault, std::int64_t snapshot_every);

/// Whether every weight has the same bits.
bool same_weights(const FaultyRun& a, const FaultyRun& b);

}  // namespace fp8lab::experiments

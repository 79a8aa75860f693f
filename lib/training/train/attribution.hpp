#pragma once
// Which part of a run's arithmetic its loss gap to BF16 comes from: runs in which one part alone is
// as in the run, and runs in which everything but one part is.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "training/train/trainer.hpp"

namespace fp8lab::train {

/// A product with the casts of both operands and its sums; the sums of all FP8 products; the
/// formats of the optimizer's states and of the gradient that it reads.
enum class RunPart : std::uint8_t { forward, dgrad, wgrad, sums, states };
std::string_view to_string(RunPart part);

/// The same run with BF16 products throughout, FP32 states and no loss scale.
TrainerOptions in_high_precision(TrainerOptions options);

/// The parts in which a run differs from that, in the order above.
std::vector<RunPart> parts_of(const TrainerOptions& options);

/// `in_high_precision`, but for `part`. None for the sums, which BF16 products do not have.
std::optional<TrainerOptions> with_part_alone(const TrainerOptions& options, RunPart part);

/// The run, but for `part`: a product in BF16, exact sums of FP8 codes, or FP32 states.
TrainerOptions without_part(TrainerOptions options, RunPart part);

}  // namespace fp8lab::train

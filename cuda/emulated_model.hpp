#pragma once
// From the library's models and formats to what the device's emulator takes.

#include "emulated_core.hpp"
#include "fp8lab/accumulate/model.hpp"

namespace fp8lab::cuda {

/// Sums of an alignment of more bits could leave 64-bit integers.
inline constexpr int kMaxAlignmentBits = 30;

/// Whether the device's emulator covers the model with these inputs.
bool can_emulate(const AccumulatorModel& model, FormatId a, FormatId b);

/// Throw `Error` for a model or a format that it does not cover.
EmulatedModel emulated_model(const AccumulatorModel& model);
EmulatedFormat emulated_format(FormatId id);

}  // namespace fp8lab::cuda

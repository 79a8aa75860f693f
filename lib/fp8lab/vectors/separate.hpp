#pragma once
// Inputs on which two models differ: what to run on a chip to learn which of
// them it is.

#include <cstddef>
#include <cstdint>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/vectors/vectors.hpp"

namespace fp8lab {

struct Separation {
  VectorFile file;        ///< d is what the first model gives; no case if none was found
  std::size_t tried = 0;  ///< generated cases that were looked at
};

/// Dot products on which `first` and `second` give different bits, at most `count`.
///
/// Adversarial, random and special cases of both models are generated until enough
/// differ or `budget` have been looked at. The first case is reduced: the fewest and
/// simplest operands that still separate the two. `terms` 0: one step of the model
/// with more terms, so that several steps of the other show; 32 for two sequential ones. The header
/// names the other model as `separates_from`. Throws `Error` for models that read different formats
/// (a definition reads the other's), and for terms outside 0 .. 2^15. Equal accumulators give no
/// case and look at none.
Separation separate(const InstructionModel& first, const InstructionModel& second,
                    std::size_t count, std::uint64_t seed, int terms = 0,
                    std::size_t budget = 100'000);

}  // namespace fp8lab

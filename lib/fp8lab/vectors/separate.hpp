#pragma once
// Inputs on which two models differ. Run them on a chip to find out which of the
// models describes it.

#include <cstddef>
#include <cstdint>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/vectors/vectors.hpp"

namespace fp8lab {

struct Separation {
  VectorFile file;        ///< d is the result of the first model; no case if none was found
  std::size_t tried = 0;  ///< number of generated cases that were tried
};

/// Dot products on which `first` and `second` give different bits, at most `count`.
///
/// It generates adversarial, random and special cases of both models until enough differ or
/// `budget` cases have been tried. The first case is reduced to few and simple operands that
/// still separate the two. `terms` 0: one step of the model with more terms, which is several
/// steps of the other; 32 for two sequential models. The header has the other model as
/// `separates_from`. Equal accumulators give no case. Throws `Error` for models that read
/// different formats (a definition reads those of the other model), and for terms outside 0 ..
/// 2^15.
Separation separate(const InstructionModel& first, const InstructionModel& second,
                    std::size_t count, std::uint64_t seed, int terms = 0,
                    std::size_t budget = 100'000);

}  // namespace fp8lab

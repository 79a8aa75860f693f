#pragma once
// Generated dot products that tell one accumulation model from its neighbours:
// random ones, ones built around the places where models differ, and special
// values. The same generator feeds recordings of chips and tests of models.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/vectors/vectors.hpp"

namespace fp8lab {

enum class CaseKind : std::uint8_t {
  random,       ///< finite codes of several spreads, c zero or of the sum's size
  adversarial,  ///< cancellation, swamping, exponent gaps around the cut, ties, far c, subnormals
  special,      ///< NaN, infinities, signed zeros, extremes of the formats in every position
};
std::string_view to_string(CaseKind kind);
/// Throws `Error` for a name that is none of random, adversarial and special.
CaseKind find_case_kind(std::string_view name);

/// The scales of a block-scaled model's cases: UE4M3 per 16 terms where it takes them, else
/// UE8M0 per 32. Nothing for all other models.
std::optional<ScaleBlocks> scales_of_cases(const InstructionModel& model);
/// The same of two models: the first of these scales that both take.
std::optional<ScaleBlocks> common_scales(const InstructionModel& first,
                                         const InstructionModel& second);

/// Case `index` of a stream of inputs for `model`; d is left at 0.
///
/// A pure function of its arguments. `terms` operand pairs (at most 2^15); `a`
/// and `b` hold codes of the model's formats. Cases are built from the model's
/// own alignment and output widths, so that they stand close to its cuts. Those of a block-scaled
/// model have scales, most of them within eight binades of 1.
VectorCase generate_case(const InstructionModel& model, int terms, CaseKind kind,
                         std::uint64_t seed, std::uint64_t index);

/// The same with scales of another kind that the model takes, or without.
VectorCase generate_case(const InstructionModel& model, const std::optional<ScaleBlocks>& scales,
                         int terms, CaseKind kind, std::uint64_t seed, std::uint64_t index);

/// `count` cases with d = the model's own result. `terms` 0: one step of the
/// model. The header names model, kind and seed. Throws `Error` for terms
/// outside 0 .. 2^15.
VectorFile generate_cases(const InstructionModel& model, CaseKind kind, std::size_t count,
                          std::uint64_t seed, int terms = 0);

/// Sets every d of `file` to what `model` gives for its inputs.
void fill_results(VectorFile& file, const AccumulatorModel& model);

}  // namespace fp8lab

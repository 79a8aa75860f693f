#pragma once
// Generated dot products that distinguish accumulation models: random cases, cases
// near the points where models differ, and special values. Recordings of chips and
// tests of models use the same generator.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/vectors/vectors.hpp"

namespace fp8lab {

enum class CaseKind : std::uint8_t {
  random,       ///< finite codes of several spreads; c is zero or of the size of the sum
  adversarial,  ///< cancellation, swamping, exponent gaps around the cut, ties, far c, subnormals
  special,      ///< NaN, infinities, signed zeros and extremes of the formats at every position
};
std::string_view to_string(CaseKind kind);
/// The kind called `name`: random, adversarial or special. Throws `Error`.
CaseKind find_case_kind(std::string_view name);

/// The scales of the cases of a block-scaled model: UE4M3 per 16 terms if it accepts them, else
/// UE8M0 per 32. Nothing for other models.
std::optional<ScaleBlocks> scales_of_cases(const InstructionModel& model);
/// The same for two models: the first of these that both accept.
std::optional<ScaleBlocks> common_scales(const InstructionModel& first,
                                         const InstructionModel& second);

/// Case `index` of a stream of inputs for `model`; d is 0.
///
/// A pure function of its arguments. The case has `terms` operand pairs (at most 2^15);
/// `a` and `b` have codes of the model's formats. The generator uses the model's alignment
/// and output widths, so that cases are near its truncation points. Cases of a block-scaled model
/// have scales, most of them within eight binades of 1.
VectorCase generate_case(const InstructionModel& model, int terms, CaseKind kind,
                         std::uint64_t seed, std::uint64_t index);

/// The same with other scales that the model accepts, or without scales.
VectorCase generate_case(const InstructionModel& model, const std::optional<ScaleBlocks>& scales,
                         int terms, CaseKind kind, std::uint64_t seed, std::uint64_t index);

/// The same for many cases: what does not depend on the case is found once.
class CaseGenerator {
 public:
  CaseGenerator(const InstructionModel& model, std::optional<ScaleBlocks> scales, int terms,
                std::uint64_t seed);
  [[nodiscard]] VectorCase make(CaseKind kind, std::uint64_t index) const;

 private:
  InstructionModel model_;
  std::optional<ScaleBlocks> scales_;
  int terms_;
  std::array<RandomStream, 3> streams_;  ///< of each kind
};

/// `count` cases, where d is the result of the model. `terms` 0: one step of the
/// model. The header has model, kind and seed. Throws `Error` for terms outside
/// 0 .. 2^15.
VectorFile generate_cases(const InstructionModel& model, CaseKind kind, std::size_t count,
                          std::uint64_t seed, int terms = 0);

/// Sets every d of `file` to the result of `model` for its inputs.
void fill_results(VectorFile& file, const AccumulatorModel& model);

}  // namespace fp8lab

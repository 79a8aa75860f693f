#pragma once
// Executes an instruction of the processor on generated cases and compares every output with a
// model, bit for bit; any NaN equals any other.

#include <cstdint>
#include <optional>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/processor/instructions.hpp"
#include "fp8lab/vectors/vectors.hpp"

namespace fp8lab {

struct ProbeRequest {
  const CpuInstruction* instruction = nullptr;  ///< one that is available
  int in_a_row = 1;                             ///< each starts from the sums of the one before
  const InstructionModel* model = nullptr;      ///< null: the instruction's own
  std::uint64_t count = 0;                      ///< outputs, rounded up to whole executions
  std::uint64_t seed = 1;
  int threads = 1;
};

/// An output of the processor that is not the model's.
struct ProbeDifference {
  std::uint64_t index = 0;     ///< of its case
  std::uint32_t got = 0;       ///< the processor's bits
  std::uint32_t modelled = 0;  ///< the model's
};

struct ProbeReport {
  std::uint64_t outputs = 0;
  std::uint64_t differences = 0;
  std::vector<ProbeDifference> shown;  ///< the first ones, at most kMostShown
};
inline constexpr std::size_t kMostShown = 1000;

/// The comparison. It depends on nothing but the request and the processor. Throws `Error` for a
/// model that does not read the instruction's operands, and for an instruction that is not
/// available.
ProbeReport probe(const ProbeRequest& request);

/// The first `rows` cases and those in which processor and model differ, with the processor's
/// outputs as d, for `replay`.
VectorFile probed_rows(const ProbeRequest& request, const ProbeReport& report, std::size_t rows);

}  // namespace fp8lab

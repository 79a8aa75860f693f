#pragma once
// Which of many candidates gives a chip's outputs.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/vectors/vectors.hpp"
#include "probes/instructions.hpp"

namespace fp8lab::cuda {

struct Ranked {
  std::string name;
  std::uint64_t matches = 0;  ///< outputs of the sample that it gives, bit for bit
};

struct Winners {
  std::uint64_t outputs = 0;  ///< the sample's size
  std::uint64_t tried = 0;    ///< candidates
  std::uint64_t held_to = 0;  ///< matches of what the probe is held to
  std::vector<Ranked> best;   ///< at most `kShownWinners`, best first

  /// Whether one candidate gives every output of the sample.
  [[nodiscard]] bool explained() const { return !best.empty() && best.front().matches == outputs; }
};
inline constexpr std::size_t kShownWinners = 3;

/// Outputs of a probe in `d` (binary32 bits), those that differ from its prediction among them: the
/// more of both kinds, the surer the answer. Candidates that fail on the first outputs are left out
/// early, so put what tells most first. Same answer for any number of threads.
Winners find_winners(const ProbedInstruction& probe, std::span<const VectorCase> sample);

/// For people, a line: the candidate that gives every output of the sample, or that none does.
std::string to_string(const Winners& winners);
/// Likewise, where none does: the candidate that gives most; empty where one does or none takes the
/// operands. The sample has as many wrong outputs as right ones where there are enough, so shares
/// of it say nothing of all outputs: numbers are told, and that of the model compared with.
std::string nearest(const Winners& winners);

}  // namespace fp8lab::cuda

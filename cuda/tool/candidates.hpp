#pragma once
// What an instruction might be instead of what it is held to: registered units, a grid of
// parameters around them, ways to treat c and the order of terms that no model has, and what an
// instruction may leave undone.

#include <cstdint>
#include <string>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/vectors/vectors.hpp"
#include "probes/instructions.hpp"

namespace fp8lab::cuda {

/// What becomes of c.
enum class UseOfC : std::uint8_t {
  in_the_step,  ///< as the model says
  ignored,      ///< every sum starts from zero
  added_apart,  ///< an instruction sums from zero; c is added after it, nearest even
};

/// Which terms of an instruction its steps take, where they take fewer than all.
enum class TermOrder : std::uint8_t {
  in_turn,   ///< the first ones, then the next
  striped,   ///< every n-th one, n the number of steps
  by_pairs,  ///< those k with k mod 4 < 2, then the others
};

/// What an instruction is asked for and does not do.
enum class Unheeded : std::uint8_t {
  nothing,
  scales,   ///< all block scales count as 1
  scale_a,  ///< those of A do
  scale_b,
  negation,  ///< a negated operand keeps its sign
  metadata,  ///< a sparse instruction takes the first two of every four elements of B
};
/// Whether a probe asks for it.
bool asks_for(const ProbedInstruction& probe, Unheeded what);

struct Candidate {
  std::string name;  ///< a name or definition that `fp8lab replay --model` takes, and what differs
  AccumulatorModel model;
  UseOfC c = UseOfC::in_the_step;
  TermOrder order = TermOrder::in_turn;
  Unheeded unheeded = Unheeded::nothing;
};

/// Everything that is tried for a probe, what it is held to first, then the registered units that
/// take its operands, then the grid: names before definitions, so that of two that agree on all
/// outputs the better known one is first.
std::vector<Candidate> candidates_of(const ProbedInstruction& probe);

/// What a candidate gives for a case of whole instructions of `terms` terms: binary32 bits.
std::uint32_t result_of(const Candidate& candidate, const ProbedInstruction& probe,
                        const VectorCase& one);

}  // namespace fp8lab::cuda

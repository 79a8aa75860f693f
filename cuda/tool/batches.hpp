#pragma once
// The cases that instructions are cross-checked on, batch by batch.

#include <cstdint>
#include <vector>

#include "probes/instructions.hpp"
#include "tiles.hpp"

namespace fp8lab::cuda {

/// Tiles of a full batch. Every tile has 64 built cases and 4096 pairings of their rows.
inline constexpr int kBatchTiles = 1024;
/// Instructions that every eighth batch chains.
inline constexpr int kChained = 4;

struct CaseBatch {
  int steps = 1;
  std::vector<VectorCase> cases;  ///< 64 a tile
};

/// Batch `batch` of a probe's stream, `tiles` of 64 cases each. A function of its arguments.
///
/// The first tiles of batch 0 hold, for 8-bit operands, every pair of codes in one term, the others
/// zero: 16 tiles, c = 0. Of the rest, in eight tiles five are adversarial, two random, one special
/// (vectors/cases.hpp), and every sixteenth holds aimed ones instead: a subnormal or zero c with
/// products at the bottom of the formats, sums that stand at the middle between two outputs at the
/// end of each chained instruction. Cases stand close to the cuts of the model; of odd batches, to
/// those of what the compiler puts in its place. Instructions with block scales have no aimed
/// tiles.
CaseBatch make_batch(const ProbedInstruction& probe, std::uint64_t seed, std::uint64_t batch,
                     int tiles = kBatchTiles);

}  // namespace fp8lab::cuda

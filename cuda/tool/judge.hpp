#pragma once
// Streams of generated cases through one instruction, every output judged by the library. Whether a
// chip or a simulation runs the batches does not matter here.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "probes/instructions.hpp"
#include "tiles.hpp"
#include "tool/parts.hpp"

namespace fp8lab::cuda {

/// Runs a batch: d [tiles, 64, 64].
using RunTiles = std::function<std::vector<float>(const TileBatch&)>;
/// How many outputs of the batch that was run last the device's own emulator finds wrong.
using SecondOpinion = std::function<std::uint64_t()>;

struct JudgeOptions {
  std::uint64_t seed = 1;
  std::uint64_t outputs = 100'000'000;
  int tiles = 1024;                                ///< of a batch
  std::filesystem::path mismatches = {};           ///< folder for the rows that differ; empty: none
  std::map<std::string, std::string> header = {};  ///< of these files: gpu, driver, date
};

/// What the library says for every output of the batch that `cases` were packed into, by its
/// product kernels and on all threads: the model that the probe is held to.
std::vector<float> expected_outputs(const ProbedInstruction& probe,
                                    std::span<const VectorCase> cases, const TileBatch& batch);

/// Runs batches until `outputs` outputs are judged. The row says how many there were and how many
/// differ; its note, where outputs differ, of what kind they are and which candidate gives them
/// (winner.hpp). Where the second opinion is another one, that is printed and counts as a
/// mismatch.
CheckRow judge_probe(const ProbedInstruction& probe, const RunTiles& run,
                     const SecondOpinion& second, const JudgeOptions& options);

}  // namespace fp8lab::cuda

#pragma once
// A cross-check of a probe on the simulated chip.

#include "catch.hpp"
#include "cuda/tool/judge.hpp"
#include "simulated_probe.hpp"

namespace fp8lab::cuda {

inline Candidate as_predicted(const ProbedInstruction& probe) {
  return {"as predicted", probe.instruction().accumulator};
}

inline CheckRow judge(const Planted& chip, int tiles, int batches,
                      const std::filesystem::path& folder = {}) {
  planted = chip;
  JudgeOptions options;
  options.tiles = tiles;
  options.outputs = static_cast<std::uint64_t>(tiles * batches) * kTileOutputs;
  options.mismatches = folder;
  return judge_probe(chip.probe, simulate, nullptr, options);
}

inline ProbedInstruction find(std::string_view name, const Chip& chip) {
  for (const ProbedInstruction& probe : instructions_of(chip))
    if (probe.name == name) return probe;
  FAIL("no " << name);
  return {};
}

}  // namespace fp8lab::cuda

#pragma once
// Experiments on the chip and on the CPU, table by table.

#include <cstdint>
#include <string>
#include <vector>

#include "lab/experiment/experiment.hpp"
#include "tool/parts.hpp"

namespace fp8lab::cuda {

/// How many products and casts an experiment asked a backend for, and how many of them it did. What
/// it does not have, the library does, with the same bits. An experiment with the parameter
/// `bf16_accumulator` sums its BF16 references as `sm90.wgmma.bf16` does, here and in
/// `compare_experiment`.
struct RanThere {
  std::uint64_t products_asked = 0;
  std::uint64_t products = 0;
  std::uint64_t casts_asked = 0;
  std::uint64_t casts = 0;
};
RanThere what_ran(const Experiment& experiment, const Backend& backend, std::uint64_t seed,
                  bool quick);

/// Runs an experiment on the CPU and on a backend, and compares the CSV of every table. The row:
/// lines of all tables, how many differ, and in its note how many products and casts the backend
/// did of those that it was asked for; what it does not have, the library does, with the same bits.
/// Throws what the experiment throws.
CheckRow compare_experiment(const Experiment& experiment, const Backend& backend,
                            std::uint64_t seed, bool quick);

}  // namespace fp8lab::cuda

#pragma once
// Probes as files, for a kernel that runs elsewhere: each round is a folder with operands, and
// waits for outputs.

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "fp8lab/reveal/kernel.hpp"

namespace fp8lab {

/// Thrown by `file_kernel` where a round has no outputs yet: it has been written.
class ProbesWait : public std::runtime_error {
 public:
  ProbesWait(const std::string& message, std::int64_t waiting_round)
      : std::runtime_error(message), round(waiting_round) {}
  std::int64_t round;
};

/// A kernel whose call number r reads FOLDER/round-r/d.npy, [calls, m, n] of f32, f16 or (as bf16,
/// with its sidecar or as `|V2`) bf16. Where that is missing it writes a.npy [calls, m, k], b.npy
/// [calls, n, k] and README.txt into the folder and throws `ProbesWait`. Probes depend on the
/// outputs before them alone: run it again with the same options, and rounds that have outputs are
/// read. Throws `Error` where a round that is there has other operands than these.
ProbeKernel file_kernel(const std::filesystem::path& folder);

}  // namespace fp8lab

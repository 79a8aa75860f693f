#pragma once
// The largest magnitudes of layers' inputs, batch after batch, as a text file: what a training or
// serving system logs where it does not keep tensors.

#include <filesystem>
#include <string>
#include <vector>

namespace fp8lab {

/// One batch of one module's inputs.
struct TracedAmax {
  std::string module;  ///< as the file has it: `MODULE` or `MODULE.input`
  float amax = 0.0F;
  std::int64_t line = 0;
};

/// Lines of comma-separated fields of which the last is the amax and the one before it the module;
/// what stands before those (a step, a rank) is not read. A first line whose last field is no
/// number is a heading; empty lines are skipped. The amax is a decimal or hexadecimal number,
/// rounded to binary32.
///
/// Throws `Error` with file and line for a line of fewer than two fields, an amax that is not
/// finite or below 0, and for a file without lines.
std::vector<TracedAmax> read_amax_trace(const std::filesystem::path& path);

}  // namespace fp8lab

#pragma once
// One number a training step, from a file.

#include <string>
#include <vector>

namespace fp8lab::experiments {

/// The amaxes (or scales) of a .npy file, or of a text file with one line a step,
/// whose last comma-separated field counts; a first line without a number there is a
/// heading. Throws `Error` with file and line for anything but finite numbers >= 0,
/// and for fewer than 2.
std::vector<float> read_trace(const std::string& path);

}  // namespace fp8lab::experiments

#pragma once
// What checkpoints of one rank and of several share: a safetensors file with a fingerprint of the
// run, a version and a checksum of everything in it.

#include <filesystem>
#include <string>
#include <vector>

#include "fp8lab/io/safetensors.hpp"

namespace fp8lab::train {

/// A crash leaves the old file or the new one, whole. `fingerprint`: JSON of what changes bits.
void write_checkpoint(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                      const std::string& fingerprint);

/// Throws `Error` naming `path` for a file that is damaged or of another version, and the first
/// option that differs from `fingerprint`.
void require_checkpoint(const std::string& path, const SafetensorsFile& file,
                        const std::string& fingerprint);

}  // namespace fp8lab::train

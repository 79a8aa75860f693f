#pragma once
// A folder as one archive that every system's `tar` reads.

#include <cstddef>
#include <filesystem>

namespace fp8lab::cuda {

/// Writes all regular files below `folder` as a ustar archive, sorted by name, under the folder's
/// own name, with neither owner nor time: the same files give the same bytes. Links and other
/// things are left out. Returns how many files it holds. Throws `Error` if the folder is none or
/// empty, a name is too long for ustar (100 bytes after a prefix of 155), a file of 8 GiB or more,
/// or the archive inside the folder or not writable.
std::size_t write_tar(const std::filesystem::path& folder, const std::filesystem::path& archive);

}  // namespace fp8lab::cuda

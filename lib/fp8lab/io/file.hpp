#pragma once
// Files read by mapping them and written whole or not at all.

#include <cstddef>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <span>

namespace fp8lab {

/// A whole file, mapped read-only. The bytes live as long as the object.
class MappedFile {
 public:
  /// Throws `Error` with the file and the reason if it cannot be opened, is not
  /// a regular file, or cannot be mapped. An empty file maps to no bytes.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// Runs `write` on a temporary file beside `path`, then renames it to `path`.
/// If anything fails (`write` throws, the disk is full) the temporary file is
/// removed, an older `path` stays as it was, and an `Error` says why.
void write_whole_file(const std::filesystem::path& path,
                      const std::function<void(std::ostream&)>& write);

}  // namespace fp8lab

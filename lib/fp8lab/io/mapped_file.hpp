#pragma once
// A whole file, read-only. Large files are mapped and read without a copy.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace fp8lab {

/// The bytes are valid during the lifetime of the object.
///
/// Files of at most `kReadWhole` bytes are copied, so later changes have no effect.
/// Larger files are mapped and must not become shorter meanwhile: the system ends a
/// process that reads beyond the end (SIGBUS).
class MappedFile {
 public:
  static constexpr std::size_t kReadWhole = std::size_t{16} << 20;

  /// Throws `Error` with the file and the reason if it cannot be opened, is not
  /// a regular file, or cannot be mapped. An empty file maps to no bytes.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  /// Releases the memory of the whole pages of `part`, which must be in `bytes()`.
  /// To read them again loads them again. So a file larger than memory can be read
  /// part by part.
  void release(std::span<const std::byte> part) const;

 private:
  std::span<const std::byte> bytes_;
  std::unique_ptr<std::byte[]> copy_;  ///< null: mapped
};

}  // namespace fp8lab

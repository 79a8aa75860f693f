#pragma once
// Reads and writes whole files. Files are written atomically (see
// output_file.hpp).

#include <cstddef>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fp8lab {

/// The descriptor of this process that `path` names: 1 for /dev/stdout,
/// /dev/fd/1 or /proc/self/fd/1. To open such a path again would start at the
/// beginning of the file, and fails for sockets.
std::optional<int> descriptor_named_by(const std::filesystem::path& path);

/// The path after resolution of symbolic links; the file itself need not exist.
/// Throws `Error` for a loop of links.
std::filesystem::path follow_links(std::filesystem::path path);

/// Closes a descriptor in its destructor.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() { (void)close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int value() const { return value_; }
  [[nodiscard]] bool is_open() const { return value_ >= 0; }
  /// Returns false and sets `errno` if the system reports an error.
  bool close();

 private:
  int value_;
};

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

/// Reads a whole file, or an inherited stream (/dev/stdin, a shell's <(...)) of at
/// most 1 GiB. Throws `Error` with the path and the reason, also for folders, devices
/// and named pipes.
std::string read_file(const std::filesystem::path& path);

/// Writes a whole file and replaces an existing one. Throws `Error` with the path
/// and the system's reason.
void write_file(const std::filesystem::path& path, std::string_view text);

/// The same for the output of `write` to the stream. If `write` throws, or the disk
/// is full, there is no partial file, and an existing file does not change.
void write_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write);

/// Creates `folder` if it does not exist. Throws `Error` with the path and the reason
/// unless files can be written there, so that long work does not fail at its end.
void make_writable_folder(const std::filesystem::path& folder);

/// The same without making it: the nearest folder above that exists must take files.
void require_writable_folder(const std::filesystem::path& folder);

/// Throws `Error` with the path and the reason unless a file can be written under this name, so
/// that long work does not fail at its end. A file that exists does not change; devices and pipes
/// are not tried.
void require_writable_file(const std::filesystem::path& path);

/// Throws `Error` that names `argument` unless `name` consists of letters, digits,
/// `-`, `_` and inner dots, so that it is the name of a file in one folder.
void require_file_name(std::string_view argument, std::string_view name);

}  // namespace fp8lab

#pragma once
// Paths that do not name bytes on a disk.

#include <filesystem>
#include <optional>

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

}  // namespace fp8lab

#pragma once
// Names that stand for something other than bytes on a disk.

#include <filesystem>
#include <optional>

namespace fp8lab {

/// The descriptor of this process that `path` names: 1 for /dev/stdout,
/// /dev/fd/1 or /proc/self/fd/1. Opening such a name anew would start at the
/// beginning of a file that is written already, and fails for sockets.
std::optional<int> descriptor_named_by(const std::filesystem::path& path);

/// What `path` names when its symbolic links are followed; the file itself need
/// not be there. Throws `Error` for a loop of links.
std::filesystem::path follow_links(std::filesystem::path path);

/// Closes a descriptor on every way out.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() { (void)close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int value() const { return value_; }
  [[nodiscard]] bool is_open() const { return value_ >= 0; }
  /// False with `errno` where the system complains.
  bool close();

 private:
  int value_;
};

}  // namespace fp8lab

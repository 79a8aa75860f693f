#pragma once
// The one way in which files are written.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "fp8lab/io/partial.hpp"
#include "fp8lab/io/special_files.hpp"

namespace fp8lab {

/// A file that comes to be under a name of its own in the same folder, which
/// nobody else writes or can plant, and takes its place when it is complete and
/// on the disk. On every other way out it is gone and a file that was there is
/// as it was. The mode of a file that is replaced stays; where the path is a
/// symbolic link, the link stays and its target is replaced. Devices, pipes and
/// this process's own descriptors (/dev/stdout) are written into directly.
class OutputFile {
 public:
  /// Throws `Error` with the path and the system's reason, as all of it does.
  explicit OutputFile(const std::filesystem::path& path);

  void write(std::string_view bytes);

  /// The same at a place of its own, in any order; only for files on a disk. What is never written
  /// is zeros.
  void write_at(std::uint64_t offset, std::string_view bytes);

  /// All of it has been written: it is complete on the disk, under its own name still.
  void finish();
  /// Finishes, and takes its place.
  void commit();

 private:
  [[noreturn]] void fail(int reason) const;
  void open_partial();

  std::filesystem::path asked_;       ///< for messages
  std::filesystem::path target_;      ///< links followed
  std::unique_ptr<Partial> partial_;  ///< null: written directly
  std::unique_ptr<Descriptor> file_;
};

}  // namespace fp8lab

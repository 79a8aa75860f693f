#pragma once
// Atomic writing of files. All files of the project are written in this way.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "fp8lab/io/partial.hpp"
#include "fp8lab/io/special_files.hpp"

namespace fp8lab {

/// A file that is written under a temporary, unpredictable name in the same
/// folder and renamed when it is complete and on the disk. If this fails, the
/// temporary file is removed and an existing file does not change. A replaced
/// file keeps its mode. If the path is a symbolic link, its target is replaced.
/// Devices, pipes and descriptors of this process (/dev/stdout) are written
/// directly.
class OutputFile {
 public:
  /// Throws `Error` with the path and the system's reason, as all members do.
  explicit OutputFile(const std::filesystem::path& path);

  void write(std::string_view bytes);

  /// Writes at a given offset, in any order; only for files on a disk. Bytes that are never written
  /// are zero.
  void write_at(std::uint64_t offset, std::string_view bytes);

  /// Completes the file on the disk, still under its temporary name.
  void finish();
  /// Completes the file and renames it.
  void commit();

 private:
  [[noreturn]] void fail(int reason) const;
  void open_partial();

  std::filesystem::path asked_;       ///< for messages
  std::filesystem::path target_;      ///< after resolution of links
  std::unique_ptr<Partial> partial_;  ///< null: written directly
  std::unique_ptr<Descriptor> file_;
  std::unique_ptr<Descriptor> claim_;  ///< of the temporary file, until it has its name
};

}  // namespace fp8lab

#pragma once
// Outputs that one process writes at a time.

#include <filesystem>
#include <memory>

#include "fp8lab/io/partial.hpp"
#include "fp8lab/io/special_files.hpp"

namespace fp8lab {

/// Held by the one process that writes `path` over a long time. It is a lock on a hidden file
/// `.NAME.lock` beside it, which is gone with this object; that of a killed process is free.
class OutputLock {
 public:
  /// Throws `Error` with the path where another process holds it, and where no file can be made in
  /// the folder. Devices, pipes and descriptors of this process need none.
  explicit OutputLock(const std::filesystem::path& path);

 private:
  bool take(const std::filesystem::path& name);

  std::filesystem::path asked_;
  std::unique_ptr<Descriptor> file_;
  std::unique_ptr<Partial> name_;  ///< gone before the lock is free
};

/// Held for a short time by who puts several files into a folder that belong together. Others wait.
class FolderLock {
 public:
  /// Throws `Error` with the path and the system's reason, as `sync` does. A folder that may be
  /// written and not read has no lock.
  explicit FolderLock(const std::filesystem::path& folder);
  /// Brings renames to the disk.
  void sync() const;

 private:
  std::filesystem::path path_;
  Descriptor folder_;
};

}  // namespace fp8lab

#pragma once
// Atomic writing of files. All files of the project are written in this way.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "fp8lab/io/files.hpp"

namespace fp8lab {

/// A file or folder that the destructor removes, with its content, unless `keep` was
/// called. It may be created after the object.
class Partial {
 public:
  explicit Partial(std::filesystem::path path);
  ~Partial();
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Prevents the removal.
  void keep() { forget(); }

 private:
  void forget();

  std::filesystem::path path_;
  bool known_ = true;
};

/// Whether the open file still has this name.
bool is_named(int descriptor, const std::filesystem::path& path);

/// Locks a temporary file or folder for as long as any copy of the descriptor is open, so that
/// others can tell it from an abandoned one. Whether it still has this name: it may have been
/// removed as abandoned before the lock was there.
bool claim_partial(int descriptor, const std::filesystem::path& path);

/// A new folder `FOLDER/.NAME.01234567.partial`, removed with its files.
class PartialFolder {
 public:
  /// Creates `folder` too if it does not exist. Throws `Error` that names `folder`.
  PartialFolder(const std::filesystem::path& folder, const std::string& name);

  [[nodiscard]] const std::filesystem::path& path() const { return partial_.path(); }

 private:
  Partial partial_;
  std::unique_ptr<Descriptor> claim_;
};

/// An unpredictable name in the folder of `path`: `.NAME.01234567.partial`.
std::filesystem::path partial_name(const std::filesystem::path& path);

/// Removes the temporary files and folders that killed writers of `folder/name` left behind. Those
/// of living writers are claimed and stay.
void remove_abandoned_partials(const std::filesystem::path& folder, const std::string& name);

/// Removes all temporary files and folders. For handlers of signals that end the
/// program: it calls only functions that are allowed there, and prevents that threads
/// create new ones.
void remove_partials() noexcept;

/// After this call SIGHUP, SIGINT and SIGTERM remove temporary files before they end
/// the process. An ignored signal remains ignored. For programs only: a library must
/// not set signal handlers.
void remove_partials_on_signals();

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

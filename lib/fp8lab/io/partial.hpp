#pragma once
// Temporary files and folders, which exist only until an output is
// complete.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "fp8lab/io/special_files.hpp"

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

}  // namespace fp8lab

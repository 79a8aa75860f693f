#pragma once
// Names that exist only until something is complete: temporary files, and
// folders of them.

#include <filesystem>
#include <string>
#include <string_view>

namespace fp8lab {

/// A name that is removed, with what is in it if it is a folder, on every way
/// out but `keep`. The name may come to be after the object.
class Partial {
 public:
  explicit Partial(std::filesystem::path path);
  ~Partial();
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// It has become something else: nothing is removed.
  void keep() { forget(); }

 private:
  void forget();

  std::filesystem::path path_;
  bool known_ = true;
};

/// A new folder `FOLDER/.NAME.01234567.partial`, removed with its files.
class PartialFolder {
 public:
  /// Throws `Error` naming `folder`, which comes to be too where it is missing.
  PartialFolder(const std::filesystem::path& folder, const std::string& name);

  [[nodiscard]] const std::filesystem::path& path() const { return partial_.path(); }

 private:
  Partial partial_;
};

/// A name beside `path` that nobody can foresee: `.NAME.01234567.partial`.
std::filesystem::path partial_name(const std::filesystem::path& path);

/// Removes every name that is partial now. For handlers of signals that end the
/// program: calls nothing that they may not call, and lets no thread begin
/// another partial name.
void remove_partials() noexcept;

/// From here on SIGHUP, SIGINT and SIGTERM remove partial names before they end
/// the process; one that is ignored stays ignored. For programs: a library must
/// not do this.
void remove_partials_on_signals();

}  // namespace fp8lab

#include "fp8lab/io/output_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

bool is_special(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return descriptor_named_by(path) ||
         (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status));
}

fs::path lock_of(const fs::path& path) {
  const std::string name = path.filename().string();
  return path.parent_path() / fmt::format("{}{}.lock", name.starts_with('.') ? "" : ".", name);
}

[[noreturn]] void fail(const fs::path& path, int reason) {
  throw Error(fmt::format("{}: cannot write: {}", path.string(),
                          std::error_code(reason, std::generic_category()).message()));
}

/// Some network file systems.
bool has_no_locks(int reason) { return reason == ENOTSUP || reason == ENOSYS || reason == ENOLCK; }

}  // namespace

OutputLock::OutputLock(const fs::path& path) : asked_(path) {
  if (is_special(path)) return;
  const fs::path name = lock_of(follow_links(path));
  while (!take(name)) {
  }
  name_ = std::make_unique<Partial>(name);
}

FolderLock::FolderLock(const fs::path& folder)
    : path_(folder.empty() ? "." : folder),
      folder_(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (!folder_.is_open() && errno == EACCES) return;
  if (!folder_.is_open()) fail(path_, errno);
  int locked = -1;
  do {
    locked = ::flock(folder_.value(), LOCK_EX);
  } while (locked != 0 && errno == EINTR);
  if (locked != 0 && !has_no_locks(errno)) fail(path_, errno);
}

void FolderLock::sync() const {
  if (folder_.is_open() && ::fsync(folder_.value()) != 0 && errno != EINVAL && errno != ENOTSUP)
    fail(path_, errno);
}

/// False where its holder removed it in between.
bool OutputLock::take(const fs::path& name) {
  constexpr mode_t kMode = 0600;
  file_ = std::make_unique<Descriptor>(
      ::open(name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, kMode));
  if (!file_->is_open()) fail(asked_, errno);
  if (::flock(file_->value(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) return false;
    if (errno == EWOULDBLOCK)
      throw Error(fmt::format("{}: another process is writing it", asked_.string()));
    if (!has_no_locks(errno)) fail(asked_, errno);
  }
  return is_named(file_->value(), name);
}

}  // namespace fp8lab

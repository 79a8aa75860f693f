#include "fp8lab/io/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kModeBits = 07777;
constexpr mode_t kNewMode = 0666;  // less what the umask says
constexpr mode_t kPrivate = 0600;

/// Pipes and some file systems have nothing to bring to a disk.
bool sync(int file) {
  return ::fsync(file) == 0 || errno == EINVAL || errno == ENOTSUP || errno == ENOSYS ||
         errno == EROFS;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// A rename is on the disk when its folder is.
bool sync_folder_of(const fs::path& path) {
  const Descriptor folder(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A folder may be written and not read.
  return folder.is_open() ? sync(folder.value()) : errno == EACCES;
}

}  // namespace

void OutputFile::fail(int reason) const {
  throw Error(fmt::format("{}: cannot write: {}", asked_.string(),
                          std::error_code(reason, std::generic_category()).message()));
}

OutputFile::OutputFile(const fs::path& path) : asked_(path) {
  require(!path.empty(), "output", "the name of a file", "''");
  if (const std::optional<int> own = descriptor_named_by(path)) {
    file_ = std::make_unique<Descriptor>(::fcntl(*own, F_DUPFD_CLOEXEC, 0));
    if (!file_->is_open()) fail(errno);
    return;
  }
  struct stat status {};
  const bool there = ::stat(path.c_str(), &status) == 0;
  if (!there && errno != ENOENT) fail(errno);
  if (there && S_ISDIR(status.st_mode)) fail(EISDIR);
  if (there && !S_ISREG(status.st_mode)) {
    file_ = std::make_unique<Descriptor>(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    if (!file_->is_open()) fail(errno);
    return;
  }
  target_ = follow_links(path);
  open_partial();
  if (!there) return;
  // Only some may give a file away; then it is the writer's, as any new one.
  [[maybe_unused]] const int ignored = ::fchown(file_->value(), status.st_uid, status.st_gid);
  if (::fchmod(file_->value(), status.st_mode & kModeBits) != 0) fail(errno);
}

void OutputFile::open_partial() {
  std::error_code error;
  // Nobody opens what will be private before it is.
  const mode_t mode = fs::exists(target_, error) ? kPrivate : kNewMode;
  remove_abandoned_partials(target_.parent_path(), target_.filename().string());
  while (true) {
    partial_ = std::make_unique<Partial>(partial_name(target_));
    file_ = std::make_unique<Descriptor>(::open(
        partial_->path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!file_->is_open()) {
      const int reason = errno;
      partial_->keep();  // it is not ours
      if (reason != EEXIST) fail(reason);
      continue;
    }
    claim_ = std::make_unique<Descriptor>(::fcntl(file_->value(), F_DUPFD_CLOEXEC, 0));
    if (!claim_->is_open()) fail(errno);
    if (claim_partial(claim_->value(), partial_->path())) return;
    partial_->keep();  // it was taken for an abandoned one
  }
}

void OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_->value(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    if (count == 0) fail(ENOSPC);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void OutputFile::write_at(std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(file_->value(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno);
    if (count == 0) fail(ENOSPC);
    bytes.remove_prefix(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

void OutputFile::finish() {
  if (!file_->is_open()) return;
  if (!sync(file_->value())) fail(errno);
  if (!file_->close()) fail(errno);
}

void OutputFile::commit() {
  finish();
  if (!partial_) return;
  if (std::rename(partial_->path().c_str(), target_.c_str()) != 0) fail(errno);
  partial_->keep();
  if (!sync_folder_of(target_)) fail(errno);
}

}  // namespace fp8lab

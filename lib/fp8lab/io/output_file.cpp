#include "fp8lab/io/output_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

std::atomic_flag names_locked = ATOMIC_FLAG_INIT;

std::vector<std::string>& names() {
  static auto* const list = new std::vector<std::string>;  // handlers may run during exit
  return *list;
}

void lock_names() noexcept {
  while (names_locked.test_and_set(std::memory_order_acquire)) {
  }
}

/// Holds the names. Signals wait meanwhile: a handler on this thread could not
/// get them.
class NamesLock {
 public:
  NamesLock() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
    lock_names();
  }
  ~NamesLock() {
    names_locked.clear(std::memory_order_release);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NamesLock(const NamesLock&) = delete;
  NamesLock& operator=(const NamesLock&) = delete;

 private:
  sigset_t before_{};
};

/// As the kernel writes it; `readdir` may not be called in a handler.
struct Entry {
  std::uint64_t inode;
  std::int64_t offset;
  std::uint16_t length;
  unsigned char type;
  char name[1];
};

void remove_files_of(int folder) noexcept {
  alignas(Entry) std::array<char, 4096> buffer;
  for (long size = 0; (size = ::syscall(SYS_getdents64, folder, buffer.data(), buffer.size())) > 0;)
    for (long at = 0; at < size;) {
      std::uint16_t length = 0;
      std::memcpy(&length, buffer.data() + at + offsetof(Entry, length), sizeof length);
      ::unlinkat(folder, buffer.data() + at + offsetof(Entry, name), 0);
      at += length;
    }
}

void remove_name(const char* name) noexcept {
  if (::unlink(name) == 0) return;
  const int folder = ::open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return;
  remove_files_of(folder);
  ::close(folder);
  ::rmdir(name);
}

constexpr const char* kEnding = ".partial";
constexpr std::size_t kDigits = 8;

/// What comes before the random digits: `.NAME.`.
std::string partial_prefix(const std::string& name) {
  // Whole names would be longer than a file system allows.
  constexpr std::size_t kMostOfName = 200;
  return fmt::format(".{}.", name.substr(0, kMostOfName));
}

bool is_partial_of(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix) || !name.ends_with(kEnding)) return false;
  name.remove_prefix(prefix.size());
  return name.find_first_not_of("0123456789abcdef") == kDigits &&
         name.size() == kDigits + std::string_view(kEnding).size();
}

bool lock(int descriptor, int how) {
  int locked = -1;
  do {
    locked = ::flock(descriptor, how);
  } while (locked != 0 && errno == EINTR);
  return locked == 0;
}

/// The lock is held until the name is gone: a writer that waits for it sees that.
void remove_if_abandoned(const char* name) {
  const Descriptor file(::open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.is_open() && lock(file.value(), LOCK_EX | LOCK_NB)) remove_name(name);
}

void end_by(int signal) {
  remove_partials();
  std::signal(signal, SIG_DFL);
  ::kill(::getpid(), signal);  // comes when this handler returns
}

}  // namespace

Partial::Partial(std::filesystem::path path) : path_(std::move(path)) {
  const NamesLock lock;
  names().push_back(path_.string());
}

Partial::~Partial() {
  if (!known_) return;
  remove_name(path_.c_str());
  forget();
}

void Partial::forget() {
  if (!known_) return;
  const NamesLock lock;
  const auto at = std::find(names().begin(), names().end(), path_.native());
  if (at != names().end()) names().erase(at);
  known_ = false;
}

bool is_named(int descriptor, const std::filesystem::path& path) {
  struct stat here {};
  struct stat there {};
  return ::fstat(descriptor, &here) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

bool claim_partial(int descriptor, const std::filesystem::path& path) {
  // Some network file systems have no locks; there nobody removes what others left.
  return !lock(descriptor, LOCK_EX) || is_named(descriptor, path);
}

PartialFolder::PartialFolder(const std::filesystem::path& folder, const std::string& name)
    : partial_(partial_name(folder / name)) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) remove_abandoned_partials(folder, name);
  if (!error && !std::filesystem::create_directory(path(), error) && !error)
    error = std::make_error_code(std::errc::file_exists);
  if (!error) {
    claim_ = std::make_unique<Descriptor>(
        ::open(path().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (claim_->is_open() && claim_partial(claim_->value(), path())) return;
    error = std::make_error_code(std::errc::no_such_file_or_directory);
  }
  if (error == std::errc::file_exists) partial_.keep();
  throw Error(fmt::format("{}: cannot write there: {}", folder.string(), error.message()));
}

std::filesystem::path partial_name(const std::filesystem::path& path) {
  std::random_device random;
  return path.parent_path() / fmt::format("{}{:0{}x}{}", partial_prefix(path.filename().string()),
                                          random(), kDigits, kEnding);
}

void remove_abandoned_partials(const std::filesystem::path& folder, const std::string& name) {
  const std::string prefix = partial_prefix(name);
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder.empty() ? "." : folder, ignored))
    if (is_partial_of(entry.path().filename().string(), prefix))
      remove_if_abandoned(entry.path().c_str());
}

void remove_partials() noexcept {
  // A signal between here and the process's end would wait for the names forever.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  lock_names();  // for good: the process ends
  for (const std::string& name : names()) remove_name(name.c_str());
}

void remove_partials_on_signals() {
  names();
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action = {};
    action.sa_handler = end_by;
    sigfillset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

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

// A library to preload: the N-th call of one kind fails in the program called
// FAULT_PROGRAM.
//
//   FAULT_CALL   read, write, sync, close, rename, create, map, thread or allocate
//   FAULT_AT     N, from 1
//   FAULT_ERRNO  what the call reports; 0: a read or write takes half of its bytes
//   FAULT_MARK   a file that comes to be when the call has failed
//   FAULT_SIZE   allocations below this are not counted
//
// Calls go to the system directly, but for the start of a thread: looking up the C library's own
// would allocate.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

extern "C" {
extern char* program_invocation_short_name;
void* __libc_malloc(std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace {

struct Settings {
  std::string_view call;
  long at = 0;
  int error = EIO;
  std::size_t size = 0;
  const char* mark = nullptr;
};

// Read before main: the environment may not be looked at while it is changed.
Settings settings;
std::atomic<bool> armed{false};
std::atomic<long> calls{0};

__attribute__((constructor)) void read_settings() {
  const char* program = std::getenv("FAULT_PROGRAM");
  const char* call = std::getenv("FAULT_CALL");
  const char* at = std::getenv("FAULT_AT");
  const char* error = std::getenv("FAULT_ERRNO");
  const char* size = std::getenv("FAULT_SIZE");
  if (program == nullptr || call == nullptr || at == nullptr || error == nullptr) return;
  if (std::strcmp(program, program_invocation_short_name) != 0) return;
  settings = {call, std::atol(at), std::atoi(error),
              size == nullptr ? 0 : static_cast<std::size_t>(std::atol(size)),
              std::getenv("FAULT_MARK")};
  armed = true;
}

/// Whether this call is the one that fails.
bool fails(std::string_view call) {
  if (!armed || call != settings.call || ++calls != settings.at) return false;
  if (settings.mark != nullptr) {
    const long file =
        ::syscall(SYS_openat, AT_FDCWD, settings.mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ::syscall(SYS_close, file);
  }
  errno = settings.error;
  return true;
}

/// Pipes of a tool's own processes do not fail.
bool is_file(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
}

/// What is left of a write that takes half; 0 where it fails.
std::size_t half_of(std::size_t size) { return settings.error == 0 ? (size + 1) / 2 : 0; }

int open_at(int folder, const char* path, int flags, mode_t mode) {
  if ((flags & O_CREAT) != 0 && fails("create")) return -1;
  return static_cast<int>(::syscall(SYS_openat, folder, path, flags, mode));
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* bytes, std::size_t size) {
  if (fails("write") && (size = half_of(size)) == 0) return -1;
  return ::syscall(SYS_write, file, bytes, size);
}

ssize_t pwrite(int file, const void* bytes, std::size_t size, off_t offset) {
  if (fails("write") && (size = half_of(size)) == 0) return -1;
  return ::syscall(SYS_pwrite64, file, bytes, size, offset);
}
ssize_t pwrite64(int file, const void* bytes, std::size_t size, off_t offset) {
  return pwrite(file, bytes, size, offset);
}

ssize_t read(int file, void* bytes, std::size_t size) {
  if (is_file(file) && fails("read") && (size = half_of(size)) == 0) return -1;
  return ::syscall(SYS_read, file, bytes, size);
}
ssize_t pread(int file, void* bytes, std::size_t size, off_t offset) {
  if (fails("read") && (size = half_of(size)) == 0) return -1;
  return ::syscall(SYS_pread64, file, bytes, size, offset);
}
ssize_t pread64(int file, void* bytes, std::size_t size, off_t offset) {
  return pread(file, bytes, size, offset);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) noexcept {
  if (fails("thread")) return EAGAIN;
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto kCreate = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  return kCreate(thread, attributes, start, argument);
}

int fsync(int file) { return fails("sync") ? -1 : static_cast<int>(::syscall(SYS_fsync, file)); }
int fdatasync(int file) {
  return fails("sync") ? -1 : static_cast<int>(::syscall(SYS_fdatasync, file));
}

int close(int file) {
  const long flags = ::syscall(SYS_fcntl, file, F_GETFL);
  const bool written = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
  const bool failed = written && fails("close");
  const int error = errno;
  const int closed = static_cast<int>(::syscall(SYS_close, file));
  if (!failed) return closed;
  errno = error;
  return -1;
}

int rename(const char* from, const char* to) noexcept {
  if (fails("rename")) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_at(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_at(AT_FDCWD, path, flags, mode);
}

void* mmap(void* address, std::size_t size, int protection, int flags, int file,
           off_t offset) noexcept {
  if (file >= 0 && fails("map")) return MAP_FAILED;
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, address, size, protection, flags, file, offset));
}
void* mmap64(void* address, std::size_t size, int protection, int flags, int file,
             off_t offset) noexcept {
  return mmap(address, size, protection, flags, file, offset);
}

void* malloc(std::size_t size) noexcept {
  return size >= settings.size && fails("allocate") ? nullptr : __libc_malloc(size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return size >= settings.size && fails("allocate") ? nullptr : __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) noexcept {
  if (size >= settings.size && fails("allocate")) return ENOMEM;
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}

}  // extern "C"

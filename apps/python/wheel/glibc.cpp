// What newer C libraries have and that of 2.28 has not, for a module that runs with both.
// wheel/lower_glibc.py, which has the others looked up by their old versions, names what is missing
// here.

#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#ifdef __x86_64__
constexpr int kStatVersion = 1;
#else
constexpr int kStatVersion = 0;
#endif

// The names are the C library's.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {

int __xstat(int version, const char* path, struct stat* status);
int __lxstat(int version, const char* path, struct stat* status);
int __fxstat(int version, int file, struct stat* status);
int __fxstatat(int version, int folder, const char* path, struct stat* status, int flags);

int stat(const char* path, struct stat* status) { return __xstat(kStatVersion, path, status); }
int lstat(const char* path, struct stat* status) { return __lxstat(kStatVersion, path, status); }
int fstat(int file, struct stat* status) { return __fxstat(kStatVersion, file, status); }
int fstatat(int folder, const char* path, struct stat* status, int flags) {
  return __fxstatat(kStatVersion, folder, path, status, flags);
}
// The same on machines with 64 bits.
int fstat64(int file, struct stat64* status) {
  return __fxstat(kStatVersion, file, reinterpret_cast<struct stat*>(status));
}
int stat64(const char* path, struct stat64* status) {
  return __xstat(kStatVersion, path, reinterpret_cast<struct stat*>(status));
}
int lstat64(const char* path, struct stat64* status) {
  return __lxstat(kStatVersion, path, reinterpret_cast<struct stat*>(status));
}

/// Whether no thread was ever started, so that counts need not be atomic. Python may have.
char __libc_single_threaded = 0;

void arc4random_buf(void* bytes, std::size_t size) {
  for (auto* at = static_cast<unsigned char*>(bytes); size > 0;) {
    const ssize_t got = getrandom(at, size, 0);
    if (got < 0 && errno != EINTR) __builtin_trap();
    if (got <= 0) continue;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
}
std::uint32_t arc4random() {
  std::uint32_t value = 0;
  arc4random_buf(&value, sizeof value);
  return value;
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

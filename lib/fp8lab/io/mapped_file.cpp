#include "fp8lab/io/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/special_files.hpp"

namespace fp8lab {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what) {
  throw Error(fmt::format("{}: {}: {}", path.string(), what,
                          std::error_code(errno, std::generic_category()).message()));
}

void read_whole(const std::filesystem::path& path, int file, std::span<std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t count =
        ::pread(file, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path, "cannot be read");
    if (count == 0)
      throw Error(fmt::format("{}: became shorter while it was read: {} of {} bytes", path.string(),
                              at, bytes.size()));
    at += static_cast<std::size_t>(count);
  }
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // Opening a pipe would wait for its other end.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file.is_open()) fail(path, "cannot be opened");
  struct stat status {};
  if (::fstat(file.value(), &status) != 0) fail(path, "cannot be read");
  if (S_ISDIR(status.st_mode)) throw Error(path.string() + ": cannot be read: it is a folder");
  if (!S_ISREG(status.st_mode)) throw Error(path.string() + ": cannot be read: not a regular file");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;
  if (size <= kReadWhole) {
    copy_ = std::make_unique_for_overwrite<std::byte[]>(size);
    read_whole(path, file.value(), {copy_.get(), size});
    bytes_ = {copy_.get(), size};
    return;
  }
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value(), 0);
  if (address == MAP_FAILED) fail(path, "cannot be mapped");
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty() && !copy_) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::release(std::span<const std::byte> part) const {
  if (copy_) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t begin = (first + page - 1) / page * page;
  const std::uintptr_t end = (first + part.size()) / page * page;
  if (begin >= end) return;
  // Only a hint: what it does not give back stays readable all the same.
  auto* const pages = const_cast<std::byte*>(part.data()) + (begin - first);
  (void)::madvise(pages, end - begin, MADV_DONTNEED);
}

}  // namespace fp8lab

#include "fp8lab/io/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <ostream>
#include <streambuf>
#include <string>
#include <system_error>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/output_file.hpp"

namespace fp8lab {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;

/// Follows the last component of `path`, as long as `go_on` allows it.
template <class GoOn>
fs::path follow(fs::path path, const GoOn& go_on) {
  const fs::path asked = path;
  for (int links = 0; go_on(path); ++links) {
    std::error_code error;
    const fs::path target = fs::read_symlink(path, error);
    if (error) return path;
    if (links == kMostLinks)
      throw Error(fmt::format("{}: cannot open: a loop of symbolic links", asked.string()));
    path = path.parent_path() / target;
  }
  return path;
}

bool lies_in_own_descriptors(const fs::path& path) {
  std::error_code error;
  const fs::path folder = fs::canonical(path.parent_path(), error);
  return !error && folder == fmt::format("/proc/{}/fd", ::getpid());
}

}  // namespace

std::optional<int> descriptor_named_by(const fs::path& path) {
  const fs::path last = follow(path, [](const fs::path& p) { return !lies_in_own_descriptors(p); });
  if (!lies_in_own_descriptors(last)) return std::nullopt;
  const std::string name = last.filename().string();
  int descriptor = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), descriptor);
  if (error != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  return descriptor;
}

fs::path follow_links(fs::path path) {
  return follow(std::move(path), [](const fs::path&) { return true; });
}

bool Descriptor::close() {
  const int value = std::exchange(value_, -1);
  // A close that a signal interrupts has closed.
  return value < 0 || ::close(value) == 0 || errno == EINTR;
}

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

namespace {

namespace fs = std::filesystem;

constexpr const char* kProbe = "probe";
constexpr std::size_t kMostOfStream = std::size_t{1} << 30;

[[noreturn]] void fail(std::string_view what, const fs::path& path, int reason) {
  throw Error(fmt::format("{}: cannot {}: {}", path.string(), what,
                          std::error_code(reason, std::generic_category()).message()));
}

/// Collects what is put into a stream and hands it on in large parts.
class OutputBuffer : public std::streambuf {
 public:
  explicit OutputBuffer(OutputFile& file) : file_(file) { start(); }

 protected:
  int_type overflow(int_type c) override {
    sync();
    if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
    return traits_type::not_eof(c);
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    if (size <= epptr() - pptr()) return std::streambuf::xsputn(text, size);
    sync();
    file_.write({text, static_cast<std::size_t>(size)});
    return size;
  }
  int sync() override {
    file_.write({pbase(), static_cast<std::size_t>(pptr() - pbase())});
    start();
    return 0;
  }

 private:
  void start() { setp(buffer_.data(), buffer_.data() + buffer_.size()); }

  OutputFile& file_;
  std::array<char, 1 << 16> buffer_;
};

/// Opens for reading without waiting for a pipe's other end.
int open_input(const fs::path& path) {
  const std::optional<int> own = descriptor_named_by(path);
  return own ? ::fcntl(*own, F_DUPFD_CLOEXEC, 0)
             : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/// Whether `file` is a regular one. Streams are taken from this process's own
/// descriptors only: a pipe that is named may never be written.
bool require_readable(const fs::path& path, const Descriptor& file) {
  struct stat status {};
  if (::fstat(file.value(), &status) != 0) fail("read", path, errno);
  if (S_ISREG(status.st_mode)) return true;
  if (S_ISDIR(status.st_mode))
    throw Error(fmt::format("{}: cannot read: it is a folder", path.string()));
  const bool stream =
      S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) || ::isatty(file.value());
  if (!stream || !descriptor_named_by(path))
    throw Error(fmt::format(
        "{}: cannot read: not a regular file (a pipe can be read as /dev/stdin)", path.string()));
  return false;
}

}  // namespace

std::string read_file(const fs::path& path) {
  const Descriptor file(open_input(path));
  if (!file.is_open()) fail("read", path, errno);
  const std::size_t most = require_readable(path, file) ? std::string::npos : kMostOfStream;
  std::string text;
  struct stat status {};
  if (::fstat(file.value(), &status) == 0 && status.st_size > 0)
    text.reserve(static_cast<std::size_t>(status.st_size) + 1);
  std::array<char, 1 << 16> buffer;
  while (true) {
    const ssize_t count = ::read(file.value(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("read", path, errno);
    if (count == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
    if (text.size() > most)
      throw Error(
          fmt::format("{}: cannot read: more than {} bytes from a stream; write them to a "
                      "file first",
                      path.string(), most));
  }
}

void write_file(const fs::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

void write_file(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  OutputFile file(path);
  OutputBuffer buffer(file);
  std::ostream out(&buffer);
  out.exceptions(std::ios::badbit);  // hands on what the buffer throws
  write(out);
  out.flush();
  if (!out) throw Error(fmt::format("{}: cannot write: the stream failed", path.string()));
  file.commit();
}

void make_writable_folder(const fs::path& folder) {
  require(!folder.empty(), "folder", "the name of a folder", "''");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Error(fmt::format("{}: cannot make this folder: {}", folder.string(), error.message()));
  const OutputFile probe(folder / kProbe);  // never takes its place
}

void require_writable_folder(const fs::path& folder) {
  require(!folder.empty(), "folder", "the name of a folder", "''");
  fs::path there = folder;
  std::error_code error;
  while (!there.empty() && fs::symlink_status(there, error).type() == fs::file_type::not_found)
    there = there.parent_path();
  if (there.empty()) there = ".";
  if (!fs::is_directory(there, error))
    throw Error(fmt::format("{}: cannot make this folder: {} is no folder", folder.string(),
                            there.string()));
  const OutputFile probe(there / kProbe);
}

void require_writable_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const bool is_special =
      fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
  if (is_special || descriptor_named_by(path)) return;
  const OutputFile probe(path);  // never takes its place
}

void require_file_name(std::string_view argument, std::string_view name) {
  const bool plain =
      !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
      });
  require(plain, argument, "letters, digits, '-', '_' and inner dots", fmt::format("'{}'", name));
}

}  // namespace fp8lab

#include "fp8lab/io/files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

[[noreturn]] void fail(std::string_view what, const std::filesystem::path& path) {
  const std::error_code reason(errno, std::generic_category());
  throw Error(fmt::format("{}: cannot {}: {}", path.string(), what,
                          errno == 0 ? "unknown reason" : reason.message()));
}

/// A file beside `path` that is removed on every way out but `become`.
class Temporary {
 public:
  explicit Temporary(const std::filesystem::path& path) : path_(path) { path_ += ".partial"; }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    std::error_code ignored;
    if (!renamed_) std::filesystem::remove(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  void become(const std::filesystem::path& path) {
    std::error_code error;
    std::filesystem::rename(path_, path, error);
    if (error) throw Error(fmt::format("{}: cannot write: {}", path.string(), error.message()));
    renamed_ = true;
  }

 private:
  std::filesystem::path path_;
  bool renamed_ = false;
};

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  errno = 0;
  if (std::filesystem::is_directory(path))
    throw Error(fmt::format("{}: cannot read: it is a folder", path.string()));
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("read", path);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) fail("read", path);
  return text;
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  write_file(path, [&](std::ostream& out) {
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
  });
}

void write_file(const std::filesystem::path& path,
                const std::function<void(std::ostream&)>& write) {
  Temporary temporary(path);
  errno = 0;
  std::ofstream out(temporary.path(), std::ios::binary | std::ios::trunc);
  if (!out) fail("write", path);
  write(out);
  out.close();
  if (!out) fail("write", path);
  temporary.become(path);
}

void make_writable_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw Error(fmt::format("{}: cannot make this folder: {}", folder.string(), error.message()));
  const std::filesystem::path probe = folder / ".fp8lab.probe";
  write_file(probe, "");
  std::filesystem::remove(probe, error);
}

void require_file_name(std::string_view argument, std::string_view name) {
  const bool plain =
      !name.empty() && name.front() != '.' && std::all_of(name.begin(), name.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
      });
  require(plain, argument, "letters, digits, '-', '_' and inner dots", fmt::format("'{}'", name));
}

}  // namespace fp8lab

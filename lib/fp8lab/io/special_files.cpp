#include "fp8lab/io/special_files.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string>
#include <utility>

#include "fp8lab/core/error.hpp"

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

}  // namespace fp8lab

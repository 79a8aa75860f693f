#include "fp8lab/core/machine.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>
#include <string_view>
#include <thread>

#include "build_info.hpp"

namespace fp8lab {
namespace {

/// The rest of the first line of `path` that starts with `key`, without
/// separators and quotes.
std::string value_in(const char* path, std::string_view key) {
  constexpr std::string_view kAround = " \t:=\"";
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const auto first = line.find_first_not_of(kAround, key.size());
    if (first == std::string::npos) return "";
    return line.substr(first, line.find_last_not_of(kAround) - first + 1);
  }
  return "";
}

std::string os_name() {
  utsname kernel{};
  const bool known = uname(&kernel) == 0;
  const std::string system =
      known ? fmt::format("{} {} {}", kernel.sysname, kernel.release, kernel.machine) : "unknown";
  const std::string distribution = value_in("/etc/os-release", "PRETTY_NAME");
  return distribution.empty() ? system : fmt::format("{} ({})", distribution, system);
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cpu = value_in("/proc/cpuinfo", "model name");
  if (machine.cpu.empty()) machine.cpu = "unknown";
  machine.cores = std::thread::hardware_concurrency();
  machine.os = os_name();
#if defined(__clang__)
  machine.compiler = __VERSION__;
#else
  machine.compiler = "GCC " __VERSION__;
#endif
  return machine;
}

std::string build_version() { return kBuildVersion; }
std::string build_git() { return kBuildGit; }

}  // namespace fp8lab

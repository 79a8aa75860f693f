#pragma once
// What every fuzz target stands on. A parser may refuse its input with `Error` and nothing else:
// any other exception, a crash, a hang or a sanitizer's word is a finding.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "fp8lab/core/error.hpp"

/// Defined by each target: parses, and checks what it can about the result.
void parse(std::span<const std::uint8_t> input);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    parse({data, size});
  } catch (const fp8lab::Error&) {
    return 0;
  }
  return 0;
}

inline std::string_view text_of(std::span<const std::uint8_t> input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

/// Ends the process where a property does not hold, so that the input is kept.
inline void expect(bool holds) {
  if (!holds) std::abort();
}

/// A file of this process, in memory where the system has such a folder; removed at its end.
class OwnFile {
 public:
  explicit OwnFile(const std::string& ending) {
    const std::filesystem::path memory = "/dev/shm";
    const auto folder =
        ::access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
    path_ = folder / ("fp8lab_fuzz_" + std::to_string(::getpid()) + ending);
  }
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;
  ~OwnFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  const std::filesystem::path& holding(std::string_view text) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
    return path_;
  }

 private:
  std::filesystem::path path_;
};

/// The input as a file with this ending, the same one in all calls.
inline const std::filesystem::path& as_file(std::span<const std::uint8_t> input,
                                            const std::string& ending) {
  static const OwnFile kFile(ending);
  return kFile.holding(text_of(input));
}

// Runs a target on files and on all files of folders, without libFuzzer: what fuzzing once found
// stays found. Usage: fuzz_corpus_TARGET PATH...

#include <sys/resource.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void run(const std::filesystem::path& path) {
  std::printf("%s\n", path.c_str());
  (void)std::fflush(stdout);
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string text = bytes.str();
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

}  // namespace

int main(int argc, char** argv) {
#ifndef FP8LAB_SANITIZED  // whose shadow is larger than any limit
  const rlimit memory{rlim_t{2} << 30, rlim_t{2} << 30};
  if (::setrlimit(RLIMIT_AS, &memory) != 0) return 2;
#endif
  int files = 0;
  for (int i = 1; i < argc; ++i) {
    const std::filesystem::path path(argv[i]);
    if (std::filesystem::is_regular_file(path)) {
      run(path);
      ++files;
    }
    if (!std::filesystem::is_directory(path)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      run(entry.path());
      ++files;
    }
  }
  if (files > 0) return 0;
  std::printf("expected files, got none\n");
  return 2;
}

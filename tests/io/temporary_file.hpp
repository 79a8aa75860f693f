#pragma once
// A file that lives as long as one test.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("fp8lab_test_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    std::ofstream(path_, std::ios::binary) << text;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

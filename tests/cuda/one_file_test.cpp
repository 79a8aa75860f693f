// What fp8lab-cuda brings along: its archive, its log, and what it says where there is no driver.

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "catch.hpp"
#include "cuda/tool/log.hpp"
#include "cuda/tool/tar.hpp"
#include "fp8lab/core/error.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("fp8lab_one_file_" + std::to_string(getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("a packed folder is what tar unpacks", "[cuda]") {
  const Folder folder;
  const fs::path run = folder.path() / "run";
  const std::string long_name(90, 'x');
  std::string bytes;
  for (int i = 0; i < 1500; ++i) bytes += static_cast<char>(i * 7);
  write(run / "table.csv", "a,b\n1,2\n");
  write(run / "empty.txt", "");
  write(run / "exact.bin", bytes.substr(0, 1024));
  write(run / "mismatches" / (long_name + ".txt"), bytes);
  fs::create_symlink("/etc/passwd", run / "link");
  const fs::path archive = folder.path() / "run.tar";
  CHECK(write_tar(run, archive) == 4);
  CHECK(fs::file_size(archive) % 512 == 0);

  // Another program is the judge.
  const fs::path other = folder.path() / "unpacked";
  fs::create_directories(other);
  const std::string command = "tar -xf '" + archive.string() + "' -C '" + other.string() + "'";
  REQUIRE(std::system(command.c_str()) == 0);
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(other))
    if (entry.is_regular_file()) ++files;
  CHECK(files == 4);
  CHECK(read(other / "run" / "table.csv") == "a,b\n1,2\n");
  CHECK(read(other / "run" / "empty.txt").empty());
  CHECK(read(other / "run" / "exact.bin") == bytes.substr(0, 1024));
  CHECK(read(other / "run" / "mismatches" / (long_name + ".txt")) == bytes);

  const std::string first = read(archive);
  write_tar(run, archive);
  CHECK(read(archive) == first);
}

TEST_CASE("what cannot be packed is named", "[cuda]") {
  const Folder folder;
  CHECK_THROWS_WITH(write_tar(folder.path() / "none", "x.tar"), contains("none"));
  CHECK_THROWS_WITH(write_tar(folder.path(), "x.tar"), contains("files in it"));
  write(folder.path() / "file", "1");
  CHECK_THROWS_WITH(write_tar(folder.path(), folder.path() / "x.tar"), contains("outside"));
  CHECK_THROWS_WITH(write_tar(folder.path(), folder.path() / ".." / "no" / "such" / "x.tar"),
                    contains("cannot be written"));
  write(folder.path() / std::string(120, 'y'), "1");
  CHECK_THROWS_WITH(write_tar(folder.path(), fs::temp_directory_path() / "fp8lab_long.tar"),
                    contains("too long a name"));
  fs::remove(fs::temp_directory_path() / "fp8lab_long.tar");
}

TEST_CASE("the log holds what is printed, by children that crash too", "[cuda]") {
  const Folder folder;
  const fs::path file = folder.path() / "log.txt";
  {
    const Log log(file);
    std::printf("from the parent\n");
    std::fflush(stdout);
    if (fork() == 0) {
      std::fprintf(stderr, "from a child\n");
      kill(getpid(), SIGKILL);
    }
    usleep(200'000);
    std::printf("after it\n");
  }
  CHECK(read(file) == "from the parent\nfrom a child\nafter it\n");
  CHECK_THROWS_WITH(Log(folder.path() / "no" / "log.txt"), contains("log.txt"));
}

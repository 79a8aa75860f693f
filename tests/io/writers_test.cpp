// Two writers of one output, writers that were killed, and outputs that are tried before the work.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/io/operand.hpp"
#include "fp8lab/io/output_file.hpp"
#include "io/temporary.hpp"

using namespace fp8lab;
namespace fs = std::filesystem;

namespace {

/// Does `work` in another process, which is then killed with all that it holds.
void killed_after(const std::function<void()>& work) {
  std::array<int, 2> pipe{};
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    work();
    (void)!::write(pipe[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char done = 0;
  REQUIRE(::read(pipe[0], &done, 1) == 1);
  ::kill(child, SIGKILL);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

}  // namespace

TEST_CASE("output: one process holds a lock at a time, and it leaves nothing", "[io]") {
  const TemporaryFolder folder("lock");
  std::optional<OutputLock> one(folder / "a");
  CHECK(folder.files() == 1);
  CHECK_THROWS_WITH(OutputLock(folder / "a"), contains("a: another process is writing it"));
  CHECK_NOTHROW(OutputLock(folder / "b"));
  fs::create_symlink("a", folder / "link");
  CHECK_THROWS_WITH(OutputLock(folder / "link"), contains("link: another process is writing it"));
  fs::remove(folder / "link");
  one.reset();
  CHECK(folder.files() == 0);
  CHECK_NOTHROW(OutputLock(folder / "a"));
  CHECK(folder.files() == 0);
  CHECK_THROWS_WITH(OutputLock(folder / "none/a"), contains("none/a: cannot write: No such file"));
  CHECK_NOTHROW(OutputLock("/dev/null"));
}

TEST_CASE("output: the lock of a killed process is free", "[io]") {
  const TemporaryFolder folder("killed_lock");
  killed_after([&] { new OutputLock(folder / "a"); });
  CHECK(fs::exists(folder / ".a.lock"));
  {
    const OutputLock again(folder / "a");
    CHECK_THROWS_WITH(OutputLock(folder / "a"), contains("another process"));
  }
  CHECK(folder.files() == 0);
}

TEST_CASE("output: of many that ask for a lock at once one has it", "[io]") {
  const TemporaryFolder folder("locks");
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::atomic<int> held{0};
  const auto ask = [&] {
    for (int i = 0; i < 200; ++i) try {
        const OutputLock lock(folder / "a");
        most = std::max(most.load(), ++inside);
        ++held;
        --inside;
      } catch (const Error&) {
      }
  };
  std::thread other(ask);
  ask();
  other.join();
  CHECK(most == 1);
  CHECK(held > 0);
  CHECK(folder.files() == 0);
}

TEST_CASE("output: what a killed writer left is gone after the next one", "[io]") {
  const TemporaryFolder folder("killed_writer");
  write_text(folder / "a", "old");
  killed_after([&] { (new OutputFile(folder / "a"))->write("half"); });
  killed_after([&] { (new OutputFile(folder / "a"))->finish(); });
  killed_after([&] { new PartialFolder(folder.path(), "results"); });
  CHECK(folder.files() == 3);  // the second removed what the first left
  OutputFile living(folder / "a");
  living.write("living");
  living.finish();
  write_file(folder / "a", "new");
  CHECK(folder.files() == 3);  // the living one's file, and the folder
  living.commit();
  CHECK(read_text(folder / "a") == "living");
  { const PartialFolder again(folder.path(), "results"); }
  CHECK(folder.files() == 1);
}

TEST_CASE("output: a file or folder that cannot be written is told before there is one", "[io]") {
  const TemporaryFolder folder("tried");
  write_text(folder / "file", "x");
  fs::create_directory(folder / "taken");
  CHECK_NOTHROW(require_writable_file(folder / "new"));
  CHECK_NOTHROW(require_writable_file(folder / "file"));
  CHECK_NOTHROW(require_writable_file("/dev/null"));
  CHECK_NOTHROW(require_writable_file("/dev/stdout"));
  CHECK_NOTHROW(require_writable_folder(folder / "one/two/three"));
  CHECK_NOTHROW(require_writable_folder(folder.path()));
  CHECK_THROWS_WITH(require_writable_file(folder / "taken"),
                    contains("taken: cannot write: Is a directory"));
  CHECK_THROWS_WITH(require_writable_file(folder / "file/x"),
                    contains("file/x: cannot write: Not a directory"));
  CHECK_THROWS_WITH(require_writable_file(folder / "none/x"),
                    contains("none/x: cannot write: No such file"));
  CHECK_THROWS_WITH(require_writable_file("/proc/x"), contains("/proc/x: cannot write: "));
  CHECK_THROWS_WITH(require_writable_folder(folder / "file/x"),
                    contains("file/x: cannot make this folder: "));
  CHECK_THROWS_WITH(require_writable_folder("/proc/none/x"), contains("/proc/"));
  CHECK(folder.files() == 2);
  CHECK(read_text(folder / "file") == "x");
}

TEST_CASE("output: a tensor and its sidecar are of one writer", "[io]") {
  const TemporaryFolder folder("pair");
  const auto write = [&](ElementType type, std::uint8_t code) {
    const std::array<std::uint8_t, 1> bytes{code};
    for (int i = 0; i < 100; ++i)
      save_tensor(folder / "d.npy", "d", {type, {1}, std::as_bytes(std::span(bytes)), false});
  };
  for (int round = 0; round < 3; ++round) {
    std::thread other([&] { write(ElementType::e5m2, 0x3c); });
    write(ElementType::e4m3fn, 0x38);
    other.join();
    const Operand last = load_operand((folder / "d.npy").string());
    const bool is_e5m2 = std::to_integer<int>(last.tensor().bytes[0]) == 0x3c;
    CHECK(last.tensor().type == (is_e5m2 ? ElementType::e5m2 : ElementType::e4m3fn));
    CHECK(folder.files() == 2);
  }
}

#include "fp8lab/io/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <ostream>
#include <set>

#include "catch.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/io/operand.hpp"
#include "io/temporary.hpp"
#include "message_of.hpp"

using namespace fp8lab;
namespace fs = std::filesystem;

namespace {

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

}  // namespace

TEST_CASE("output: what is not committed leaves the old file and nothing else", "[io]") {
  const TemporaryFolder folder("output");
  write_text(folder / "a", "old");
  {
    OutputFile file(folder / "a");
    file.write("half");
    file.finish();
    CHECK(folder.files() == 2);
    CHECK(read_text(folder / "a") == "old");
  }
  CHECK(folder.files() == 1);
  CHECK(read_text(folder / "a") == "old");
  CHECK_THROWS_WITH(OutputFile(""), contains("the name of a file"));
  CHECK_THROWS_WITH(OutputFile(folder.path()), contains("cannot write"));
  CHECK_THROWS_WITH(OutputFile(folder / "none/a"), contains("cannot write: No such file"));
}

TEST_CASE("output: two writers of one name do not meet", "[io]") {
  const TemporaryFolder folder("output_two");
  OutputFile one(folder / "a");
  OutputFile two(folder / "a");
  one.write("one, which is longer");
  two.write("two");
  one.commit();
  CHECK(read_text(folder / "a") == "one, which is longer");
  two.commit();
  CHECK(read_text(folder / "a") == "two");
  CHECK(folder.files() == 1);
}

TEST_CASE("output: the mode of a replaced file stays, and links stay links", "[io]") {
  const TemporaryFolder folder("output_mode");
  const mode_t umask_before = ::umask(0027);
  write_file(folder / "new", "x");
  CHECK(mode_of(folder / "new") == 0640);
  for (const mode_t mode : {0600U, 0755U, 0444U, 04755U, 02711U, 01644U}) {
    REQUIRE(::chmod((folder / "new").c_str(), mode) == 0);
    write_file(folder / "new", "y");
    CHECK(mode_of(folder / "new") == mode);
  }
  ::umask(umask_before);
  fs::create_directory(folder / "sub");
  fs::create_symlink("../new", folder / "sub/inner");
  fs::create_symlink("sub/inner", folder / "outer");
  write_file(folder / "outer", "through two links");
  CHECK(fs::is_symlink(folder / "outer"));
  CHECK(fs::is_symlink(folder / "sub/inner"));
  CHECK(read_text(folder / "new") == "through two links");
  fs::create_symlink("loop", folder / "loop");
  CHECK_THROWS_WITH(write_file(folder / "loop", "x"), contains("loop"));
  // A name of the greatest length leaves no room for more.
  const std::string longest(255, 'n');
  write_file(folder / longest, "x");
  CHECK(read_text(folder / longest) == "x");
}

TEST_CASE("output: devices and pipes are written into and stay what they are", "[io]") {
  const TemporaryFolder folder("output_special");
  fs::create_symlink("/dev/null", folder / "null");
  write_file(folder / "null", "x");
  CHECK(fs::is_character_file("/dev/null"));
  fs::create_symlink("/dev/full", folder / "full");
  CHECK_THROWS_WITH(write_file(folder / "full", "x"), contains("No space left"));
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  write_file("/proc/self/fd/" + std::to_string(ends[1]), "piped");
  std::array<char, 16> got{};
  CHECK(::read(ends[0], got.data(), got.size()) == 5);
  ::close(ends[0]);
  ::close(ends[1]);
  CHECK(folder.files() == 2);
}

TEST_CASE("output: large and small parts of a stream come in order", "[io]") {
  const TemporaryFolder folder("output_stream");
  std::string expected;
  for (int i = 0; i < 300; ++i)
    expected +=
        std::string(static_cast<std::size_t>(i * i % 9001), static_cast<char>('a' + i % 26));
  expected += std::string(200'000, '#');
  write_file(folder / "a", [&](std::ostream& out) {
    for (std::size_t at = 0, size = 1; at < expected.size(); at += size, size = size * 3 % 70'001)
      out << std::string_view(expected).substr(at, size) << std::flush;
  });
  CHECK(read_text(folder / "a") == expected);
  write_file(folder / "b", [](std::ostream& out) { out.put('x').put('y'); });
  CHECK(read_text(folder / "b") == "xy");
  CHECK_THROWS_WITH(
      write_file(folder / "b", [](std::ostream& out) { out.setstate(std::ios::failbit); }),
      contains("the stream failed"));
  CHECK(read_text(folder / "b") == "xy");
}

TEST_CASE("output: a folder that may be written and not read takes files", "[io]") {
  const TemporaryFolder folder("output_unreadable");
  constexpr uid_t kNobody = 65534;  // root reads every folder
  const bool root = ::geteuid() == 0;
  const fs::path inside = folder / "inside";
  fs::create_directory(inside);
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  REQUIRE(::chmod(inside.c_str(), 0300) == 0);
  if (root) REQUIRE(::chown(inside.c_str(), kNobody, kNobody) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (root && ::setuid(kNobody) != 0) ::_exit(3);
    try {
      write_file(inside / "a", "whole");
    } catch (const Error&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(::chmod(inside.c_str(), 0700) == 0);
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(read_text(inside / "a") == "whole");
}

TEST_CASE("partial names are gone at the end of a program that a signal ends", "[io]") {
  const TemporaryFolder folder("partial");
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGTERM, SIG_DFL);
    std::signal(SIGHUP, SIG_IGN);
    remove_partials_on_signals();
    OutputFile file(folder / "a");
    file.write("half");
    const PartialFolder results(folder.path(), "results");
    write_text(results.path() / "t.csv", "1\n");
    write_text(results.path() / "u.csv", "2\n");
    ::raise(SIGHUP);  // ignored before, and still
    if (folder.files() == 2) ::raise(SIGTERM);
    ::_exit(1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
  CHECK(folder.files() == 0);
}

TEST_CASE("partial names that killed writers left are removed, and no others", "[io]") {
  const TemporaryFolder folder("abandoned");
  const auto names = [&] {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder.path()))
      found.insert(entry.path().filename().string());
    return found;
  };
  const std::set<std::string> kept{"results",
                                   "results.01234567.partial",
                                   ".results.0123456.partial",
                                   ".results.012345678.partial",
                                   ".results.0123456g.partial",
                                   ".results.0123456F.partial",
                                   ".results.01234567",
                                   ".results.01234567.partia",
                                   ".results.01234567.partial.partial",
                                   ".results.01234567partial",
                                   ".result.01234567.partial",
                                   ".results2.01234567.partial",
                                   ".results..partial",
                                   ".results.partial",
                                   ".other.01234567.partial"};
  for (const std::string& name : kept) write_text(folder / name, "x");
  for (const char* name : {".results.01234567.partial", ".results.89abcdef.partial"})
    write_text(folder / name, "x");
  const fs::path made = partial_name(folder / "results");
  CHECK(made.parent_path() == folder.path());
  fs::create_directory(made);
  write_text(made / "t.csv", "x");
  remove_abandoned_partials(folder.path(), "results");
  CHECK(names() == kept);

  // Of a name that leaves no room for more, the first 200 letters.
  const std::string longest(255, 'n');
  const fs::path cut = partial_name(folder / longest);
  CHECK(cut.filename().string().starts_with(fmt::format(".{:n>200}.", "")));
  write_text(cut, "x");
  CHECK(names().size() == kept.size() + 1);
  remove_abandoned_partials(folder.path(), longest);
  CHECK(names() == kept);
  CHECK_NOTHROW(remove_abandoned_partials(folder / "none", "results"));
}

TEST_CASE("a partial folder has a name of its own and is gone with its object", "[io]") {
  const TemporaryFolder folder("partial_folder");
  const fs::path inside = folder / "a/b";
  fs::path path;
  {
    const PartialFolder partial(inside, "results");
    path = partial.path();
    CHECK(fs::is_directory(path));
    CHECK(path.parent_path() == inside);
    CHECK(path != PartialFolder(inside, "results").path());
    write_text(path / "t.csv", "x");
  }
  CHECK_FALSE(fs::exists(path));
  CHECK(fs::is_directory(inside));
  write_text(folder / "file", "x");
  CHECK_THROWS_WITH(PartialFolder(folder / "file", "results"),
                    contains((folder / "file").string() + ": cannot write there"));
  CHECK(read_text(folder / "file") == "x");
  {
    Partial kept(folder / "kept");
    Partial lost(folder / "lost");
    for (const char* name : {"kept", "lost"}) write_text(folder / name, "x");
    kept.keep();
  }
  CHECK(fs::exists(folder / "kept"));
  CHECK_FALSE(fs::exists(folder / "lost"));
}

TEST_CASE("input: what is not a regular file is refused", "[io]") {
  const TemporaryFolder folder("input");
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  for (const fs::path& path : {folder / "fifo", fs::path("/dev/zero"), fs::path("/dev/null")}) {
    CHECK_THROWS_WITH(read_file(path), contains("not a regular file"));
    CHECK_THROWS_WITH(MappedFile(path), contains("not a regular file"));
  }
  CHECK_THROWS_WITH(read_file(folder.path()), contains("it is a folder"));
  CHECK_THROWS_WITH(MappedFile(folder.path()), contains("it is a folder"));
  CHECK_THROWS_WITH(read_file(folder / "none"), contains("cannot read: No such file"));
  write_text(folder / "text", "text");
  CHECK(read_file(folder / "text") == "text");
}

TEST_CASE("input: a small file is kept as it was read", "[io]") {
  const TemporaryFolder folder("input_kept");
  const std::string text(10'000, 'x');
  write_text(folder / "a", text);
  const MappedFile file(folder / "a");
  file.release(file.bytes());
  write_text(folder / "a", "shorter");
  const auto* bytes = reinterpret_cast<const char*>(file.bytes().data());
  CHECK(std::string(bytes, file.bytes().size()) == text);
}

TEST_CASE("input: a large file is mapped and read again after a release", "[io]") {
  const TemporaryFolder folder("input_mapped");
  const std::string text(MappedFile::kReadWhole + 5, 'x');
  write_text(folder / "a", text);
  const MappedFile file(folder / "a");
  REQUIRE(file.bytes().size() == text.size());
  file.release(file.bytes());
  CHECK(std::all_of(file.bytes().begin(), file.bytes().end(),
                    [](std::byte b) { return b == std::byte{'x'}; }));
}

TEST_CASE("output: a stale sidecar never describes a new tensor", "[io]") {
  const TemporaryFolder folder("output_sidecar");
  const std::vector<std::uint8_t> codes(6, 0x38);
  const auto save = [&](ElementType type, std::vector<std::int64_t> shape) {
    save_tensor(folder / "d.npy", "d",
                view_of(type, std::move(shape), std::span<const std::uint8_t>(codes)));
  };
  save(ElementType::e4m3fn, {2, 3});
  save(ElementType::e5m2, {3, 2});
  const Operand loaded = load_operand(folder / "d.npy");
  CHECK(loaded.tensor().type == ElementType::e5m2);
  CHECK(loaded.tensor().shape == std::vector<std::int64_t>{3, 2});
  save(ElementType::u8, {6});
  CHECK(load_operand(folder / "d.npy").tensor().type == ElementType::u8);
  CHECK(folder.files() == 2);
}

TEST_CASE("checksum: that of zlib", "[io]") {
  CHECK(crc32_text("") == "00000000");
  CHECK(crc32_text("123456789") == "cbf43926");
  const std::array<std::string_view, 3> parts{"1234", "", "56789"};
  CHECK(crc32_text(parts) == "cbf43926");
}

TEST_CASE("checksum: an object that holds its own finds every changed bit", "[io]") {
  const std::string plain = "{\n  \"a\": 1,\n  \"b\": \"text\"\n}\n";
  const std::string whole = with_own_checksum(plain);
  // zlib.crc32(b'{\n  "a": 1,\n  "b": "text"')
  CHECK(whole == "{\n  \"a\": 1,\n  \"b\": \"text\",\n  \"crc32\": \"1f9f2db8\"\n}\n");
  CHECK_NOTHROW(require_own_checksum(whole, "x.json"));
  CHECK_NOTHROW(require_own_checksum(plain, "x.json"));
  CHECK_NOTHROW(require_own_checksum("", "x.json"));
  CHECK_THROWS_AS(with_own_checksum("{}"), Error);
  const std::size_t member = plain.size() - 3;  // where ",\n  "crc32": " begins
  const std::size_t digits = whole.size() - 12;
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    INFO("byte " << bit / 8 << " bit " << bit % 8);
    if (bit / 8 < member || (bit / 8 >= digits && bit / 8 < digits + 8))
      CHECK_THROWS_WITH(require_own_checksum(flipped, "x.json"),
                        contains("x.json: crc32: expected"));
  }
}

TEST_CASE("checksum: a member that stands or is written otherwise is another program's", "[io]") {
  const std::string whole = with_own_checksum("{\n  \"a\": 1\n}\n");
  std::string changed = whole;
  changed[changed.find('1')] = '2';
  CHECK_THROWS_WITH(require_own_checksum(changed, "x.json"), contains("x.json: crc32: expected"));
  const std::string end = "\"\n}\n";
  REQUIRE(changed.ends_with(end));
  const std::string start = changed.substr(0, changed.size() - end.size());
  for (const char* other :
       {"\"\n} ", "\" }\n", "\"\n},", "0\n}\n", "\"}\n", "\"\n}", "\"\n}\n\n", ""}) {
    INFO(other);
    CHECK_NOTHROW(require_own_checksum(start + other, "x.json"));
  }
  for (const char* key :
       {",\n \"crc32\": \"", ",\n  \"crc33\": \"", ";\n  \"crc32\": \"", "\"crc32\": \""})
    CHECK_NOTHROW(
        require_own_checksum(fmt::format("{{\n  \"a\": 2{}00000000{}", key, end), "x.json"));
  // The member alone, and one letter less.
  const std::string member = ",\n  \"crc32\": \"00000000" + end;
  CHECK_NOTHROW(require_own_checksum(member, "x.json"));  // of nothing
  CHECK_NOTHROW(require_own_checksum(member.substr(1), "x.json"));
}

TEST_CASE("output: what is put into a stream keeps its order, whatever its size", "[io]") {
  const TemporaryFolder folder("stream_order");
  constexpr std::size_t kBuffer = 1 << 16;
  std::string expected;
  write_file(folder / "parts.txt", [&](std::ostream& out) {
    char letter = 'a';
    for (const std::size_t size : {kBuffer, std::size_t{3}, kBuffer - 1, std::size_t{5}, kBuffer,
                                   std::size_t{1}, kBuffer + 1, 3 * kBuffer, std::size_t{2}}) {
      const std::string part(size, letter++);
      out << part;
      out.put('.');
      expected += part + ".";
    }
  });
  CHECK(read_file(folder / "parts.txt") == expected);
}

TEST_CASE("output: why a path cannot be written is the system's own reason", "[io]") {
  const TemporaryFolder folder("output_reasons");
  write_text(folder / "file", "x");
  fs::create_directory(folder / "sub");
  fs::create_symlink("none/deeper", folder / "dangling");
  fs::create_symlink("file/inside", folder / "through_file");
  fs::create_symlink("circle", folder / "circle");
  const std::string longest(256, 'n');
  const auto said = [&](const std::string& name) {
    const std::string path = (folder / name).string();
    const std::string text = test::message_of([&] { OutputFile file(path); });
    CHECK(test::message_of([&] { write_file(path, "x"); }) == text);
    return text.starts_with(path + ": ") ? text.substr(path.size() + 2) : text;
  };
  CHECK(said("new") == "accepted");
  CHECK(said("sub") == "cannot write: Is a directory");
  CHECK(said("none/a") == "cannot write: No such file or directory");
  CHECK(said("file/a") == "cannot write: Not a directory");
  CHECK(said("file/a/b") == "cannot write: Not a directory");
  CHECK(said(longest) == "cannot write: File name too long");
  CHECK(said("dangling") == "cannot write: No such file or directory");
  CHECK(said("through_file") == "cannot write: Not a directory");
  CHECK(said("circle/a") == "cannot write: Too many levels of symbolic links");
  CHECK(said("circle") == "cannot open: a loop of symbolic links");
  CHECK(folder.files() == 6);

  // Of files that are read, in whole and mapped, and of folders.
  const auto read = [&](const std::string& name) {
    const std::string path = (folder / name).string();
    const std::string whole = test::message_of([&] { (void)read_file(path); });
    const std::string mapped = test::message_of([&] { const MappedFile file(path); });
    return whole.substr(std::min(path.size(), whole.size())) + "; " +
           mapped.substr(std::min(path.size(), mapped.size()));
  };
  CHECK(read("none/a") ==
        ": cannot read: No such file or directory; : cannot be opened: No such file or directory");
  CHECK(read("file/a") == ": cannot read: Not a directory; : cannot be opened: Not a directory");
  CHECK(read(longest) ==
        ": cannot read: File name too long; : cannot be opened: File name too long");
  CHECK(read("circle/a") ==
        ": cannot read: Too many levels of symbolic links; : cannot be opened: Too many levels of "
        "symbolic links");
  const auto made = [&](const std::string& name) {
    const std::string path = (folder / name).string();
    const std::string text = test::message_of([&] { make_writable_folder(path); });
    const std::string partial = test::message_of([&] { PartialFolder(path, "results"); });
    return text.substr(std::min(path.size(), text.size())) + "; " +
           partial.substr(std::min(path.size(), partial.size()));
  };
  CHECK(made("file/a") ==
        ": cannot make this folder: Not a directory; : cannot write there: Not a directory");
  CHECK(made(longest) ==
        ": cannot make this folder: File name too long; : cannot write there: File name too long");
  CHECK(test::message_of([&] { make_writable_folder(folder / "sub/deep/er"); }) == "accepted");
  CHECK(fs::is_empty(folder / "sub/deep/er"));
  CHECK(test::message_of([] { make_writable_folder(""); }) ==
        "folder: expected the name of a folder, got ''");
}

TEST_CASE("output: a file that is replaced keeps its owner where its writer may give it away",
          "[io]") {
  const TemporaryFolder folder("output_owner");
  constexpr uid_t kNobody = 65534;
  const bool root = ::geteuid() == 0;  // nobody else may
  write_text(folder / "a", "old");
  if (root) REQUIRE(::chown((folder / "a").c_str(), kNobody, kNobody) == 0);
  write_file(folder / "a", "new");
  struct stat status {};
  REQUIRE(::stat((folder / "a").c_str(), &status) == 0);
  CHECK(status.st_uid == (root ? kNobody : ::geteuid()));
  if (root) CHECK(status.st_gid == kNobody);
  CHECK(read_text(folder / "a") == "new");
}

TEST_CASE("partial names are gone by each signal that ends a program, and no others", "[io]") {
  const TemporaryFolder folder("partial_signals");
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::signal(signal, SIG_DFL);
      remove_partials_on_signals();
      OutputFile file(folder / "a");
      // Of a name that was let go another file may have it now.
      { const Partial gone(folder / "kept"); }
      write_text(folder / "kept", "x");
      ::raise(signal);
      ::_exit(1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    INFO("signal " << signal);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == signal));
    CHECK(folder.files() == 1);
    CHECK(read_text(folder / "kept") == "x");
  }
}

TEST_CASE("input: pipes and sockets of this process are read to their ends", "[io]") {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += static_cast<char>('a' + i % 23);
  for (const bool socket : {false, true}) {
    std::array<int, 2> ends{};
    if (socket)
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
    else
      REQUIRE(::pipe(ends.data()) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(ends[0]);
      for (std::size_t at = 0; at < text.size();) {
        const ssize_t count = ::write(ends[1], text.data() + at, text.size() - at);
        if (count <= 0) ::_exit(1);
        at += static_cast<std::size_t>(count);
      }
      ::_exit(0);
    }
    ::close(ends[1]);
    const std::string name = "/proc/self/fd/" + std::to_string(ends[0]);
    INFO("socket " << socket);
    CHECK(read_file(name) == text);
    CHECK_THROWS_WITH(read_file(name + "x"), name + "x: cannot read: No such file or directory");
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
}

TEST_CASE("output: a folder that can be written is left as it was", "[io]") {
  const TemporaryFolder folder("writable_folder");
  write_text(folder / "probe", "mine");
  write_text(folder / ".probe.01234567.partial", "left by a writer that was killed");
  write_text(folder / ".other.01234567.partial", "another one's");
  make_writable_folder(folder.path());
  CHECK(read_text(folder / "probe") == "mine");
  CHECK_FALSE(fs::exists(folder / ".probe.01234567.partial"));
  CHECK(fs::exists(folder / ".other.01234567.partial"));
  CHECK(folder.files() == 2);
}

TEST_CASE("input: a file of the greatest size that is copied does not change any more", "[io]") {
  const TemporaryFolder folder("input_copied");
  write_text(folder / "a", std::string(MappedFile::kReadWhole, 'x'));
  const MappedFile file(folder / "a");
  REQUIRE(file.bytes().size() == MappedFile::kReadWhole);
  {
    std::fstream other(folder / "a", std::ios::in | std::ios::out | std::ios::binary);
    other.put('y');
    other.seekp(-1, std::ios::end);
    other.put('z');
  }
  CHECK(file.bytes().front() == std::byte{'x'});
  CHECK(file.bytes().back() == std::byte{'x'});
}

#include "tool/tar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "fp8lab/core/error.hpp"

namespace fp8lab::cuda {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::uintmax_t kTooLarge = std::uintmax_t{1} << 33;  // eleven octal digits

using Block = std::array<char, kBlock>;

// Fields of a ustar header: where each begins, and how long it is.
struct Field {
  std::size_t at;
  std::size_t size;
};
constexpr Field kName{0, 100};
constexpr Field kMode{100, 8};
constexpr Field kUser{108, 8};
constexpr Field kGroup{116, 8};
constexpr Field kSize{124, 12};
constexpr Field kTime{136, 12};
constexpr Field kSum{148, 8};
constexpr Field kType{156, 1};
constexpr Field kMagic{257, 8};
constexpr Field kPrefix{345, 155};

void put(Block& block, Field field, const std::string& text) {
  std::memcpy(block.data() + field.at, text.data(), text.size());
}
void put_octal(Block& block, Field field, std::uintmax_t value) {
  put(block, field, fmt::format("{:0{}o}", value, field.size - 1));
}

Block header_of(const std::string& name, std::uintmax_t size) {
  std::size_t cut = 0;
  if (name.size() > kName.size) {
    cut = name.rfind('/', kPrefix.size);
    if (cut == std::string::npos || cut == 0 || name.size() - cut - 1 > kName.size)
      throw Error(fmt::format("{}: too long a name for an archive", name));
  }
  if (size >= kTooLarge) throw Error(fmt::format("{}: too large for an archive", name));
  Block block{};
  put(block, kName, cut == 0 ? name : name.substr(cut + 1));
  put(block, kPrefix, name.substr(0, cut));
  put_octal(block, kMode, 0644);
  put_octal(block, kUser, 0);
  put_octal(block, kGroup, 0);
  put_octal(block, kSize, size);
  put_octal(block, kTime, 0);
  put(block, kType, "0");
  put(block, kMagic,
      std::string("ustar\0"
                  "00",
                  8));
  // The sum counts its own field as blanks.
  put(block, kSum, std::string(kSum.size, ' '));
  const auto sum = std::accumulate(
      block.begin(), block.end(), std::uintmax_t{0},
      [](std::uintmax_t total, char byte) { return total + static_cast<unsigned char>(byte); });
  put(block, kSum, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return block;
}

}  // namespace

std::size_t write_tar(const std::filesystem::path& folder, const std::filesystem::path& archive) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(folder)) throw Error("folder", "a folder of recordings", folder.string());
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  require(!files.empty(), "folder", "files in it", folder.string());
  const fs::path inside = fs::weakly_canonical(archive).lexically_relative(fs::canonical(folder));
  require(inside.empty() || *inside.begin() == "..", "output", "a file outside the folder",
          archive.string());

  const fs::path root = fs::canonical(folder).filename();
  std::ofstream out(archive, std::ios::binary);
  for (const fs::path& file : files) {
    const std::uintmax_t size = fs::file_size(file);
    const Block header = header_of((root / file.lexically_relative(folder)).generic_string(), size);
    out.write(header.data(), header.size());
    std::ifstream in(file, std::ios::binary);
    Block block{};
    for (std::uintmax_t left = size; left > 0;) {
      block.fill(0);
      const auto part = static_cast<std::streamsize>(std::min<std::uintmax_t>(left, kBlock));
      if (!in.read(block.data(), part))
        throw Error(fmt::format("{}: cannot be read", file.string()));
      out.write(block.data(), block.size());
      left -= static_cast<std::uintmax_t>(part);
    }
  }
  const Block end{};
  for (int i = 0; i < 2; ++i) out.write(end.data(), end.size());
  out.close();
  if (!out) throw Error(fmt::format("{}: cannot be written", archive.string()));
  return files.size();
}

}  // namespace fp8lab::cuda

#include "terminal.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "lab/plots/text.hpp"

namespace fp8lab::cli {
namespace {

constexpr std::size_t kUsualColumns = 80;
constexpr std::size_t kLeastColumns = 40;
constexpr std::size_t kMostColumns = 1000;

/// How many bytes of `text` its first `columns` take.
std::size_t bytes_of(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  while (end < text.size() && columns > 0) {
    ++end;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
    --columns;
  }
  return end;
}

std::string styled(const char* code, std::string_view text) {
  return shows_colours() ? fmt::format("\033[{}m{}\033[0m", code, text) : std::string(text);
}

}  // namespace

std::size_t columns_of_terminal(std::FILE* stream) {
  winsize size{};
  const int descriptor = ::fileno(stream);
  if (::isatty(descriptor) != 0 && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::max<std::size_t>(size.ws_col, kLeastColumns);
  const char* said = std::getenv("COLUMNS");
  if (said == nullptr) return kUsualColumns;
  const std::string_view text = said;
  std::size_t columns = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && columns > 0 ? std::clamp(columns, kLeastColumns, kMostColumns) : kUsualColumns;
}

bool shows_colours(std::FILE* stream) {
  const char* refused = std::getenv("NO_COLOR");
  if (refused != nullptr && *refused != '\0') return false;
  // mpirun reads what its processes print through terminals of its own.
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr || std::getenv("PMI_RANK") != nullptr)
    return false;
  const char* kind = std::getenv("TERM");
  return ::isatty(::fileno(stream)) != 0 && kind != nullptr && std::string_view(kind) != "dumb";
}

std::string bold(std::string_view text) { return styled("1", text); }
std::string faint(std::string_view text) { return styled("2", text); }

std::vector<std::string> folded(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines;
  for (const std::string& line : wrap(text, columns)) {
    std::string_view rest = line;
    while (columns_of(rest) > columns) {
      const std::size_t bytes = bytes_of(rest, columns);
      lines.emplace_back(rest.substr(0, bytes));
      rest.remove_prefix(bytes);
    }
    lines.emplace_back(rest);
  }
  return lines;
}

std::string paragraph(std::string_view start, std::string_view text, std::size_t columns) {
  const std::size_t indent = columns_of(start);
  std::string out(start);
  bool first = true;
  for (const std::string& line : folded(text, columns - std::min(indent, columns - 1))) {
    if (!first) out += std::string(indent, ' ');
    out += line + "\n";
    first = false;
  }
  return out;
}

}  // namespace fp8lab::cli

#include "training/model_files/amax_trace.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"

namespace fp8lab {
namespace {

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(kBlank) - first + 1));
}

/// Unset where the field is not a number and nothing else.
std::optional<float> number_of(const std::string& field) {
  char* end = nullptr;
  const float number = std::strtof(field.c_str(), &end);
  if (field.empty() || *end != '\0') return std::nullopt;
  return number;
}

}  // namespace

std::vector<TracedAmax> read_amax_trace(const std::filesystem::path& path) {
  std::istringstream lines(read_file(path));
  std::vector<TracedAmax> trace;
  std::string line;
  for (std::int64_t number = 1; std::getline(lines, line); ++number) {
    if (trimmed(line).empty()) continue;
    const std::size_t last = line.rfind(',');
    const std::optional<float> amax =
        number_of(trimmed(last == std::string::npos ? line : line.substr(last + 1)));
    if (!amax && number == 1) continue;
    const std::string where = fmt::format("{}:{}", path.string(), number);
    require(last != std::string::npos && last > 0, where, "MODULE,AMAX", line.substr(0, 60));
    require(amax && std::isfinite(*amax) && *amax >= 0.0F, where, "a finite amax >= 0",
            fmt::format("'{}'", line.substr(last + 1, 40)));
    const std::size_t before = line.rfind(',', last - 1);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    trace.push_back({trimmed(line.substr(begin, last - begin)), *amax, number});
  }
  require(!trace.empty(), path.string(), "lines of MODULE,AMAX", "none");
  return trace;
}

}  // namespace fp8lab

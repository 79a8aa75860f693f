#include "common/trace_file.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/npy.hpp"

namespace fp8lab::experiments {
namespace {

/// The last field of a line, where it is a number and nothing else.
std::optional<float> last_number(const std::string& line) {
  const std::string field = line.substr(line.rfind(',') + 1);
  char* end = nullptr;
  const float number = std::strtof(field.c_str(), &end);
  if (field.empty() || *end != '\0') return std::nullopt;
  return number;
}

[[noreturn]] void refuse(const std::string& place, const std::string& got) {
  throw Error(fmt::format("{}: expected a finite number >= 0, got '{}'", place, got));
}

bool is_magnitude(float x) { return x >= 0.0F && std::isfinite(x); }

std::vector<float> read_text(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw Error(path + ": cannot be opened");
  std::vector<float> trace;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const std::optional<float> value = last_number(line);
    if (!value && number == 1 && !line.empty()) continue;
    if (!value || !is_magnitude(*value))
      refuse(fmt::format("{}:{}", path, number), line.substr(0, 40));
    trace.push_back(*value);
  }
  return trace;
}

}  // namespace

std::vector<float> read_trace(const std::string& path) {
  const bool npy = path.ends_with(".npy");
  std::vector<float> trace = npy ? to_float(NpyFile(path).tensor()) : read_text(path);
  for (std::size_t i = 0; i < trace.size(); ++i)
    if (!is_magnitude(trace[i]))
      refuse(fmt::format("{}: element {}", path, i), fmt::format("{}", trace[i]));
  require(trace.size() >= 2, "file", "at least 2 steps", fmt::format("{}", trace.size()));
  return trace;
}

}  // namespace fp8lab::experiments

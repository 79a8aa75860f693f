#include "train_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"

namespace fp8lab::cli {
namespace {

constexpr std::string_view kRowBegins = R"({"step":)";

/// Whether a line without its end may be one that a run was stopped in.
bool begins_as_a_row(std::string_view line) {
  const std::size_t both = std::min(line.size(), kRowBegins.size());
  return line.substr(0, both) == kRowBegins.substr(0, both);
}

/// Bytes of the lines of `path` that belong to steps before `first_step`. Steps never fall.
std::uintmax_t kept_bytes(const std::string& path, std::int64_t first_step) {
  std::ifstream in(path, std::ios::binary);
  require(in.good(), "--log", "a file that can be read", "'" + path + "'");
  std::uintmax_t kept = 0;
  bool before = true;
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    const bool whole = !in.eof();  // no newline: a run was stopped as it wrote
    nlohmann::json row;
    if (whole) row = parse_if_json<nlohmann::json>(line, path).value_or(nullptr);
    const bool ours =
        whole ? row.is_object() && row.contains("step") && row["step"].is_number_integer()
              : begins_as_a_row(line);
    require(ours, "--log", "a new file or the log of a training run",
            fmt::format("'{}' with another line {}", path, number));
    before = before && whole && row["step"].get<std::int64_t>() < first_step;
    if (before) kept += line.size() + 1;
  }
  return kept;
}

}  // namespace

TrainLog::TrainLog(const std::string& path, std::int64_t first_step) : path_(path) {
  if (path.empty()) return;
  std::error_code failed;
  if (std::filesystem::is_regular_file(path, failed)) {
    const std::uintmax_t kept = kept_bytes(path, first_step);
    if (kept != std::filesystem::file_size(path)) std::filesystem::resize_file(path, kept, failed);
    require(!failed, "--log", "a file that can be written", "'" + path + "'");
  }
  file_.open(path, std::ios::binary | std::ios::app);
  require(file_.good(), "--log", "a file that can be written", "'" + path + "'");
}

void TrainLog::require_good() const {
  require(file_.good(), "--log", "a file that can be written to the end", "'" + path_ + "'");
}

void TrainLog::write(const std::string& rows) {
  if (path_.empty()) return;
  file_ << rows;
  require_good();
}

void TrainLog::flush() {
  if (path_.empty()) return;
  file_.flush();
  require_good();
}

void TrainLog::close() {
  if (path_.empty()) return;
  file_.close();
  require_good();
}

bool TensorTrace::takes(std::int64_t step) const {
  return !path_.empty() && (step == 0 || step == steps_ / 2 || step == steps_ - 1);
}

void TensorTrace::add(std::int64_t step, std::string_view name, const FloatMatrix& x) {
  values_.emplace_back(x.values.begin(), x.values.end());
  tensors_.push_back({fmt::format("step{}/{}", step, name),
                      view_of<float>(ElementType::f32, {x.rows, x.k}, values_.back())});
}

void TensorTrace::close() const {
  if (path_.empty()) return;
  require(!tensors_.empty(), "--trace", "a recipe that casts the operands of its layers", "none");
  write_safetensors(path_, tensors_);
}

}  // namespace fp8lab::cli

#include "train_log.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "fp8lab/core/error.hpp"

namespace fp8lab::cli {
namespace {

/// Bytes of the lines of `path` that belong to steps before `first_step`. Steps never fall.
std::uintmax_t kept_bytes(const std::string& path, std::int64_t first_step) {
  std::ifstream in(path, std::ios::binary);
  require(in.good(), "--log", "a file that can be read", "'" + path + "'");
  std::uintmax_t kept = 0;
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    if (in.eof()) break;  // no newline: the run was stopped as it wrote
    const auto row = nlohmann::json::parse(line, nullptr, false);
    const bool ours = row.is_object() && row.contains("step") && row["step"].is_number_integer();
    require(ours, "--log", "a new file or the log of a training run",
            fmt::format("'{}' with another line {}", path, number));
    if (row["step"].get<std::int64_t>() >= first_step) break;
    kept += line.size() + 1;
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

}  // namespace fp8lab::cli

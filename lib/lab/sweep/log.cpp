#include "lab/sweep/log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/io/output_file.hpp"
#include "lab/experiment/column_json.hpp"

namespace fp8lab {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// `,"crc32":"01234567"}` ends every line.
constexpr std::string_view kChecksumMember = ",\"crc32\":\"";
// A machine that loses power loses at most what finished within this time.
constexpr auto kSyncInterval = std::chrono::seconds(2);
constexpr std::size_t kChecksumSize = kChecksumMember.size() + 8 + 2;

/// The line of a JSON object: the checksum is of its text before `,"crc32"`.
std::string line_of(const Json& json) {
  std::string text = json_text(json);
  text.pop_back();
  return fmt::format("{}{}{}\"}}\n", text, kChecksumMember, crc32_text(text));
}

/// The object of a line without its end, or nothing where the line is damaged.
std::optional<Json> json_of_line(const fs::path& path, std::string_view line) {
  if (line.size() <= kChecksumSize) return std::nullopt;
  const std::string_view text = line.substr(0, line.size() - kChecksumSize);
  if (line.substr(text.size()) != fmt::format("{}{}\"}}", kChecksumMember, crc32_text(text)))
    return std::nullopt;
  std::optional<Json> json = parse_if_json<Json>(line, path.string());
  if (!json || !json->is_object()) return std::nullopt;
  return json;
}

Json json_of(const TableHead& head) {
  return {{"table", head.name}, {"title", head.title}, {"columns", columns_json(head.columns)}};
}

/// What rows call their head.
std::string id_of(const TableHead& head) { return crc32_text(json_text(json_of(head))); }

TableHead head_of(const Json& json) {
  TableHead head{json.at("table"), json.at("title"), {}};
  for (const Json& column : json.at("columns"))
    head.columns.push_back({column.at("name"), column.at("unit"), column.at("description")});
  return head;
}

Json json_of(const PointResult& result) {
  Json json{{"point", result.point}};
  if (!result.error.empty()) {
    json["error"] = result.error;
    return json;
  }
  json["rows"] = Json::object();
  for (std::size_t t = 0; t < result.heads.size(); ++t)
    json["rows"][id_of(result.heads[t])] = result.rows[t];
  return json;
}

[[noreturn]] void throw_system(const fs::path& path, std::string_view doing, int error) {
  throw Error(fmt::format("{}: cannot {}: {}", path.string(), doing, std::strerror(error)));
}

void require_same_identity(const fs::path& path, std::string_view expected, std::string_view got) {
  if (expected == got) return;
  const auto ours = parse_json<Json>(expected, "sweep");
  const auto theirs = parse_json<Json>(got, path.string());
  for (const auto& [key, value] : ours.items()) {
    const Json other = theirs.contains(key) ? theirs[key] : Json();
    if (other != value)
      throw Error(fmt::format("{}: {} of the recorded sweep", path.string(), key), json_text(value),
                  json_text(other));
  }
  throw Error(fmt::format("{}: the recorded sweep", path.string()), json_text(ours),
              json_text(theirs));
}

}  // namespace

std::string serialize(const PointResult& result) {
  Json json = json_of(result);
  json["heads"] = Json::array();
  for (const TableHead& head : result.heads) json["heads"].push_back(json_of(head));
  return json_text(json);
}

PointResult deserialize(std::string_view text) {
  const auto json = parse_json<Json>(text, "sweep: result of a point");
  PointResult result{json.at("point"), {}, {}, json.value("error", "")};
  for (const Json& head : json.at("heads")) {
    result.heads.push_back(head_of(head));
    result.rows.push_back(json.at("rows").at(id_of(result.heads.back())));
  }
  return result;
}

SweepLog::SweepLog(fs::path path, std::string_view identity, std::int64_t points)
    : path_(std::move(path)),
      identity_(identity),
      offsets_(static_cast<std::size_t>(points), std::int64_t{-1}) {}

SweepLog::SweepLog(SweepLog&& other) noexcept
    : path_(std::move(other.path_)),
      identity_(std::move(other.identity_)),
      offsets_(std::move(other.offsets_)),
      heads_(std::move(other.heads_)),
      head_order_(std::move(other.head_order_)),
      damage_(other.damage_),
      done_count_(other.done_count_),
      failed_count_(other.failed_count_),
      end_(other.end_),
      synced_(other.synced_),
      file_(std::exchange(other.file_, -1)) {}

SweepLog::~SweepLog() {
  if (file_ >= 0) ::close(file_);
}

SweepLog SweepLog::create(const fs::path& path, std::string_view identity, std::int64_t points) {
  SweepLog log(path, identity, points);
  log.open(O_RDWR | O_CREAT | O_EXCL);
  log.write_line(
      line_of({{"schema", "fp8lab.sweep-log.1"}, {"sweep", parse_json<Json>(identity, "sweep")}}));
  return log;
}

SweepLog SweepLog::resume(const fs::path& path, std::string_view identity, std::int64_t points) {
  // A first line that was torn says nothing of any point.
  std::error_code ignored;
  if (fs::exists(path) && read_file(path).find('\n') == std::string::npos)
    fs::remove(path, ignored);
  if (!fs::exists(path)) return create(path, identity, points);
  SweepLog log(path, identity, points);
  log.open(O_RDWR);
  log.scan(true);
  return log;
}

SweepLog SweepLog::read(const fs::path& path, std::string_view identity, std::int64_t points) {
  SweepLog log(path, identity, points);
  log.open(O_RDONLY);
  log.scan(false);
  return log;
}

void SweepLog::open(int flags) {
  file_ = ::open(path_.c_str(), flags | O_CLOEXEC, 0644);
  if (file_ < 0) throw_system(path_, "open", errno);
  if ((flags & O_ACCMODE) != O_RDONLY && ::flock(file_, LOCK_EX | LOCK_NB) != 0)
    throw Error(fmt::format("{}: another sweep is writing to it", path_.string()));
}

void SweepLog::scan(bool repair) {
  const std::string text = read_file(path_);
  require_same_identity(path_, identity_, read_identity(path_));
  std::string damaged;
  for (std::size_t start = text.find('\n') + 1; start < text.size();) {
    const std::size_t newline = text.find('\n', start);
    const bool whole = newline != std::string::npos;
    const std::size_t next = whole ? newline + 1 : text.size();
    const std::string_view line = std::string_view(text).substr(start, next - start);
    if (whole && json_of_line(path_, line.substr(0, line.size() - 1))) {
      try {
        take_line(line.substr(0, line.size() - 1), static_cast<std::int64_t>(start));
      } catch (const Json::exception& error) {
        throw Error(fmt::format("{}: byte {}: not a line of a sweep: {}", path_.string(), start,
                                json_reason(error)));
      }
    } else {
      damaged += line;
      if (next == text.size())
        damage_.torn_bytes = static_cast<std::int64_t>(line.size());
      else
        ++damage_.damaged_lines;
    }
    start = next;
  }
  end_ = static_cast<std::int64_t>(text.size()) - damage_.torn_bytes;
  if (!repair || damaged.empty()) return;
  write_file(path_.string() + ".damaged", damaged);
  if (::ftruncate(file_, end_) != 0) throw_system(path_, "cut off its torn end", errno);
}

/// Whether it is a new one.
bool SweepLog::take_head(const TableHead& head) {
  const std::string id = id_of(head);
  const auto [at, added] = heads_.try_emplace(id, head);
  if (added) head_order_.push_back(&at->second);
  return added;
}

void SweepLog::take_line(std::string_view line, std::int64_t offset) {
  const Json json = *json_of_line(path_, line);
  if (json.contains("table")) {
    take_head(head_of(json));
    return;
  }
  const std::int64_t point = json.at("point");
  if (point < 0 || point >= static_cast<std::int64_t>(offsets_.size()))
    throw Error(fmt::format("{}: point", path_.string()),
                fmt::format("0 to {}", offsets_.size() - 1), std::to_string(point));
  std::int64_t& known = offsets_[static_cast<std::size_t>(point)];
  if (known >= 0) {
    if (line_at(known) != line)
      throw Error(
          fmt::format("{}: point {} appears twice, with different results", path_.string(), point));
    return;
  }
  // Rows whose table's head was in a damaged line cannot be told from others.
  if (json.contains("rows"))
    for (const auto& [id, rows] : json["rows"].items())
      if (!heads_.contains(id)) return;
  known = offset;
  ++done_count_;
  if (json.contains("error")) ++failed_count_;
}

void SweepLog::write_line(std::string line) {
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t count = ::pwrite(file_, line.data() + written, line.size() - written,
                                   end_ + static_cast<off_t>(written));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int error = count < 0 ? errno : ENOSPC;
      // Should this fail too, resuming cuts the torn line off.
      [[maybe_unused]] const int ignored = ::ftruncate(file_, end_);
      throw_system(path_, "write", error);
    }
    written += static_cast<std::size_t>(count);
  }
  end_ += static_cast<std::int64_t>(line.size());
}

void SweepLog::append(const PointResult& result) {
  require(!done(result.point), "point", "each point once", std::to_string(result.point));
  for (const TableHead& head : result.heads)
    if (take_head(head)) write_line(line_of(json_of(head)));
  const std::int64_t offset = end_;
  write_line(line_of(json_of(result)));
  offsets_[static_cast<std::size_t>(result.point)] = offset;
  ++done_count_;
  if (!result.error.empty()) ++failed_count_;
  if (std::chrono::steady_clock::now() - synced_ > kSyncInterval) sync();
}

void SweepLog::sync() {
  if (::fdatasync(file_) != 0) throw_system(path_, "write", errno);
  synced_ = std::chrono::steady_clock::now();
}

void SweepLog::close_here() {
  ::close(file_);
  file_ = -1;
}

bool SweepLog::done(std::int64_t point) const {
  require(point >= 0 && point < static_cast<std::int64_t>(offsets_.size()), "point",
          fmt::format("0 to {}", static_cast<std::int64_t>(offsets_.size()) - 1),
          std::to_string(point));
  return offsets_[static_cast<std::size_t>(point)] >= 0;
}

std::string SweepLog::line_at(std::int64_t offset) const {
  std::string line;
  char buffer[4096];
  while (true) {
    const ssize_t count = ::pread(file_, buffer, sizeof buffer, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_system(path_, "read", errno);
    const std::string_view part(buffer, static_cast<std::size_t>(count));
    const auto newline = part.find('\n');
    line += part.substr(0, newline);
    if (newline != std::string_view::npos || count == 0) return line;
    offset += count;
  }
}

PointResult SweepLog::result(std::int64_t point) const {
  require(done(point), "point", "one that is done", std::to_string(point));
  const std::optional<Json> json =
      json_of_line(path_, line_at(offsets_[static_cast<std::size_t>(point)]));
  if (!json) throw Error(fmt::format("{}: changed while it was read", path_.string()));
  PointResult result{point, {}, {}, {}};
  try {
    result.error = json->value("error", "");
    if (json->contains("rows"))
      for (const auto& [id, rows] : (*json)["rows"].items()) {
        result.heads.push_back(heads_.at(id));
        result.rows.push_back(rows);
      }
  } catch (const Json::exception& error) {
    throw Error(fmt::format("{}: point {}: not the result of a point: {}", path_.string(), point,
                            json_reason(error)));
  }
  return result;
}

void SweepLog::sort() {
  Partial sorted(partial_name(path_));
  SweepLog out = create(sorted.path(), identity_, static_cast<std::int64_t>(offsets_.size()));
  for (std::int64_t point = 0; point < static_cast<std::int64_t>(offsets_.size()); ++point)
    if (done(point)) out.append(result(point));
  out.sync();
  if (::rename(sorted.path().c_str(), path_.c_str()) != 0) throw_system(path_, "replace", errno);
  sorted.keep();
  std::swap(file_, out.file_);
  std::swap(offsets_, out.offsets_);
  std::swap(heads_, out.heads_);
  std::swap(head_order_, out.head_order_);
  end_ = out.end_;
}

std::string read_identity(const fs::path& path) {
  const std::string text = read_file(path);
  const std::optional<Json> json = json_of_line(path, text.substr(0, text.find('\n')));
  if (!json || !json->contains("sweep"))
    throw Error(
        fmt::format("{}: the first line is damaged or does not belong to a sweep", path.string()));
  return json_text((*json)["sweep"]);
}

}  // namespace fp8lab

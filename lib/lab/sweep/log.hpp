#pragma once
// The log of a sweep: JSON lines, one per finished point, each with the CRC-32 of its
// text. Each line is appended by one write, so a killed process leaves at most one
// torn line, at the end. Reading detects it, and any other damage.
//
// The log is not a database: people and tools can read the file of a shard, shards
// are merged by their lines, and with one writer appending needs no lock.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/experiment/table.hpp"

namespace fp8lab {

/// The cells of a row, as CSV writes each.
using CsvRow = std::vector<std::string>;

/// A result table at one point, without its rows. Columns may differ between points (such as one
/// column per tile).
struct TableHead {
  std::string name;
  std::string title;
  std::vector<Column> columns;
};

/// The result of one point: the rows of its tables, or the reason of its failure.
struct PointResult {
  std::int64_t point = 0;
  std::vector<TableHead> heads;
  std::vector<std::vector<CsvRow>> rows;  ///< of the table of the same position
  std::string error;                      ///< empty for a point that ran
};

/// A result as text, to send it to the writing process, and its inverse.
std::string serialize(const PointResult& result);
PointResult deserialize(std::string_view text);

/// The state of an existing log.
struct LogDamage {
  std::int64_t torn_bytes = 0;     ///< bytes of a torn last line
  std::int64_t damaged_lines = 0;  ///< other damaged lines; their points run again
};

/// The writer of a log. There must be only one.
class SweepLog {
 public:
  /// Starts a log. `identity` (JSON text) identifies the sweep. Throws `Error` if the
  /// file exists.
  static SweepLog create(const std::filesystem::path& path, std::string_view identity,
                         std::int64_t points);

  /// Continues a log, or starts it if there is none. A torn last line is cut off. All
  /// damaged bytes are stored in `<path>.damaged`. Throws `Error` for another identity
  /// (with the differences), a damaged first line, a point outside the grid, and two
  /// different results of one point.
  static SweepLog resume(const std::filesystem::path& path, std::string_view identity,
                         std::int64_t points);

  /// Reads a log without a change, as `resume` would.
  static SweepLog read(const std::filesystem::path& path, std::string_view identity,
                       std::int64_t points);

  SweepLog(SweepLog&& other) noexcept;
  SweepLog& operator=(SweepLog&&) = delete;
  SweepLog(const SweepLog&) = delete;
  SweepLog& operator=(const SweepLog&) = delete;
  ~SweepLog();

  /// Appends a point. Throws `Error` with the system's reason if it cannot be
  /// written completely; the log does not change then. Every two seconds the log is
  /// flushed to the disk.
  void append(const PointResult& result);

  /// Flushes the log to the disk.
  void sync();

  /// Closes the file in a process that was forked from the writer's.
  void close_here();

  [[nodiscard]] bool done(std::int64_t point) const;
  [[nodiscard]] std::int64_t done_count() const { return done_count_; }
  /// The number of finished points with an error.
  [[nodiscard]] std::int64_t failed_count() const { return failed_count_; }
  /// The heads of all tables, in the order of their first points.
  [[nodiscard]] const std::vector<const TableHead*>& heads() const { return head_order_; }
  [[nodiscard]] const LogDamage& damage() const { return damage_; }

  /// The result of a finished point.
  [[nodiscard]] PointResult result(std::int64_t point) const;

  /// Rewrites the log in the order of points, so that its bytes depend only on the
  /// results. Replaces the file atomically.
  void sort();

 private:
  SweepLog(std::filesystem::path path, std::string_view identity, std::int64_t points);
  void open(int flags);
  void scan(bool repair);
  bool take_head(const TableHead& head);
  void take_line(std::string_view line, std::int64_t offset);
  void write_line(std::string line);
  [[nodiscard]] std::string line_at(std::int64_t offset) const;

  std::filesystem::path path_;
  std::string identity_;
  std::vector<std::int64_t> offsets_;       ///< of each point's line; -1: not done
  std::map<std::string, TableHead> heads_;  ///< by the checksum of their text
  std::vector<const TableHead*> head_order_;
  LogDamage damage_;
  std::int64_t done_count_ = 0;
  std::int64_t failed_count_ = 0;
  std::int64_t end_ = 0;
  std::chrono::steady_clock::time_point synced_ = std::chrono::steady_clock::now();
  int file_ = -1;
};

/// The identity in the first line of a log. Throws `Error` if that is damaged.
std::string read_identity(const std::filesystem::path& path);

}  // namespace fp8lab

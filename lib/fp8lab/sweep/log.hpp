#pragma once
// The log of a sweep: JSON lines, one a finished point, each with the CRC-32 of
// its own text. A line is appended by one write, so a killed process leaves at
// most one torn line, at the end; reading finds it, and any other damage.
//
// Lines rather than a database: a shard is a file that people and tools can
// read, shards merge by their lines, and appending needs no lock but one writer.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/experiment/table.hpp"

namespace fp8lab {

/// The cells of a row, as CSV writes each.
using CsvRow = std::vector<std::string>;

/// What a result table is at one point, without its rows. Columns may differ from point to point
/// (one a tile, say).
struct TableHead {
  std::string name;
  std::string title;
  std::vector<Column> columns;
};

/// What one point gave: the rows of its tables, or why it failed.
struct PointResult {
  std::int64_t point = 0;
  std::vector<TableHead> heads;
  std::vector<std::vector<CsvRow>> rows;  ///< of the table of the same position
  std::string error;                      ///< empty for a point that ran
};

/// Text of a result for sending it to the process that writes; and back.
std::string serialize(const PointResult& result);
PointResult deserialize(std::string_view text);

/// What reading an existing log found.
struct LogDamage {
  std::int64_t torn_bytes = 0;     ///< cut off the end
  std::int64_t damaged_lines = 0;  ///< elsewhere; their points run again
};

/// The one writer of a log.
class SweepLog {
 public:
  /// Starts a log. `identity` (JSON text) says which sweep this is. Throws
  /// `Error` if the file is there already.
  static SweepLog create(const std::filesystem::path& path, std::string_view identity,
                         std::int64_t points);

  /// Goes on with one, or starts it where there is none. A torn tail is cut off;
  /// all damaged bytes are kept beside the log, in `<path>.damaged`. Throws
  /// `Error` for another identity (naming what differs), a damaged first line, a
  /// point outside the grid, and a point twice with different results.
  static SweepLog resume(const std::filesystem::path& path, std::string_view identity,
                         std::int64_t points);

  /// Reads one without changing it: what `resume` would find.
  static SweepLog read(const std::filesystem::path& path, std::string_view identity,
                       std::int64_t points);

  SweepLog(SweepLog&& other) noexcept;
  SweepLog& operator=(SweepLog&&) = delete;
  SweepLog(const SweepLog&) = delete;
  SweepLog& operator=(const SweepLog&) = delete;
  ~SweepLog();

  /// Appends a point. Throws `Error` with the system's reason if it cannot be
  /// written whole; the log is then as before. Every two seconds what is there is
  /// handed to the disk.
  void append(const PointResult& result);

  /// Hands what is written to the disk.
  void sync();

  /// Gives the file up in a process that was forked from the writer's.
  void close_here();

  [[nodiscard]] bool done(std::int64_t point) const;
  [[nodiscard]] std::int64_t done_count() const { return done_count_; }
  /// Of the points that are done: those with an error.
  [[nodiscard]] std::int64_t failed_count() const { return failed_count_; }
  /// The heads of all tables, in the order in which points first had them.
  [[nodiscard]] const std::vector<const TableHead*>& heads() const { return head_order_; }
  [[nodiscard]] const LogDamage& damage() const { return damage_; }
  [[nodiscard]] std::string_view identity() const { return identity_; }

  /// The result of a point that is done.
  [[nodiscard]] PointResult result(std::int64_t point) const;

  /// Rewrites the log in the order of points: bytes that depend on the results
  /// alone. Replaces the file in one step.
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

/// The identity that a log states in its first line. Throws `Error` if that is damaged.
std::string read_identity(const std::filesystem::path& path);

}  // namespace fp8lab

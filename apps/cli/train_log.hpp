#pragma once
// The log of a training run, which a run that goes on continues to the bytes of one that
// never stopped.

#include <cstdint>
#include <fstream>
#include <string>

namespace fp8lab::cli {

class TrainLog {
 public:
  /// No file for an empty path. Of a log that is there, the rows of steps before `first_step` stay
  /// and the others go, a last line that was cut short among them: the run takes those steps again.
  /// Throws `Error` for a file that cannot be written, or whose lines are not those of a log.
  TrainLog(const std::string& path, std::int64_t first_step);

  /// Throws `Error` if what was written so far did not get through.
  void write(const std::string& rows);
  /// To the file: before the checkpoint that counts on these rows.
  void flush();
  void close();

 private:
  void require_good() const;

  std::string path_;
  std::ofstream file_;
};

}  // namespace fp8lab::cli

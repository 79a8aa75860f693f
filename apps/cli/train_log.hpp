#pragma once
// What a training run leaves in files beside its checkpoint: a log, which a run that goes on
// continues to the bytes of one that never stopped, and a trace of its tensors.

#include <cstdint>
#include <deque>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8lab/io/safetensors.hpp"
#include "fp8lab/scaling/quantize.hpp"

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

/// The tensors that the layers of a model cast, before their casts, at three times of a run: its
/// first step, the one in the middle, the last. In a safetensors file they are called
/// stepN/LAYER.ROLE, so experiments read them as FILE#stepN/LAYER.ROLE.
class TensorTrace {
 public:
  /// No file for an empty path.
  TensorTrace(std::string path, std::int64_t steps) : path_(std::move(path)), steps_(steps) {}

  [[nodiscard]] bool takes(std::int64_t step) const;
  void add(std::int64_t step, std::string_view name, const FloatMatrix& x);
  /// Writes the file. Throws `Error` if nothing was cast at the steps that were taken.
  void close() const;

 private:
  std::string path_;
  std::int64_t steps_;
  std::deque<std::vector<float>> values_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace fp8lab::cli

#pragma once
// What a run prints, kept in a file too.

#include <sys/types.h>

#include <filesystem>

namespace fp8lab::cuda {

/// While it lives, what this process and its children print goes to where it went before and into
/// `file`, which it replaces. A process of its own copies it, so that a child that crashes loses
/// nothing. Make it before threads are started. Throws `Error` if the file cannot be written.
class Log {
 public:
  explicit Log(const std::filesystem::path& file);
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log();

 private:
  int stdout_ = -1;
  int stderr_ = -1;
  pid_t copier_ = -1;
};

}  // namespace fp8lab::cuda

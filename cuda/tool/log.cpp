#include "tool/log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "fp8lab/core/error.hpp"

namespace fp8lab::cuda {
namespace {

void write_all(int file, const char* data, ssize_t size) {
  while (size > 0) {
    const ssize_t wrote = write(file, data, static_cast<std::size_t>(size));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;  // that reader is gone; the other one still gets everything
    data += wrote;
    size -= wrote;
  }
}

[[noreturn]] void copy(int from, int screen, int file) {
  // The run ends by a signal, not its record: the end of the pipe ends that.
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE})
    std::signal(signal_number, SIG_IGN);
  char buffer[4096];
  for (;;) {
    const ssize_t size = read(from, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) _exit(0);
    write_all(screen, buffer, size);
    write_all(file, buffer, size);
  }
}

}  // namespace

Log::Log(const std::filesystem::path& file) {
  std::fflush(nullptr);
  const int record = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (record < 0) throw Error(fmt::format("{}: {}", file.string(), std::strerror(errno)));
  int ends[2];
  if (pipe(ends) != 0) throw Error(fmt::format("pipe: {}", std::strerror(errno)));
  stdout_ = dup(STDOUT_FILENO);
  stderr_ = dup(STDERR_FILENO);
  copier_ = fork();
  if (copier_ < 0) throw Error(fmt::format("fork: {}", std::strerror(errno)));
  if (copier_ == 0) {
    close(ends[1]);
    copy(ends[0], stdout_, record);
  }
  dup2(ends[1], STDOUT_FILENO);
  dup2(ends[1], STDERR_FILENO);
  for (const int end : {ends[0], ends[1], record}) close(end);
}

Log::~Log() {
  std::fflush(nullptr);
  dup2(stdout_, STDOUT_FILENO);
  dup2(stderr_, STDERR_FILENO);
  close(stdout_);
  close(stderr_);
  // A child that was left behind may hold the pipe for ever: a second is enough for the rest.
  for (int i = 0; i < 1000; ++i) {
    if (waitpid(copier_, nullptr, WNOHANG) != 0) return;
    usleep(1000);
  }
}

}  // namespace fp8lab::cuda

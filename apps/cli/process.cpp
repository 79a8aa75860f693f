#include "process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "command.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/io/output_file.hpp"
#include "option_text.hpp"
#include "say.hpp"

namespace fp8lab::cli {
namespace {

/// Opens closed descriptors: reading 0 and writing 1 fail, what goes to 2 is lost.
void occupy_standard_descriptors() {
  constexpr int kModes[] = {O_WRONLY, O_RDONLY, O_RDWR};
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF)
      (void)::open("/dev/null", kModes[descriptor]);
}

void complain_from_handler(const char* text) {
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text, std::strlen(text));
}

[[noreturn]] void end_from_handler(const char* text) {
  complain_from_handler(text);
  remove_partials();
  ::_exit(kUsage);
}

[[noreturn]] void end_without_result() {
  end_from_handler("fp8lab: a library ended the process before there was a result\n");
}

void on_bus_error(int) {
  end_from_handler(
      "fp8lab: an input file became shorter, or could not be read, during the command\n");
}

/// A library that aborts, as LLVM's OpenMP does where it finds no memory or thread, has said why.
void on_abort(int) { end_without_result(); }

std::string memory_message() {
  rusage usage{};
  rlimit limit{};
  ::getrusage(RUSAGE_SELF, &usage);
  ::getrlimit(RLIMIT_AS, &limit);
  const std::size_t missing = bytes_missing();
  std::string text =
      missing == 0
          ? fmt::format("not enough memory; {} MiB are in use", usage.ru_maxrss / 1024)
          : fmt::format("not enough memory: {} more bytes were needed at once, with {} MiB in use",
                        missing, usage.ru_maxrss / 1024);
  if (limit.rlim_cur != RLIM_INFINITY)
    text += fmt::format(" (limit of address space: {} MiB)", limit.rlim_cur >> 20);
  return text;
}

std::string message_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::bad_alloc&) {
    return memory_message();
  } catch (const std::length_error&) {
    return "a size is larger than any memory can hold";
  } catch (const nlohmann::json::exception& error) {
    return "JSON of an unexpected form: " + json_reason(error);
  } catch (const Error& error) {
    return in_options(error.what());
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an error of unknown kind";
  }
}

void complain(const std::string& text) { say(stderr, "fp8lab: {}\n", text); }

/// What is thrown on a thread of a parallel loop ends here.
[[noreturn]] void on_terminate() {
  try {
    if (const std::exception_ptr failure = std::current_exception()) complain(message_of(failure));
  } catch (...) {
    end_from_handler("fp8lab: not enough memory\n");
  }
  remove_partials();
  ::_exit(kUsage);
}

std::atomic<bool> exit_is_meant{false};

/// A library that calls exit, as OpenMP's does without threads, must not look like a verdict.
void check_exit() {
  if (!exit_is_meant) end_without_result();
}

void tell_missing_threads() {
  const ThreadShortage missing = thread_shortage();
  if (missing.wanted > 0)
    complain(fmt::format("only {} of {} threads could be started: slower, with the same results",
                         missing.started, missing.wanted));
}

}  // namespace

void prepare_process() {
  std::atexit(check_exit);
  occupy_standard_descriptors();
  remove_partials_on_signals();
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGBUS, on_bus_error);
  std::signal(SIGABRT, on_abort);
  std::set_terminate(on_terminate);
}

int guarded(const std::function<int()>& command) {
  try {
    return command();
  } catch (...) {
    // What failed may be the output itself: that is told when it is finished.
    if (std::ferror(stdout) == 0) complain(message_of(std::current_exception()));
    return kUsage;
  }
}

void keep_exit_code() { exit_is_meant = true; }

int finish_output(int code) {
  tell_missing_threads();
  keep_exit_code();
  errno = 0;
  std::cout.flush();
  const bool whole = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (whole) return code;
  complain(fmt::format("standard output: not all of it could be written{}{}",
                       errno == 0 ? "" : ": ", errno == 0 ? "" : std::strerror(errno)));
  return kUsage;
}

}  // namespace fp8lab::cli

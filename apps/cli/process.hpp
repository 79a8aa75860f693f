#pragma once
// What every command has in common as a process: its streams, its signals, and
// how it ends.

#include <cstddef>
#include <functional>

namespace fp8lab::cli {

/// To be called first. Standard descriptors that are closed fail when they are
/// used, instead of becoming those of the first files opened; a limit on the
/// size of files is an error of the write; signals that end the process remove
/// what is half written; an input that becomes shorter while it is read and
/// errors that leave a thread end it with one line and exit code 2, and so does an
/// exit that no command meant.
void prepare_process();

/// The exit code of `command`, or 2 with one line on stderr for what it throws.
int guarded(const std::function<int()>& command);

/// `code`, or 2 with one line on stderr if not all of the output was written.
int finish_output(int code);

/// What the allocation that failed last had asked for (memory.cpp).
std::size_t bytes_missing();

}  // namespace fp8lab::cli

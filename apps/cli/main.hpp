#pragma once

namespace fp8lab::cli {

/// The command: what a program's `main` does with its arguments, the first of which is its name.
/// Returns the exit code, after which the process must end by `exit`: signals, `std::terminate` and
/// streams are the command's own by then.
int run_command(int argc, char** argv);

}  // namespace fp8lab::cli

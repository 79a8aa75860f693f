// The command, for wheels that bring it: `fp8lab_command` links it and defines FP8LAB_WITH_COMMAND.

#include <csignal>
#include <cstdlib>
#include <string>

#include "bindings.hpp"

#ifdef FP8LAB_WITH_COMMAND
#include "apps/cli/main.hpp"

namespace fp8lab::python {
namespace {

/// Python's handlers are none of the command's, which starts as a program does. One who ignores
/// interrupts, as jobs in the background do, goes on to.
void forget_signals_of_python() {
  if (std::signal(SIGINT, SIG_DFL) == SIG_IGN) std::signal(SIGINT, SIG_IGN);
  std::signal(SIGPIPE, SIG_DFL);
}

/// Runs the command with its arguments, the first of which is its name, and ends the process.
[[noreturn]] void run_command(const nb::list& arguments) {
  std::vector<std::string> texts;
  for (const nb::handle argument : arguments) {
    const auto bytes = nb::cast<nb::bytes>(argument);
    texts.emplace_back(bytes.c_str(), bytes.size());
  }
  std::vector<char*> argv;
  for (std::string& text : texts) argv.push_back(text.data());
  argv.push_back(nullptr);
  forget_signals_of_python();
  std::exit(cli::run_command(static_cast<int>(texts.size()), argv.data()));
}

}  // namespace

void bind_command(nb::module_& m) { m.def("run_command", &run_command, "arguments"_a); }

}  // namespace fp8lab::python
#else
void fp8lab::python::bind_command(nb::module_&) {}
#endif

#include <cctype>
#include <string>
#include <vector>

#include "command.hpp"
#include "expect_command.hpp"
#include "fp8lab/core/error.hpp"
#include "main.hpp"
#include "option_text.hpp"
#include "process.hpp"
#include "reveal_command.hpp"

namespace {

/// The arguments last to first, as CLI11 takes them. A negative number would
/// read as an option; a leading blank makes it a value, and number parsers skip it.
std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> result;
  for (int i = argc - 1; i > 0; --i) {
    const std::string text = argv[i];
    const bool negative = text.size() > 1 && text[0] == '-' &&
                          (std::isdigit(static_cast<unsigned char>(text[1])) != 0 ||
                           text[1] == '.' || text == "-inf" || text == "-nan");
    result.push_back(negative ? " " + text : text);
  }
  return result;
}

/// Options and arguments whose value is empty: none means anything, and ignoring one loses what
/// was asked for (a shell's empty variable, most often).
void require_values(const fp8lab::cli::Command& app) {
  for (const fp8lab::cli::Option* option : app.get_options())
    for (const std::string& value : option->results())
      if (value.empty()) throw fp8lab::Error(option->get_name(), "a value", "''");
  for (const fp8lab::cli::Command* command : app.get_subcommands()) require_values(*command);
}

int parse_and_run(int argc, char** argv) {
  using namespace fp8lab::cli;
  Command app{"fp8lab computes on a CPU, bit for bit, what FP8 hardware computes"};
  app.require_subcommand(1);
  app.set_version_flag("--version", FP8LAB_VERSION);
  Action action;
  add_table(app, action);
  add_cast(app, action);
  add_quantize(app, action);
  add_dequantize(app, action);
  add_check(app, action);
  add_expect(app, action);
  add_layers(app, action);
  add_gemm(app, action);
  add_attn(app, action);
  add_verify(app, action);
  add_identify(app, action);
  add_reveal(app, action);
  add_replay(app, action);
  add_probe_cpu(app, action);
  add_list(app, action);
  add_run(app, action);
  add_sweep(app, action);
  add_merge(app, action);
  add_train(app, action);
  add_claims(app, action);
  add_cost(app, action);
  add_report(app, action);
  add_bench(app, action);
  add_vectors(app, action);
  add_completion(app, action);
  add_manual(app, action);
  add_doctor(app, action);
  add_help(app, action);
  const Parsed parsed = app.parse(arguments(argc, argv));
  if (parsed != Parsed::whole) return parsed == Parsed::help ? kPass : kUsage;
  require_values(app);
  return naming_options(app, action);
}

}  // namespace

int fp8lab::cli::run_command(int argc, char** argv) {
  prepare_process();
  return finish_output(guarded([&] { return parse_and_run(argc, argv); }));
}

#ifndef FP8LAB_COMMAND_IS_A_FUNCTION
int main(int argc, char** argv) { return fp8lab::cli::run_command(argc, argv); }
#endif

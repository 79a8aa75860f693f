#pragma once
// One file a subcommand: each adds itself to the parser and, when chosen,
// leaves what to do in `action`. Commands parse and print; the library computes.

#include <CLI/CLI.hpp>
#include <functional>

namespace fp8lab::cli {

/// Exit codes of every command.
enum ExitCode : int { kPass = 0, kMismatch = 1, kUsage = 2, kNoPower = 3 };

/// Says that the code with which the process now ends is meant. An end without that or without
/// `main` having returned, by a library that calls exit(1) say, becomes `kUsage`.
void keep_exit_code();

/// What the chosen subcommand does; returns an exit code.
using Action = std::function<int()>;

void add_attn(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_cast(CLI::App& app, Action& action);
void add_claims(CLI::App& app, Action& action);
void add_cost(CLI::App& app, Action& action);
void add_dequantize(CLI::App& app, Action& action);
void add_gemm(CLI::App& app, Action& action);
void add_identify(CLI::App& app, Action& action);
void add_layers(CLI::App& app, Action& action);
void add_list(CLI::App& app, Action& action);
void add_merge(CLI::App& app, Action& action);
void add_quantize(CLI::App& app, Action& action);
void add_replay(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_sweep(CLI::App& app, Action& action);
void add_table(CLI::App& app, Action& action);
void add_train(CLI::App& app, Action& action);
void add_vectors(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);

}  // namespace fp8lab::cli

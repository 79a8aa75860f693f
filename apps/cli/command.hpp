#pragma once
// One file a subcommand: each adds itself to the parser and, when chosen,
// leaves what to do in `action`. Commands parse and print; the library computes.

#include <functional>

#include "parser.hpp"

namespace fp8lab::cli {

/// Exit codes of every command.
enum ExitCode : int { kPass = 0, kMismatch = 1, kUsage = 2, kNoPower = 3 };

/// Says that the code with which the process now ends is meant. An end without that or without
/// `main` having returned, by a library that calls exit(1) say, becomes `kUsage`.
void keep_exit_code();

/// What the chosen subcommand does; returns an exit code.
using Action = std::function<int()>;

void add_attn(Command& app, Action& action);
void add_bench(Command& app, Action& action);
void add_cast(Command& app, Action& action);
void add_check(Command& app, Action& action);
void add_claims(Command& app, Action& action);
void add_completion(Command& app, Action& action);
void add_cost(Command& app, Action& action);
void add_dequantize(Command& app, Action& action);
void add_doctor(Command& app, Action& action);
void add_gemm(Command& app, Action& action);
void add_help(Command& app, Action& action);
void add_identify(Command& app, Action& action);
void add_layers(Command& app, Action& action);
void add_list(Command& app, Action& action);
void add_manual(Command& app, Action& action);
void add_merge(Command& app, Action& action);
void add_probe_cpu(Command& app, Action& action);
void add_quantize(Command& app, Action& action);
void add_replay(Command& app, Action& action);
void add_report(Command& app, Action& action);
void add_run(Command& app, Action& action);
void add_sweep(Command& app, Action& action);
void add_table(Command& app, Action& action);
void add_train(Command& app, Action& action);
void add_vectors(Command& app, Action& action);
void add_verify(Command& app, Action& action);

}  // namespace fp8lab::cli

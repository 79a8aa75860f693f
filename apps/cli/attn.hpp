#pragma once
// `attn` for programs that bring backends of their own.

#include <vector>

#include "command.hpp"
#include "fp8lab/gemm/backend.hpp"

namespace fp8lab::cli {

/// The command with `--backend NAME` of `backends`, if there is more than one; the first is the
/// default.
void add_attn(Command& app, Action& action, std::vector<Backend> backends);

}  // namespace fp8lab::cli

#pragma once
// `fp8lab expect`.

#include "command.hpp"

namespace fp8lab::cli {

void add_expect(CLI::App& app, Action& action);

}  // namespace fp8lab::cli

#pragma once
// `fp8lab expect`.

#include "command.hpp"

namespace fp8lab::cli {

void add_expect(Command& app, Action& action);

}  // namespace fp8lab::cli

#pragma once
// `fp8lab reveal`.

#include "command.hpp"

namespace fp8lab::cli {

void add_reveal(Command& app, Action& action);

}  // namespace fp8lab::cli

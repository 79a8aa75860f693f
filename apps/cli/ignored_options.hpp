#pragma once
// Options that would change nothing are errors: who gives one believes that it counts.

#include <span>
#include <string_view>

#include "parser.hpp"

namespace fp8lab::cli {

/// Throws `Error` for an option of a product that is given without the one that it belongs to:
/// tiles without scales, parts of a split without one, a slope without leaky_relu ...
void require_no_ignored_options(const Command& command);

/// Throws `Error` for an option that is given beside `beside` and not among `read`, those that
/// count there.
void require_only(const Command& command, std::string_view beside,
                  std::span<const std::string_view> read);

}  // namespace fp8lab::cli

#pragma once
// What help pages say beside the options: groups and examples. One table for all commands.

#include <span>
#include <string_view>
#include <vector>

namespace fp8lab::cli {

/// The group in which a command's page shows an option (its long name without dashes).
std::string_view group_of_option(std::string_view command, std::string_view option);
/// All groups, in the order of the page.
std::span<const std::string_view> option_groups();

/// The group in which the program's page shows a command.
std::string_view group_of_command(std::string_view command);
std::span<const std::string_view> command_groups();

/// Lines to try, as one types them after `fp8lab `.
std::vector<std::string_view> examples_of(std::string_view command);

}  // namespace fp8lab::cli

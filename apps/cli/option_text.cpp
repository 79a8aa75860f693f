#include "option_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fp8lab/core/argument.hpp"
#include "lab/experiment/result_files.hpp"

namespace fp8lab::cli {
namespace {

std::string dashed(std::string_view name) {
  std::string option(name);
  std::ranges::replace(option, '_', '-');
  return "--" + option;
}

}  // namespace

std::string in_options(std::string_view message) {
  return spell_arguments(message, [](std::string_view name, std::string_view value) {
    return value.empty() ? dashed(name) : fmt::format("{} {}", dashed(name), value);
  });
}

std::string with_option(std::string_view message, const Command& program) {
  const std::size_t end = message.find(": expected ");
  if (end == std::string_view::npos) return std::string(message);
  const std::string_view name = message.substr(0, end);
  std::string option = name == "promotion_interval" ? "--promotion" : dashed(name);
  for (const Command* command : program.get_subcommands())
    if (command->find_option(option) != nullptr) return option.append(message.substr(end));
  return std::string(message);
}

std::string with_list(std::string_view message) {
  constexpr std::pair<std::string_view, std::string_view> kLists[] = {
      {"model", "models"},   {"recipe", "recipes"},   {"call", "calls"},
      {"format", "formats"}, {"profile", "profiles"}, {"experiment", "experiments"}};
  const std::size_t end = message.find(": expected one of ");
  const std::size_t got = message.rfind(", got ");
  const std::size_t names = message.find(" names", end == message.npos ? end : end + 1);
  if (end == message.npos || got == message.npos || names == message.npos || names > got)
    return std::string(message);
  std::string_view argument = message.substr(0, end);
  if (argument.starts_with("--")) argument.remove_prefix(2);
  for (const auto& [name, list] : kLists)
    if (argument == name)
      return fmt::format("{}; `fp8lab list {}` has them{}", message.substr(0, got), list,
                         message.substr(got));
  return std::string(message);
}

std::string shell_command(std::string_view name, const Command& command) {
  std::string text(name);
  for (const Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    if (!option->get_positional()) text += fmt::format(" {}", option->get_name());
    if (option->is_flag()) continue;
    for (const std::string& value : option->results())
      text += fmt::format(" {}", shell_quoted(value));
  }
  return text;
}

}  // namespace fp8lab::cli

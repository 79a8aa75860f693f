#include "option_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/experiment/result_files.hpp"

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

// Pages, completions of shells and the manual, all from the options that commands have.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"
#include "help_texts.hpp"

namespace fp8lab::cli {
namespace {

const Command& command_named(const Command& app, const std::vector<std::string>& words) {
  const Command* command = &app;
  for (const std::string& word : words) {
    const std::vector<const Command*> all = command->all_subcommands();
    std::vector<std::string> names;
    for (const Command* one : all) names.push_back(one->name());
    const auto found = std::ranges::find(names, word);
    if (found == names.end()) {
      const std::vector<std::string_view> views(names.begin(), names.end());
      const std::string expected =
          names.empty()
              ? fmt::format("no more: {} has no subcommands", command->name())
              : fmt::format("one of {}{}", fmt::join(names, ", "), did_you_mean(views, word));
      throw Error("command", expected, fmt::format("'{}'", word));
    }
    command = all[static_cast<std::size_t>(found - names.begin())];
  }
  return *command;
}

/// An option or an argument of a command, as completions and the manual need it.
std::vector<std::string> options_of(const Command& command) {
  std::vector<std::string> names{"--help"};
  for (const Option* option : command.get_options())
    for (const std::string& name : option->names()) names.push_back(name);
  return names;
}

/// Which list has the values of an option, or of the arguments of a command.
struct Completed {
  std::string_view words;  ///< options, or commands
  std::string_view kind;
};
constexpr Completed kOptionValues[] = {{"--model --qk-model --pv-model", "models"},
                                       {"--recipe", "recipes"},
                                       {"--call", "calls"},
                                       {"--format --dtype --dtype-b --out-dtype --cast", "formats"},
                                       {"--profile", "profiles"}};
constexpr Completed kArguments[] = {{"run sweep", "experiments"}, {"table", "formats"}};
constexpr std::string_view kListKinds =
    "formats profiles recipes models accumulators parameters calls experiments";

std::string alternatives(std::string_view words) {
  std::string out(words);
  std::ranges::replace(out, ' ', '|');
  return out;
}

/// Cases of the bash and zsh functions: `PATTERN) COMMAND ;;`.
std::string value_cases(std::string_view indent) {
  std::string text;
  for (const Completed& one : kOptionValues)
    text += fmt::format("{}{}) _fp8lab_names {}; return ;;\n", indent, alternatives(one.words),
                        one.kind);
  return text;
}

std::string argument_cases(std::string_view indent) {
  std::string text;
  for (const Completed& one : kArguments)
    text += fmt::format("{}{}) _fp8lab_names {}; return ;;\n", indent, alternatives(one.words),
                        one.kind);
  return text;
}

std::string names_of_commands(const Command& app) {
  std::vector<std::string> names;
  for (const Command* command : app.all_subcommands()) names.push_back(command->name());
  return fmt::format("{}", fmt::join(names, " "));
}

std::string bash_completion(const Command& app) {
  std::string text = R"(# Completions of fp8lab for bash, from `fp8lab completion bash`.
_fp8lab_names() {
  local names
  names=$(fp8lab list "$1" --csv 2>/dev/null | tail -n +2 | cut -d, -f1 | sort -u)
  COMPREPLY=($(compgen -W "$names" -- "$cur"))
}
_fp8lab() {
  local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}
  COMPREPLY=()
)";
  text += fmt::format("  local commands=\"{}\"\n", names_of_commands(app));
  text +=
      "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"$commands --help --version\" -- \"$cur\"))\n    return\n  "
      "fi\n";
  text += "  case $before in\n" + value_cases("    ") + "  esac\n";
  text += "  if [ \"${cur:0:1}\" != - ]; then\n    case $command in\n" + argument_cases("      ");
  text += fmt::format("      list) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return ;;\n",
                      kListKinds);
  text += "      help) COMPREPLY=($(compgen -W \"$commands\" -- \"$cur\")); return ;;\n";
  for (const Command* command : app.all_subcommands())
    if (!command->all_subcommands().empty())
      text += fmt::format("      {}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return ;;\n",
                          command->name(), names_of_commands(*command));
  text += "    esac\n    COMPREPLY=($(compgen -f -- \"$cur\"))\n    return\n  fi\n";
  text += "  local options=--help\n  case $command in\n";
  for (const Command* command : app.all_subcommands())
    text += fmt::format("    {}) options=\"{}\" ;;\n", command->name(),
                        fmt::join(options_of(*command), " "));
  return text +
         "  esac\n  COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n}\n"
         "complete -o filenames -F _fp8lab fp8lab\n";
}

/// `text` between single quotes of a shell. fish has another way to write a quote.
std::string quoted(std::string_view text, std::string_view quote) {
  std::string out = "'";
  for (const char c : text)
    if (c == '\'')
      out += quote;
    else
      out += c;
  return out + "'";
}

/// "name:what it is", for zsh.
std::string described(const std::string& name, const std::string& what) {
  std::string text;
  for (const char c : name) {
    if (c == ':') text += '\\';
    text += c;
  }
  return quoted(text + ":" + what, "'\\''");
}

std::string zsh_completion(const Command& app) {
  std::string text = R"zsh(#compdef fp8lab
# Completions of fp8lab for zsh, from `fp8lab completion zsh`.
_fp8lab_names() {
  local -a names
  names=(${(f)"$(fp8lab list $1 --csv 2>/dev/null | tail -n +2 | cut -d, -f1 | sort -u)"})
  compadd -a names
}
_fp8lab() {
  local -a commands options
  commands=(
)zsh";
  for (const Command* command : app.all_subcommands())
    text += fmt::format("    {}\n", described(command->name(), command->description()));
  text += "  )\n  if (( CURRENT == 2 )); then _describe command commands; return; fi\n";
  text += "  case ${words[CURRENT-1]} in\n" + value_cases("    ") + "  esac\n";
  text += "  if [[ ${words[CURRENT]} != -* ]]; then\n    case ${words[2]} in\n" +
          argument_cases("      ");
  text += fmt::format("      list) compadd {}; return ;;\n", kListKinds);
  text +=
      "      help) _describe command commands; return ;;\n    esac\n    _files\n    return\n  fi\n";
  text += "  case ${words[2]} in\n";
  for (const Command* command : app.all_subcommands()) {
    text += fmt::format("    {}) options=(\n", command->name());
    for (const Option* option : command->get_options())
      for (const std::string& name : option->names())
        text += fmt::format("      {}\n", described(name, option->description()));
    text += "    ) ;;\n";
  }
  return text +
         "  esac\n  _describe option options\n}\n"
         "if [ \"$funcstack[1]\" = _fp8lab ]; then _fp8lab \"$@\"; else compdef _fp8lab fp8lab; "
         "fi\n";
}

std::string fish_completion(const Command& app) {
  constexpr std::string_view kQuote = "\\'";
  std::string text =
      "# Completions of fp8lab for fish, from `fp8lab completion fish`.\n"
      "function __fp8lab_names\n"
      "  fp8lab list $argv[1] --csv 2>/dev/null | tail -n +2 | cut -d, -f1 | sort -u\n"
      "end\n";
  for (const Command* command : app.all_subcommands())
    text += fmt::format("complete -c fp8lab -n __fish_use_subcommand -f -a {} -d {}\n",
                        command->name(), quoted(command->description(), kQuote));
  for (const Completed& one : kArguments)
    text += fmt::format(
        "complete -c fp8lab -n '__fish_seen_subcommand_from {}' -a '(__fp8lab_names {})'\n",
        one.words, one.kind);
  text += fmt::format("complete -c fp8lab -n '__fish_seen_subcommand_from list' -f -a '{}'\n",
                      kListKinds);
  text += fmt::format("complete -c fp8lab -n '__fish_seen_subcommand_from help' -f -a '{}'\n",
                      names_of_commands(app));
  for (const Command* command : app.all_subcommands())
    for (const Option* option : command->get_options())
      for (const std::string& name : option->names()) {
        const bool is_long = name.starts_with("--");
        std::string line =
            fmt::format("complete -c fp8lab -n '__fish_seen_subcommand_from {}' -{} {} -d {}",
                        command->name(), is_long ? "l" : "s", name.substr(is_long ? 2 : 1),
                        quoted(option->description(), kQuote));
        for (const Completed& one : kOptionValues)
          if (fmt::format(" {} ", one.words).find(fmt::format(" {} ", name)) != std::string::npos)
            line += fmt::format(" -x -a '(__fp8lab_names {})'", one.kind);
        text += line + "\n";
      }
  return text;
}

/// `text` for a line of roff, which may be broken behind the commas of a list without blanks.
std::string roff(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\')
      out += "\\e";
    else if (c == ',' && i + 1 < text.size() && text[i + 1] != ' ')
      out += ",\\:";
    else if (c == '-')
      out += "\\-";
    else if (c == '\n')
      out += ' ';
    else
      out += c;
  }
  if (out.starts_with(".") || out.starts_with("'")) out.insert(0, "\\&");
  return out;
}

std::string manual_of(const Command& command, const std::string& name) {
  std::string text = fmt::format(".SS {}\n{}\n", roff(name), roff(command.description()));
  for (const Option* option : command.get_options()) {
    const std::vector<std::string> names = option->names();
    const std::string left =
        names.empty() ? option->get_name() : fmt::format("{}", fmt::join(names, ", "));
    text += fmt::format(".TP\n.B {}\n{}\n", roff(left), roff(option->description()));
  }
  for (const std::string_view example : examples_of(command.name()))
    text += fmt::format(".PP\n.EX\n{}\n.EE\n", roff(fmt::format("fp8lab {}", example)));
  for (const Command* one : command.all_subcommands())
    text += manual_of(*one, fmt::format("{} {}", name, one->name()));
  return text;
}

std::string manual(const Command& app) {
  std::string text = fmt::format(
      ".TH FP8LAB 1 \"\" \"fp8lab {}\"\n.ad l\n.SH NAME\nfp8lab \\- {}\n.SH SYNOPSIS\n.B fp8lab\n"
      ".I COMMAND\n[OPTIONS]\n.SH COMMANDS\n",
      FP8LAB_VERSION, roff(app.description()));
  for (const std::string_view group : command_groups())
    for (const Command* command : app.all_subcommands())
      if (group_of_command(command->name()) == group) text += manual_of(*command, command->name());
  text +=
      ".SH EXIT STATUS\n0 pass; 1 mismatch or failed check; 2 usage or bad input; 3 a check that "
      "wrong outputs would pass too.\n";
  text +=
      ".SH ENVIRONMENT\n.TP\n.B FP8LAB_TARGET\nvector instructions to use: scalar, avx2, avx512 "
      "or neon\n.TP\n.B FP8LAB_PYTHON\nPython with vl\\-convert\\-python, which draws files of "
      "plots\n.TP\n.B NO_COLOR\nno colours on terminals\n.TP\n.B COLUMNS\nwidth of texts where "
      "standard output is no terminal\n";
  return text;
}

}  // namespace

void add_help(Command& app, Action& action) {
  auto words = std::make_shared<std::vector<std::string>>();
  Command* command = app.add_subcommand("help", "Show the page of a command");
  command->add_option("COMMAND", *words, "a command; nothing: the page of fp8lab");
  command->callback([words, &action, &app] {
    action = [words, &app] {
      fmt::print("{}", command_named(app, *words).help());
      return kPass;
    };
  });
}

void add_completion(Command& app, Action& action) {
  auto shell = std::make_shared<std::string>();
  Command* command = app.add_subcommand("completion",
                                        "Print a shell's completions of commands, "
                                        "options and names");
  command->add_option("SHELL", *shell, "shell")->required()->check(one_of({"bash", "zsh", "fish"}));
  command->callback([shell, &action, &app] {
    action = [shell, &app] {
      fmt::print("{}", *shell == "bash"  ? bash_completion(app)
                       : *shell == "zsh" ? zsh_completion(app)
                                         : fish_completion(app));
      return kPass;
    };
  });
}

void add_manual(Command& app, Action& action) {
  Command* command = app.add_subcommand("manual", "Print the manual page, for man");
  command->callback([&action, &app] {
    action = [&app] {
      fmt::print("{}", manual(app));
      return kPass;
    };
  });
}

}  // namespace fp8lab::cli

#include "parser.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

#include "fp8lab/core/names.hpp"
#include "fp8lab/core/printable.hpp"
#include "help_texts.hpp"
#include "terminal.hpp"

namespace fp8lab::cli {

Check::Check(const CLI::Validator& validator)
    : validator_(std::make_shared<const CLI::Validator>(validator)) {}

namespace {

/// Nothing where the text is no such number.
template <class T>
std::optional<T> number_in(const std::string& text) {
  T value{};
  return CLI::detail::lexical_cast(text, value) ? std::optional<T>(value) : std::nullopt;
}

/// NaN is in no range.
template <class T>
Check in_range(T least, T most) {
  const std::string error = fmt::format(
      "expected {} in [{}, {}]", std::is_integral_v<T> ? "an integer" : "a number", least, most);
  return Check(CLI::Validator(
      [=](const std::string& text) {
        const std::optional<T> value = number_in<T>(text);
        if (value && *value >= least && *value <= most) return std::string();
        return fmt::format("{}, got '{}'", error, CLI::detail::trim_copy(text));
      },
      CLI::Range(least, most).get_description()));
}

template <class T>
struct ValueOf {
  using Type = T;
};
template <class T>
struct ValueOf<std::optional<T>> {
  using Type = T;
};
template <class T>
constexpr bool kIsInteger =
    std::is_integral_v<typename ValueOf<T>::Type> && !std::is_same_v<T, bool>;
template <class T>
constexpr bool kIsUnsigned = std::is_unsigned_v<typename ValueOf<T>::Type>;

/// The parser takes 010 for 8 and -1 for 2^64 - 1.
Check plain_integer(bool is_unsigned) {
  return Check(CLI::Validator(
      [is_unsigned](const std::string& given) {
        std::string text = CLI::detail::trim_copy(given);
        const bool has_sign = text.starts_with('-') || text.starts_with('+');
        if (is_unsigned && text.starts_with('-'))
          return fmt::format("expected an integer from 0 on, got '{}'", text);
        const std::string digits = has_sign ? text.substr(1) : text;
        const bool octal = digits.size() > 1 && digits[0] == '0' &&
                           std::isdigit(static_cast<unsigned char>(digits[1])) != 0;
        return octal ? fmt::format("expected an integer without zeros in front, got '{}'", text)
                     : std::string();
      },
      ""));
}

/// "Could not convert: --option = text" does not say what is expected.
CLI::ConversionError in_our_words(const CLI::ConversionError& error) {
  const std::string said = error.what();
  const std::string start = "Could not convert: ";
  const std::size_t equals = said.find(" = ");
  if (!said.starts_with(start) || equals == std::string::npos) return error;
  return CLI::ConversionError(
      fmt::format("{}: expected a number of the type that --help shows, got '{}'",
                  said.substr(start.size(), equals - start.size()), said.substr(equals + 3)),
      CLI::ExitCodes::ConversionError);
}

/// The subcommand that was chosen, or one of its own.
const CLI::App* chosen_of(const CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().back();
  return app;
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::vector<std::string> names_of_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string meant(const std::vector<std::string>& names, const std::string& given) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  return did_you_mean(views, given);
}

/// What was typed that no command or option takes, in the words of errors; empty if nothing.
std::string not_taken(const CLI::App& app) {
  const CLI::App* chosen = chosen_of(&app);
  for (const std::string& given : app.remaining(true)) {
    const std::string name = given.substr(0, given.find('='));
    if (given.starts_with("-"))
      return fmt::format("option: expected one of {}{}, got '{}'", chosen->get_name(),
                         meant(names_of_options(*chosen), name), name);
    const std::vector<std::string> commands = names_of_commands(*chosen);
    if (!commands.empty())
      return fmt::format("command: expected one of {}{}, got '{}'", fmt::join(commands, ", "),
                         meant(commands, given), given);
    return fmt::format("argument: expected no more for {}, got '{}'", chosen->get_name(), given);
  }
  return "";
}

/// An error holds what was typed, or where an argument came from.
Parsed told(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error) == 0 ? Parsed::help : Parsed::error;
  const std::string extra = not_taken(app);
  app.exit(CLI::ParseError(printable(extra.empty() ? error.what() : extra), error.get_exit_code()));
  return Parsed::error;
}

constexpr std::size_t kNameColumns = 26;  ///< columns of the names of options
constexpr std::size_t kCommandColumns = 14;
constexpr std::size_t kFewOptions = 6;  ///< options that need no groups

/// "INT in [1 - 4096]" of "INT:INT in [1 - 4096]": the type, and what values it takes.
std::pair<std::string, std::string> type_and_range(const CLI::Option& option) {
  const std::string both = option.get_type_name();
  const std::size_t colon = both.find(':');
  std::string range = colon == std::string::npos ? "" : both.substr(colon + 1);
  const std::string type = both.substr(0, colon);
  if (range.starts_with(type + " ")) range.erase(0, type.size() + 1);
  return {type, range};
}

/// `--name TYPE`, or the name alone for flags and arguments.
std::string left_of(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name();
  std::vector<std::string> all;
  for (const std::string& name : option.get_snames()) all.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) all.push_back("--" + name);
  const std::string names = fmt::format("{}", fmt::join(all, ", "));
  const bool flag = option.get_expected_min() == 0 && option.get_type_size() == 0;
  const std::string type = type_and_range(option).first;
  if (flag || type.empty() || option.get_items_expected_max() == 0) return names;
  return fmt::format("{} {}", names, type);
}

std::string right_of(const CLI::Option& option) {
  std::string text = option.get_description();
  const std::string range = type_and_range(option).second;
  std::vector<std::string> notes;
  if (option.get_required()) notes.emplace_back("required");
  if (!range.empty()) notes.push_back(range);
  if (!option.get_default_str().empty()) notes.push_back("default: " + option.get_default_str());
  if (!notes.empty()) text += fmt::format(" [{}]", fmt::join(notes, "; "));
  return text;
}

/// A name with what it is, which begins on the next line if the name is too long.
std::string entry(const std::string& left, std::size_t room, const std::string& right,
                  std::size_t columns) {
  const std::string start = fmt::format("  {:<{}}", left, room - 2);
  if (left.size() + 4 <= room) return paragraph(start, right, columns);
  return "  " + left + "\n" + paragraph(std::string(room, ' '), right, columns);
}

/// The page of a program or a command, in lines as wide as the terminal at most.
class HelpPage : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode /*mode*/) const override {
    const std::size_t columns = std::min<std::size_t>(columns_of_terminal(), 100);
    const CLI::App* top = app;
    while (top->get_parent() != nullptr) top = top->get_parent();
    std::string text = paragraph("", app->get_description(), columns);
    text += "\n" + paragraph(bold("Usage:") + " ", usage(*app, name), columns);
    text += arguments(*app, columns) + options(*app, columns) + commands(*app, name, columns);
    const std::vector<std::string_view> examples = examples_of(app->get_name());
    if (!examples.empty() && app->get_parent() == top) {
      text += "\n" + bold("Examples:") + "\n";
      for (const std::string_view line : examples)
        text += paragraph("  ", fmt::format("{} {}", top->get_name(), line), columns);
    }
    return text;
  }

 private:
  using Options = std::vector<const CLI::Option*>;

  static std::string usage(const CLI::App& app, const std::string& name) {
    std::string text = name;
    if (!names_of_commands(app).empty()) text += " COMMAND";
    for (const CLI::Option* option : positionals(app)) {
      const std::string many = option->get_expected_max() > 1 ? "..." : "";
      const std::string argument = option->get_name() + many;
      text += option->get_required() ? " " + argument : fmt::format(" [{}]", argument);
    }
    return text + " [OPTIONS]";
  }

  static Options positionals(const CLI::App& app) {
    return app.get_options([](const CLI::Option* o) { return o->get_positional(); });
  }

  static std::string arguments(const CLI::App& app, std::size_t columns) {
    const Options all = positionals(app);
    if (all.empty()) return "";
    std::string text = "\n" + bold("Arguments:") + "\n";
    for (const CLI::Option* option : all)
      text += entry(left_of(*option), kNameColumns, right_of(*option), columns);
    return text;
  }

  static std::string options(const CLI::App& app, std::size_t columns) {
    const Options all = app.get_options([](const CLI::Option* o) { return !o->get_positional(); });
    std::string text;
    for (const std::string_view group : option_groups()) {
      std::string entries;
      for (const CLI::Option* option : all) {
        const auto& names = option->get_lnames();
        const std::string_view own =
            all.size() <= kFewOptions
                ? option_groups().back()
                : group_of_option(app.get_name(), names.empty() ? "" : names.front());
        if (own == group)
          entries += entry(left_of(*option), kNameColumns, right_of(*option), columns);
      }
      if (!entries.empty())
        text += fmt::format("\n{}\n{}", bold(fmt::format("{}:", group)), entries);
    }
    return text;
  }

  static std::string commands(const CLI::App& app, const std::string& name, std::size_t columns) {
    const auto all = app.get_subcommands([](const CLI::App*) { return true; });
    if (all.empty()) return "";
    std::string text;
    for (const std::string_view group : command_groups()) {
      std::string entries;
      for (const CLI::App* command : all)
        if (group_of_command(command->get_name()) == group || app.get_parent() != nullptr)
          entries +=
              entry(command->get_name(), kCommandColumns, command->get_description(), columns);
      if (entries.empty()) continue;
      const bool grouped = app.get_parent() == nullptr;
      text += fmt::format("\n{}\n{}", bold(grouped ? std::string(group) : "Subcommands:"), entries);
      if (!grouped) break;
    }
    return text + "\n" +
           paragraph("", fmt::format("`{} COMMAND --help` says more.", name), columns);
  }
};

}  // namespace

Check between(int least, int most) { return in_range(least, most); }
Check between(std::int64_t least, std::int64_t most) { return in_range(least, most); }
Check between(double least, double most) { return in_range(least, most); }

Check one_of(std::initializer_list<std::string> names) {
  const std::vector<std::string> known(names);
  return Check(CLI::Validator(
      [known](const std::string& text) {
        if (std::ranges::find(known, text) != known.end()) return std::string();
        return fmt::format("expected {}{}, got '{}'", fmt::join(known, ", "), meant(known, text),
                           text);
      },
      fmt::format("{{{}}}", fmt::join(known, ","))));
}

Check above_zero() {
  return Check(CLI::Validator(
      [](const std::string& text) {
        const std::optional<double> value = number_in<double>(text);
        if (value && *value > 0.0 && std::isfinite(*value)) return std::string();
        return fmt::format("expected a finite number above 0, got '{}'",
                           CLI::detail::trim_copy(text));
      },
      CLI::PositiveNumber.get_description()));
}

Option* Option::required() {
  option_->required();
  return this;
}

Option* Option::check(const Check& check) {
  option_->check(check.validator());
  return this;
}

Option* Option::check(const std::function<std::string(const std::string&)>& error_of) {
  option_->check(error_of);
  return this;
}

Option* Option::expected(int count) {
  option_->expected(count);
  return this;
}

Option* Option::expected(int least, int most) {
  option_->expected(least, most);
  return this;
}

Option* Option::allow_extra_args(bool allow) {
  option_->allow_extra_args(allow);
  return this;
}

Option* Option::take_last() {
  option_->take_last();
  return this;
}

Option* Option::take_all() {
  option_->take_all();
  return this;
}

Option* Option::capture_default_str() {
  option_->capture_default_str();
  return this;
}

Option* Option::default_str(const std::string& text) {
  option_->default_str(text);
  return this;
}

Option* Option::type_name(const std::string& name) {
  option_->type_name(name);
  return this;
}

std::size_t Option::count() const { return option_->count(); }
const std::vector<std::string>& Option::results() const { return option_->results(); }
std::string Option::get_name() const { return option_->get_name(); }
bool Option::get_positional() const { return option_->get_positional(); }
bool Option::is_flag() const { return option_->get_expected_min() == 0; }

std::vector<std::string> Option::names() const {
  std::vector<std::string> names;
  for (const std::string& name : option_->get_snames()) names.push_back("-" + name);
  for (const std::string& name : option_->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string Option::description() const { return right_of(*option_); }

Command::Command(const std::string& description, const std::string& name)
    : owned_(std::make_unique<CLI::App>(description, name)), app_(owned_.get()) {
  app_->formatter(std::make_shared<HelpPage>());  // subcommands inherit it
}
Command::Command(CLI::App* app) : app_(app) {}
Command::~Command() = default;

Command* Command::add_subcommand(const std::string& name, const std::string& description) {
  commands_.push_back(
      std::unique_ptr<Command>(new Command(app_->add_subcommand(name, description))));
  return commands_.back().get();
}

template <OptionValue T>
Option* Command::add_option(const std::string& names, T& value, const std::string& description) {
  Option* const option = &options_.emplace_back(app_->add_option(names, value, description));
  if constexpr (kIsInteger<T>) integers_.emplace_back(option, kIsUnsigned<T>);
  return option;
}

template Option* Command::add_option(const std::string&, std::string&, const std::string&);
template Option* Command::add_option(const std::string&, bool&, const std::string&);
template Option* Command::add_option(const std::string&, int&, const std::string&);
template Option* Command::add_option(const std::string&, std::int64_t&, const std::string&);
template Option* Command::add_option(const std::string&, std::uint32_t&, const std::string&);
template Option* Command::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option* Command::add_option(const std::string&, float&, const std::string&);
template Option* Command::add_option(const std::string&, double&, const std::string&);
template Option* Command::add_option(const std::string&, std::optional<std::string>&,
                                     const std::string&);
template Option* Command::add_option(const std::string&, std::optional<std::int64_t>&,
                                     const std::string&);
template Option* Command::add_option(const std::string&, std::optional<std::uint64_t>&,
                                     const std::string&);
template Option* Command::add_option(const std::string&, std::optional<double>&,
                                     const std::string&);
template Option* Command::add_option(const std::string&, std::vector<std::string>&,
                                     const std::string&);

Option* Command::add_flag(const std::string& names, bool& value, const std::string& description) {
  return &options_.emplace_back(app_->add_flag(names, value, description));
}

void Command::set_version_flag(const std::string& name, const std::string& version) {
  app_->set_version_flag(name, version);
}

void Command::require_subcommand(int count) { app_->require_subcommand(count); }

void Command::callback(const std::function<void()>& action) { app_->callback(action); }

/// After the checks of each option, which say more.
void Command::check_integers() {
  for (const auto& [option, is_unsigned] : integers_) option->check(plain_integer(is_unsigned));
  for (const std::unique_ptr<Command>& command : commands_) command->check_integers();
}

Parsed Command::parse(std::vector<std::string> reversed) {
  check_integers();
  try {
    app_->parse(std::move(reversed));
    return Parsed::whole;
  } catch (const CLI::ConversionError& error) {
    return told(*app_, in_our_words(error));
  } catch (const CLI::ParseError& error) {
    return told(*app_, error);
  }
}

std::size_t Command::count(const std::string& name) const { return app_->count(name); }

const Option* Command::find_option(const std::string& name) const {
  const CLI::Option* wanted = app_->get_option_no_throw(name);
  for (const Option& option : options_)
    if (wanted != nullptr && option.get_name() == wanted->get_name()) return &option;
  return nullptr;
}

std::vector<const Option*> Command::get_options() const {
  std::vector<const Option*> options;
  for (const Option& option : options_) options.push_back(&option);
  return options;
}

std::string Command::name() const { return app_->get_name(); }
std::string Command::description() const { return app_->get_description(); }

std::vector<const Command*> Command::all_subcommands() const {
  std::vector<const Command*> all;
  for (const std::unique_ptr<Command>& command : commands_) all.push_back(command.get());
  return all;
}

std::string Command::help() const {
  std::string name = app_->get_name();
  for (const CLI::App* one = app_->get_parent(); one != nullptr; one = one->get_parent())
    name.insert(0, one->get_name() + " ");
  return app_->get_formatter()->make_help(app_, name, CLI::AppFormatMode::Normal);
}

std::vector<const Command*> Command::get_subcommands() const {
  std::vector<const Command*> chosen;
  for (const std::unique_ptr<Command>& command : commands_)
    if (command->app_->parsed()) chosen.push_back(command.get());
  return chosen;
}

}  // namespace fp8lab::cli

#pragma once
// The parser of the command line: what commands use of CLI11, under names of our own. CLI11 is one
// header of templates, and whoever includes it compiles all of it: five seconds of each source. So
// parser.cpp alone does.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace fp8lab::cli {

/// What an option may hold. Unset ones stay empty; a vector takes one value or more.
template <class T>
concept OptionValue = std::same_as<T, std::string> || std::same_as<T, bool> ||
    std::same_as<T, int> || std::same_as<T, std::int64_t> || std::same_as<T, std::uint32_t> ||
    std::same_as<T, std::uint64_t> || std::same_as<T, float> || std::same_as<T, double> ||
    std::same_as<T, std::optional<std::string>> || std::same_as<T, std::optional<std::int64_t>> ||
    std::same_as<T, std::optional<std::uint64_t>> || std::same_as<T, std::optional<double>> ||
    std::same_as<T, std::vector<std::string>>;

/// What a value is held to; help pages show it.
class Check {
 public:
  explicit Check(const CLI::Validator& validator);
  [[nodiscard]] const CLI::Validator& validator() const { return *validator_; }

 private:
  std::shared_ptr<const CLI::Validator> validator_;
};

/// Both ends belong to it.
Check between(int least, int most);
Check between(std::int64_t least, std::int64_t most);
Check between(double least, double most);
Check one_of(std::initializer_list<std::string> names);
Check above_zero();

/// One option, argument or flag. Each call that changes it gives it back.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option* required();
  Option* check(const Check& check);
  /// `error_of` gives the text of the error, or an empty one.
  Option* check(const std::function<std::string(const std::string&)>& error_of);
  /// How many values it takes.
  Option* expected(int count);
  Option* expected(int least, int most);
  /// Whether values may follow without its name; false: each is given behind the name.
  Option* allow_extra_args(bool allow);
  /// Where it is given again: the last one counts; all do. Neither: an error.
  Option* take_last();
  Option* take_all();
  /// Of help pages: the value now held, a text as the default, a name for the type.
  Option* capture_default_str();
  Option* default_str(const std::string& text);
  Option* type_name(const std::string& name);

  /// How often it was given, as what, and under which of its names it is known ("--name" or
  /// "NAME").
  [[nodiscard]] std::size_t count() const;
  [[nodiscard]] const std::vector<std::string>& results() const;
  [[nodiscard]] std::string get_name() const;
  [[nodiscard]] bool get_positional() const;
  [[nodiscard]] bool is_flag() const;
  /// All of its names, as they are typed; and what its page says.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::string description() const;

 private:
  CLI::Option* option_;
};

/// How the arguments were read.
enum class Parsed : std::uint8_t {
  whole,  ///< there is something to do
  help,   ///< a page was asked for, and has been printed
  error,  ///< what is wrong has been printed
};

/// A program or one of its subcommands.
class Command {
 public:
  /// A program.
  explicit Command(const std::string& description, const std::string& name = "fp8lab");
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  Command* add_subcommand(const std::string& name, const std::string& description);
  /// `names`: "-o,--output", "--json", or "NAME" for an argument. `value` must outlive the parsing.
  template <OptionValue T>
  Option* add_option(const std::string& names, T& value, const std::string& description = "");
  Option* add_flag(const std::string& names, bool& value, const std::string& description = "");
  void set_version_flag(const std::string& name, const std::string& version);
  void require_subcommand(int count);
  /// Runs where the subcommand was chosen, after all of its options have been read.
  void callback(const std::function<void()>& action);

  /// `reversed`: the arguments, last to first.
  Parsed parse(std::vector<std::string> reversed);

  /// Of the option with this name, which must be there.
  [[nodiscard]] std::size_t count(const std::string& name) const;
  /// Nothing for a name that no option has.
  [[nodiscard]] const Option* find_option(const std::string& name) const;
  /// Those that were added here, in their order; and the chosen subcommands.
  [[nodiscard]] std::vector<const Option*> get_options() const;
  [[nodiscard]] std::vector<const Command*> get_subcommands() const;

  [[nodiscard]] std::string name() const;
  [[nodiscard]] std::string description() const;
  /// Every subcommand, chosen or not.
  [[nodiscard]] std::vector<const Command*> all_subcommands() const;
  /// The page that `--help` prints.
  [[nodiscard]] std::string help() const;

 private:
  explicit Command(CLI::App* app);
  void check_integers();

  std::unique_ptr<CLI::App> owned_;  ///< by a program
  CLI::App* app_;
  std::deque<Option> options_;
  std::deque<std::unique_ptr<Command>> commands_;
  std::vector<std::pair<Option*, bool>> integers_;  ///< and whether none is negative
};

}  // namespace fp8lab::cli

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

#include "fp8lab/core/printable.hpp"

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

/// An error holds what was typed, or where an argument came from.
Parsed told(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error) == 0 ? Parsed::help : Parsed::error;
  app.exit(CLI::ParseError(printable(error.what()), error.get_exit_code()));
  return Parsed::error;
}

}  // namespace

Check between(int least, int most) { return in_range(least, most); }
Check between(std::int64_t least, std::int64_t most) { return in_range(least, most); }
Check between(double least, double most) { return in_range(least, most); }

Check one_of(std::initializer_list<std::string> names) {
  const std::vector<std::string> known(names);
  return Check(CLI::Validator(
      [known](const std::string& text) {
        if (std::ranges::find(known, text) != known.end()) return std::string();
        return fmt::format("expected {}, got '{}'", fmt::join(known, ", "), text);
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

Command::Command(const std::string& description)
    : owned_(std::make_unique<CLI::App>(description)), app_(owned_.get()) {}
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

std::vector<const Command*> Command::get_subcommands() const {
  std::vector<const Command*> chosen;
  for (const std::unique_ptr<Command>& command : commands_)
    if (command->app_->parsed()) chosen.push_back(command.get());
  return chosen;
}

}  // namespace fp8lab::cli

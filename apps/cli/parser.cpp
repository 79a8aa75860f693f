#include "parser.hpp"

#include <CLI/CLI.hpp>
#include <utility>

namespace fp8lab::cli {

Check::Check(const CLI::Validator& validator)
    : validator_(std::make_shared<const CLI::Validator>(validator)) {}

Check between(int least, int most) { return Check(CLI::Range(least, most)); }
Check between(std::int64_t least, std::int64_t most) { return Check(CLI::Range(least, most)); }
Check between(double least, double most) { return Check(CLI::Range(least, most)); }
Check one_of(std::initializer_list<std::string> names) {
  return Check(CLI::IsMember(std::vector<std::string>(names)));
}
Check above_zero() { return Check(CLI::PositiveNumber); }

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
  return &options_.emplace_back(app_->add_option(names, value, description));
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

Parsed Command::parse(std::vector<std::string> reversed) {
  try {
    app_->parse(std::move(reversed));
    return Parsed::whole;
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? Parsed::help : Parsed::error;
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

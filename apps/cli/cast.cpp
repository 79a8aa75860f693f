#include <fmt/format.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "command.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "json_number.hpp"

namespace fp8lab::cli {
namespace {

struct CastArguments {
  std::vector<std::string> values;
  std::string format = "e4m3fn";
  std::string profile = "nvidia_satfinite";
  std::string rounding;
  std::uint32_t random_bits = 0;
  bool json = false;
};

/// One value on its way: the text, the binary32 it means, and what became of it.
struct CastOutcome {
  std::string text;
  float input = 0.0F;
  bool input_rounded = false;
  CastResult result;
  double decoded = 0.0;
};

/// Reads a number, or `0x` and 8 hex digits: the bits of a binary32.
float parse_value(const std::string& text, bool& rounded) {
  char* end = nullptr;
  rounded = false;
  if (text.size() == 10 && (text.starts_with("0x") || text.starts_with("0X"))) {
    std::uint32_t bits = 0;
    const char* const last = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + 2, last, bits, 16);
    if (error == std::errc{} && stop == last) return std::bit_cast<float>(bits);
  }
  const float value = std::strtof(text.c_str(), &end);
  // A hexadecimal number has an exponent: without one it is bits with too few or too many digits.
  const bool hex = text.find_first_of("xX") != std::string::npos;
  const bool whole =
      !text.empty() && *end == '\0' && (!hex || text.find_first_of("pP") != std::string::npos);
  require(whole, "VALUE", "a number, inf, nan, or binary32 bits as 0x and 8 hex digits",
          "'" + text + "'");
  errno = 0;
  const double wide = std::strtod(text.c_str(), nullptr);
  const bool out_of_range = errno == ERANGE;  // 1e999 is infinite, 1e-999 zero, in double too
  rounded = out_of_range || (!std::isnan(wide) && wide != static_cast<double>(value));
  return value;
}

double error_of(const CastOutcome& o) {
  const auto input = static_cast<double>(o.input);
  return o.decoded == input ? 0.0 : o.decoded - input;
}

/// |value - input| / |input| with the error's sign; NaN where there is none: for NaN, and for an
/// infinity that became finite.
double relative_error_of(const CastOutcome& o) {
  const double error = error_of(o);
  const double relative = error == 0.0 ? 0.0 : error / std::abs(static_cast<double>(o.input));
  return std::isnan(relative) ? std::nan("") : relative;
}

/// What people read where there is no such number.
std::string or_dash(double x) { return std::isnan(x) ? "-" : fmt::format("{:.3g}", x); }

std::string what_happened(const CastOutcome& o) {
  std::vector<std::string> words;
  const bool input_finite = std::isfinite(o.input);
  if (o.input_rounded) words.emplace_back("read as the nearest binary32");
  if (std::isnan(o.input))
    words.emplace_back(std::isnan(o.decoded) ? "NaN" : "NaN has no code in this format");
  else if (o.result.nan)
    words.emplace_back("became NaN");
  else if (o.result.overflowed)
    words.emplace_back(std::isinf(o.decoded)
                           ? (input_finite ? "overflowed to infinity" : "infinity")
                           : "saturated");
  else if (o.result.underflowed)
    words.emplace_back("underflowed to zero");
  else
    words.emplace_back(o.result.inexact ? "rounded" : "exact");
  if (o.result.tie) words.emplace_back("tie");
  return fmt::format("{}", fmt::join(words, ", "));
}

nlohmann::json json_of(const Format& f, const CastOutcome& o) {
  return {{"text", o.text},
          {"input", json_number(o.input)},
          {"input_bits", fmt::format("{:08x}", std::bit_cast<std::uint32_t>(o.input))},
          {"code", o.result.code},
          {"code_hex", fmt::format("{:0{}x}", o.result.code, (f.code_bits() + 3) / 4)},
          {"value", json_number(o.decoded)},
          {"error", json_number(error_of(o))},
          {"relative_error", json_number(relative_error_of(o))},
          {"inexact", o.result.inexact},
          {"tie", o.result.tie},
          {"overflowed", o.result.overflowed},
          {"underflowed", o.result.underflowed},
          {"nan", o.result.nan},
          {"what", what_happened(o)}};
}

void print_for_people(const Format& f, const CastProfile& profile, const CastPolicy& policy,
                      const std::vector<CastOutcome>& outcomes) {
  fmt::print("{}, profile {}, rounding {}\n\n", f.name, profile.name, to_string(policy.rounding));
  fmt::print("{:>16}  {:>6}  {:>14}  {:>11}  {:>11}  what happened\n", "value", "code", "decoded",
             "error", "relative");
  for (const CastOutcome& o : outcomes) {
    fmt::print("{:>16.9g}  {:>6}  {:>14.9g}  {:>11}  {:>11}  {}\n", o.input,
               fmt::format("0x{:0{}x}", o.result.code, (f.code_bits() + 3) / 4), o.decoded,
               or_dash(error_of(o)), or_dash(relative_error_of(o)), what_happened(o));
  }
}

int run(const CastArguments& options) {
  const Format& f = find_format(options.format);
  const CastProfile& profile = find_cast_profile(options.profile);
  CastPolicy policy = profile.policy;
  if (!options.rounding.empty()) policy.rounding = find_rounding_mode(options.rounding);
  require(policy.max_magnitude <= f.max_finite(), "format",
          fmt::format("a rounding mode that reaches {:g}, as profile {} requires",
                      policy.max_magnitude, profile.name),
          f.name);

  std::vector<CastOutcome> outcomes;
  for (const std::string& text : options.values) {
    CastOutcome o;
    o.text = text;
    o.input = parse_value(text, o.input_rounded);
    o.result = cast(f, policy, o.input, options.random_bits);
    o.decoded = decode(f, o.result.code);
    outcomes.push_back(o);
  }
  if (!options.json) {
    print_for_people(f, profile, policy, outcomes);
    return kPass;
  }
  nlohmann::json casts = nlohmann::json::array();
  for (const CastOutcome& o : outcomes) casts.push_back(json_of(f, o));
  fmt::print("{}\n", nlohmann::json{{"format", f.name},
                                    {"profile", profile.name},
                                    {"rounding", to_string(policy.rounding)},
                                    {"casts", casts}}
                         .dump(2));
  return kPass;
}

}  // namespace

void add_cast(Command& app, Action& action) {
  auto options = std::make_shared<CastArguments>();
  Command* command =
      app.add_subcommand("cast", "Cast values and show what happens to each of them");
  command->add_option("VALUE", options->values, "numbers, inf, nan, or binary32 bits (0x3f800000)")
      ->required();
  command->add_option("--format", options->format, "target format")->capture_default_str();
  command->add_option("--profile", options->profile, "cast profile (`fp8lab list profiles`)")
      ->capture_default_str();
  command->add_option("--rounding", options->rounding, "rounding mode instead of the profile's");
  command->add_option("--random-bits", options->random_bits, "32 bits for stochastic rounding");
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli

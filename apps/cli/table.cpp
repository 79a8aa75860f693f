#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "command.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/formats/format.hpp"
#include "json_number.hpp"

namespace fp8lab::cli {
namespace {

struct TableArguments {
  std::string format;
  bool json = false;
};

std::string binary(const Format& f, std::uint32_t code) {
  std::string bits;
  for (int bit = f.code_bits() - 1; bit >= 0; --bit) {
    bits += ((code >> bit) & 1) != 0 ? '1' : '0';
    const bool after_sign = f.has_sign && bit == f.code_bits() - 1;
    const bool after_exponent = bit == f.mantissa_bits && f.mantissa_bits > 0;
    if (after_sign || after_exponent) bits += ' ';
  }
  return bits;
}

nlohmann::json json_of(const Format& f) {
  nlohmann::json codes = nlohmann::json::array();
  for (std::uint32_t code = 0; code < std::uint32_t{1} << f.code_bits(); ++code)
    codes.push_back({{"code", code},
                     {"bits", binary(f, code)},
                     {"class", to_string(unpack(f, code).value_class)},
                     {"value", json_number(decode(f, code))}});
  return {{"format", f.name},
          {"exponent_bits", f.exponent_bits},
          {"mantissa_bits", f.mantissa_bits},
          {"bias", f.bias},
          {"max_finite", f.max_finite()},
          {"min_normal", f.min_normal()},
          {"min_subnormal", f.min_subnormal()},
          {"codes", codes}};
}

void print_for_people(const Format& f) {
  fmt::print("{}: {} exponent bits, {} mantissa bits, bias {}\n", f.name, f.exponent_bits,
             f.mantissa_bits, f.bias);
  fmt::print("max finite {:g}, min normal {:g}, min subnormal {:g}\n\n", f.max_finite(),
             f.min_normal(), f.min_subnormal());
  const int digits = (f.code_bits() + 3) / 4;
  const int width = f.code_bits() + 2;
  fmt::print("{:>{}}  {:<{}}  {:<9}  value\n", "code", digits + 2, "bits", width, "class");
  for (std::uint32_t code = 0; code < std::uint32_t{1} << f.code_bits(); ++code)
    fmt::print("0x{:0{}x}  {:<{}}  {:<9}  {:.17g}\n", code, digits, binary(f, code), width,
               to_string(unpack(f, code).value_class), decode(f, code));
}

int run(const TableArguments& options) {
  const Format& f = find_format(options.format);
  require(f.code_bits() <= 16, "FORMAT",
          "a format of at most 16 bits, whose codes can all be printed", f.name);
  if (options.json)
    fmt::print("{}\n", json_text(json_of(f), 1));
  else
    print_for_people(f);
  return kPass;
}

}  // namespace

void add_table(Command& app, Action& action) {
  auto options = std::make_shared<TableArguments>();
  Command* command = app.add_subcommand("table", "Print every code of a format");
  command->add_option("FORMAT", options->format, "e4m3fn, e5m2, ... (see `fp8lab list`)")
      ->required();
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli

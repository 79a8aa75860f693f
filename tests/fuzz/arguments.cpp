// The small grammars of options: the first byte says which, the rest is the text.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "defaults.hpp"
#include "fp8lab/core/integer_list.hpp"
#include "fp8lab/core/model_text.hpp"
#include "fp8lab/io/csv.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/product/scale_layouts.hpp"
#include "lab/experiment/parameter_range.hpp"
#include "lab/experiment/parameters.hpp"
#include "lab/report/input.hpp"
#include "target.hpp"

using namespace fp8lab;

namespace {

void parse_shape(std::string_view text) {
  const std::vector<std::int64_t> sides = parse_integers("--shape", text, 'x', 3, "MxNxK");
  const std::string again = fmt::format("{}", fmt::join(sides, "x"));
  expect(parse_integers("--shape", again, 'x', 3, "MxNxK") == sides);
}

void parse_tiles(std::string_view text) {
  const ScaleTiles tiles = parse_scale_tiles("--tiles-a", text);
  expect(tiles.rows >= 0 && tiles.columns >= 0);
}

void split_list(std::string_view text) {
  for (const std::string& part : split_model_list(text)) (void)ModelText::parse("model", part);
}

void parse_range(std::string_view text) {
  const ParameterRange range = ParameterRange::parse(text);
  expect(!range.holds(std::numeric_limits<double>::quiet_NaN()));
  expect(range.fewest <= range.most);
}

void set_parameter(std::string_view text) {
  Parameters parameters = defaults();
  parameters.set(std::string(text));
  const Parameters once = parameters;
  for (const auto& [key, value] : once.values()) {
    parameters.set(key + "=" + once.to_toml(key));
    expect(parameters.to_toml(key) == once.to_toml(key));
  }
}

void parse_rows(std::string_view text) {
  for (const auto& row : parse_csv(text))
    for (const std::string& cell : row) (void)number_in(cell);
}

void find_call(std::string_view text) { (void)find_library_call(std::string(text)); }

}  // namespace

void parse(std::span<const std::uint8_t> input) {
  constexpr void (*kGrammars[])(std::string_view) = {
      parse_shape, parse_tiles, split_list, parse_range, set_parameter, parse_rows, find_call};
  if (input.empty()) return;
  const std::size_t which = input.front() % std::size(kGrammars);
  kGrammars[which](text_of(input.subspan(1)));
}

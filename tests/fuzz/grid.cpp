#include "fp8lab/sweep/grid.hpp"
#include "fp8lab/experiment/parameters.hpp"
#include "fp8lab/sweep/grid_file.hpp"
#include "target.hpp"

using namespace fp8lab;

namespace {

/// A parameter of each kind, with room for ranges.
const Parameters& defaults() {
  static const Parameters kDefaults = Parameters::from_toml(
      "count = 4\nscale = 0.5\non = true\nname = 'a'\n"
      "counts = [1, 2]\nscales = [0.5, 1.5]\nnames = ['a', 'b']\n",
      false);
  return kDefaults;
}

}  // namespace

void parse(std::span<const std::uint8_t> input) {
  const GridFile file = parse_grid_file(text_of(input));
  Grid grid{.experiment = "fuzz", .base = defaults(), .axes = {}};
  for (const std::string& assignment : file.assignments) grid.base.set(assignment);
  for (const std::string& axis : file.axes) grid.axes.push_back(parse_axis(axis, grid.base));
  grid.validate();
  (void)grid.at(grid.size() - 1);
}

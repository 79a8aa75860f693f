#include "lab/sweep/grid.hpp"
#include "defaults.hpp"
#include "lab/experiment/parameters.hpp"
#include "lab/sweep/grid_file.hpp"
#include "target.hpp"

using namespace fp8lab;

namespace {
/// A million, which users may ask for, would take seconds.
constexpr std::size_t kMostValues = 1000;
}  // namespace

void parse(std::span<const std::uint8_t> input) {
  const GridFile file = parse_grid_file(text_of(input));
  Grid grid{.experiment = "fuzz", .base = defaults(), .axes = {}};
  for (const std::string& assignment : file.assignments) grid.base.set(assignment);
  for (const std::string& axis : file.axes)
    grid.axes.push_back(parse_axis(axis, grid.base, kMostValues));
  grid.validate();
  (void)grid.at(grid.size() - 1);
}

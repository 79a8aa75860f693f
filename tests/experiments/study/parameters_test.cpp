// What every experiment is asked, and the values and ranges of its parameters, against the kept
// ones: no quick run shows a full form's value, and few meet the end of a range.

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "experiments/registry.hpp"
#include "lab/experiment/experiment.hpp"

using namespace fp8lab;

namespace {

/// A line each: `NAME: QUESTION`, and `NAME KEY = FULL FORM | QUICK FORM | RANGE`.
std::vector<std::string> parameter_lines() {
  std::vector<std::string> lines;
  for (const Experiment& experiment : all_experiments()) {
    lines.push_back(fmt::format("{}: {}", experiment.name, read_question(experiment.default_toml)));
    const Parameters full = Parameters::from_toml(experiment.default_toml, false);
    const Parameters quick = Parameters::from_toml(experiment.default_toml, true);
    for (const auto& [key, value] : full.values()) {
      const std::string of_quick = quick.to_toml(key);
      std::string line = fmt::format("{} {} = {} | {}", experiment.name, key, full.to_toml(key),
                                     of_quick == full.to_toml(key) ? "same" : of_quick);
      if (const auto range = full.ranges().find(key); range != full.ranges().end())
        line += fmt::format(" | {} to {} of {}", range->second.fewest, range->second.most,
                            range->second.interval);
      lines.push_back(line);
    }
  }
  return lines;
}

}  // namespace

TEST_CASE("the parameters of experiments have the kept values and ranges", "[experiments]") {
  // Where they change on purpose, change the file: it lists them in the order below.
  std::ifstream in(FP8LAB_KEPT_PARAMETERS);
  REQUIRE(in.good());
  std::vector<std::string> kept;
  for (std::string line; std::getline(in, line);) kept.push_back(line);
  const std::vector<std::string> got = parameter_lines();
  CHECK(kept.size() == got.size());
  for (std::size_t i = 0; i < std::min(kept.size(), got.size()); ++i) {
    INFO("line " << i + 1);
    CHECK(got[i] == kept[i]);
  }
}

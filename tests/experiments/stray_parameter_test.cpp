// Every experiment reads all of its parameters through a struct.

#include <string>

#include "catch.hpp"
#include "experiments/registry.hpp"
#include "fp8lab/core/error.hpp"
#include "lab/experiment/experiment.hpp"

using namespace fp8lab;

TEST_CASE("A parameter that an experiment does not read ends its run at once", "[experiments]") {
  for (const Experiment& experiment : all_experiments()) {
    CAPTURE(experiment.name);
    RunContext context;
    context.parameters =
        Parameters::from_toml("stray = 1\n" + std::string(experiment.default_toml), true);
    CHECK_THROWS_WITH(experiment.run(context),
                      "default.toml: stray: expected a parameter that the experiment reads, got "
                      "one that it does not");
  }
}

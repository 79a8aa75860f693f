// The progress that experiments of several stages report: from 0 to 1, and never back.

#include <string>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "experiments/registry.hpp"
#include "lab/experiment/experiment.hpp"

using namespace fp8lab;

namespace {

struct Staged {
  std::string_view name;
  std::vector<std::string> changes;
};

// Small forms whose repeats and points are few, so that each stage is a large part.
const std::vector<Staged>& staged_forms() {
  static const std::vector<Staged> kForms{
      {"adam-states",
       {"elements=16", "steps=20", "decades=0,2", "stagnation_steps=20", "stagnation_elements=16",
        "betas=0.9,0.5", "presets=fp32,coat", "repeats=2"}},
      {"auto-scaling",
       {"elements=32", "ranks=2,4", "repeats=2", "steps=40", "dynamics_ranks=2",
        "dynamics_elements=32", "settle_steps=5", "spike_period=10"}},
      {"format-asymmetry",
       {"tokens=32", "inputs=32", "outputs=32", "tile=32", "promotion_interval=32",
        "sweep_decades=2,4"}},
      {"fp8-allreduce",
       {"elements=32", "ranks=2,4", "gather_elements=32", "gather_ranks=2", "desync_ranks=2",
        "desync_octaves=0,1", "repeats=2"}},
      {"outlier",
       {"elements=256", "repeats=1", "outliers_per_decade=1", "containment_elements=64,256",
        "published_repeats=1", "product_k=64", "product_outputs=2"}},
      {"seed-listings", {"listing_repeats=2", "torch_repeats=1", "torch_outliers=200"}},
      {"accumulator-drift",
       {"k=128,512", "promotion_k=512", "rows=2", "columns=2", "split_k=128", "published_rows=1",
        "bf16_k=32,64", "running_sum_k=256", "accumulators=sm90.wgmma.e4m3,exact",
        "fit_repeats=2"}},
      {"claims", {"ids=F1a,L1,S2"}},
      {"walkthrough", {"curve_points=10"}},
  };
  return kForms;
}

}  // namespace

TEST_CASE("experiments report their progress from 0 to 1, and never back", "[experiments]") {
  for (const Staged& form : staged_forms()) {
    const Experiment& experiment = find_experiment(form.name);
    RunContext context;
    context.parameters = Parameters::from_toml(experiment.default_toml, true);
    for (const std::string& change : form.changes) context.parameters.set(change);
    context.threads = 1;
    std::vector<double> progress;
    context.on_progress = [&](double fraction) { progress.push_back(fraction); };
    (void)experiment.run(context);
    CAPTURE(form.name);
    REQUIRE(!progress.empty());
    CHECK(progress.front() >= 0.0);
    CHECK(progress.back() == 1.0);
    for (std::size_t i = 1; i < progress.size(); ++i)
      if (progress[i] < progress[i - 1] - 1e-12) {
        INFO("report " << i << ": " << progress[i] << " after " << progress[i - 1]);
        FAIL_CHECK("progress went back");
      }
  }
}

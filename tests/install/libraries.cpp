// A user of the two libraries above the numerics: one step of AdamW, and a plot of it.
#include <cstdio>
#include <vector>

#include "lab/plots/plot_json.hpp"
#include "training/optim/adamw.hpp"

int main() {
  const std::vector<float> weights{1.0F, -2.0F};
  const std::vector<float> gradients{0.5F, 0.5F};
  const fp8lab::Parameter parameter{"w", {2}, weights};
  fp8lab::AdamW adam({}, {&parameter, 1});
  const std::span<const float> gradient = gradients;
  adam.step({&gradient, 1}, 0.1);
  std::vector<float> after(2);
  adam.copy_weights(0, after);
  fp8lab::Plot plot{"weights", "Weights after a step", {.label = "index"}, {.label = "weight"}, {}};
  plot.series.push_back({.label = "w", .x = {0.0, 1.0}, .y = {after[0], after[1]}});
  const bool stepped = after[0] < weights[0] && after[1] < weights[1] + 0.02F;
  const bool drawn = fp8lab::plot_json(plot).find("Weights after a step") != std::string::npos;
  if (!stepped) std::printf("FAILED: a step of AdamW: %g %g\n", after[0], after[1]);
  if (!drawn) std::printf("FAILED: the plot has no title\n");
  return stepped && drawn ? 0 : 1;
}

#pragma once
// Training runs of a claim over several seeds, judged against the noise of a control.

#include <cstdint>
#include <string>
#include <vector>

#include "claims/small_runs.hpp"
#include "train/standing.hpp"

namespace fp8lab::experiments {

inline constexpr std::size_t kSeeds = 3;

/// One way to train, over the seeds.
struct SeededRuns {
  std::vector<std::vector<double>> losses;  ///< by seed, NaN once a run broke off

  [[nodiscard]] std::vector<double> tails(const StudySettings& settings) const;
};

/// `run(i, seed)` gives the losses of way i.
template <typename Run>
std::vector<SeededRuns> run_seeds(const ClaimContext& context, std::size_t ways, Run run) {
  std::vector<SeededRuns> all(ways, {std::vector<std::vector<double>>(kSeeds)});
  run_all(context, ways * kSeeds, [&](std::size_t i) {
    all[i / kSeeds].losses[i % kSeeds] = run(i / kSeeds, context.seed + i % kSeeds);
  });
  return all;
}

/// From here on the gap over the last 25 steps stays above `band`; -1: it does not.
std::int64_t leaving_step(const std::vector<double>& run, const std::vector<double>& reference,
                          double band);

/// Way 0 and way 1 of a claim: the reference and the control whose gaps are noise.
inline const char* plain_variant(std::size_t way) { return way == 0 ? "bf16" : "fp32"; }

/// Adds the standing, the gap and the first and last step at which a seed leaves; the text of all.
std::string note_way(Measurement& m, const std::string& name, const StudySettings& settings,
                     const SeededRuns& way, const SeededRuns& reference, const SeededRuns& control);

/// Whether `note_way` noted this standing for `name`.
bool has_standing(Values values, const std::string& name, Standing standing);

}  // namespace fp8lab::experiments

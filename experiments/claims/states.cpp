// A5: what formats of the optimizer's states do to small training runs, over several seeds.

#include <algorithm>
#include <array>

#include "claims/groups.hpp"
#include "claims/seeded_runs.hpp"
#include "optimizer-precision/rows.hpp"

namespace fp8lab::experiments {
namespace {

/// After the reference and the control.
constexpr std::array<const char*, 6> kStates{
    "fp8-lm",          "fp8-lm-fp8-v",          "fp8-lm-fp8-master",
    "fp8-lm-unscaled", "fp8-lm-fp8-v-unscaled", "fp8-lm-fp8-master-unscaled"};

std::vector<double> train_row(const StudySettings& settings, const std::string& name,
                              std::uint64_t seed) {
  const OptimizerRow row = find_optimizer_row(name);
  StudySettings with_states = settings;
  with_states.optimizer = row.states;
  return train_variant(with_states, row.variant, {}, seed).losses;
}

double diverged_seeds(const StudySettings& settings, const SeededRuns& way,
                      const SeededRuns& reference) {
  double diverged = 0.0;
  for (std::size_t s = 0; s < kSeeds; ++s)
    diverged +=
        judge(settings, way.losses[s], reference.losses[s]) == Outcome::diverges ? 1.0 : 0.0;
  return diverged;
}

Measurement measure_a5(const ClaimContext& context) {
  const StudySettings settings = small_study(context, 120);
  const auto runs =
      run_seeds(context, 2 + kStates.size(), [&](std::size_t way, std::uint64_t seed) {
        return train_row(settings, way < 2 ? plain_variant(way) : kStates[way - 2], seed);
      });
  Measurement m;
  for (std::size_t i = 0; i < kStates.size(); ++i) {
    const std::string name = kStates[i];
    m.figure += (i == 0 ? "" : "; ") + note_way(m, name, settings, runs[i + 2], runs[0], runs[1]);
    m.values.push_back(
        {"diverged_" + name, "seeds", diverged_seeds(settings, runs[i + 2], runs[0])});
    m.figure += fmt::format(", {} of {} seeds diverge", m.values.back().value, kSeeds);
  }
  return m;
}

Verdict judge_a5(Values values) {
  const auto is = [&](const std::string& row, Standing standing) {
    return has_standing(values, row, standing);
  };
  const auto both = [&](auto condition) {
    return condition("fp8-lm-fp8-v") && condition("fp8-lm-fp8-master");
  };
  const auto diverges = [&](const std::string& row) {
    return value_of(values, "diverged_" + row) == static_cast<double>(kSeeds);
  };
  const auto leaves = [&](const std::string& row) { return is(row, Standing::leaves); };
  if (leaves("fp8-lm") || is("fp8-lm-fp8-v", Standing::follows) ||
      is("fp8-lm-fp8-master", Standing::follows))
    return Verdict::does_not_hold;
  if (!is("fp8-lm", Standing::follows) || !both(leaves)) return Verdict::cannot_tell;
  return both(diverges) ? Verdict::holds : Verdict::holds_with_correction;
}

}  // namespace

std::vector<Claim> state_claims() {
  return {
      {"A5", kSummary, "FP8 v diverges and FP16 v does not; FP8 master weights diverge",
       "rows of FP8-LM's Table 6 on a transformer of 53440 parameters, BF16 GEMMs, 120 steps of 64 "
       "tokens, 3 seeds, with tensor scales and without; follows and leaves as in T1",
       "holds if with tensor scales FP16 states follow FP32 AdamW, and FP8 v and FP8 master both "
       "diverge in every seed (0.2 nats above their own best, or broken off); with a correction if "
       "both leave without diverging in each; does not hold if FP16 states leave or one of the two "
       "follows; else cannot tell",
       measure_a5, judge_a5},
  };
}

}  // namespace fp8lab::experiments

#include "claims/seeded_runs.hpp"

#include <algorithm>

namespace fp8lab::experiments {

std::vector<double> SeededRuns::tails(const StudySettings& settings) const {
  std::vector<double> all;
  all.reserve(losses.size());
  for (const auto& one : losses) all.push_back(tail_loss(settings, one));
  return all;
}

std::int64_t leaving_step(const std::vector<double>& run, const std::vector<double>& reference,
                          double band) {
  constexpr std::size_t kWindow = 25;
  std::int64_t left = -1;
  double sum = 0.0;
  for (std::size_t i = 0; i < run.size(); ++i) {
    if (!std::isfinite(run[i])) return left < 0 ? static_cast<std::int64_t>(i) : left;
    sum += run[i] - reference[i];
    if (i >= kWindow) sum -= run[i - kWindow] - reference[i - kWindow];
    if (i + 1 < kWindow) continue;
    if (sum / static_cast<double>(kWindow) <= band)
      left = -1;
    else if (left < 0)
      left = static_cast<std::int64_t>(i);
  }
  return left;
}

std::string note_way(Measurement& m, const std::string& name, const StudySettings& settings,
                     const SeededRuns& way, const SeededRuns& reference,
                     const SeededRuns& control) {
  std::vector<bool> bad;
  for (std::size_t s = 0; s < kSeeds; ++s)
    bad.push_back(diverged(settings, way.losses[s], reference.losses[s]));
  const Judgement j = judge_seeds(way.tails(settings), reference.tails(settings),
                                  control.tails(settings), settings.follow_nats, bad);
  std::vector<std::int64_t> left;
  for (std::size_t s = 0; s < kSeeds; ++s)
    left.push_back(leaving_step(way.losses[s], reference.losses[s], j.band));
  const auto [first, last] = std::minmax_element(left.begin(), left.end());
  m.values.push_back({"standing_" + name, "1", static_cast<double>(j.standing)});
  add_gap(m, "gap_" + name, j.mean);
  m.values.push_back({"first_left_" + name, "steps", static_cast<double>(*first)});
  m.values.push_back({"last_left_" + name, "steps", static_cast<double>(*last)});
  std::string text = fmt::format("{} {}", name, text_of(j));
  if (j.standing == Standing::leaves && *first >= 0)
    text += fmt::format(", from step {} to {} on", *first, *last);
  return text;
}

bool has_standing(Values values, const std::string& name, Standing standing) {
  return value_of(values, "standing_" + name) == static_cast<double>(standing);
}

}  // namespace fp8lab::experiments

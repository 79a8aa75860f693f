#include "tool/winner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tool/candidates.hpp"

namespace fp8lab::cuda {
namespace {

struct Standing {
  std::size_t candidate = 0;
  std::uint64_t matches = 0;
};

/// Outputs that a round looks at, and how many candidates it leaves, beside those that gave all.
struct Round {
  std::size_t outputs;
  std::size_t left;
};
constexpr std::array<Round, 4> kRounds{{{24, 768}, {96, 192}, {768, 24}, {8192, 8}}};

}  // namespace

Winners find_winners(const ProbedInstruction& probe, std::span<const VectorCase> sample) {
  const std::vector<Candidate> candidates = candidates_of(probe);
  Winners winners;
  winners.outputs = sample.size();
  winners.tried = candidates.size();
  std::vector<Standing> left(candidates.size());
  for (std::size_t i = 0; i < left.size(); ++i) left[i].candidate = i;
  std::size_t done = 0;
  const auto judge = [&](std::size_t outputs) {
    const std::size_t end = std::min(outputs, sample.size());
#pragma omp parallel for schedule(dynamic)
    for (std::size_t i = 0; i < left.size(); ++i)
      for (std::size_t at = done; at < end; ++at)
        if (result_of(candidates[left[i].candidate], probe, sample[at]) == sample[at].d)
          ++left[i].matches;
    done = std::max(done, end);
    std::sort(left.begin(), left.end(), [](const Standing& x, const Standing& y) {
      return x.matches != y.matches ? x.matches > y.matches : x.candidate < y.candidate;
    });
  };
  for (const Round& round : kRounds) {
    judge(round.outputs);
    // What the probe is held to stays: its figure is told.
    const auto held = std::find_if(left.begin(), left.end(),
                                   [](const Standing& one) { return one.candidate == 0; });
    const Standing kept = *held;
    const auto imperfect =
        std::ranges::find_if(left, [&](const Standing& one) { return one.matches < done; });
    const auto perfect = static_cast<std::size_t>(imperfect - left.begin());
    left.resize(std::min(left.size(), std::max(perfect, round.left)));
    if (std::none_of(left.begin(), left.end(),
                     [](const Standing& one) { return one.candidate == 0; }))
      left.push_back(kept);
  }
  judge(sample.size());
  for (const Standing& one : left) {
    if (one.candidate == 0) winners.held_to = one.matches;
    if (winners.best.size() < kShownWinners)
      winners.best.push_back({candidates[one.candidate].name, one.matches});
  }
  return winners;
}

std::string to_string(const Winners& winners) {
  if (winners.best.empty()) return "no candidate takes these operands";
  if (!winners.explained()) return fmt::format("none of {} candidates gives them", winners.tried);
  std::string text = fmt::format(
      "explained by {} (all {} outputs of a sample; the model compared with: {}; {} candidates)",
      winners.best.front().name, winners.outputs, winners.held_to, winners.tried);
  for (std::size_t i = 1; i < winners.best.size(); ++i)
    if (winners.best[i].matches == winners.best.front().matches)
      text += "; as good: " + winners.best[i].name;
  return text;
}

std::string nearest(const Winners& winners) {
  if (winners.best.empty() || winners.explained()) return "";
  return fmt::format("nearest: {} ({} of {} outputs of a sample; the model compared with: {})",
                     winners.best.front().name, winners.best.front().matches, winners.outputs,
                     winners.held_to);
}

}  // namespace fp8lab::cuda

#include "tool/lt_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fp8lab::cuda {

std::string share_text(std::uint64_t same, std::uint64_t outputs) {
  return same == outputs ? fmt::format("all {} outputs", outputs)
                         : fmt::format("{} of {} outputs", same, outputs);
}

std::string ranking_text(std::vector<LtCandidate> candidates, std::uint64_t outputs) {
  std::ranges::stable_sort(candidates, std::ranges::greater{}, &LtCandidate::same);
  const auto name = [](const LtCandidate& one) {
    return fmt::format("N_C {} {}", one.interval, to_string(one.order));
  };
  std::string text;
  for (const LtCandidate& one : candidates) {
    const bool best = one.same == candidates.front().same;
    if (text.empty())
      text = fmt::format("  {}: {}", share_text(one.same, outputs), name(one));
    else if (best)
      text += ", " + name(one);
    else
      return text + fmt::format("\n  the next, {}: {}\n", share_text(one.same, outputs), name(one));
  }
  return text + "\n";
}

std::vector<std::string> summary_of(const std::vector<ObservedCall>& calls) {
  struct Group {
    std::string text;
    std::size_t calls = 0;
  };
  std::vector<Group> groups;
  std::size_t several = 0;
  std::size_t none = 0;
  for (const ObservedCall& one : calls) {
    if (one.fitting.size() != 1) {
      ++(one.fitting.empty() ? none : several);
      continue;
    }
    const std::string text =
        fmt::format("{}: {}", one.call.fast ? "fast" : "slow", to_string(one.fitting.front()));
    const auto found = std::ranges::find(groups, text, &Group::text);
    if (found == groups.end())
      groups.push_back({text, 1});
    else
      ++found->calls;
  }
  std::ranges::stable_sort(groups, std::ranges::greater{}, &Group::calls);
  std::vector<std::string> lines{
      fmt::format("{} calls: one candidate is left of {}, several of {}, none of {}", calls.size(),
                  calls.size() - several - none, several, none)};
  for (const Group& group : groups)
    lines.push_back(fmt::format("{:>6}  {}", group.calls, group.text));
  return lines;
}

}  // namespace fp8lab::cuda

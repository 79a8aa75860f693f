#pragma once
// Broken attention kernels, each checked: caught, and named?

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "attention/emulated_attention.hpp"
#include "catch.hpp"
#include "fp8lab/attention/verify.hpp"

namespace fp8lab::test {

struct AttentionFault {
  std::string what;                ///< for the table
  std::vector<std::string> right;  ///< names of causes that say what is wrong
  std::string text;                ///< part of the text of the cause that is named first
  const AttentionProblem* problem;
  std::function<std::vector<float>()> output;
  bool seen_under_noise = true;  ///< whether it moves outputs by more than the tolerance
  bool seen_in_bf16 = true;      ///< whether an output in BF16 shows it
};

inline AttentionProblem make_problem(std::uint64_t seed, double spread,
                                     const std::function<void(AttentionProblem&)>& change) {
  AttentionProblem p;
  change(p);
  p.fill(seed, spread);
  return p;
}

/// The faults of a campaign.
class AttentionFaults {
 public:
  using Change = std::function<void(AttentionLaunch&)>;
  using Overwrite = std::function<void(std::vector<float>&)>;

  /// A launch that goes wrong.
  void launch(const std::string& what, std::vector<std::string> right, const std::string& text,
              const AttentionProblem& p, const Change& change, bool seen_under_noise = true) {
    all.push_back({what, std::move(right), text, &p,
                   [&p, change] {
                     AttentionLaunch one(p);
                     change(one);
                     return one.run();
                   },
                   seen_under_noise});
  }
  /// A right one whose output is overwritten.
  void overwrite(const std::string& what, std::vector<std::string> right, const std::string& text,
                 const AttentionProblem& p, const Overwrite& change) {
    all.push_back({what, std::move(right), text, &p, [&p, change] {
                     std::vector<float> o = AttentionLaunch(p).run();
                     change(o);
                     return o;
                   }});
  }

  std::vector<AttentionFault> all;
};

/// How outputs of a campaign are stored and checked.
struct CampaignCheck {
  std::string title;
  double noise = 0.0;
  double tolerance = 0.0;
  FormatId output = FormatId::f32;
};

/// Relative noise of this size in each output, as an approximate exponential leaves it.
inline void add_noise(std::vector<float>& o, double size) {
  const RandomStream draws(99, "noise");
  for (std::size_t i = 0; i < o.size(); ++i)
    o[i] *= static_cast<float>(1.0 + size * draws.normal(i));
}

/// Checks all faults and prints a table. Every fault that can be seen must fail, and a name that is
/// given must be right. Returns the number of right names.
inline std::int64_t run_campaign(const std::vector<AttentionFault>& faults,
                                 const CampaignCheck& check) {
  std::string table = fmt::format("{}\n  {:<52} {:<10} {:<28} {}\n", check.title, "fault",
                                  "verdict", "named", "right?");
  std::int64_t right = 0;
  for (const AttentionFault& fault : faults) {
    std::vector<float> o = fault.output();
    if (check.noise > 0.0) add_noise(o, check.noise);
    if (check.output != FormatId::f32)
      for (float& x : o) x = static_cast<float>(round_trip(format(check.output), kNvidiaNosat, x));
    const AttentionVerdict verdict = verify_attention(
        fault.problem->inputs(), fault.problem->options, o, check.output, check.tolerance);
    const std::string name = verdict.causes.empty() ? "-" : verdict.causes.front().name;
    const bool is_right = std::ranges::find(fault.right, name) != fault.right.end() &&
                          verdict.causes.front().text.find(fault.text) != std::string::npos;
    right += is_right ? 1 : 0;
    table += fmt::format("  {:<52} {:<10} {:<28} {}\n", fault.what,
                         verdict.pass ? "pass" : "mismatch", name, is_right ? "yes" : "no");
    INFO(fault.what << ": expected " << fmt::format("{}", fault.right) << "\n" << verdict.text());
    const bool seen = (check.noise == 0.0 || fault.seen_under_noise) &&
                      (check.output == FormatId::f32 || fault.seen_in_bf16);
    CHECK(verdict.pass != seen);
    CHECK((is_right || name == "-"));
  }
  fmt::print("{}  {} of {} named right\n", table, right, faults.size());
  return right;
}

}  // namespace fp8lab::test

#include "lab/experiment/experiment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "claims/claim.hpp"
#include "lab/experiment/parameter_struct.hpp"
#include "lab/experiment/row_table.hpp"

namespace fp8lab::experiments {
namespace {

struct Settings {
  std::vector<std::string> ids;

  static constexpr auto fields() { return std::tuple{field("ids", &Settings::ids)}; }
};

std::vector<MeasuredClaim> measure_chosen(const RunContext& context) {
  std::vector<MeasuredClaim> chosen;
  for (const std::string& id : read_parameters<Settings>(context.parameters).ids) {
    if (id == "all")
      for (const Claim& claim : all_claims()) chosen.push_back({&claim, {}});
    else
      chosen.push_back({&find_claim(id), {}});
  }
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    chosen[i].measurement =
        measure(*chosen[i].claim,
                {.seed = context.seed, .threads = context.threads, .backend = context.backend});
    context.progress(static_cast<double>(i + 1) / static_cast<double>(chosen.size()));
  }
  return chosen;
}

Table claim_table(const std::vector<MeasuredClaim>& measured) {
  using M = MeasuredClaim;
  return row_table<M>(
      "claims", "Each claim, what was measured, and the verdict",
      {{"id", "", "a letter of the group and a number", [](const M& m) { return m.claim->id; }},
       {"claim", "", "the claim in our words", [](const M& m) { return m.claim->statement; }},
       {"source", "", "who makes it", [](const M& m) { return m.claim->source; }},
       {"line", "1", "where in the source's text",
        [](const M& m) { return std::int64_t{m.claim->line}; }},
       {"words", "", "what the source says there", [](const M& m) { return m.claim->words; }},
       {"setup", "", "what is measured, on what", [](const M& m) { return m.claim->setup; }},
       {"criterion", "", "when the claim holds, when with a correction",
        [](const M& m) { return m.claim->criterion; }},
       {"measured", "", "the figures", [](const M& m) { return m.measurement.figure; }},
       {"basis", "",
        "the basis of the verdict: measured, recorded from an installed system, by reading a paper "
        "or source, or arithmetic",
        [](const M& m) { return m.claim->basis; }},
       {"verdict", "", "the result of the criterion",
        [](const M& m) { return m.measurement.verdict; }}},
      measured);
}

Table value_table(const std::vector<MeasuredClaim>& measured) {
  Table table("values", "The figures on which the verdicts are based",
              {{"id", "", "of the claim"},
               {"name", "", "of the figure"},
               {"unit", "", "of the figure; 1 for a ratio"},
               {"value", "", "measured"}});
  for (const auto& [claim, measurement] : measured)
    for (const MeasuredValue& v : measurement.values)
      table.add_row({std::string(claim->id), v.name, v.unit, v.value});
  return table;
}

std::string count_finding(const std::vector<MeasuredClaim>& measured) {
  const auto count = [&](Verdict verdict) {
    return std::ranges::count_if(
        measured, [&](const MeasuredClaim& m) { return m.measurement.verdict == verdict; });
  };
  return fmt::format(
      "Of {} claims {} hold, {} hold with a correction, {} do not hold, and {} cannot be decided "
      "here.",
      measured.size(), count(Verdict::holds), count(Verdict::holds_with_correction),
      count(Verdict::does_not_hold), count(Verdict::cannot_tell));
}

}  // namespace

Results claim_results(const std::vector<MeasuredClaim>& measured) {
  Results results;
  results.tables = {claim_table(measured), value_table(measured)};
  results.findings.push_back(count_finding(measured));
  for (const auto& [claim, measurement] : measured)
    if (measurement.verdict == Verdict::does_not_hold)
      results.findings.push_back(fmt::format("{} does not hold: {}{}", claim->id, claim->statement,
                                             claim->statement.ends_with('.') ? "" : "."));
  return results;
}

Results claims(const RunContext& context) { return claim_results(measure_chosen(context)); }

}  // namespace fp8lab::experiments

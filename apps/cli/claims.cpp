#include "claims/claim.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "experiments/registry.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/io/files.hpp"
#include "lab/experiment/result_files.hpp"
#include "say.hpp"

namespace fp8lab::cli {
namespace {

using namespace experiments;

struct ClaimsArguments {
  std::vector<std::string> ids;
  ClaimContext context{.threads = 0};
  std::string out;  ///< where the result folder goes; empty: none
  bool json = false;
};

nlohmann::ordered_json json_of(const Claim& claim, const Measurement& measurement) {
  nlohmann::ordered_json values = nlohmann::ordered_json::array();
  for (const MeasuredValue& v : measurement.values)
    values.push_back({{"name", v.name}, {"unit", v.unit}, {"value", v.value}});
  return {{"id", claim.id},
          {"source", claim.source},
          {"line", claim.line},
          {"words", claim.words},
          {"claim", claim.statement},
          {"setup", claim.setup},
          {"criterion", claim.criterion},
          {"figure", measurement.figure},
          {"values", values},
          {"basis", to_string(claim.basis)},
          {"verdict", to_string(measurement.verdict)}};
}

/// `text` after `title`, broken at spaces, aligned.
void print_field(std::string_view title, std::string_view text) {
  constexpr std::size_t kWidth = 84;
  std::string head = fmt::format("  {:<10}", title);
  while (text.size() > kWidth) {
    const std::size_t space = text.rfind(' ', kWidth);
    if (space == std::string_view::npos || space == 0) break;
    say("{}{}\n", head, text.substr(0, space));
    text.remove_prefix(space + 1);
    head.assign(head.size(), ' ');
  }
  say("{}{}\n", head, text);
}

void print_claim(const Claim& claim, const Measurement& measurement) {
  say("{} ({}): {}\n", claim.id, claim.source, to_string(measurement.verdict));
  print_field("claim", claim.statement);
  print_field("words", fmt::format("line {}: \"{}\"", claim.line, claim.words));
  print_field("setup", claim.setup);
  print_field("criterion", claim.criterion);
  print_field("measured", measurement.figure);
  print_field("basis", to_string(claim.basis));
  fmt::print("\n");
}

std::vector<const Claim*> chosen_claims(const ClaimsArguments& options) {
  std::vector<const Claim*> claims;
  for (const std::string& id : options.ids) claims.push_back(&find_claim(id));
  if (options.ids.empty())
    for (const Claim& claim : all_claims()) claims.push_back(&claim);
  return claims;
}

/// The folder that `fp8lab run claims` leaves, so that a report takes it.
void write_folder(const ClaimsArguments& options, const std::vector<MeasuredClaim>& measured,
                  std::chrono::system_clock::time_point started) {
  const Experiment& experiment = find_experiment("claims");
  RunRecord record{.experiment = std::string(experiment.name),
                   .question = read_question(experiment.default_toml),
                   .parameters = Parameters::from_toml(experiment.default_toml, false),
                   .seed = options.context.seed,
                   .threads = options.context.threads,
                   .command = fmt::format(
                       "fp8lab claims {}--seed {} --out {}",
                       options.ids.empty() ? "" : fmt::format("{} ", fmt::join(options.ids, " ")),
                       options.context.seed, shell_quoted(options.out)),
                   .started = started};
  if (!options.ids.empty())
    record.parameters.set(fmt::format("ids=[\"{}\"]", fmt::join(options.ids, "\", \"")));
  record.duration_seconds =
      std::chrono::duration<double>(std::chrono::system_clock::now() - started).count();
  write_results(claim_results(measured), record, options.out, Plots::draw);
}

int run(ClaimsArguments options) {
  const auto started = std::chrono::system_clock::now();
  options.context.threads = team_size(options.context.threads);
  if (!options.out.empty()) require_writable_results(options.out, "claims");
  std::vector<MeasuredClaim> done;
  nlohmann::ordered_json measured = nlohmann::ordered_json::array();
  std::map<Verdict, int> counts;
  int failed = 0;
  for (const Claim* claim : chosen_claims(options)) {
    try {
      const Measurement& measurement =
          done.emplace_back(MeasuredClaim{claim, measure(*claim, options.context)}).measurement;
      ++counts[measurement.verdict];
      if (options.json)
        measured.push_back(json_of(*claim, measurement));
      else
        print_claim(*claim, measurement);
    } catch (const std::exception& error) {
      ++failed;
      say(stderr, "fp8lab: {} could not be measured: {}\n", claim->id, error.what());
    }
  }
  if (!options.out.empty() && failed == 0) write_folder(options, done, started);
  if (options.json)
    fmt::print(
        "{}\n",
        json_text(nlohmann::ordered_json{{"seed", options.context.seed}, {"claims", measured}}, 2));
  else
    say("{} hold, {} hold with a correction, {} do not hold, {} cannot be decided here, {} "
        "could not be measured (seed {})\n",
        counts[Verdict::holds], counts[Verdict::holds_with_correction],
        counts[Verdict::does_not_hold], counts[Verdict::cannot_tell], failed, options.context.seed);
  return failed == 0 ? kPass : kUsage;
}

}  // namespace

void add_claims(Command& app, Action& action) {
  auto options = std::make_shared<ClaimsArguments>();
  Command* command = app.add_subcommand(
      "claims", "Measure published claims about FP8 and print a verdict for each");
  command->add_option("ID", options->ids, "claims, for example F1; all if none is given");
  command->add_option("--seed", options->context.seed, "seed of all random draws")
      ->capture_default_str();
  command
      ->add_option("--threads", options->context.threads,
                   "threads; figures do not depend on their number")
      ->check(between(1, kMostThreads));
  command->add_option("--out", options->out, "folder in which to write a result folder `claims`");
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli

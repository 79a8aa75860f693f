// Streams of generated cases through every instruction of the chip at hand: the library judges
// every output, the device's emulator is the second opinion.

#include <fmt/format.h>

#include <cstdio>

#include "command.hpp"
#include "probe_runner.hpp"
#include "tool/judge.hpp"

namespace fp8lab::cuda {
namespace {

CheckRow check_probe(const Probe& probe, const CrossCheckOptions& options) {
  ProbeRunner runner(probe);
  JudgeOptions judge;
  judge.seed = options.seed;
  judge.outputs = options.outputs;
  if (!options.out.empty()) judge.mismatches = options.out / "mismatches";
  judge.header = recording_header();
  const auto second =
      runner.has_emulator() ? SecondOpinion([&] { return runner.count_differences(); }) : nullptr;
  return judge_probe(
      probe, [&](const TileBatch& batch) { return runner.run(batch); }, second, judge);
}

}  // namespace

std::vector<Part> instruction_parts(const CrossCheckOptions& options) {
  std::vector<Part> parts;
  for (const Probe& probe : probes_of(options.chip)) {
    if (probe.name.find(options.only) == std::string_view::npos) continue;
    parts.push_back({std::string(probe.name), [probe, options] {
                       CheckRow row = check_probe(probe, options);
                       fmt::print(
                           "{}: {} outputs of {} constructed cases and their pairings, "
                           "{} mismatches\n",
                           row.name, row.cases, row.cases / kTile, row.mismatches);
                       return std::vector<CheckRow>{std::move(row)};
                     }});
  }
  require(!parts.empty(), "only", "a part of an instruction's name", options.only);
  return parts;
}

std::vector<Part> cross_check_parts(const CrossCheckOptions& options) {
  std::vector<Part> parts = instruction_parts(options);
  if (!options.only.empty()) return parts;
  for (const std::vector<Part>& more : {gemm_parts(options), cast_parts(options.chip)})
    parts.insert(parts.end(), more.begin(), more.end());
  return parts;
}

}  // namespace fp8lab::cuda

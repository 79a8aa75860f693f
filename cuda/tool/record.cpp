#include <fmt/chrono.h>
#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <fstream>

#include "command.hpp"
#include "fp8lab/vectors/recording.hpp"
#include "probe_runner.hpp"
#include "tool/pack_cases.hpp"

namespace fp8lab::cuda {
namespace {

// Multiples of 64, as tiles hold; one step a case, and four chained ones.
constexpr std::array<std::size_t, 3> kCounts{2048, 6144, 2048};
constexpr std::array<std::size_t, 3> kChainedCounts{256, 768, 256};
constexpr int kChained = 4;
constexpr int kOnes = 32768;

using Header = std::map<std::string, std::string>;

void close(std::ofstream& out, const std::filesystem::path& path) {
  out.close();
  if (!out) throw Error(fmt::format("{}: cannot be written", path.string()));
}

/// Gives the cases the chip's results.
void record_cases(const Probe& probe, int steps, std::vector<VectorCase>& cases) {
  ProbeRunner runner(probe);
  const std::vector<float> results = runner.run(pack_cases(cases, probe, steps));
  for (std::size_t i = 0; i < cases.size(); ++i) {
    // A tile's diagonal holds its cases.
    const std::size_t output = i / kTile * kTileOutputs + i % kTile * (kTile + 1);
    cases[i].d = std::bit_cast<std::uint32_t>(results[output]);
  }
}

/// Cases with block scales have no compact recording: they are written whole, and fewer.
std::vector<VectorCase> scaled_cases(const Probe& probe, const RecordingPlan& plan) {
  constexpr std::size_t kLess = 4;
  const CaseGenerator generator(probe.instruction(), probe.scales, plan.terms, plan.seed);
  std::vector<VectorCase> cases;
  for (std::size_t kind = 0; kind < plan.counts.size(); ++kind)
    for (std::size_t i = 0; i < plan.counts[kind] / kLess / kTile * kTile; ++i)
      cases.push_back(generator.make(static_cast<CaseKind>(kind), i));
  return cases;
}

std::size_t record_probe(const Probe& probe, int steps, const std::array<std::size_t, 3>& counts,
                         std::uint64_t seed, const Header& header,
                         const std::filesystem::path& path) {
  const RecordingPlan plan{std::string(probe.model),      probe.a_format, probe.b_format,
                           steps * probe.terms_of_step(), seed,           counts};
  std::vector<VectorCase> cases = probe.scales ? scaled_cases(probe, plan) : planned_cases(plan);
  record_cases(probe, steps, cases);
  std::ofstream out(path, std::ios::binary);
  if (probe.scales)
    write_vectors(
        out, {plan.model, probe.a_format, probe.b_format, plan.terms, header, cases, probe.scales});
  else
    write_recording(out, plan, cases, header);
  close(out, path);
  return cases.size();
}

/// All ones to K = 32768: where a narrow accumulator sticks. A vector file,
/// since the generator has no such case.
void record_ones(const Probe& probe, const Header& header, const std::filesystem::path& path) {
  const Format& f = format(probe.a_format);
  VectorCase ones;
  ones.a.assign(kOnes, static_cast<std::uint32_t>(f.bias) << f.mantissa_bits);
  ones.b = ones.a;
  std::vector<VectorCase> tile(kTile, ones);
  record_cases(probe, kOnes / probe.terms_of_step(), tile);
  ones.d = tile.front().d;
  VectorFile file{std::string(probe.model), probe.a_format, probe.b_format, kOnes, header, {ones}};
  std::ofstream out(path, std::ios::binary);
  write_vectors(out, file);
  close(out, path);
}

void record(const Probe& probe, std::uint64_t seed, const std::filesystem::path& out) {
  const std::string name(probe.name);
  Header header = recording_header();
  header["instruction"] = name;
  header["executed"] = to_string(probe.halves);
  const std::size_t cases = record_probe(probe, 1, kCounts, seed, header, out / (name + ".txt"));
  record_probe(probe, kChained, kChainedCounts, seed, header, out / (name + ".chained.txt"));
  if (!probe.scales && probe.a_format == probe.b_format && format(probe.a_format).storage_bits == 8)
    record_ones(probe, header, out / (name + ".ones.txt"));
  fmt::print("recorded {}: {} cases\n", name, cases);
}

}  // namespace

std::map<std::string, std::string> recording_header() {
  const DeviceFacts facts = device_facts();
  return {{"gpu", facts.gpu},
          {"driver", facts.driver},
          {"cuda", facts.cuda},
          {"date", fmt::format("{:%Y-%m-%d}", std::chrono::system_clock::now())}};
}

std::vector<Part> record_parts(const std::filesystem::path& out, const Chip& chip,
                               std::uint64_t seed) {
  std::vector<Part> parts;
  for (const Probe& probe : probes_of(chip))
    parts.push_back({fmt::format("record {}", probe.name), [probe, out, seed] {
                       std::filesystem::create_directories(out);
                       record(probe, seed, out);
                       return std::vector<CheckRow>{};
                     }});
  return parts;
}

}  // namespace fp8lab::cuda

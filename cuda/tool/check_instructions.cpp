// Streams of generated cases through every instruction. The device's emulator
// judges every output; the library judges a part of every batch, and with it
// the device's emulator.

#include <fmt/format.h>

#include <bit>
#include <cstdio>

#include "command.hpp"
#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/io/replay.hpp"
#include "fp8lab/verify/cases.hpp"
#include "fp8lab/verify/reduce.hpp"
#include "probe_runner.hpp"

namespace fp8lab::cuda {
namespace {

constexpr int kBatchTiles = 1024;
constexpr int kLibraryTiles = 48;  // of every batch
constexpr int kChained = 4;        // every eighth batch chains four instructions

std::vector<VectorCase> generate_batch(const InstructionModel& model, int terms, std::uint64_t seed,
                                       std::uint64_t batch) {
  std::vector<VectorCase> cases(static_cast<std::size_t>(kBatchTiles) * kTile);
#pragma omp parallel for schedule(static)
  for (int tile = 0; tile < kBatchTiles; ++tile) {
    // Of eight tiles, five are adversarial, two random and one special.
    const int turn = tile % 8;
    const CaseKind kind = turn < 5   ? CaseKind::adversarial
                          : turn < 7 ? CaseKind::random
                                     : CaseKind::special;
    for (int i = 0; i < kTile; ++i) {
      const auto at = static_cast<std::size_t>(tile * kTile + i);
      cases[at] = generate_case(model, terms, kind, seed, batch * cases.size() + at);
    }
  }
  return cases;
}

std::uint32_t predicted(const InstructionModel& model, const VectorCase& one) {
  return std::bit_cast<std::uint32_t>(dot_product(model.accumulator, model.a_format, one.a,
                                                  model.b_format, one.b,
                                                  std::bit_cast<float>(one.c)));
}

/// Prints mismatches, `shown` of which have been printed before, and for the
/// first of an instruction also its smallest form.
class MismatchPrinter {
 public:
  explicit MismatchPrinter(const Probe& probe) : probe_(probe), model_(probe.instruction()) {}

  /// Compares outputs with the library's own results; returns how many differ.
  std::uint64_t compare(std::span<const VectorCase> cases, std::span<const float> chip,
                        std::span<const float> library, int steps) {
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < chip.size(); ++i) {
      const auto got = std::bit_cast<std::uint32_t>(chip[i]);
      if (got == std::bit_cast<std::uint32_t>(library[i])) continue;
      ++count;
      if (shown_ < kMaxShown) show(case_of_output(cases, i), got, steps);
    }
    return count;
  }

 private:
  void show(const VectorCase& one, std::uint32_t chip, int steps) {
    fmt::print(
        "{}: mismatch {} (expected: the chip, got: {})\n{}", probe_.name, ++shown_, probe_.model,
        describe({one.line, probe_.a_format, probe_.b_format, one, chip, predicted(model_, one)}));
    if (shown_ != 1) return;
    ProbeRunner runner(probe_, 1, steps);
    const auto differs = [&](const VectorCase& x) {
      return runner.run_one(x) != predicted(model_, x);
    };
    if (!differs(one)) {
      fmt::print("  alone in a tile this case does not differ\n");
      return;
    }
    const Reduction reduced = reduce_case(one, probe_.a_format, probe_.b_format, differs);
    fmt::print("{}: the smallest case that differs ({} terms, {} tried)\n{}", probe_.name,
               live_terms(reduced.smallest), reduced.tried,
               describe({0, probe_.a_format, probe_.b_format, reduced.smallest,
                         runner.run_one(reduced.smallest), predicted(model_, reduced.smallest)}));
  }

  const Probe& probe_;
  InstructionModel model_;
  std::size_t shown_ = 0;
};

CheckRow check_probe(const Probe& probe, const CrossCheckOptions& options) {
  const InstructionModel model = probe.instruction();
  ProbeRunner single(probe, kBatchTiles, 1);
  ProbeRunner chained(probe, kBatchTiles, kChained);
  MismatchPrinter printer(probe);
  CheckRow row{std::string(probe.name), 0, 0};
  for (std::uint64_t batch = 0; row.cases < options.outputs; ++batch) {
    const int steps = batch % 8 == 7 ? kChained : 1;
    ProbeRunner& runner = steps == 1 ? single : chained;
    const auto cases = generate_batch(model, steps * probe.terms(), options.seed, batch);
    runner.run(cases);
    const std::uint64_t on_device = runner.count_differences();
    const int judged = on_device == 0 ? kLibraryTiles : kBatchTiles;
    const std::uint64_t on_host =
        printer.compare(cases, runner.results(judged),
                        library_results(runner.batch(), model.accumulator, model.a_format,
                                        model.b_format, 0, judged),
                        steps);
    // Where the judges disagree the device's emulator is at fault, and that is a
    // mismatch too.
    if (on_device != on_host && on_device != 0)
      fmt::print("{}: the device's emulator finds {} differences, the library {}\n", probe.name,
                 on_device, on_host);
    row.mismatches += std::max(on_device, on_host);
    row.cases += static_cast<std::uint64_t>(kBatchTiles) * kTileOutputs;
  }
  return row;
}

}  // namespace

std::vector<Part> instruction_parts(const CrossCheckOptions& options) {
  std::vector<Part> parts;
  for (const Probe& probe : all_probes()) {
    if (probe.name.find(options.only) == std::string_view::npos) continue;
    parts.push_back({std::string(probe.name), [&probe, options] {
                       CheckRow row = check_probe(probe, options);
                       fmt::print("{}: {} cases, {} mismatches\n", row.name, row.cases,
                                  row.mismatches);
                       return std::vector<CheckRow>{std::move(row)};
                     }});
  }
  require(!parts.empty(), "only", "a part of an instruction's name", options.only);
  return parts;
}

std::vector<Part> cross_check_parts(const CrossCheckOptions& options) {
  std::vector<Part> parts = instruction_parts(options);
  if (!options.only.empty()) return parts;
  for (const std::vector<Part>& more : {gemm_parts(options), cast_parts()})
    parts.insert(parts.end(), more.begin(), more.end());
  return parts;
}

}  // namespace fp8lab::cuda

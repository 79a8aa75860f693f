// Streams of generated cases through every instruction. The device's emulator
// judges every output; the library judges a part of every batch, and with it
// the device's emulator.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>

#include "command.hpp"
#include "fp8lab/vectors/cases.hpp"
#include "fp8lab/vectors/reduce.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "probe_runner.hpp"

namespace fp8lab::cuda {
namespace {

constexpr int kBatchTiles = 1024;
constexpr int kLibraryTiles = 48;  // of every batch
constexpr int kChained = 4;        // every eighth batch chains four instructions
constexpr int kWholeBatches = 4;   // with mismatches, that the library judges in full
constexpr std::size_t kReductionBudget = 4000;

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

/// Mismatches of different kinds have different causes: one kind that is always wrong
/// must not hide the others.
enum class Kind : std::uint8_t { nan, infinity, zero, subnormal, finite };
constexpr std::size_t kKinds = 5;
constexpr std::array<const char*, kKinds> kKindNames{"NaN", "infinity", "zero", "subnormal",
                                                     "finite"};

Kind kind_of(std::uint32_t chip, std::uint32_t model) {
  const auto any = [&](auto predicate) {
    return predicate(std::bit_cast<float>(chip)) || predicate(std::bit_cast<float>(model));
  };
  if (any([](float x) { return std::isnan(x); })) return Kind::nan;
  if (any([](float x) { return std::isinf(x); })) return Kind::infinity;
  if (any([](float x) { return x == 0.0F; })) return Kind::zero;
  return any([](float x) { return std::fpclassify(x) == FP_SUBNORMAL; }) ? Kind::subnormal
                                                                         : Kind::finite;
}

/// Prints the first mismatches of each kind, and of the first of them also the
/// smallest form that is still of its kind.
class MismatchPrinter {
 public:
  explicit MismatchPrinter(const Probe& probe) : probe_(probe), prediction_(probe.prediction()) {}

  /// Compares outputs with the library's own results; returns how many differ.
  std::uint64_t compare(std::span<const VectorCase> cases, std::span<const float> chip,
                        std::span<const float> library, int steps) {
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < chip.size(); ++i) {
      const auto got = std::bit_cast<std::uint32_t>(chip[i]);
      const auto expected = std::bit_cast<std::uint32_t>(library[i]);
      if (got == expected) continue;
      ++count;
      const Kind kind = kind_of(got, expected);
      if (shown(kind) < kMaxShown / kKinds) show(case_of_output(cases, i), got, kind, steps);
    }
    return count;
  }

 private:
  std::size_t& shown(Kind kind) { return shown_[static_cast<std::size_t>(kind)]; }

  std::string text(const VectorCase& one, std::uint32_t chip) const {
    return describe(
        {one.line, probe_.a_format, probe_.b_format, one, chip, predicted(prediction_, one)});
  }

  void show(const VectorCase& one, std::uint32_t chip, Kind kind, int steps) {
    const char* name = kKindNames[static_cast<std::size_t>(kind)];
    fmt::print("{}: {} mismatch {} (expected: the chip, got: {}, {}, which is {})\n{}", probe_.name,
               name, ++shown(kind), probe_.model, to_string(prediction_.halves),
               to_string(probe_.standing()), text(one, chip));
    if (shown(kind) != 1) return;
    ProbeRunner runner(probe_, 1, steps);
    const auto differs = [&](const VectorCase& x) {
      const std::uint32_t got = runner.run_one(x);
      const std::uint32_t expected = predicted(prediction_, x);
      return got != expected && kind_of(got, expected) == kind;
    };
    if (!differs(one)) {
      fmt::print("  alone in a tile this case does not differ\n");
      return;
    }
    const Reduction reduced =
        reduce_case(one, probe_.a_format, probe_.b_format, differs, kReductionBudget);
    fmt::print("{}: the smallest {} case that differs ({} terms, {} tried)\n{}", probe_.name, name,
               live_terms(reduced.smallest), reduced.tried,
               text(reduced.smallest, runner.run_one(reduced.smallest)));
  }

  const Probe& probe_;
  Prediction prediction_;
  std::array<std::size_t, kKinds> shown_{};
};

CheckRow check_probe(const Probe& probe, const CrossCheckOptions& options) {
  const Prediction prediction = probe.prediction();
  ProbeRunner single(probe, kBatchTiles, 1);
  ProbeRunner chained(probe, kBatchTiles, kChained);
  MismatchPrinter printer(probe);
  CheckRow row{std::string(probe.name), 0, 0};
  int whole_batches = 0;
  for (std::uint64_t batch = 0; row.cases < options.outputs; ++batch) {
    const int steps = batch % 8 == 7 ? kChained : 1;
    ProbeRunner& runner = steps == 1 ? single : chained;
    // Cases stand close to the cuts of the model; where another one is expected, to its cuts too.
    InstructionModel model = probe.instruction();
    if (batch % 2 == 1) model.accumulator = prediction.accumulator;
    const auto cases = generate_batch(model, steps * probe.terms(), options.seed, batch);
    runner.run(cases);
    const std::uint64_t on_device = runner.count_differences();
    // The library sees whole batches of mismatches, but not all of an instruction that is
    // always wrong.
    const bool whole = on_device != 0 && ++whole_batches <= kWholeBatches;
    const int judged = whole ? kBatchTiles : kLibraryTiles;
    const std::uint64_t on_host =
        printer.compare(cases, runner.results(judged), runner.library(judged), steps);
    // Where the judges disagree the device's emulator is at fault, and that is a
    // mismatch too.
    if (whole && on_device != on_host)
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

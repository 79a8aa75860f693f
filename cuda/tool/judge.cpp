#include "tool/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <utility>

#include "fp8lab/gemm/gemm.hpp"
#include "tool/batches.hpp"
#include "tool/mismatches.hpp"
#include "tool/pack_cases.hpp"
#include "tool/winner.hpp"

namespace fp8lab::cuda {
namespace {

constexpr std::size_t kSample = 20'000;        // outputs that candidates are tried on
constexpr std::size_t kSampleOfBatch = 2'000;  // of each batch, right ones and wrong ones

/// Outputs that tell candidates apart: as many wrong ones as right ones of each batch, the wrong
/// ones first, spread over the batch.
class Sample {
 public:
  void add(const CaseBatch& batch, std::span<const float> chip, const std::vector<bool>& wrong) {
    for (const bool wanted : {true, false}) {
      const auto total = static_cast<std::size_t>(std::count(wrong.begin(), wrong.end(), wanted));
      const std::size_t stride = std::max<std::size_t>(1, total / (kSampleOfBatch / 2));
      std::size_t seen = 0;
      for (std::size_t i = 0; i < wrong.size() && rows_.size() < kSample; ++i) {
        if (wrong[i] != wanted || seen++ % stride != 0) continue;
        VectorCase one = case_of_output(batch.cases, i);
        one.d = std::bit_cast<std::uint32_t>(chip[i]);
        rows_.push_back(std::move(one));
      }
    }
  }

  /// Right and wrong ones in turn, so that the first few hold both.
  [[nodiscard]] std::vector<VectorCase> mixed() const {
    std::vector<VectorCase> result;
    constexpr std::size_t kStride = 997;  // shares no divisor with sizes that occur
    std::vector<bool> taken(rows_.size());
    for (std::size_t i = 0, at = 0; i < rows_.size(); ++i, at = (at + kStride) % rows_.size()) {
      while (taken[at]) at = (at + 1) % rows_.size();
      taken[at] = true;
      result.push_back(rows_[at]);
    }
    return result;
  }

 private:
  std::vector<VectorCase> rows_;
};

CodeMatrix tile_matrix(FormatId id, const std::vector<std::uint8_t>& bytes, int tile, int steps) {
  const std::int64_t k = steps * kStepBytes * 8 / format(id).storage_bits;
  const auto row_bytes = static_cast<std::size_t>(steps * kStepBytes);
  return {id, bytes.data() + static_cast<std::size_t>(tile * kTile) * row_bytes, kTile, k, k, 1};
}

}  // namespace

std::vector<float> expected_outputs(const ProbedInstruction& probe,
                                    std::span<const VectorCase> cases, const TileBatch& batch) {
  const AccumulatorModel model = probe.instruction().accumulator;
  std::vector<float> results(static_cast<std::size_t>(batch.tiles) * kTileOutputs);
  if (probe.scales) {
    // The library's products have no kernel for a unit's own scales in every form: one by one.
#pragma omp parallel for schedule(dynamic, kTileOutputs)
    for (std::size_t i = 0; i < results.size(); ++i)
      results[i] = result_of(model, probe, case_of_output(cases, i));
    return results;
  }
#pragma omp parallel for schedule(dynamic)
  for (int tile = 0; tile < batch.tiles; ++tile) {
    std::vector<float> c(kTileOutputs);
    for (int i = 0; i < kTileOutputs; ++i)
      c[static_cast<std::size_t>(i)] =
          batch.c[static_cast<std::size_t>(tile * kTile + case_of_c(i / kTile, i % kTile))];
    GemmProblem problem;
    problem.model = model;
    problem.a = tile_matrix(probe.a_format, batch.a, tile, batch.steps);
    problem.b = tile_matrix(probe.b_format, batch.b, tile, batch.steps);
    problem.c = c.data();
    gemm(problem,
         std::span(results).subspan(static_cast<std::size_t>(tile) * kTileOutputs, kTileOutputs),
         1);
  }
  return results;
}

CheckRow judge_probe(const ProbedInstruction& probe, const RunTiles& run,
                     const SecondOpinion& second, const JudgeOptions& options) {
  CheckRow row{std::string(probe.name), 0, 0};
  Mismatches mismatches(probe);
  Sample sample;
  for (std::uint64_t batch = 0; row.cases < options.outputs; ++batch) {
    const CaseBatch made = make_batch(probe, options.seed, batch, options.tiles);
    const TileBatch packed = pack_cases(made.cases, probe, made.steps);
    const std::vector<float> chip = run(packed);
    const std::vector<float> expected = expected_outputs(probe, made.cases, packed);
    std::vector<bool> wrong(chip.size());
    std::uint64_t differ = 0;
    for (std::size_t i = 0; i < chip.size(); ++i) {
      const auto got = std::bit_cast<std::uint32_t>(chip[i]);
      const auto want = std::bit_cast<std::uint32_t>(expected[i]);
      if (got == want) continue;
      wrong[i] = true;
      ++differ;
      mismatches.add(got, want, made.steps, [&] { return case_of_output(made.cases, i); });
    }
    // Single and chained instructions are told apart by the number of terms; candidates take both.
    if (differ != 0 || batch == 0) sample.add(made, chip, wrong);
    if (second) {
      const std::uint64_t other = second();
      if (other != differ) {
        fmt::print("{}: batch {}: the library finds {} differences, the device's emulator {}\n",
                   probe.name, batch, differ, other);
        row.mismatches += other > differ ? other - differ : differ - other;
      }
    }
    row.mismatches += differ;
    row.cases += chip.size();
  }
  if (mismatches.count() != 0) {
    const Winners winners = find_winners(probe, sample.mixed());
    row.note = fmt::format("{}; {}", mismatches.kinds(), to_string(winners));
    fmt::print("{}: {} of {} outputs differ from {} ({}, {})\n  {}\n", probe.name,
               mismatches.count(), row.cases, probe.model, to_string(probe.halves),
               to_string(probe.standing()), row.note);
    if (const std::string most = nearest(winners); !most.empty()) fmt::print("  {}\n", most);
    mismatches.print([&](const VectorCase& one, int steps) {
      const TileBatch packed = pack_cases(std::vector<VectorCase>(kTile, one), probe, steps);
      return std::bit_cast<std::uint32_t>(run(packed)[0]);
    });
    if (!options.mismatches.empty()) mismatches.write(options.mismatches, options.header);
  }
  return row;
}

}  // namespace fp8lab::cuda

// Recordings of real GPUs, from the folder that FP8LAB_SILICON_DIR names.

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "catch.hpp"
#include "fp8lab/io/replay.hpp"

using namespace fp8lab;

namespace {

std::vector<VectorFile> silicon_files() {
  std::vector<VectorFile> files;
  const char* folder = std::getenv("FP8LAB_SILICON_DIR");
  if (folder == nullptr) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".txt") files.push_back(read_vectors(entry.path()));
  return files;
}

bool skipped(const std::vector<VectorFile>& files) {
  if (!files.empty()) return false;
  WARN("SKIPPED: FP8LAB_SILICON_DIR is not set or holds no vector files");
  return true;
}

std::size_t mismatches(const VectorFile& file, const AccumulatorModel& model) {
  return replay(file, model).mismatches;
}

}  // namespace

TEST_CASE("every silicon file replays without a mismatch", "[silicon]") {
  const auto files = silicon_files();
  if (skipped(files)) return;
  for (const VectorFile& file : files) {
    const ReplayReport report = replay(file);
    INFO(file.model << " on " << file.header.at("gpu") << ", " << report.cases << " cases");
    for (const ReplayMismatch& mismatch : report.shown) UNSCOPED_INFO(describe(mismatch));
    CHECK(report.cases > 0);
    CHECK(report.mismatches == 0);
  }
}

TEST_CASE("mutants of the models fail on silicon", "[silicon]") {
  const auto files = silicon_files();
  if (skipped(files)) return;
  for (const VectorFile& file : files) {
    const AccumulatorModel& right = find_instruction_model(file.model).accumulator;
    INFO(file.model);

    AccumulatorModel fewer_bits = right;
    // The rows of a B200 tell 20 bits and more from fewer.
    const bool halves = right.kind == AccumulationKind::fp16_halves;
    fewer_bits.alignment_fraction_bits = halves ? 19 : right.alignment_fraction_bits - 1;
    CHECK(mismatches(file, fewer_bits) > 0);

    AccumulatorModel other_rounding = right;
    other_rounding.rounding = right.rounding == RoundingMode::toward_zero
                                  ? RoundingMode::nearest_even
                                  : RoundingMode::toward_zero;
    // No half of its rows has a sum of more than 24 bits.
    if (!halves) CHECK(mismatches(file, other_rounding) > 0);

    AccumulatorModel half_the_terms = right;
    half_the_terms.terms = right.terms / 2;
    CHECK(mismatches(file, half_the_terms) > 0);

    AccumulatorModel normalized = right;
    normalized.product_exponent = ProductExponent::normalized;
    if (!halves) CHECK(mismatches(file, normalized) > 0);
  }
}

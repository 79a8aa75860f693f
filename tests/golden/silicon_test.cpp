// Models against recordings of real GPUs: those kept here, and those beside the project.

#include "catch.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "golden/mutants.hpp"
#include "golden/recordings.hpp"

using namespace fp8lab;

namespace {

/// Each of them counts: one that cannot be replayed does not keep the others from it.
template <typename Check>
void for_each_recording(const std::vector<Recording>& recordings, const Check& check) {
  for (const Recording& recording : recordings) {
    INFO(recording.name << ", " << recording.file.model);
    try {
      check(recording.file);
    } catch (const Error& error) {
      FAIL_CHECK(error.what());
    }
  }
}

void require_right_models(const std::vector<Recording>& recordings) {
  for_each_recording(recordings, [](const VectorFile& file) {
    const ReplayReport report = replay(file);
    CHECK(report.cases > 0);
    if (!report.shown.empty()) UNSCOPED_INFO(describe(report.shown.front()));
    CHECK(report.mismatches == 0);
  });
}

/// Up to the last product of any case that is not zero.
int terms_in_use(const VectorFile& file) {
  std::size_t most = 0;
  for (const VectorCase& one : file.cases)
    for (std::size_t i = most; i < one.a.size(); ++i)
      if (decode(format(file.a_format), one.a[i]) * decode(format(file.b_format), one.b[i]) != 0)
        most = i + 1;
  return static_cast<int>(most);
}

void require_wrong_mutants(const std::vector<Recording>& recordings) {
  for_each_recording(recordings, [](const VectorFile& file) {
    const Mutants mutants(find_instruction_model(file.model).accumulator, terms_in_use(file));
    for (const Mutant& mutant : mutants.all()) {
      INFO(mutant.change);
      CHECK(replay(file, mutant.model).mismatches > 0);
    }
  });
}

/// Mismatches of what is kept of a recording under its model with one change.
template <typename Change>
std::size_t mismatches_with(const std::string& name, const Change& change) {
  const VectorFile file =
      read_vectors(std::filesystem::path(FP8LAB_GOLDEN_DIR) / "silicon" / (name + ".txt"));
  AccumulatorModel model = find_instruction_model(file.model).accumulator;
  change(model);
  return replay(file, model).mismatches;
}

std::vector<Recording> kept() {
  return recordings_in(std::filesystem::path(FP8LAB_GOLDEN_DIR) / "silicon");
}

}  // namespace

TEST_CASE("every recording kept here replays without a mismatch", "[golden]") {
  require_right_models(kept());
}

TEST_CASE("mutants of the models fail on the recordings kept here", "[golden]") {
  require_wrong_mutants(kept());
}

TEST_CASE("rows of an H200 tell the sign of zero, the lower limit and a subnormal c", "[golden]") {
  const auto other_sign = [](AccumulatorModel& model) { model.zero_sign = ZeroSign::kept; };
  for (const char* name : {"h200_mma_bf16", "h200_mma_tf32", "h200_mma_f16_f16out",
                           "h200_wgmma_bf16", "h200_wgmma_tf32", "h200_wgmma_f16_f16out"}) {
    INFO(name);
    CHECK(mismatches_with(name, other_sign) > 0);
    for (const int by : {-1, 1})
      CHECK(mismatches_with(
                name, [by](AccumulatorModel& model) { model.min_alignment_exponent += by; }) > 0);
  }
  for (const char* name : {"h200_mma_e5m2_f16out", "h200_wgmma_e5m2_f16out",
                           "h200_wgmma_e4m3_e5m2_f16out", "h200_wgmma_e5m2_e4m3_f16out"}) {
    INFO(name);
    CHECK(mismatches_with(name, other_sign) > 0);
  }
  for (const char* name :
       {"h200_mma_f16_f16out", "h200_wgmma_f16_f16out", "h200_wgmma_e5m2_f16out"}) {
    INFO(name);
    CHECK(mismatches_with(name, [](AccumulatorModel& model) {
            model.half_c_exponent = HalfCExponent::widened;
          }) > 0);
  }
}

TEST_CASE("every recording beside the project replays without a mismatch", "[silicon]") {
  require_right_models(recordings_beside());
}

TEST_CASE("mutants of the models fail on the recordings beside the project", "[silicon]") {
  require_wrong_mutants(recordings_beside());
}

TEST_CASE("the table of an H200 names one way to sum for each of its calls", "[golden]") {
  const CallTable table = read_call_table(std::filesystem::path(FP8LAB_GOLDEN_DIR) / ".." / ".." /
                                          "docs" / "tables" / "cublaslt-13.1-h200.csv");
  CHECK(table.calls.size() == 200);
  for (const ObservedCall& call : table.calls) CHECK(call.fitting.size() == 1);
}

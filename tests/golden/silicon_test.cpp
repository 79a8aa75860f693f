// Models against recordings of real GPUs: those kept here, and those beside the project.

#include "catch.hpp"
#include "fp8lab/formats/format.hpp"
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

TEST_CASE("every recording beside the project replays without a mismatch", "[silicon]") {
  require_right_models(recordings_beside());
}

TEST_CASE("mutants of the models fail on the recordings beside the project", "[silicon]") {
  require_wrong_mutants(recordings_beside());
}

// Recordings of chips that are kept in tests/golden, against the predictions that the CUDA back
// end is held to: each replays without a mismatch, and no mutant of a long one's does. That the
// checks bite is shown on recordings of the models themselves.

#include <bit>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "cuda/prediction.hpp"
#include "fp8lab/vectors/recording.hpp"
#include "fp8lab/vectors/replay.hpp"
#include "io/temporary_file.hpp"

using namespace fp8lab;
using namespace fp8lab::cuda;

namespace {

constexpr std::uintmax_t kMostBytes = 8u << 20;
constexpr std::size_t kEnoughForMutants = 1000;  // the all-ones files have one case

/// How the chip computed what the file holds. Recordings of others do not say `executed`: neither
/// Hopper nor sm_100 has FP8 mma.sync, and CUDA 12.8 to 13.0 chain its halves.
Halves halves_of(const VectorFile& file) {
  const auto executed = file.header.find("executed");
  if (executed != file.header.end()) return find_halves(executed->second);
  const bool has_none = file.model.starts_with("sm90.mma.") || file.model.starts_with("sm100.mma.");
  return has_none && format(file.a_format).storage_bits == 8 ? Halves::chained : Halves::none;
}

/// What the chip that made the file is held to.
Prediction prediction_of(const VectorFile& file) {
  const AccumulatorModel& model = find_instruction_model(file.model).accumulator;
  const Halves halves = halves_of(file);
  if (halves == Halves::none) return {model, file.a_format, file.b_format};
  return prediction_by_halves(halves, file.a_format, file.b_format,
                              model.output_format == FormatId::f16);
}

std::size_t mismatches(const VectorFile& file, const Prediction& prediction) {
  std::size_t count = 0;
  for (const VectorCase& one : file.cases)
    if (predicted(prediction, one) != one.d) ++count;
  return count;
}

std::vector<Prediction> mutants_of(const Prediction& right) {
  std::vector<Prediction> mutants(3, right);
  // FP16 sums do not show the last bits of a wide alignment, but that there is one.
  int& alignment = mutants[0].accumulator.alignment_fraction_bits;
  const bool hidden = right.accumulator.output_format == FormatId::f16 && alignment > 13;
  alignment = hidden ? 13 : alignment - 1;
  mutants[1].accumulator.terms /= 2;
  RoundingMode& rounding = mutants[2].accumulator.rounding;
  rounding = rounding == RoundingMode::toward_zero ? RoundingMode::nearest_even
                                                   : RoundingMode::toward_zero;
  return mutants;
}

/// A recording as the tool writes it, of the prediction itself.
std::string recorded(const std::string& model, FormatId a, FormatId b, Halves halves) {
  const RecordingPlan plan{model, a, b, 32, 5, {256, 768, 256}};
  const std::map<std::string, std::string> header{{"gpu", "none: results of the prediction"},
                                                  {"executed", std::string(to_string(halves))}};
  VectorFile file{model, a, b, plan.terms, header, planned_cases(plan)};
  for (VectorCase& one : file.cases) one.d = predicted(prediction_of(file), one);
  std::ostringstream out;
  write_recording(out, plan, file.cases, header);
  return out.str();
}

}  // namespace

TEST_CASE("a recording tells its model from the mutants and from a changed bit", "[cuda]") {
  struct Setup {
    std::string model;
    FormatId a, b;
    Halves halves;
  };
  for (const Setup& s :
       {Setup{"sm90.wgmma.e4m3", FormatId::e4m3fn, FormatId::e4m3fn, Halves::none},
        Setup{"sm90.wgmma.f16", FormatId::f16, FormatId::f16, Halves::none},
        Setup{"sm90.mma.e4m3", FormatId::e4m3fn, FormatId::e5m2, Halves::chained},
        Setup{"sm90.mma.e4m3", FormatId::e4m3fn, FormatId::e5m2, Halves::separate},
        Setup{"sm90.wgmma.e4m3.f16", FormatId::e4m3fn, FormatId::e4m3fn, Halves::none},
        Setup{"sm90.wgmma.e5m2.f16", FormatId::e5m2, FormatId::e4m3fn, Halves::none},
        Setup{"sm90.mma.e5m2.f16", FormatId::e5m2, FormatId::e5m2, Halves::chained},
        Setup{"sm90.mma.e4m3.f16", FormatId::e4m3fn, FormatId::e5m2, Halves::chained}}) {
    INFO(s.model << " " << format(s.a).name << " " << format(s.b).name);
    std::string text = recorded(s.model, s.a, s.b, s.halves);
    const TemporaryFile good(text);
    const VectorFile file = read_cases(good.path());
    CHECK(mismatches(file, prediction_of(file)) == 0);
    for (const Prediction& mutant : mutants_of(prediction_of(file)))
      CHECK(mismatches(file, mutant) > 0);
    text[text.size() - 2] = text[text.size() - 2] == '0' ? '1' : '0';
    const TemporaryFile changed(text);
    const VectorFile other = read_cases(changed.path());
    CHECK(mismatches(other, prediction_of(other)) == 1);
  }
}

TEST_CASE("the recordings kept here replay, and their models' mutants fail", "[cuda]") {
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(FP8LAB_GOLDEN_DIR)) {
    // The rows of units/ are computed, and those of processors are no GPU's.
    if (entry.path().extension() != ".txt" || entry.path().parent_path().filename() == "units" ||
        entry.path().filename().string().starts_with("zen4_"))
      continue;
    bytes += entry.file_size();
    const VectorFile file = read_cases(entry.path());
    INFO(entry.path().filename().string());
    const Prediction right = prediction_of(file);
    CHECK(mismatches(file, right) == 0);
    if (file.cases.size() < kEnoughForMutants) continue;
    for (const Prediction& mutant : mutants_of(right)) CHECK(mismatches(file, mutant) > 0);
  }
  CHECK(bytes > 0);
  CHECK(bytes <= kMostBytes);
}

#pragma once
// Recordings of chips in compact form: the inputs are generated cases, so a
// file holds their seed, a checksum that guards them, and one result a line.
//
//   # fp8lab recording 1
//   # model: sm90.wgmma.e4m3
//   # input: e4m3fn            (or: a and b, `e4m3fn e5m2`)
//   # terms: 32
//   # seed: 1
//   # random: 2048             (cases of each kind, in this order)
//   # adversarial: 6144
//   # special: 2048
//   # inputs: 0123456789abcdef (checksum of all a, b and c)
//   ... further `# key: value` lines (gpu, driver, cuda, date)
//   d                          (binary32 bits, 8 hex digits)

#include <array>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "fp8lab/vectors/cases.hpp"

namespace fp8lab {

/// What the inputs of a recording are generated from.
struct RecordingPlan {
  std::string model;
  FormatId a_format = FormatId::e4m3fn;
  FormatId b_format = FormatId::e4m3fn;
  int terms = 0;
  std::uint64_t seed = 0;
  std::array<std::size_t, 3> counts{};  ///< of each CaseKind, in its order
};

/// The cases of a plan, d = 0. Formats that differ from the model's (mixed
/// inputs share a model) give cases of their own.
std::vector<VectorCase> planned_cases(const RecordingPlan& plan);

/// FNV-1a over the codes and c of every case.
std::uint64_t checksum_of_inputs(const std::vector<VectorCase>& cases);

/// Writes a recording of the plan's cases with the results in their `d`.
void write_recording(std::ostream& out, const RecordingPlan& plan,
                     const std::vector<VectorCase>& cases,
                     const std::map<std::string, std::string>& header);

/// Reads either a vector file of any form (vector_files.hpp) or a recording, told apart
/// by the first line;
/// a recording's cases come back with their inputs. Throws `Error` with file
/// and line for anything malformed, and if the generator no longer gives the
/// inputs that were recorded.
VectorFile read_cases(const std::filesystem::path& path);

}  // namespace fp8lab

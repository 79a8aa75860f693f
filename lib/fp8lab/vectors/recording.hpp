#pragma once
// Recordings of chips in compact form. The inputs are generated cases, so a file
// contains their seed, a checksum of the inputs, and one result per line.
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

/// The parameters from which the inputs of a recording are generated.
struct RecordingPlan {
  std::string model;
  FormatId a_format = FormatId::e4m3fn;
  FormatId b_format = FormatId::e4m3fn;
  int terms = 0;
  std::uint64_t seed = 0;
  std::array<std::size_t, 3> counts{};  ///< number of cases of each CaseKind, in order
};

/// The cases of a plan, with d = 0. They depend also on the formats, since mixed
/// inputs share a model.
std::vector<VectorCase> planned_cases(const RecordingPlan& plan);

/// FNV-1a over the codes and c of every case.
std::uint64_t checksum_of_inputs(const std::vector<VectorCase>& cases);

/// Writes a recording of the plan's cases, with their `d` as results.
void write_recording(std::ostream& out, const RecordingPlan& plan,
                     const std::vector<VectorCase>& cases,
                     const std::map<std::string, std::string>& header);

/// Reads a vector file of any form (vector_files.hpp) or a recording; the first line
/// distinguishes them.
/// The cases of a recording have their inputs. Throws `Error` with file and line
/// for malformed text, and if the generator no longer gives the inputs that were
/// recorded.
VectorFile read_cases(const std::filesystem::path& path);

}  // namespace fp8lab

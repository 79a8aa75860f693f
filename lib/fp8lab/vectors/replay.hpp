#pragma once
// Replays a vector file through a model and counts the cases whose bits differ.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/vectors/vectors.hpp"

namespace fp8lab {

struct ReplayMismatch {
  int line = 0;
  FormatId a_format = FormatId::e4m3fn;
  FormatId b_format = FormatId::e4m3fn;
  VectorCase inputs;
  std::uint32_t expected = 0;  ///< binary32 bits in the file
  std::uint32_t got = 0;       ///< binary32 bits of the model
  std::optional<ScaleBlocks> scales = std::nullopt;
};

struct ReplayReport {
  std::string model;
  std::size_t cases = 0;
  std::size_t mismatches = 0;
  std::vector<ReplayMismatch> shown;  ///< the first ones, at most kMaxShown
};

inline constexpr std::size_t kMaxShown = 20;

/// What a recording's header line `executed` says of FP8 instructions that the chip does not
/// have: "as chained FP16 halves", "as separate FP16 halves", or, nothing here, "as one
/// instruction".
std::string_view executed_name(std::optional<HalvesOrder> halves);
/// Throws `Error` for another text.
std::optional<HalvesOrder> find_executed(std::string_view name);

/// The accumulator of the file's own model, as the compiler put the instruction together that
/// the file was recorded with (`executed`; files without that line: as registered). Throws
/// `Error` for an unknown model, or one that is never executed so.
AccumulatorModel executed_model(const VectorFile& file);

/// What the model gives for a case of the file, with the scales that the case has: binary32 bits.
/// Throws `Error` for formats, or scales, that it does not take. Without scales a block-scaled
/// model's are 1.
std::uint32_t result_bits(const AccumulatorModel& model, const VectorFile& file,
                          const VectorCase& one);

/// Replays under the registered model `model_name`, or, if it is empty, under the file's own as
/// it was executed. Throws `Error` for an unknown model, or one for inputs of another storage
/// width than the file's.
ReplayReport replay(const VectorFile& file, const std::string& model_name = "");

/// Replays under any accumulator, for sweeps and mutants.
ReplayReport replay(const VectorFile& file, const AccumulatorModel& model);

/// A mismatch for people: line, inputs in hex and decoded, expected and got.
std::string describe(const ReplayMismatch& mismatch);

}  // namespace fp8lab

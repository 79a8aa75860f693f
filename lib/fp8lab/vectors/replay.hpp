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
  std::uint32_t expected = 0;  ///< d of the file, binary32 bits
  std::uint32_t got = 0;       ///< the model's result, binary32 bits
  std::optional<ScaleBlocks> scales = std::nullopt;
};

struct ReplayReport {
  std::string model;
  std::size_t cases = 0;
  std::size_t mismatches = 0;
  std::vector<ReplayMismatch> shown;  ///< the first ones, at most kMaxShown
};

inline constexpr std::size_t kMaxShown = 20;

/// The text of a recording's header line `executed`, which says how an FP8 instruction ran:
/// "as chained FP16 halves", "as separate FP16 halves", or, without a value, "as one
/// instruction".
std::string_view executed_name(std::optional<HalvesOrder> halves);
/// The value of such a text. Throws `Error` for another text.
std::optional<HalvesOrder> find_executed(std::string_view name);

/// The accumulator of the file's model, as the instruction ran when the file was recorded
/// (`executed`; for files without that line, as registered). Throws `Error` for an unknown
/// model, and for one that never runs in this way.
AccumulatorModel executed_model(const VectorFile& file);

/// The model's result for a case of the file, with the scales of the case: binary32 bits. If the
/// case has no scales, those of a block-scaled model are 1. Throws `Error` for formats or scales
/// that the model does not accept.
std::uint32_t result_bits(const AccumulatorModel& model, const VectorFile& file,
                          const VectorCase& one);

/// Replays the file under the model `model_name`, or, if it is empty, under `executed_model`.
/// Throws `Error` for an unknown model, and for one whose inputs have another storage width than
/// those of the file.
ReplayReport replay(const VectorFile& file, const std::string& model_name = "");

/// Replays the file under any accumulator.
ReplayReport replay(const VectorFile& file, const AccumulatorModel& model);

/// A mismatch as text: line, inputs in hex and decoded, expected and got.
std::string describe(const ReplayMismatch& mismatch);

}  // namespace fp8lab

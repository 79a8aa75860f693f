#pragma once
// A linter for the folder of a quantized model: what a server would misread, refuse or load as
// noise.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fp8lab {

/// Something that is wrong with a folder.
struct Finding {
  std::string kind;  ///< a few words that say what class of fault it is: "missing scale"
  std::string name;  ///< of a tensor, module or file
  std::string text;  ///< expected and got, as a sentence
};

/// The error of a weight against the original.
struct WeightError {
  std::string name;
  std::string form;            ///< "FP8 with plain scales", "NVFP4" ...
  double sqnr_db = 0.0;        ///< 10 log10(||w||^2 / ||w' - w||^2)
  double worst_db = 0.0;       ///< the same of the worst tile that shares a scale
  std::int64_t worst_row = 0;  ///< its first row and column
  std::int64_t worst_column = 0;
  std::string recipe;  ///< the first recipe that gives these codes and scales; empty for none
};

struct CheckedModel {
  std::string method;  ///< the quant_method, or what stands for it
  std::int64_t weights = 0;
  std::int64_t tensors = 0;
  std::vector<std::string> forms;  ///< of the weights, each once
  std::vector<Finding> findings;
  std::vector<WeightError> errors;  ///< with an original
};

struct CheckModelOptions {
  std::optional<std::filesystem::path> original;  ///< the folder that was quantized
};

/// Checks the folder `path`. Reads each tensor once, in parts. Without an original it looks at
/// files, names, shapes, types, scales and the statistics of codes; with one also at the error of
/// every weight and tile, at tensors that should be copies, and at which recipe gives exactly these
/// codes and scales.
///
/// The statistics are thresholds, not proofs (each is beside its constant in check_values.cpp): a
/// tensor is told that no recipe of this library would write.
///
/// Throws `Error` for a folder without weights, a model that is not quantized and holds no FP8 or
/// FP4 codes, and a method that is not known.
CheckedModel check_model(const std::filesystem::path& path, const CheckModelOptions& options);

}  // namespace fp8lab

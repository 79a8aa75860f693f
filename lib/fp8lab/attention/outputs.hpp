#pragma once
// Mistakes that only need the right output: outputs that were not written, are a multiple of the
// right ones, stand in another place, or were cast in another way.

#include <functional>
#include <string>
#include <vector>

#include "fp8lab/attention/judge.hpp"

namespace fp8lab {

struct OutputMistake {
  std::string name;
  std::string text;
  /// All outputs [heads, m, d_v] in the output's format.
  std::function<std::vector<float>()> outputs;
  bool fitted = false;  ///< to numbers that were measured: it comes after what has none
};

/// What the wrong outputs look like. `judge` must outlive the result.
std::vector<OutputMistake> output_mistakes(const OutputJudge& judge);

}  // namespace fp8lab

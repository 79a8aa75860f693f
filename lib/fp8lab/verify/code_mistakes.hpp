#pragma once
// Known mistakes in the table by which a kernel reads the codes of an operand. No instruction has
// these tables, so that they are judged by FP64 sums.

#include <string_view>
#include <vector>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

struct CodeMistake {
  std::string_view name;  ///< with {} for the operand: a, b, a_and_b
  std::string_view text;  ///< what happened, with {} for "A", "B" or "A and B"
  double (*value)(const Format& format, std::uint32_t code);
};

/// The mistakes that codes of this format can have.
std::vector<CodeMistake> code_mistakes(FormatId id);

}  // namespace fp8lab

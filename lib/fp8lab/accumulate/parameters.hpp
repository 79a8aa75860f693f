#pragma once
// The parameters of instruction models by name, read from text and written as text.

#include <span>
#include <string>
#include <string_view>

#include "fp8lab/accumulate/model.hpp"

namespace fp8lab {

/// A parameter that definitions (definition.hpp) can give.
struct AccumulatorParameter {
  std::string_view name;    ///< that of the field of `AccumulatorModel` or `InstructionModel`
  std::string_view alias;   ///< a shorter spelling; empty: none
  std::string_view values;  ///< what it may be, in words; a kind may allow less
  std::string_view help;

  /// The value as text, so that `set` of it changes nothing.
  std::string (*get)(const InstructionModel& model);
  /// Throws `Error` for `name` where the text is no such value. Ranges are `validate`'s.
  void (*set)(InstructionModel& model, std::string_view name, std::string_view text);
};

std::span<const AccumulatorParameter> accumulator_parameters();

/// The parameter of this name or alias. Throws `Error` that lists them.
const AccumulatorParameter& find_accumulator_parameter(std::string_view name);

}  // namespace fp8lab

#pragma once
// The parameters of instruction models by name, read from text and written as text.

#include <span>
#include <string>
#include <string_view>

#include "fp8lab/accumulate/model.hpp"

namespace fp8lab {

/// A parameter that definitions (definition.hpp) can set.
struct AccumulatorParameter {
  std::string_view name;    ///< the name of the field of `AccumulatorModel` or `InstructionModel`
  std::string_view alias;   ///< a shorter spelling; empty: none
  std::string_view values;  ///< the allowed values, in words; a kind may allow fewer
  std::string_view help;

  /// The value as text that `set` reads.
  std::string (*get)(const InstructionModel& model);
  /// Throws `Error` that names `name` if the text is not a value. `validate` checks ranges.
  void (*set)(InstructionModel& model, std::string_view name, std::string_view text);
};

std::span<const AccumulatorParameter> accumulator_parameters();

/// The parameter with this name or alias. Throws `Error` that lists them.
const AccumulatorParameter& find_accumulator_parameter(std::string_view name);

}  // namespace fp8lab

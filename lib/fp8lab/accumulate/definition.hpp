#pragma once
// Accumulators that a user defines as text: an instruction or a kind of unit with some of its
// parameters changed. The text is accepted wherever the name of a model is.
//
//   fused:terms=16,F=13,rounding=toward_zero,e_min=-6
//   narrow=sm90.wgmma.e4m3:F=10
//
// `[NAME=]BASE[:PARAMETER=VALUE,...]`. BASE is a registered instruction or a kind; a kind stands
// for one of its instructions (`accumulator_kinds`). Parameters that are not given are those of
// the base. NAME is only a label. The text is complete: results, vector files and checkpoints that
// contain it need no other file.

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/model_text.hpp"

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

/// Names of the parameters on which the results of a model depend: those of its unit, given its
/// other parameters, then a_format and b_format. A definition cannot give any others.
std::vector<std::string_view> parameters_that_matter(const AccumulatorModel& model);

/// Whether two models are equal but perhaps for the sign of a sum that rounds to zero.
bool equal_but_for_zero_sign(const AccumulatorModel& one, const AccumulatorModel& other);

/// Whether a text has the form of a definition, not of the name of an instruction.
bool is_definition(std::string_view text);

/// The model that the text defines; its name is the text. Its standing is `definition`: it is no
/// hardware, and it accepts all operands that its unit accepts. Its formats are those of the base
/// unless a_format or b_format is given. With FP16 output the sum has FP16's 10 fraction bits.
/// Throws `Error` that names the text, the parameter, the values allowed and the value given.
///
/// Models are kept: the reference remains valid and is the same for the same text. A model depends
/// on its text only. Thread-safe.
const InstructionModel& defined_model(std::string_view text);

/// The serial form of a model: a definition by its kind's name with all parameters that matter.
/// `defined_model` of it has these formats and the accumulator, except fields without effect.
std::string definition_of(const AccumulatorModel& model, FormatId a, FormatId b);

/// Definitions by name, read from users' files.
class ModelBook {
 public:
  /// Adds the tables `[accumulator.NAME]` of a TOML document, or the members of "accumulator" in a
  /// JSON one: `base = "BASE"` and parameters. A base may be an earlier table. Throws `Error` that
  /// names `file` for text of another form, a name that an instruction, a kind or another
  /// definition has, and everything that `defined_model` refuses.
  void add_toml(std::string_view file, std::string_view text);
  void add_json(std::string_view file, std::string_view text);

  /// The complete definition, if `text` is a name of the book or a definition based on one (which
  /// keeps that name unless it has a name of its own). Any other text is returned unchanged. The
  /// result does not need the book.
  [[nodiscard]] std::string resolve(std::string_view text) const;

  /// All definitions, in the order of the files.
  [[nodiscard]] const std::vector<std::string>& definitions() const { return definitions_; }

 private:
  void add(std::string_view file, const ModelText& definition);
  [[nodiscard]] std::optional<ModelText> find(std::string_view name) const;

  std::vector<std::string> definitions_;
  std::map<std::string, std::size_t, std::less<>> places_;  ///< of names in definitions_
};

}  // namespace fp8lab

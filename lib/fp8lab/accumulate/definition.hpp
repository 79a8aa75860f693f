#pragma once
// Accumulators that a user defines, as text: an instruction or a kind of unit, with some of its
// parameters changed. Such a text is a name wherever a model is named.
//
//   fused:terms=16,F=13,rounding=toward_zero,e_min=-6
//   narrow=sm90.wgmma.e4m3:F=10
//
// `[NAME=]BASE[:PARAMETER=VALUE,...]`. BASE is a registered instruction or a kind; a kind stands
// for one of its instructions (`accumulator_kinds`). What is not given is as the base has it. NAME
// is for people. The text says everything: results, vector files and checkpoints that hold it can
// be read without anything else.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/accumulate/parameters.hpp"
#include "fp8lab/core/model_text.hpp"

namespace fp8lab {

/// A kind of unit as the base of definitions.
struct AccumulatorKindBase {
  AccumulationKind kind;
  std::string_view alias;        ///< a shorter spelling of the kind's name; empty: none
  std::string_view instruction;  ///< whose parameters those are that a definition leaves out
};
std::span<const AccumulatorKindBase> accumulator_kinds();

/// Names of the parameters that a model has: those of its unit, with its present other parameters,
/// then a_format and b_format. Others make no difference to its results, and cannot be given.
std::vector<std::string_view> parameters_that_matter(const AccumulatorModel& model);

/// Whether a text is a definition rather than the name of an instruction.
bool is_definition(std::string_view text);

/// The model that the text defines; its name is the text. It is a definition (no hardware, any
/// operands that its unit takes), of the base's formats unless a_format or b_format is given. With
/// FP16 output the fraction bits of the sum are FP16's 10. Throws `Error` that names the text and
/// the parameter, what may be given and what was.
///
/// The reference stays good, and is the same for the same text: models once made are kept. They
/// depend on the text alone. Safe to call from several threads.
const InstructionModel& defined_model(std::string_view text);

/// The definition with all parameters that matter, under the kind's own name: the serial form.
/// `defined_model` of it has this accumulator (but for fields that make no difference) and formats.
std::string definition_of(const AccumulatorModel& model, FormatId a, FormatId b);

/// Definitions by name, for files in which users keep them.
class ModelBook {
 public:
  /// Adds the tables `[accumulator.NAME]` of a TOML document, or the members of "accumulator" in a
  /// JSON one: `base = "BASE"` and parameters. A base may be a table before it. Throws `Error` with
  /// `file` for text of another form, a name that an instruction, a kind or another definition has,
  /// and whatever `defined_model` refuses.
  void add_toml(std::string_view file, std::string_view text);
  void add_json(std::string_view file, std::string_view text);

  /// The definition where `text` is a name of the book, or a definition on such a name as its base
  /// (which keeps the name unless it has its own); else the text as it is. The result needs no
  /// book.
  [[nodiscard]] std::string resolve(std::string_view text) const;

  /// All definitions, in the order of the files.
  [[nodiscard]] const std::vector<std::string>& definitions() const { return definitions_; }

 private:
  void add(std::string_view file, const ModelText& definition);
  [[nodiscard]] std::optional<ModelText> find(std::string_view name) const;

  std::vector<std::string> definitions_;
};

}  // namespace fp8lab

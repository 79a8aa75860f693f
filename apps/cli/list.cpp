#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "command.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/cast/policy.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/experiment/experiment.hpp"
#include "fp8lab/experiment/table.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "models.hpp"

namespace fp8lab::cli {
namespace {

struct ListArguments {
  std::string what;
  ModelFiles models;
  bool json = false;
};

std::string specials_of(const Format& f) {
  switch (f.specials) {
    case SpecialValues::ieee:
      return "Inf, NaN";
    case SpecialValues::nan_only:
      return "NaN";
    case SpecialValues::fnuz:
      return "NaN, no -0";
    case SpecialValues::none:
      return "none";
  }
  return "";
}

Table formats(const ListArguments& /*options*/) {
  Table table("formats", "Formats",
              {{"name", "", "name in every option"},
               {"exponent_bits", "bits", "width of the exponent field"},
               {"mantissa_bits", "bits", "width of the mantissa field"},
               {"bias", "1", "exponent bias"},
               {"max_finite", "1", "largest finite value"},
               {"min_normal", "1", "smallest positive normal value"},
               {"min_subnormal", "1", "smallest positive value"},
               {"specials", "", "codes that are not finite numbers"},
               {"storage_bits", "bits", "width of a stored element"}});
  for (const Format& f : kFormats)
    table.add_row({std::string(f.name), std::int64_t{f.exponent_bits},
                   std::int64_t{f.mantissa_bits}, std::int64_t{f.bias}, f.max_finite(),
                   f.min_normal(), f.min_subnormal(), specials_of(f),
                   std::int64_t{f.storage_bits}});
  return table;
}

Table profiles(const ListArguments& /*options*/) {
  Table table("profiles", "Cast profiles",
              {{"name", "", "name in every option"},
               {"rounding", "", "rounding mode"},
               {"overflow", "", "magnitudes above max finite after rounding"},
               {"subnormals", "", "magnitudes below min normal"},
               {"infinity", "", "what +-Inf becomes"},
               {"nan", "", "what NaN becomes"},
               {"used_by", "", "systems that cast so"}});
  for (const CastProfile& profile : kCastProfiles) {
    const CastPolicy& policy = profile.policy;
    table.add_row({std::string(profile.name), std::string(to_string(policy.rounding)),
                   std::string(to_string(policy.overflow)),
                   std::string(to_string(policy.subnormals)),
                   std::string(to_string(policy.infinity)), std::string(to_string(policy.nan)),
                   std::string(profile.used_by)});
  }
  return table;
}

constexpr const char* kUnused = "-";  // null in JSON

/// The recordings that a measured model replays, with their rows.
std::string evidence_of(const InstructionModel& model) {
  std::string text;
  for (const ReplayedRows& one : model.evidence)
    text += fmt::format("{}{} ({}, {} rows)", text.empty() ? "" : ", ", one.recording, one.gpu,
                        one.rows);
  return text.empty() ? kUnused : text;
}

/// A model's fields where its kind uses them.
std::vector<Cell> model_row(const InstructionModel& model) {
  const AccumulatorModel& accumulator = model.accumulator;
  const UnitTraits traits = traits_of(accumulator);
  const auto where = [](bool used, int value) {
    return used ? Cell(std::int64_t{value}) : Cell(std::string(kUnused));
  };
  const bool one_format = model.a_format == model.b_format;
  const std::string a(format(model.a_format).name);
  return {std::string(model.name),
          one_format ? a : a + " " + std::string(format(model.b_format).name),
          std::string(to_string(accumulator.kind)),
          where(traits.has_steps, accumulator.terms),
          where(traits.aligns, accumulator.alignment_fraction_bits),
          where(traits.rounds_sums, accumulator.output_fraction_bits),
          traits.rounds_sums ? std::string(to_string(accumulator.rounding)) : kUnused,
          std::string(format(accumulator.output_format).name),
          where(traits.aligns && accumulator.min_alignment_exponent != kNoMinAlignmentExponent,
                accumulator.min_alignment_exponent),
          where(traits.has_second_stage, accumulator.second_stage_fraction_bits),
          traits.takes_scales ? unit_of(accumulator.kind).scale_forms(accumulator) : kUnused,
          std::string(to_string(model.standing)),
          std::string(model.source),
          evidence_of(model)};
}

Table models(const ListArguments& options) {
  Table table(
      "models", "Instruction models",
      {{"name", "", "architecture, instruction and input"},
       {"input", "", "formats of a and b, or of both"},
       {"accumulation", "", "how products are added"},
       {"terms", "1", "products per step"},
       {"alignment_bits", "bits", "fraction bits kept when terms are aligned"},
       {"output_bits", "bits", "fraction bits of the sum"},
       {"rounding", "", "rounding of the sum"},
       {"output", "", "format of the result"},
       {"min_exponent", "", "lower limit of the alignment exponent"},
       {"second_stage_bits", "bits", "fraction bits of the products' sum to which c is added"},
       {"block_scales", "", "scales that the instruction applies"},
       {"standing", "", "how well it is known"},
       {"source", "", "who says so"},
       {"evidence", "", "recordings that replay without a mismatch"}});
  for (const InstructionModel& model : instruction_models()) table.add_row(model_row(model));
  const ModelBook book = load_models(options.models);
  for (const std::string& text : book.definitions()) table.add_row(model_row(defined_model(text)));
  return table;
}

Table accumulators(const ListArguments& /*options*/) {
  Table table("accumulators",
              "Accumulators on which definitions can be based: KIND:PARAMETER=VALUE,...",
              {{"name", "", "name of the kind"},
               {"alias", "", "a shorter spelling"},
               {"otherwise", "", "instruction that provides the default parameters"},
               {"parameters", "", "what can be given"}});
  for (const AccumulatorKindBase& one : accumulator_kinds())
    table.add_row(
        {std::string(to_string(one.kind)),
         one.alias.empty() ? std::string(kUnused) : std::string(one.alias),
         std::string(one.instruction),
         fmt::format("{}", fmt::join(parameters_that_matter(
                                         find_instruction_model(one.instruction).accumulator),
                                     " "))});
  return table;
}

Table parameters(const ListArguments& /*options*/) {
  Table table("parameters", "Parameters of accumulators",
              {{"name", "", "name in definitions"},
               {"alias", "", "a shorter spelling"},
               {"values", "", "allowed values; a kind may allow fewer"},
               {"help", "", "what it is"}});
  for (const AccumulatorParameter& one : accumulator_parameters())
    table.add_row({std::string(one.name),
                   one.alias.empty() ? std::string(kUnused) : std::string(one.alias),
                   std::string(one.values), std::string(one.help)});
  return table;
}

std::string tile_text(const Recipe& recipe) {
  const auto side = [](std::int64_t size) { return size == 0 ? "all" : std::to_string(size); };
  return side(recipe.row_block) + " x " + side(recipe.k_block);
}

/// One row an operand that has a recipe of its own.
void add_recipe(Table& table, const Preset& preset, std::string_view operand,
                const Recipe& recipe) {
  table.add_row({std::string(preset.name), std::string(operand),
                 std::string(format(recipe.format).name), std::string(to_string(recipe.rule)),
                 std::string(to_string(recipe.source)), tile_text(recipe),
                 std::string(takes_bf16(recipe.rule)               ? "bf16"
                             : computes_in_fp32_input(recipe.rule) ? "fp32"
                                                                   : "any"),
                 std::string(preset.used_by), std::string(preset.source),
                 std::string(to_string(preset.evidence))});
}

Table recipes(const ListArguments& /*options*/) {
  Table table("recipes", "Recipes",
              {{"name", "", "name in every option"},
               {"operand", "", "operand of a linear layer"},
               {"format", "", "format of the codes"},
               {"rule", "", "formula for the scale from the amax"},
               {"scale_from", "", "source of the amax"},
               {"tile", "", "rows and columns under one scale"},
               {"input", "", "tensor type for which the rule is made"},
               {"used_by", "", "system"},
               {"source", "", "version and source file"},
               {"known", "", "how well it is known"}});
  for (const Preset& preset : presets()) {
    add_recipe(table, preset, "activation", preset.activation);
    if (preset.activation_for_wgrad)
      add_recipe(table, preset, "activation in wgrad", *preset.activation_for_wgrad);
    add_recipe(table, preset, "weight", preset.weight);
    if (preset.weight_for_dgrad)
      add_recipe(table, preset, "weight in dgrad", *preset.weight_for_dgrad);
    add_recipe(table, preset, "gradient", preset.gradient);
    if (preset.gradient_for_wgrad)
      add_recipe(table, preset, "gradient in wgrad", *preset.gradient_for_wgrad);
  }
  return table;
}

Table calls(const ListArguments& /*options*/) {
  Table table("calls", "Library calls",
              {{"name", "", "name for --call and call="},
               {"model", "", "instruction, of E4M3 operands"},
               {"promotion", "1", "terms between promotions; 0: never"},
               {"scale_order", "", "of one scale each, or of tiles along K"},
               {"row_scale_order", "", "of one scale per row"},
               {"scales", "", "scales that it reads"},
               {"output", "", "usual output format"},
               {"split_tile", "1", "terms of a tile if it splits K"},
               {"splits", "", "known cut and order of the parts"},
               {"epilogue", "", "steps after the sum, in order"},
               {"standing", "", "how well it is known"},
               {"source", "", "source, and what is assumed"}});
  for (const LibraryCall& call : library_calls()) {
    std::string splits;
    for (const auto& [cut, order] : call.splits)
      splits +=
          fmt::format("{}{} {}", splits.empty() ? "" : ", ", to_string(cut), to_string(order));
    table.add_row({std::string(call.name), std::string(call.model), call.promotion_interval,
                   std::string(to_string(call.scale_order)),
                   std::string(to_string(call.row_scale_order)), std::string(call.scales),
                   std::string(format(call.output).name),
                   call.split_tile == 0 ? Cell(std::string(kUnused)) : Cell(call.split_tile),
                   splits.empty() ? std::string(kUnused) : splits, std::string(call.epilogue),
                   std::string(to_string(call.standing)), std::string(call.source)});
  }
  return table;
}

Table experiments(const ListArguments& /*options*/) {
  Table table("experiments", "Experiments",
              {{"name", "", "name for run"}, {"question", "", "question that it answers"}});
  for (const Experiment& experiment : all_experiments())
    table.add_row({std::string(experiment.name), read_question(experiment.default_toml)});
  return table;
}

nlohmann::ordered_json json_of(const Table& table) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& row : table.rows()) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (std::size_t c = 0; c < row.size(); ++c)
      if (row[c] == Cell(std::string(kUnused)))
        object[table.columns()[c].name] = nullptr;
      else
        std::visit([&](const auto& value) { object[table.columns()[c].name] = value; }, row[c]);
    rows.push_back(object);
  }
  return rows;
}

int run(const ListArguments& options) {
  constexpr std::pair<std::string_view, Table (*)(const ListArguments&)> kKinds[] = {
      {"formats", formats}, {"profiles", profiles},         {"recipes", recipes},
      {"models", models},   {"accumulators", accumulators}, {"parameters", parameters},
      {"calls", calls},     {"experiments", experiments}};
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  std::string text;
  for (const auto& [name, make] : kKinds) {
    if (!options.what.empty() && options.what != name) continue;
    const Table table = make(options);
    if (options.json)
      json[std::string(name)] = json_of(table);
    else
      text += table.text() + "\n";
  }
  fmt::print("{}", options.json ? json_text(json, 2) + "\n" : text);
  return kPass;
}

}  // namespace

void add_list(Command& app, Action& action) {
  auto options = std::make_shared<ListArguments>();
  Command* command = app.add_subcommand("list",
                                        "List formats, profiles, recipes, models, kinds and "
                                        "parameters of accumulators, library calls, experiments");
  command->add_option("WHAT", options->what, "one of these alone")
      ->check(one_of({"formats", "profiles", "recipes", "models", "accumulators", "parameters",
                      "calls", "experiments"}));
  add_models_option(*command, options->models);
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"
#include "experiments/registry.hpp"
#include "fitted_table.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/cast/policy.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/formats/definition.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "lab/experiment/experiment.hpp"
#include "lab/experiment/table.hpp"
#include "models.hpp"
#include "terminal.hpp"

namespace fp8lab::cli {
namespace {

struct ListArguments {
  std::string what;
  std::string word;
  std::string chip;
  std::string input;
  ModelFiles models;
  bool json = false;
  bool csv = false;
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
    case SpecialValues::fnuz_inf:
      return "Inf, NaN, no -0";
    case SpecialValues::nan_inf:
      return "Inf, NaN";
    case SpecialValues::inf_only:
      return "Inf";
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
  std::vector<const Format*> all;
  for (const Format& f : kFormats) all.push_back(&f);
  for (const NamedFormat& one : named_formats()) all.push_back(&find_format(one.name));
  for (const Format* known : all) {
    const Format& f = *known;
    table.add_row({std::string(f.name), std::int64_t{f.exponent_bits},
                   std::int64_t{f.mantissa_bits}, std::int64_t{f.bias}, f.max_finite(),
                   f.min_normal(), f.min_subnormal(), specials_of(f),
                   std::int64_t{f.storage_bits}});
  }
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
  for (const AccumulatorKind& one : accumulator_kinds())
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
  table.add_row(
      {std::string(preset.name), std::string(operand), std::string(format(recipe.format).name),
       std::string(to_string(recipe.rule)), std::string(to_string(recipe.source)),
       tile_text(recipe),
       std::string(takes_bf16(recipe.rule)               ? "bf16"
                   : computes_in_fp32_input(recipe.rule) ? "fp32"
                                                         : "any"),
       std::string(preset.used_by), std::string(preset.source),
       std::string(to_string(preset.evidence)),
       preset.not_compared.empty() ? std::string(kUnused) : std::string(preset.not_compared)});
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
               {"known", "", "how well it is known"},
               {"not_compared", "", "why it was read alone"}});
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

Table format_parameter_list(const ListArguments& /*options*/) {
  Table table("format-parameters", "Parameters of formats as text (float:e=4,m=3)",
              {{"name", "", "name in a text"},
               {"values", "", "what can be given"},
               {"help", "", "what it is"}});
  for (const FormatParameter& one : format_parameters())
    table.add_row({std::string(one.name), std::string(one.values), std::string(one.help)});
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

/// What can be listed, and what a list of it shows on a terminal.
struct Kind {
  std::string_view name;
  Table (*make)(const ListArguments&);
  std::vector<ShownColumn> shown;
  std::string_view what;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kKinds{
      {"formats",
       formats,
       {{"name", "name"},
        {"exponent_bits", "e"},
        {"mantissa_bits", "m"},
        {"bias", "bias"},
        {"max_finite", "max"},
        {"min_normal", "min normal"},
        {"min_subnormal", "min"},
        {"specials", "specials"},
        {"storage_bits", "bits"}},
       "number formats"},
      {"profiles",
       profiles,
       {{"name", "name"},
        {"overflow", "overflow"},
        {"subnormals", "subnormals"},
        {"used_by", "used by"}},
       "cast profiles"},
      {"recipes",
       recipes,
       {{"name", "name"}, {"tile", "tile"}, {"used_by", "used by"}, {"known", "known"}},
       "scaling recipes of systems"},
      {"models",
       models,
       {{"name", "name"}, {"input", "input"}, {"accumulation", "sum"}, {"standing", "known"}},
       "matrix instructions"},
      {"accumulators",
       accumulators,
       {{"name", "name"}, {"alias", "alias"}, {"parameters", "parameters"}},
       "kinds of accumulators for definitions"},
      {"parameters",
       parameters,
       {{"name", "name"}, {"alias", "alias"}, {"values", "values"}, {"help", "what it is"}},
       "parameters of accumulators"},
      {"format-parameters",
       format_parameter_list,
       {{"name", "name"}, {"values", "values"}, {"help", "what it is"}},
       "parameters of formats"},
      {"calls",
       calls,
       {{"name", "name"}, {"promotion", "promotion"}, {"scales", "scales"}, {"standing", "known"}},
       "library calls"},
      {"experiments", experiments, {{"name", "name"}, {"question", "question"}}, "experiments"}};
  return kKinds;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

/// The text of a row in a column; nothing where the table has none of the name.
std::string text_in(const Table& table, const std::vector<Cell>& row, std::string_view column) {
  for (std::size_t c = 0; c < row.size(); ++c)
    if (table.columns()[c].name == column)
      if (const auto* text = std::get_if<std::string>(&row[c])) return *text;
  return "";
}

template <class Keeps>
Table only(const Table& table, const Keeps& keeps) {
  Table kept(table.name(), table.title(), table.columns());
  for (const auto& row : table.rows())
    if (keeps(row)) kept.add_row(row);
  return kept;
}

/// Whether `part` is one of the parts of a name: sm90 of sm90.wgmma.e4m3, h100 of deepgemm.h100.
bool has_part(std::string_view name, std::string_view part) {
  const std::string padded = fmt::format(".{}.", lower(name));
  return padded.find(fmt::format(".{}.", lower(part))) != std::string::npos;
}

/// The rows for a chip, by name or by the GPU of its recordings.
Table of_chip(const Table& table, const std::string& chip) {
  return only(table, [&](const auto& row) {
    return has_part(text_in(table, row, "name"), chip) ||
           has_part(text_in(table, row, "model"), chip) ||
           lower(text_in(table, row, "evidence")).find(lower(chip)) != std::string::npos;
  });
}

/// The rows whose operands have a format, by name or by the beginning of it.
Table of_input(const Table& table, const std::string& input) {
  return only(table, [&](const auto& row) {
    const std::string formats = " " + text_in(table, row, "input");
    return formats.find(" " + lower(input)) != std::string::npos;
  });
}

Table with_word(const Table& table, const std::string& word) {
  return only(table, [&](const auto& row) {
    return std::ranges::any_of(row, [&](const Cell& cell) {
      const auto* text = std::get_if<std::string>(&cell);
      return text != nullptr && lower(*text).find(lower(word)) != std::string::npos;
    });
  });
}

/// Throws `Error` if a filter left nothing.
Table not_empty(Table table, const Table& all, std::string_view option, const std::string& given) {
  if (!table.rows().empty()) return table;
  std::vector<std::string> names;
  for (const auto& row : all.rows()) names.push_back(text_in(all, row, "name"));
  const std::vector<std::string_view> views(names.begin(), names.end());
  throw Error(
      option,
      fmt::format("what one of {} {} has{}", names.size(), all.name(), did_you_mean(views, given)),
      fmt::format("'{}'", given));
}

struct Listed {
  Table table;
  bool one = false;  ///< a single thing, by its name
};

Listed listed(const Kind& kind, const ListArguments& options) {
  const Table all = kind.make(options);
  Table table = all;
  if (!options.chip.empty())
    table = not_empty(of_chip(table, options.chip), all, "--chip", options.chip);
  if (!options.input.empty())
    table = not_empty(of_input(table, options.input), all, "--input", options.input);
  if (options.word.empty()) return {table, false};
  Table named =
      only(table, [&](const auto& row) { return text_in(table, row, "name") == options.word; });
  if (!named.rows().empty()) return {named, true};
  return {not_empty(with_word(table, options.word), all, "NAME", options.word), false};
}

/// The first row of each name, in short words: a kind of accumulator by its alias, what is known
/// from literature as "literature".
Table in_short(const Table& table) {
  Table shown(table.name(), table.title(), table.columns());
  std::string before;
  for (std::vector<Cell> row : table.rows()) {
    const std::string name = text_in(table, row, "name");
    if (name == before) continue;
    before = name;
    for (std::size_t c = 0; c < row.size(); ++c) {
      auto* text = std::get_if<std::string>(&row[c]);
      if (text == nullptr) continue;
      if (text->starts_with("from ")) text->erase(0, 5);
      if (table.columns()[c].name != "accumulation") continue;
      for (const AccumulatorKind& kind : accumulator_kinds())
        if (to_string(kind.kind) == *text && !kind.alias.empty()) *text = kind.alias;
    }
    shown.add_row(std::move(row));
  }
  return shown;
}

std::string text_of(const Kind& kind, const Listed& listed) {
  const std::size_t columns = columns_of_terminal();
  if (listed.one) return details(listed.table, columns);
  std::string text = bold(listed.table.title()) + "\n";
  text += fitted(in_short(listed.table), kind.shown, columns) + "\n";
  text += paragraph("",
                    fmt::format("`fp8lab list {} NAME` shows everything on one; --csv and "
                                "--json have all columns.",
                                kind.name),
                    columns);
  return text;
}

/// What there is to list.
std::string overview(const ListArguments& options) {
  std::string text;
  for (const Kind& kind : kinds())
    text += fmt::format("  fp8lab list {:<13} {:>4} {}\n", kind.name,
                        in_short(kind.make(options)).rows().size(), kind.what);
  return text;
}

void check_filters(const ListArguments& options) {
  const auto among = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, options.what) != names.end();
  };
  const std::string got = options.what.empty() ? "everything" : options.what;
  require(options.chip.empty() || among({"models", "calls"}), "--chip", "models or calls", got);
  require(options.input.empty() || among({"models"}), "--input", "models", got);
  require(!options.csv || !options.what.empty(), "--csv", "one kind of things", got);
  require(!(options.csv && options.json), "--csv", "one form", "--json too");
}

int run(const ListArguments& options) {
  check_filters(options);
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  std::string text;
  for (const Kind& kind : kinds()) {
    if (!options.what.empty() && options.what != kind.name) continue;
    if (options.what.empty() && !options.json) continue;
    const Listed one = listed(kind, options);
    if (options.json)
      json[std::string(kind.name)] = json_of(one.table);
    else
      text += options.csv ? one.table.csv() : text_of(kind, one);
  }
  if (options.what.empty() && !options.json) text = overview(options);
  fmt::print("{}", options.json ? json_text(json, 2) + "\n" : text);
  return kPass;
}

}  // namespace

void add_list(Command& app, Action& action) {
  auto options = std::make_shared<ListArguments>();
  Command* command = app.add_subcommand(
      "list", "List formats, profiles, recipes, models, accumulators, calls, experiments");
  command->add_option("WHAT", options->what, "what to list; nothing: what there is")
      ->check(one_of({"formats", "profiles", "recipes", "models", "accumulators", "parameters",
                      "format-parameters", "calls", "experiments"}));
  command->add_option("NAME", options->word, "one of them with everything; or a word to look for");
  command->add_option("--chip", options->chip, "models and calls of this chip: sm90, h100, gfx942");
  command->add_option("--input", options->input, "models of operands in this format: e4m3, bf16");
  add_models_option(*command, options->models);
  command->add_flag("--csv", options->csv, "all columns, as CSV");
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli

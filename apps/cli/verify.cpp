#include "fp8lab/verify/verify.hpp"
#include "fp8lab/core/json_text.hpp"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/tensors/packed.hpp"
#include "fp8lab/verify/gates.hpp"
#include "grouped.hpp"
#include "ignored_options.hpp"
#include "lab/plots/draw.hpp"
#include "lab/plots/plot_json.hpp"
#include "non_finite.hpp"
#include "operands.hpp"
#include "option_text.hpp"
#include "progress_line.hpp"
#include "result_folder.hpp"
#include "say.hpp"
#include "verify_json.hpp"
#include "verify_results.hpp"

namespace fp8lab::cli {
namespace {

struct VerifyArguments {
  OperandOptions operands;
  std::string got;
  std::vector<std::string> inputs;
  std::string golden;
  std::string cast;
  std::string scale;
  std::string tiles;
  std::string role = "activation";
  bool multipliers = false;
  std::string check = "bitwise";
  std::string map;
  std::string out;
  bool fault_matrix = false;
  std::string ungrouped = "any";
  bool gates = false;
  bool json = false;
  bool details = false;
  bool progress = false;
  bool output_dtype_given = false;
};

Operand load_output(const std::string& name, std::string_view dtype) {
  const ElementType type = find_element_type(dtype);
  const bool opaque = type != ElementType::f32 && type != ElementType::f16;
  return load_operand(name, opaque ? std::optional(type) : std::nullopt);
}

/// The output's type as its file says it, where nobody else does.
void take_output_dtype(VerifyArguments& options) {
  if (options.output_dtype_given) return;
  std::optional<FormatId> id;
  try {
    id = format_of(load_operand(options.got).tensor().type);
  } catch (const Error&) {  // a file that does not say it; what is wrong with it is told later
    return;
  }
  if (id) options.operands.output_dtype = format(*id).name;
}

void take_inputs(VerifyArguments& options) {
  options.operands.a = options.inputs[0];
  options.operands.b = options.inputs[1];
  take_output_dtype(options);
}

VerifyReport verify_product(VerifyArguments options, const VerifyOptions& how) {
  take_inputs(options);
  const Product product = load_product(options.operands);
  return verify(product, load_output(options.got, options.operands.output_dtype), how);
}

VerifyReport verify_quantizer_as_asked(const VerifyArguments& options, const VerifyOptions& how) {
  const Preset& preset = find_preset(options.operands.recipe);
  const Recipe& recipe = preset.recipe(find_tensor_role(options.role));
  const std::string_view own = format(recipe.format).name;
  require(options.cast == own || options.cast == to_string(packed(element_type_of(recipe.format))),
          "--cast", fmt::format("{}, as the recipe says", own), options.cast);
  const Operand x = load_operand(options.inputs[0], element_type(options.operands.dtype));
  const Operand got = load_operand(options.got, find_element_type(options.cast));
  const std::string label = fmt::format("{} ({})", preset.name, options.role);
  std::optional<float> level;
  if (!options.operands.tensor_scale_a.empty())
    level = one_tensor_scale("--tensor-scale-a", options.operands.tensor_scale_a);
  if (options.scale.empty())
    return verify_quantizer(recipe, label, x, nullptr, got, how, level, options.multipliers);
  const Operand scales = load_operand(options.scale, element_type(options.operands.scale_format));
  return verify_quantizer(recipe, label, x, &scales, got, how, level, options.multipliers);
}

VerifyReport verify_dump(const VerifyArguments& options, const VerifyOptions& how) {
  if (!options.operands.recipe.empty()) return verify_quantizer_as_asked(options, how);
  CastSpec spec;
  spec.format = find_format(options.cast).id;
  if (!options.operands.profile.empty())
    spec.policy = find_cast_profile(options.operands.profile).policy;
  const Operand x = load_operand(options.inputs[0], element_type(options.operands.dtype));
  const Operand got = load_output(options.got, options.cast);
  if (options.scale.empty()) return verify_cast(spec, x, nullptr, got, how);
  const Operand scale = load_operand(options.scale, element_type(options.operands.scale_format));
  return verify_cast(spec, x, &scale, got, how);
}

VerifyOptions options_of(const VerifyArguments& options, ProgressLine& line) {
  VerifyOptions how;
  how.check = find_check(options.check);
  how.fault_matrix = options.fault_matrix;
  how.threads = options.operands.threads;
  how.scale_tiles = scale_tiles("--tiles", options.tiles);
  how.progress = line.teller();
  return how;
}

VerifyReport verify_as_asked(const VerifyArguments& options) {
  ProgressLine line(options.progress);
  const VerifyOptions how = options_of(options, line);
  const std::size_t wanted = options.cast.empty() ? 2 : 1;
  require(options.golden.empty() != options.inputs.empty(), "verify",
          "either --inputs (A B, or X with --cast) or --golden FILE",
          options.golden.empty() ? "neither" : "both");
  if (!options.golden.empty())
    return verify(load_output(options.golden, options.operands.output_dtype),
                  load_output(options.got, options.operands.output_dtype), how);
  require(options.inputs.size() == wanted, "--inputs",
          wanted == 2 ? "two files, A and B (or one with --cast)" : "one file with --cast",
          fmt::format("{}", options.inputs.size()));
  return options.cast.empty() ? verify_product(options, how) : verify_dump(options, how);
}

/// The mismatch map, as a specification and, where vl-convert is there, as pictures.
void draw(const VerifyReport& report, const std::string& folder) {
  const HeatMap map = mismatch_map(report);
  make_writable_folder(folder);
  write_file(std::filesystem::path(folder) / (map.name + ".json"), plot_json(map));
  const std::array<std::string, 1> names{map.name};
  if (!draw_files(folder, names))
    say(stderr, "fp8lab: {}; {}/{}.json has the map, without a picture\n", kNoDrawing, folder,
        map.name);
}

/// What went in, as a run's parameters. JSON strings and lists are TOML's too.
Parameters parameters_of(const VerifyReport& report, const VerifyArguments& options) {
  std::string toml;
  const auto add = [&](const char* key, const nlohmann::json& value) {
    toml += fmt::format("{} = {}\n", key, json_text(value));
  };
  const auto add_text = [&](const char* key, const std::string& text) {
    if (!text.empty()) add(key, text);
  };
  add("got", options.got);
  if (!options.inputs.empty()) add("inputs", options.inputs);
  add_text("golden", options.golden);
  add_text("cast", options.cast);
  add_text("scale", options.scale);
  add_text("check", options.check);
  add_text("dtype", options.operands.dtype);
  add("output_dtype", format(report.output).name);
  add_text("recipe", options.operands.recipe);
  add_text("call", options.operands.call);
  if (options.inputs.size() == 2 && options.operands.call.empty()) {
    add("model", options.operands.model);
    add("promotion", options.operands.promotion);
  }
  return Parameters::from_toml(toml, false);
}

void write_folder(const VerifyReport& report, const VerifyArguments& options,
                  const std::string& command, std::chrono::system_clock::time_point started) {
  const std::chrono::duration<double> took = std::chrono::system_clock::now() - started;
  const RunRecord record{.experiment = "verify",
                         .question = "Is this output right, and could the test have failed?",
                         .parameters = parameters_of(report, options),
                         .threads = options.operands.threads,
                         .command = command,
                         .started = started,
                         .duration_seconds = took.count()};
  write_result_folder(results_of(report), record, options.out);
}

/// An option of a command with another value, in place of the one that it has.
std::string with_value(std::string command, const std::string& option, const std::string& value) {
  const std::size_t at = command.find(" " + option + " ");
  if (at != std::string::npos) {
    const std::size_t end = command.find(' ', at + option.size() + 2);
    command.erase(at, end == std::string::npos ? std::string::npos : end - at);
  }
  return fmt::format("{} {} {}", command, option, value);
}

/// What shows more, or that the cause is the right one.
std::string next_command(const VerifyReport& r, const std::string& command) {
  if (r.check.kind == fp8lab::Check::Kind::bitwise && r.budget && r.budget->checked > 0 &&
      r.budget->within == r.budget->checked)
    return with_value(command, "--check", "budget");
  if (!r.diagnosis || r.diagnosis->causes.empty()) return command + " --details";
  const std::string& name = r.diagnosis->causes.front().name;
  const auto after = [&](std::string_view prefix) { return name.substr(prefix.size()); };
  if (name.starts_with("accumulator_"))
    return with_value(command, "--model", after("accumulator_"));
  if (name.starts_with("promotion_"))
    return with_value(command, "--promotion", after("promotion_"));
  if (name == "no_promotion") return with_value(command, "--promotion", "0");
  if (name.starts_with("split_k_")) return with_value(command, "--split-k", after("split_k_"));
  if (name.starts_with("scale_order_"))
    return with_value(command, "--scale-order", after("scale_order_"));
  if (name.starts_with("c_in_")) return with_value(command, "--c-enters", after("c_in_"));
  if (name.starts_with("activation_"))
    return with_value(command, "--activation", after("activation_"));
  return command + " --details";
}

int exit_code(Verdict verdict) {
  if (verdict == Verdict::mismatch) return kMismatch;
  return verdict == Verdict::no_power ? kNoPower : kPass;
}

int run_grouped(VerifyArguments options, const Groups& groups, const std::string& command) {
  require(
      options.cast.empty() && options.golden.empty() && options.map.empty() && options.out.empty(),
      "groups", "none of --cast, --golden, --map and --out with them", "one of these");
  require(options.inputs.size() == 2, "--inputs", "two files, A and B",
          fmt::format("{}", options.inputs.size()));
  take_inputs(options);
  ProgressLine line(options.progress);
  const GroupedProduct product = load_grouped_product(options.operands, groups);
  const GroupedReport report =
      verify(product, load_output(options.got, options.operands.output_dtype),
             options_of(options, line), find_ungrouped_rule(options.ungrouped));
  if (options.json)
    fmt::print("{}\n", json_text(to_json(report), 2));
  else
    fmt::print("{}", options.details ? describe(report) : summary(report, command + " --details"));
  if (options.fault_matrix && !options.json) fmt::print("{}", describe_faults(*report.power));
  warn_of_non_finite(report.non_finite);
  return exit_code(report.verdict);
}

/// With --cast and --golden most options of products count for nothing.
void require_only_what_is_read(const Command& command, const VerifyArguments& options) {
  if (!options.cast.empty())
    require_only(
        command, "--cast",
        std::array<std::string_view, 20>{
            "--inputs",       "--golden", "--scale",   "--tiles",       "--details",
            "--scale-format", "--dtype",  "--profile", "--check",       "--gate",
            "--fault-matrix", "--map",    "--out",     "--threads",     "--json",
            "--progress",     "--recipe", "--role",    "--multipliers", "--tensor-scale-a"});
  if (options.cast.empty() || options.operands.recipe.empty())
    for (const char* name : {"--role", "--multipliers"})
      require(command.count(name) == 0, name, "--cast and --recipe with it", "one of them alone");
  if (!options.cast.empty() && !options.operands.recipe.empty())
    for (const char* name : {"--tiles", "--profile"})
      require(command.count(name) == 0, name, "no value with --recipe, which says it", "a value");
  else if (!options.cast.empty())
    require(command.count("--tensor-scale-a") == 0, "--tensor-scale-a", "--recipe with it",
            "--cast alone");
  if (!options.golden.empty())
    require_only(command, "--golden",
                 std::array<std::string_view, 11>{"--inputs", "--check", "--details", "--out-dtype",
                                                  "--gate", "--fault-matrix", "--map", "--out",
                                                  "--threads", "--json", "--progress"});
}

int run(const VerifyArguments& options, const std::string& command) {
  if (const std::optional<Groups> groups = groups_of(options.operands.groups))
    return run_grouped(options, *groups, command);
  if (!options.map.empty()) require_writable_folder(options.map);
  if (!options.out.empty()) require_writable_results(options.out, "verify");
  const auto started = std::chrono::system_clock::now();
  const VerifyReport report = verify_as_asked(options);
  if (options.json) {
    fmt::print("{}\n", json_text(to_json(report), 2));
  } else {
    fmt::print("{}",
               options.details ? describe(report) : summary(report, next_command(report, command)));
    if (options.gates) say_gates(gates(), report.gates);
    if (options.fault_matrix) fmt::print("{}", describe_faults(*report.power));
  }
  warn_of_non_finite(report.non_finite);
  if (!options.map.empty() && !report.map.counts.empty()) draw(report, options.map);
  if (!options.out.empty()) write_folder(report, options, command, started);
  return exit_code(report.verdict);
}

}  // namespace

void add_verify(Command& app, Action& action) {
  auto options = std::make_shared<VerifyArguments>();
  Command* command = app.add_subcommand(
      "verify",
      "Check an output. Exit 0: right; 1: wrong; 3: wrong outputs would pass this check too");
  command->add_option("GOT", options->got, "the output: FILE.npy, .npz:NAME, .safetensors:NAME")
      ->required();
  command->add_option("--inputs", options->inputs, "A and B of the product, or X with --cast")
      ->expected(1, 2);
  command->add_option("--golden", options->golden, "a golden output instead of inputs");
  command->add_option("--cast", options->cast, "GOT is a cast of X to this format");
  command->add_option("--scale", options->scale,
                      "with --cast: file of the scales that multiplied X: one, or one per tile");
  command->add_option("--tiles", options->tiles, "with --scale: the tiles, such as 1x128 (0: all)");
  command
      ->add_option(
          "--role", options->role,
          "with --cast and --recipe, which check a quantizer's codes and the scales that it "
          "stored (--scale): activation, weight or gradient")
      ->capture_default_str();
  command->add_flag("--multipliers", options->multipliers,
                    "with --recipe and --cast: --scale has factors of X, not of codes");
  command
      ->add_option("--check", options->check,
                   "the check that decides: bitwise, budget, or a gate (see --gate)")
      ->capture_default_str();
  command->add_flag("--gate", options->gates, "list the gates that projects ship, with sources");
  command->add_flag("--fault-matrix", options->fault_matrix,
                    "run known faults through every check");
  command->add_option("--map", options->map, "folder for an SVG that shows where mismatches are");
  command->add_option("--out", options->out,
                      "folder that gets verify/ with tables, map and result.json, for report");
  add_operand_options(*command, options->operands);
  command
      ->add_option("--ungrouped", options->ungrouped,
                   "required contents of rows in no group: any or zero")
      ->capture_default_str();
  command->add_flag("--json", options->json, "machine-readable output");
  command->add_flag("--details", options->details,
                    "all figures: distances, elements, models, budgets, gates");
  command->add_flag("--progress", options->progress,
                    "report progress on stderr even if it is not a terminal");
  command->callback([options, command, &action] {
    action = [options, command, text = shell_command("fp8lab verify", *command)] {
      require_only_what_is_read(*command, *options);
      use_call(*command, options->operands);
      options->output_dtype_given = command->count("--out-dtype") > 0;
      return run(*options, text);
    };
  });
}

}  // namespace fp8lab::cli

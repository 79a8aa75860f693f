#include "fp8lab/verify/verify.hpp"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/experiment/draw.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/verify/gates.hpp"
#include "operands.hpp"
#include "verify_json.hpp"

namespace fp8lab::cli {
namespace {

struct Options {
  OperandOptions operands;
  std::string got;
  std::vector<std::string> inputs;
  std::string golden;
  std::string cast;
  std::string scale;
  std::string check = "bitwise";
  std::string map;
  bool fault_matrix = false;
  bool gates = false;
  bool json = false;
};

Operand load_output(const std::string& name, std::string_view dtype) {
  const ElementType type = find_element_type(dtype);
  const bool opaque = type != ElementType::f32 && type != ElementType::f16;
  return load_operand(name, opaque ? std::optional(type) : std::nullopt);
}

VerifyReport verify_product(Options options, const VerifyOptions& how) {
  options.operands.a = options.inputs[0];
  options.operands.b = options.inputs[1];
  const Product product = load_product(options.operands);
  return verify(product, load_output(options.got, options.operands.output_dtype), how);
}

VerifyReport verify_dump(const Options& options, const VerifyOptions& how) {
  CastSpec spec;
  spec.format = find_format(options.cast).id;
  if (!options.operands.profile.empty())
    spec.policy = find_cast_profile(options.operands.profile).policy;
  const Operand x = load_operand(options.inputs[0], element_type(options.operands.dtype));
  const Operand got = load_output(options.got, options.cast);
  if (options.scale.empty()) return verify_cast(spec, x, nullptr, got, how);
  const Operand scale = load_operand(options.scale);
  return verify_cast(spec, x, &scale, got, how);
}

VerifyReport verify_as_asked(const Options& options) {
  const VerifyOptions how{find_check(options.check), options.fault_matrix,
                          options.operands.threads};
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

/// The mismatch map as an SVG, where gnuplot is there to draw it.
void draw(const VerifyReport& report, const std::string& folder) {
  const MismatchMap& tiles = report.map;
  HeatMap map;
  map.name = "mismatches";
  map.title = fmt::format("{} of {} outputs differ", report.comparison.bit_mismatches,
                          report.comparison.values.count);
  map.x_label = "column";
  map.y_label = "row";
  map.value_label = "mismatches a tile";
  for (std::int64_t i = 0; i < tiles.columns; ++i)
    map.columns.push_back(std::to_string(i * tiles.tile_columns));
  for (std::int64_t i = tiles.rows; i-- > 0;) {
    map.rows.push_back(std::to_string(i * tiles.tile_rows));
    for (std::int64_t j = 0; j < tiles.columns; ++j)
      map.values.push_back(
          static_cast<double>(tiles.counts[static_cast<std::size_t>(i * tiles.columns + j)]));
  }
  make_writable_folder(folder);
  write_plot(map, folder);
  const std::array<std::string, 1> names{map.name};
  if (!run_gnuplot(folder, names))
    fmt::print(stderr, "fp8lab: no gnuplot; {}/{}.gp draws the map\n", folder, map.name);
}

void print_gates(const VerifyReport& report) {
  fmt::print("shipped gates on this output:\n");
  for (std::size_t i = 0; i < report.gates.size(); ++i) {
    const Gate& gate = gates()[i];
    fmt::print("  {:<21} {:<6} {} ({})\n", gate.name, report.gates[i] ? "passes" : "fails",
               gate.text, gate.source);
  }
}

int run(const Options& options) {
  const VerifyReport report = verify_as_asked(options);
  if (options.json) {
    fmt::print("{}\n", to_json(report).dump(2));
  } else {
    fmt::print("{}", describe(report));
    if (options.gates) print_gates(report);
    if (options.fault_matrix) fmt::print("{}", describe_faults(*report.power));
  }
  if (!options.map.empty() && !report.map.counts.empty()) draw(report, options.map);
  if (report.verdict == Verdict::mismatch) return kMismatch;
  return report.verdict == Verdict::no_power ? kNoPower : kPass;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "verify", "Is this output right? Exit 0 yes, 1 no, 3 the test could not have failed");
  command->add_option("GOT", options->got, "the output: FILE.npy, .npz:NAME, .safetensors:NAME")
      ->required();
  command->add_option("--inputs", options->inputs, "A and B of the product, or X with --cast")
      ->expected(1, 2);
  command->add_option("--golden", options->golden, "a golden output instead of inputs");
  command->add_option("--cast", options->cast, "GOT is a cast of X to this format");
  command->add_option("--scale", options->scale,
                      "with --cast: file of what X was multiplied by, one or one a tile");
  command
      ->add_option("--check", options->check,
                   "what decides: bitwise, budget, or a gate (see --gate)")
      ->capture_default_str();
  command->add_flag("--gate", options->gates, "list the gates that projects ship, with sources");
  command->add_flag("--fault-matrix", options->fault_matrix, "known faults against every check");
  command->add_option("--map", options->map, "folder for an SVG of where mismatches are");
  add_operand_options(*command, options->operands);
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/metrics/tensor.hpp"
#include "fp8lab/product/execution.hpp"
#include "grouped.hpp"
#include "json_number.hpp"
#include "non_finite.hpp"
#include "operands.hpp"
#include "progress_line.hpp"
#include "say.hpp"

namespace fp8lab::cli {
namespace {

struct GemmArguments {
  OperandOptions operands;
  std::string output;
  bool json = false;
  bool progress = false;
};

std::string c_text(const GemmProblem& problem) {
  if (problem.c == nullptr) return "";
  return fmt::format(", C in the {}", c_placement(problem) == CPlacement::promoted_sum
                                          ? "promoted sum"
                                          : to_string(c_placement(problem)));
}

/// What went in, and D as it is written.
NonFiniteReport non_finite_of(const Product& product, const std::vector<std::byte>& d) {
  NonFiniteReport report = count_non_finite(product);
  report.push_back({"D", count_non_finite(product.output.format, d)});
  return report;
}

void print(const Product& product, const GemmArguments& options, const std::vector<float>& d,
           float amax, const NonFiniteReport& non_finite, const Execution& ran) {
  const TensorStatistics s = tensor_statistics(d);
  const Epilogue& e = product.epilogue;
  const std::string_view dtype = format(product.output.format).name;
  if (options.json) {
    nlohmann::json report{{"model", product.model},
                          {"m", product.rows()},
                          {"n", product.columns()},
                          {"k", product.problem.a.k},
                          {"promotion", product.problem.promotion_interval},
                          {"split_k", product.split.parts},
                          {"out_dtype", dtype},
                          {"output", options.output},
                          {"method", ran.method},
                          {"target", to_string(ran.target)},
                          {"threads", ran.threads},
                          {"amax", json_number(s.amax)},
                          {"zeros", s.zeros},
                          {"non_finite", s.non_finite},
                          {"non_finite_counts", to_json(non_finite)}};
    if (product.problem.c != nullptr) report["c_enters"] = to_string(c_placement(product.problem));
    if (!e.empty()) report["epilogue"] = {{"steps", describe(e)}, {"amax", json_number(amax)}};
    if (e.output_scale) report["epilogue"]["output_scale"] = json_number(*e.output_scale);
    fmt::print("{}\n", json_text(report, 2));
    return;
  }
  say("{}: D [{}, {}] = A . B^T over k = {}, promotion {}{}, {} ({}, {}, {})\n", product.model,
      product.rows(), product.columns(), product.problem.a.k, product.problem.promotion_interval,
      c_text(product.problem), dtype, ran.method, to_string(ran.target),
      counted(ran.threads, "thread"));
  if (product.split.parts > 1)
    say("  K in {} parts of {} tiles, {} added\n", product.split.parts,
        to_string(product.split.cut), to_string(product.split.order));
  if (!e.empty()) say("  epilogue: {}; amax before the output scale {:.9g}\n", describe(e), amax);
  say("  amax {:.6g}, {} zeros, {} not finite, D[0, 0] = {}\n", s.amax, s.zeros, s.non_finite,
      d.empty() ? "none" : fmt::format("{:.9g}", d.front()));
}

int run_grouped(const GemmArguments& options, const Groups& groups) {
  const GroupedProduct product = load_grouped_product(options.operands, groups);
  const std::vector<float> d = compute(product, options.operands.threads);
  const std::vector<std::byte> codes = cast_output(d, product.output, options.operands.threads);
  if (!options.output.empty())
    save_tensor(options.output, "d",
                {element_type_of(product.output.format), product.shape, codes, false});
  NonFiniteReport non_finite = count_non_finite(product);
  non_finite.push_back({"D", count_non_finite(product.output.format, codes)});
  const TensorStatistics s = tensor_statistics(d);
  const std::string_view dtype = format(product.output.format).name;
  if (options.json) {
    nlohmann::json report{
        {"groups", to_json(product)},  {"shape", product.shape},
        {"out_dtype", dtype},          {"output", options.output},
        {"amax", json_number(s.amax)}, {"zeros", s.zeros},
        {"non_finite", s.non_finite},  {"non_finite_counts", to_json(non_finite)}};
    fmt::print("{}\n", json_text(report, 2));
  } else {
    say("{}: D {}, {} of {} groups, {}\n  amax {:.6g}, {} zeros, {} not finite\n",
        options.operands.call.empty() ? options.operands.model : options.operands.call,
        shape_text(product.shape), to_string(groups.kind), product.count, dtype, s.amax, s.zeros,
        s.non_finite);
  }
  warn_of_non_finite(non_finite);
  return kPass;
}

int run(const GemmArguments& options) {
  if (!options.output.empty()) require_savable(options.output);
  if (const std::optional<Groups> groups = groups_of(options.operands.groups))
    return run_grouped(options, *groups);
  const Product product = load_product(options.operands);
  Execution ran;
  ProgressLine line(options.progress);
  const Finished finished =
      compute_finished(product, false, options.operands.threads, ran, line.teller());
  const std::vector<float>& d = finished.values;
  const std::vector<std::byte> codes = cast_output(d, product.output, options.operands.threads);
  if (!options.output.empty()) {
    save_tensor(options.output, "d",
                {element_type_of(product.output.format),
                 {product.rows(), product.columns()},
                 codes,
                 false});
  }
  const NonFiniteReport non_finite = non_finite_of(product, codes);
  print(product, options, d, finished.amax, non_finite, ran);
  warn_of_non_finite(non_finite);
  return kPass;
}

}  // namespace

void add_gemm(Command& app, Action& action) {
  auto options = std::make_shared<GemmArguments>();
  Command* command = app.add_subcommand("gemm",
                                        "Compute the bit-exact result of a matrix product: D = "
                                        "scales * A . B^T, with C added where --c-enters says");
  command->add_option("A", options->operands.a, "A [m, k]: FILE.npy, .npz:NAME, .safetensors:NAME")
      ->required();
  command->add_option("B", options->operands.b, "B [n, k]")->required();
  add_operand_options(*command, options->operands);
  command->add_option("-o,--output", options->output, ".npy, .npz or .safetensors file for D");
  command->add_flag("--json", options->json, "machine-readable output");
  command->add_flag("--progress", options->progress,
                    "report progress on stderr even if it is not a terminal");
  command->callback([options, command, &action] {
    action = [options, command] {
      use_call(*command, options->operands);
      return run(*options);
    };
  });
}

}  // namespace fp8lab::cli

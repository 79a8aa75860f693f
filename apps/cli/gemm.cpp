#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.hpp"
#include "fp8lab/metrics/tensor.hpp"
#include "json_number.hpp"
#include "operands.hpp"

namespace fp8lab::cli {
namespace {

struct Options {
  OperandOptions operands;
  std::string output;
  bool json = false;
};

void print(const Product& product, const Options& options, const std::vector<float>& d) {
  const TensorStatistics s = tensor_statistics(d);
  const std::string_view dtype = format(product.output.format).name;
  const std::string_view method = gemm_method(product.problem);
  if (options.json) {
    const nlohmann::json report{{"model", product.model},
                                {"m", product.rows()},
                                {"n", product.columns()},
                                {"k", product.problem.a.k},
                                {"promotion", product.problem.promotion_interval},
                                {"out_dtype", dtype},
                                {"output", options.output},
                                {"method", method},
                                {"amax", json_number(s.amax)},
                                {"zeros", s.zeros},
                                {"non_finite", s.non_finite}};
    fmt::print("{}\n", report.dump(2));
    return;
  }
  fmt::print("{}: D [{}, {}] = A . B^T over k = {}, promotion {}, {} ({})\n", product.model,
             product.rows(), product.columns(), product.problem.a.k,
             product.problem.promotion_interval, dtype, method);
  fmt::print("  amax {:.6g}, {} zeros, {} not finite, D[0, 0] = {}\n", s.amax, s.zeros,
             s.non_finite, d.empty() ? "none" : fmt::format("{:.9g}", d.front()));
}

int run(const Options& options) {
  if (!options.output.empty()) require_savable(options.output);
  const Product product = load_product(options.operands);
  const std::vector<float> d = compute(product, options.operands.threads);
  if (!options.output.empty()) {
    const std::vector<std::byte> codes = cast_output(d, product.output, options.operands.threads);
    save_tensor(options.output, "d",
                {element_type_of(product.output.format),
                 {product.rows(), product.columns()},
                 codes,
                 false});
  }
  print(product, options, d);
  return kPass;
}

}  // namespace

void add_gemm(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("gemm", "The golden result of a matrix product: D = scales * A . B^T + C");
  command->add_option("A", options->operands.a, "A [m, k]: FILE.npy, .npz:NAME, .safetensors:NAME")
      ->required();
  command->add_option("B", options->operands.b, "B [n, k]")->required();
  add_operand_options(*command, options->operands);
  command->add_option("-o,--output", options->output, ".npy, .npz or .safetensors file for D");
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli

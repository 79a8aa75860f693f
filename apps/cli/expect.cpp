#include "fp8lab/verify/expect.hpp"
#include "fp8lab/core/json_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "expect_command.hpp"
#include "fp8lab/attention/calls.hpp"
#include "fp8lab/attention/kv_cache.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/integer_list.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/product/calls.hpp"
#include "fp8lab/verify/expect_attention.hpp"
#include "json_number.hpp"
#include "operands.hpp"

namespace fp8lab::cli {
namespace {

using nlohmann::json;

struct ExpectArguments {
  OperandOptions operands;
  std::vector<std::string> inputs;
  std::string shape = "4096x4096x4096";
  std::string distribution = "normal";
  std::string attention;
  AttentionExpectOptions of_attention;
  ExpectOptions expect;
  bool json = false;
};

void read_shape(const std::string& text, ExpectOptions& expect) {
  const std::vector<std::int64_t> sides = parse_integers("--shape", text, 'x', 3, "MxNxK");
  expect.m = sides[0];
  expect.n = sides[1];
  expect.k = sides[2];
}

ExpectOptions options_of(const ExpectArguments& options) {
  const OperandOptions& o = options.operands;
  require(o.c.empty() && o.epilogue.bias.empty() && o.epilogue.row_scales.empty() &&
              o.epilogue.column_scales.empty(),
          "expect", "no C, bias or scale vectors: errors are those of sum, scales and output",
          "one of them");
  ExpectOptions expect = options.expect;
  read_shape(options.shape, expect);
  expect.distribution = find_distribution(options.distribution);
  expect.recipe = o.recipe;
  expect.threads = o.threads;
  expect.gemm = spec_of(o);
  if (!options.inputs.empty()) {
    OperandOptions loaded = o;
    loaded.a = options.inputs[0];
    loaded.b = options.inputs[1];
    expect.operands = load_operands(loaded);
    expect.gemm = with_call(*expect.operands, std::move(expect.gemm));
    return expect;
  }
  GemmOperands drawn;
  drawn.a.codes = {ElementType::e4m3fn, {expect.m, expect.k}, {}, false};
  drawn.b.codes = {ElementType::e4m3fn, {expect.n, expect.k}, {}, false};
  drawn.recipe = o.recipe;
  // Operands that are drawn without a recipe need no scales, whatever the call's kernel takes.
  expect.gemm = o.call.empty() || is_table_call(o.call)
                    ? with_call(drawn, std::move(expect.gemm))
                    : with_call(find_library_call(o.call), drawn, std::move(expect.gemm));
  return expect;
}

/// "HxKVxMxNxD", or with DV behind it.
void read_attention_shape(const std::string& text, AttentionExpectOptions& expect) {
  const bool six = std::ranges::count(text, 'x') == 5;
  const std::vector<std::int64_t> sides =
      parse_integers("--attention", text, 'x', six ? 6 : 5, "HEADSxKV_HEADSxMxNxD[xD_V]");
  expect.heads = sides[0];
  expect.kv_heads = sides[1];
  expect.m = sides[2];
  expect.n = sides[3];
  expect.d = sides[4];
  expect.d_v = sides.back();
}

AttentionExpectOptions attention_options_of(const ExpectArguments& options, bool output_given) {
  AttentionExpectOptions expect = options.of_attention;
  read_attention_shape(options.attention, expect);
  expect.trials = options.expect.trials;
  expect.seed = options.expect.seed;
  expect.risk = options.expect.risk;
  const bool causal = expect.attention.causal;
  if (!options.operands.call.empty())
    expect.attention = find_attention_call(options.operands.call).options_for(expect.d);
  expect.attention.causal = causal;
  expect.attention.threads = options.operands.threads;
  if (output_given) expect.output = find_format(options.operands.output_dtype).id;
  return expect;
}

json json_of(const std::vector<AttentionError>& errors) {
  json list = json::array();
  const auto quantiles = [](const ErrorQuantiles& q) {
    return json{{"low", json_number(q.low)},
                {"median", json_number(q.median)},
                {"high", json_number(q.high)}};
  };
  for (const AttentionError& e : errors)
    list.push_back({{"of", e.of}, {"codes", quantiles(e.codes)}, {"inputs", quantiles(e.inputs)}});
  return list;
}

int run_attention(const AttentionExpectOptions& options, bool as_json) {
  const AttentionExpectation e = expect_attention(options);
  if (!as_json) {
    fmt::print("{}", describe(e));
    return kPass;
  }
  json metrics = json::object();
  for (const MetricSpread& m : e.metrics)
    metrics[std::string(m.name)] = {{"median", json_number(m.median)},
                                    {"largest", json_number(m.largest)},
                                    {"tail", json_number(m.tail)}};
  json gates = json::array();
  for (std::size_t g = 0; g < e.gates.size(); ++g) {
    json missed = json::array();
    for (const AttentionFault& f : e.faults)
      if (f.caught[g] == 0) missed.push_back(f.name);
    gates.push_back({{"name", e.gates[g].name},
                     {"text", e.gates[g].text},
                     {"passes", e.gates[g].passes},
                     {"misses", missed}});
  }
  json faults = json::array();
  for (const AttentionFault& f : e.faults)
    faults.push_back({{"name", f.name}, {"text", f.text}, {"size", json_number(f.size)}});
  const json report{{"heads", options.heads},
                    {"kv_heads", options.kv_heads},
                    {"m", options.m},
                    {"n", options.n},
                    {"d", options.d},
                    {"d_v", options.d_v},
                    {"spread", options.spread},
                    {"kv_cache", options.kv_cache},
                    {"trials", options.trials},
                    {"risk", options.risk},
                    {"sample", {e.sample_heads, e.sample_rows}},
                    {"rms", json_number(e.rms)},
                    {"by_spread", json_of(e.by_spread)},
                    {"by_length", json_of(e.by_length)},
                    {"by_cache", json_of(e.by_cache)},
                    {"metrics", metrics},
                    {"gates", gates},
                    {"faults", faults}};
  fmt::print("{}\n", json_text(report, 2));
  return kPass;
}

json json_of(const ExpectedGate& gate, const std::vector<ExpectedFault>& faults) {
  json metrics = json::object();
  for (const MetricSpread& m : gate.metrics)
    metrics[std::string(m.name)] = {{"median", json_number(m.median)},
                                    {"largest", json_number(m.largest)},
                                    {"tail", json_number(m.tail)}};
  json list = json::array();
  for (const ExpectedFault& f : faults)
    list.push_back({{"name", f.name},
                    {"text", f.text},
                    {"size", json_number(f.size)},
                    {"close", f.close},
                    {"calc_diff", f.calc_diff},
                    {"cosine", f.cosine},
                    {"max_ulp", f.max_ulp}});
  return {{"reference", to_string(gate.reference)},
          {"rtol", gate.rtol},
          {"atol", json_number(gate.atol)},
          {"calc_diff", json_number(gate.calc_diff)},
          {"cosine", json_number(gate.cosine)},
          {"max_ulp", gate.max_ulp ? json(*gate.max_ulp) : json()},
          {"metrics", metrics},
          {"faults", list}};
}

int run(const ExpectArguments& options) {
  const Expectation e = expect_errors(options_of(options));
  if (!options.json) {
    fmt::print("{}", describe(e));
    return kPass;
  }
  json gates = json::array();
  for (std::size_t r = 0; r < e.gates.size(); ++r)
    gates.push_back(json_of(e.gates[r], e.faults[r]));
  const json report{{"shape", {e.options.m, e.options.n, e.options.k}},
                    {"model", e.options.gemm.model},
                    {"trials", e.options.trials},
                    {"sample", {e.sample_rows, e.sample_columns}},
                    {"risk", e.options.risk},
                    {"rms", json_number(e.rms)},
                    {"gates", gates}};
  fmt::print("{}\n", json_text(report, 2));
  return kPass;
}

}  // namespace

void add_expect(Command& app, Action& action) {
  auto options = std::make_shared<ExpectArguments>();
  Command* command = app.add_subcommand(
      "expect",
      "Find the error of right kernels, a gate that accepts them, and the faults that it misses");
  command->add_option("--shape", options->shape, "MxNxK")->capture_default_str();
  command->add_option("--attention", options->attention,
                      "attention of HEADSxKV_HEADSxMxNxD[xD_V] in place of a product; --call is a "
                      "call of `attn`, --out-dtype bf16 if not given");
  command
      ->add_option("--spread", options->of_attention.spread,
                   "standard deviation of attention's logits")
      ->capture_default_str();
  command
      ->add_option("--kv-cache", options->of_attention.kv_cache,
                   "of attention's K and V: " + names_of(cache_rules()))
      ->capture_default_str();
  command->add_flag("--causal", options->of_attention.attention.causal,
                    "attention's row i sees columns j <= i + n - m");
  command->add_option("--inputs", options->inputs, "your own operands: files of A and B")
      ->expected(2);
  command
      ->add_option("--distribution", options->distribution,
                   "normal, uniform, student_t or log_normal")
      ->capture_default_str();
  command->add_flag("--originals", options->expect.against_originals,
                    "compare with products of the floats before quantization, not of their codes");
  command->add_option("--trials", options->expect.trials, "number of drawn outputs")
      ->capture_default_str();
  command->add_option("--seed", options->expect.seed, "of the draws")->capture_default_str();
  command
      ->add_option("--risk", options->expect.risk,
                   "probability that the gate rejects a right output")
      ->capture_default_str();
  add_operand_options(*command, options->operands);
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, command, &action] {
    action = [options, command] {
      if (!options->attention.empty()) {
        if (command->count("--trials") == 0)
          options->expect.trials = AttentionExpectOptions{}.trials;
        return run_attention(attention_options_of(*options, command->count("--out-dtype") > 0),
                             options->json);
      }
      use_call(*command, options->operands);
      return run(*options);
    };
  });
}

}  // namespace fp8lab::cli

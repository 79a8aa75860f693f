#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "fp8lab/attention/report.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/io/operand.hpp"
#include "fp8lab/product/product.hpp"
#include "json_number.hpp"
#include "models.hpp"

namespace fp8lab::cli {
namespace {

struct Names {
  std::string q;
  std::string k;
  std::string v;
};

struct Options {
  Names files;
  Names scales;
  std::string dtype;
  std::string output;
  std::string output_dtype = "f32";
  AttentionOptions attention;
  ModelFiles models;
  bool json = false;
};

/// A tensor of a file, and what its codes point into.
struct Loaded {
  Operand file;
  std::vector<float> inverse_scales;
  AttentionTensor tensor;
};

Loaded load(const std::string& name, const std::string& scale, const Options& options) {
  std::optional<ElementType> type;
  if (!options.dtype.empty()) type = find_element_type(options.dtype);
  Loaded loaded{load_operand(name, type), {}, {}};
  const TensorView& tensor = loaded.file.tensor();
  std::vector<std::int64_t> shape = tensor.shape;
  if (shape.size() == 2) shape.insert(shape.begin(), 1);
  require(shape.size() == 3 && !tensor.fortran_order, name,
          "row-major [heads, rows, columns] or [rows, columns]", shape_text(tensor.shape));
  require(shape[0] > 0 && shape[1] > 0 && shape[2] > 0, name, "[heads, rows, columns], all above 0",
          shape_text(tensor.shape));
  const std::optional<FormatId> id = format_of(tensor.type);
  require(id.has_value(), name, "floats or FP8 codes; uint8 codes need --dtype e4m3fn",
          to_string(tensor.type));
  if (element_bytes(tensor.type) > 1) {
    require(scale.empty(), name, "codes, since scales of them are given", to_string(tensor.type));
    loaded.tensor = attention_tensor(to_float(tensor), shape[0], shape[1], shape[2]);
    return loaded;
  }
  const auto* codes = reinterpret_cast<const std::uint8_t*>(tensor.bytes.data());
  std::vector<float> scales;
  if (!scale.empty()) scales = to_float(load_operand(scale).tensor());
  loaded.inverse_scales = inverse_scales_of_heads(scale, std::move(scales), shape[0]);
  loaded.tensor = attention_tensor(AttentionOperand{
      *id, {codes, tensor.bytes.size()}, shape[0], shape[1], shape[2], loaded.inverse_scales});
  return loaded;
}

nlohmann::json to_json(const AttentionTile& t) {
  return {{"begin", t.begin},
          {"end", t.end},
          {"elements", t.elements},
          {"saturated", t.saturated},
          {"underflowed", t.underflowed},
          {"rescaled_rows", t.rescaled},
          {"stale_rows", t.stale},
          {"p_max", json_number(static_cast<double>(t.p_max))}};
}

nlohmann::json to_json(const Comparison& c) {
  return {{"relative_l2", json_number(c.relative_l2)},
          {"max_absolute", json_number(c.max_absolute)},
          {"cosine", json_number(c.cosine)},
          {"bias", json_number(c.mean_signed_relative)}};
}

void print_json(const Options& options, const AttentionInputs& in, const AttentionReport& report) {
  nlohmann::json tiles = nlohmann::json::array();
  for (const AttentionTile& tile : report.result.tiles) tiles.push_back(to_json(tile));
  const nlohmann::json text{{"heads", in.q.heads},
                            {"kv_heads", in.k.heads},
                            {"m", in.q.rows},
                            {"n", in.k.rows},
                            {"d", in.q.columns},
                            {"d_v", in.v.columns},
                            {"qk_model", options.attention.qk_model},
                            {"pv_model", options.attention.pv_model},
                            {"q_tile", options.attention.q_tile},
                            {"kv_tile", options.attention.kv_tile},
                            {"p_offset", options.attention.p_offset},
                            {"rescale_threshold", options.attention.rescale_threshold},
                            {"causal", options.attention.causal},
                            {"two_level", options.attention.two_level},
                            {"against_codes", to_json(report.against_codes)},
                            {"against_inputs", to_json(report.against_inputs)},
                            {"total", to_json(report.total)},
                            {"tiles", tiles}};
  fmt::print("{}\n", text.dump(2));
}

void print_tile(const std::string& name, const AttentionTile& t) {
  fmt::print("  {:<14} {:>12} {:>12} {:>12} {:>9} {:>9} {:>11.5g}\n", name, t.elements, t.saturated,
             t.underflowed, t.rescaled, t.stale, t.p_max);
}

void print_text(const Options& options, const AttentionInputs& in, const AttentionReport& report) {
  const AttentionOptions& o = options.attention;
  fmt::print("O [{}, {}, {}] over n = {}, d = {}{}; QK {}, PV {}{}\n", in.q.heads, in.q.rows,
             in.v.columns, in.k.rows, in.q.columns, o.causal ? ", causal" : "", o.qk_model,
             o.pv_model, o.two_level ? " in two levels" : "");
  fmt::print("KV tile {}, P offset {:g}, stale maximum up to {:g}\n", o.kv_tile, o.p_offset,
             o.rescale_threshold);
  const auto error = [](const char* against, const Comparison& c) {
    fmt::print("against FP64 on {}: relative L2 {:.4g}, max error {:.4g}, bias {:+.3g}\n", against,
               c.relative_l2, c.max_absolute, c.mean_signed_relative);
  };
  error("the codes", report.against_codes);
  error("the inputs", report.against_inputs);
  fmt::print("  {:<14} {:>12} {:>12} {:>12} {:>9} {:>9} {:>11}\n", "columns", "elements of P",
             "saturated", "underflowed", "rescaled", "stale", "largest p");
  for (const AttentionTile& tile : report.result.tiles)
    print_tile(fmt::format("[{}, {})", tile.begin, tile.end), tile);
  print_tile("all", report.total);
}

void save(const Options& options, const AttentionInputs& in, const AttentionResult& result) {
  const OutputCast cast = default_output(find_format(options.output_dtype).id);
  const std::vector<std::byte> codes = cast_output(result.o, cast, options.attention.threads);
  save_tensor(options.output, "o",
              {element_type_of(cast.format), {in.q.heads, in.q.rows, in.v.columns}, codes, false});
}

int run(Options options) {
  const ModelBook book = load_models(options.models);
  options.attention.qk_model = book.resolve(options.attention.qk_model);
  options.attention.pv_model = book.resolve(options.attention.pv_model);
  if (!options.output.empty()) require_savable(options.output);
  const Loaded q = load(options.files.q, options.scales.q, options);
  const Loaded k = load(options.files.k, options.scales.k, options);
  const Loaded v = load(options.files.v, options.scales.v, options);
  const AttentionReport report = attention_report(q.tensor, k.tensor, v.tensor, options.attention);
  const AttentionInputs in{q.tensor.operand, k.tensor.operand, v.tensor.operand};
  if (!options.output.empty()) save(options, in, report.result);
  if (options.json)
    print_json(options, in, report);
  else
    print_text(options, in, report);
  return kPass;
}

}  // namespace

void add_attn(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  AttentionOptions& o = options->attention;
  CLI::App* command = app.add_subcommand(
      "attn", "FP8 attention forward, as FlashAttention's kernels compute it, against FP64");
  command->add_option("Q", options->files.q, "[heads, m, d] or [m, d]: floats or FP8 codes")
      ->required();
  command->add_option("K", options->files.k, "[kv_heads, n, d]")->required();
  command->add_option("V", options->files.v, "[kv_heads, n, d_v]")->required();
  command->add_option("--dtype", options->dtype, "what uint8 codes are: e4m3fn, e5m2");
  command->add_option(
      "--scale-q", options->scales.q,
      "file of Q's inverse scales, one, or one for each head; floats are quantized to "
      "e4m3fn, each head by its amax");
  command->add_option("--scale-k", options->scales.k, "the same for K");
  command->add_option("--scale-v", options->scales.v, "the same for V");
  command->add_option("--qk-model", o.qk_model, "instruction of Q K^T")->capture_default_str();
  command->add_option("--pv-model", o.pv_model, "instruction of P V")->capture_default_str();
  add_models_option(*command, options->models);
  command->add_option("--q-tile", o.q_tile, "rows in a block")->capture_default_str();
  command->add_option("--kv-tile", o.kv_tile, "columns in a tile")->capture_default_str();
  command->add_option("--softmax-scale", o.softmax_scale, "0: 1 / sqrt(d)")->capture_default_str();
  command->add_option("--p-offset", o.p_offset, "P is scaled by 2 to this before its cast")
      ->capture_default_str();
  command
      ->add_option("--rescale-threshold", o.rescale_threshold,
                   "log2 by which the running maximum may be stale; 0: never")
      ->capture_default_str();
  command->add_flag("--causal", o.causal, "row i sees columns j <= i + n - m");
  command->add_flag("--two-level", o.two_level, "add each tile's P V to O in FP32");
  command->add_option("-o,--output", options->output, ".npy, .npz or .safetensors file for O");
  command->add_option("--out-dtype", options->output_dtype, "f32, bf16, f16, e4m3fn or e5m2")
      ->capture_default_str();
  command->add_option("--threads", o.threads, "0: all")->check(CLI::Range(0, kMostThreads));
  command->add_flag("--json", options->json, "machine-readable output");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace fp8lab::cli

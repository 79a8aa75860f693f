#include "attn.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/attention/calls.hpp"
#include "fp8lab/attention/kv_cache.hpp"
#include "fp8lab/attention/report.hpp"
#include "fp8lab/attention/sage.hpp"
#include "fp8lab/attention/verify.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/json_text.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/io/operand.hpp"
#include "fp8lab/product/product.hpp"
#include "fp8lab/verify/attention_gates.hpp"
#include "json_number.hpp"
#include "models.hpp"
#include "non_finite.hpp"
#include "say.hpp"

namespace fp8lab::cli {
namespace {

struct Names {
  std::string q;
  std::string k;
  std::string v;
};

struct AttnArguments {
  Names files;
  Names scales;
  std::string sinks;
  std::string dtype;
  std::string output;
  std::string output_dtype = "f32";
  AttentionOptions attention;
  std::string tile_order;
  std::string p_format;
  std::string row_sum;
  const AttentionCall* q_tile_of = nullptr;   ///< whose tile for the head size is taken
  const AttentionCall* kv_tile_of = nullptr;  ///< likewise
  const SageKernel* sage = nullptr;           ///< in place of `attention`
  std::string granularity;
  bool no_smoothing = false;
  std::string call;
  std::string kv_cache;
  std::string pack_rows;
  std::string check;
  std::string check_dtype;
  double tolerance = 0.0;
  bool gates = false;
  ModelFiles models;
  std::vector<Backend> backends;
  std::string backend;
  bool json = false;
};

/// A tensor of a file, and what its codes point into.
struct LoadedOperand {
  Operand file;
  std::vector<float> inverse_scales;
  AttentionTensor tensor;
  NamedNonFinite non_finite;
};

/// Rows of DeepSeek-V3.2's cache, [rows, 656] bytes: the first `columns` elements of each,
/// quantized as floats are.
LoadedOperand load_rows(const std::string& name, std::int64_t columns) {
  LoadedOperand loaded{load_operand(name, ElementType::u8), {}, {}, {}};
  const TensorView& tensor = loaded.file.tensor();
  require(!tensor.shape.empty() && tensor.shape.back() == kDeepSeekRowBytes, name,
          fmt::format("[rows, {}] bytes of {}", kDeepSeekRowBytes, kDeepSeekCache),
          shape_text(tensor.shape));
  const std::vector<float> rows = read_deepseek_rows(
      {reinterpret_cast<const std::uint8_t*>(tensor.bytes.data()), tensor.bytes.size()});
  std::vector<float> values;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (static_cast<std::int64_t>(i) % kDeepSeekRowElements < columns) values.push_back(rows[i]);
  const std::int64_t count = std::ssize(rows) / kDeepSeekRowElements;
  loaded.non_finite = {name, count_non_finite(values)};
  loaded.tensor = attention_tensor(std::move(values), 1, count, columns);
  return loaded;
}

/// Floats [rows, 576] as rows of DeepSeek-V3.2's cache.
void save_rows(const std::string& name, const AttentionTensor& k) {
  require(k.operand.heads == 1 && k.operand.columns == kDeepSeekRowElements, "K",
          fmt::format("floats of one head of {} columns to pack", kDeepSeekRowElements),
          fmt::format("[{}, {}, {}]", k.operand.heads, k.operand.rows, k.operand.columns));
  const std::vector<std::uint8_t> bytes = pack_deepseek_rows(k.values);
  save_tensor(name, "k",
              {ElementType::u8,
               {k.operand.rows, kDeepSeekRowBytes},
               std::as_bytes(std::span(bytes)),
               false});
}

/// `cache`: how floats are quantized; "" for `quantize_heads`.
LoadedOperand load(const std::string& name, const std::string& scale, const AttnArguments& options,
                   const std::string& cache = "") {
  std::optional<ElementType> type;
  if (!options.dtype.empty()) type = find_element_type(options.dtype);
  LoadedOperand loaded{load_operand(name, type), {}, {}, {}};
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
  loaded.non_finite = {name, count_non_finite(*id, tensor.bytes)};
  if (element_bytes(tensor.type) > 1) {
    require(scale.empty() || !cache.empty(), name, "codes, since their scales are given",
            to_string(tensor.type));
    std::vector<float> calibrated;
    if (!scale.empty()) calibrated = to_float(load_operand(scale).tensor());
    loaded.tensor = cache.empty() ? attention_tensor(to_float(tensor), shape[0], shape[1], shape[2])
                                  : cached_tensor(to_float(tensor), shape[0], shape[1], shape[2],
                                                  find_cache_rule(cache), calibrated);
    return loaded;
  }
  require(cache.empty(), name, "floats, which the KV cache quantizes", to_string(tensor.type));
  const auto* codes = reinterpret_cast<const std::uint8_t*>(tensor.bytes.data());
  std::vector<float> scales;
  if (!scale.empty()) scales = to_float(load_operand(scale).tensor());
  loaded.inverse_scales = inverse_scales_of_heads(scale, std::move(scales), shape[0]);
  loaded.tensor = attention_tensor(AttentionOperand{
      *id, {codes, tensor.bytes.size()}, shape[0], shape[1], shape[2], loaded.inverse_scales});
  return loaded;
}

nlohmann::json json_of(const AttentionTile& t) {
  return {{"begin", t.begin},
          {"end", t.end},
          {"elements", t.elements},
          {"saturated", t.saturated},
          {"underflowed", t.underflowed},
          {"rescaled_rows", t.rescaled},
          {"stale_rows", t.stale},
          {"p_max", json_number(static_cast<double>(t.p_max))}};
}

nlohmann::json json_of(const Comparison& c) {
  return {{"relative_l2", json_number(c.relative_l2)},
          {"max_absolute", json_number(c.max_absolute)},
          {"cosine", json_number(c.cosine)},
          {"bias", json_number(c.mean_signed_relative)}};
}

void print_json(const AttnArguments& options, const AttentionInputs& in,
                const AttentionReport& report, const NonFiniteReport& non_finite) {
  nlohmann::json tiles = nlohmann::json::array();
  for (const AttentionTile& tile : report.result.tiles) tiles.push_back(json_of(tile));
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
                            {"tile_order", to_string(options.attention.tile_order)},
                            {"p_format", format(options.attention.p_format).name},
                            {"row_sum", to_string(options.attention.row_sum)},
                            {"soft_cap", options.attention.soft_cap},
                            {"sinks", options.attention.sinks},
                            {"splits", options.attention.splits},
                            {"window_left", options.attention.window_left},
                            {"window_right", options.attention.window_right},
                            {"against_codes", json_of(report.against_codes)},
                            {"against_inputs", json_of(report.against_inputs)},
                            {"total", json_of(report.total)},
                            {"non_finite_counts", to_json(non_finite)},
                            {"tiles", tiles}};
  fmt::print("{}\n", json_text(text, 2));
}

void print_tile(const std::string& name, const AttentionTile& t) {
  say("  {:<14} {:>12} {:>12} {:>12} {:>9} {:>9} {:>11.5g}\n", name, t.elements, t.saturated,
      t.underflowed, t.rescaled, t.stale, t.p_max);
}

void print_text(const AttnArguments& options, const AttentionInputs& in,
                const AttentionReport& report) {
  const AttentionOptions& o = options.attention;
  say("O [{}, {}, {}] over n = {}, d = {}{}; QK {}, PV {}{}\n", in.q.heads, in.q.rows, in.v.columns,
      in.k.rows, in.q.columns, o.causal ? ", causal" : "", o.qk_model, o.pv_model,
      o.two_level ? " in two levels" : "");
  say("KV tile {}, {}, P in {} times 2^{:g}, stale maximum up to {:g}\n", o.kv_tile,
      to_string(o.tile_order), format(o.p_format).name, o.p_offset, o.rescale_threshold);
  if (o.window_left != kNoWindow || o.window_right != kNoWindow)
    say("window: {} columns to the left, {} to the right (-1: all)\n", o.window_left,
        o.window_right);
  if (o.soft_cap > 0.0F) say("soft cap {:g}\n", o.soft_cap);
  if (!o.sinks.empty()) say("sinks: {:.4g}\n", fmt::join(o.sinks, ", "));
  if (o.splits > 1) say("tiles in {} parts, merged in order\n", o.splits);
  const auto error = [](const char* against, const Comparison& c) {
    say("errors against FP64 on {}: relative L2 {:.4g}, max error {:.4g}, bias {:+.3g}\n", against,
        c.relative_l2, c.max_absolute, c.mean_signed_relative);
  };
  error("the codes", report.against_codes);
  error("the inputs", report.against_inputs);
  say("  {:<14} {:>12} {:>12} {:>12} {:>9} {:>9} {:>11}\n", "columns", "elements of P", "saturated",
      "underflowed", "rescaled", "stale", "largest p");
  for (const AttentionTile& tile : report.result.tiles)
    print_tile(fmt::format("[{}, {})", tile.begin, tile.end), tile);
  print_tile("all", report.total);
}

void save(const AttnArguments& options, const std::vector<std::int64_t>& shape,
          std::span<const float> o) {
  const OutputCast cast = default_output(find_format(options.output_dtype).id);
  const std::vector<std::byte> codes = cast_output(o, cast, options.attention.threads);
  save_tensor(options.output, "o", {element_type_of(cast.format), shape, codes, false});
}

/// A call of SageAttention, whose rule leaves few options.
void use_sage(const Command& command, AttnArguments& options) {
  options.sage = &find_sage_kernel(options.call);
  for (const char* option : {"--dtype",
                             "--scale-q",
                             "--scale-k",
                             "--scale-v",
                             "--qk-model",
                             "--pv-model",
                             "--two-level",
                             "--q-tile",
                             "--kv-tile",
                             "--p-offset",
                             "--rescale-threshold",
                             "--tile-order",
                             "--p-format",
                             "--row-sum",
                             "--window-left",
                             "--window-right",
                             "--soft-cap",
                             "--sinks",
                             "--splits",
                             "--kv-cache",
                             "--pack-rows",
                             "--gate",
                             "--models"})
    require(command.count(option) == 0, option,
            fmt::format("nothing with {}, whose rule decides it", options.call), "it");
  require(!options.sage->nvfp4 || command.count("--granularity") == 0, "--granularity",
          "a kernel with INT8 scales", options.call);
}

/// Options that the call decides and nobody gave.
void use_call(const Command& command, AttnArguments& options) {
  if (options.call.starts_with("sage")) return use_sage(command, options);
  for (const char* option : {"--granularity", "--no-smoothing"})
    require(command.count(option) == 0, option, "a --call of SageAttention",
            options.call.empty() ? "none" : options.call);
  if (options.call.empty()) return;
  const AttentionCall& call = find_attention_call(options.call);
  const AttentionOptions& known = call.options;
  AttentionOptions& o = options.attention;
  const auto given = [&](const char* option) { return command.count(option) > 0; };
  if (!given("--qk-model")) o.qk_model = known.qk_model;
  if (!given("--pv-model")) o.pv_model = known.pv_model;
  if (!given("--q-tile")) options.q_tile_of = &call;
  if (!given("--kv-tile")) options.kv_tile_of = &call;
  if (!given("--p-offset")) o.p_offset = known.p_offset;
  if (!given("--rescale-threshold")) o.rescale_threshold = known.rescale_threshold;
  if (!given("--two-level")) o.two_level = known.two_level;
  if (!given("--tile-order")) options.tile_order = to_string(known.tile_order);
  if (!given("--p-format")) options.p_format = format(known.p_format).name;
  if (!given("--row-sum")) options.row_sum = to_string(known.row_sum);
}

/// Whether the output passes each of `attention_gate_texts()`; empty if nobody asks.
std::vector<bool> gates_of(const AttnArguments& options, const AttentionInputs& in,
                           std::span<const float> got, FormatId output) {
  if (!options.gates) return {};
  const AttentionGates gates(in, options.attention, output);
  return gates.pass(gates.compare(got));
}

/// Prints what a check found. Returns an exit code.
int print_verdict(const AttnArguments& options, const AttentionVerdict& verdict,
                  const std::vector<bool>& gates, const NonFiniteReport& non_finite) {
  if (!options.json) {
    fmt::print("{}", verdict.text());
    if (!gates.empty()) say_gates(attention_gate_texts(), gates);
    return verdict.pass ? kPass : kMismatch;
  }
  nlohmann::json causes = nlohmann::json::array();
  for (const AttentionCause& c : verdict.causes)
    causes.push_back({{"name", c.name},
                      {"text", c.text},
                      {"mismatches", c.mismatches},
                      {"distance", json_number(c.distance)}});
  nlohmann::json shipped = nlohmann::json::object();
  for (std::size_t i = 0; i < gates.size(); ++i)
    shipped[std::string(attention_gate_texts()[i].name)] = static_cast<bool>(gates[i]);
  const nlohmann::json text{{"verdict", verdict.pass ? "pass" : "mismatch"},
                            {"outputs", verdict.outputs},
                            {"mismatches", verdict.mismatches},
                            {"distance", json_number(verdict.distance)},
                            {"where", verdict.where},
                            {"measured", verdict.measured},
                            {"non_finite_counts", to_json(non_finite)},
                            {"gates", shipped},
                            {"causes", causes}};
  fmt::print("{}\n", json_text(text, 2));
  return verdict.pass ? kPass : kMismatch;
}

/// An output that is checked.
struct CheckedOutput {
  std::vector<float> values;
  FormatId format;
};

/// The file of `--check`. One that holds codes and does not say of which format has those of the
/// output.
Operand load_checked_file(const AttnArguments& options) {
  if (!options.check_dtype.empty())
    return load_operand(options.check, find_element_type(options.check_dtype));
  const ElementType output = find_element_type(options.output_dtype);
  if (output == ElementType::f32) return load_operand(options.check);
  try {
    Operand file = load_operand(options.check);
    if (format_of(file.tensor().type)) return file;
  } catch (const Error&) {  // opaque words; what else is wrong with the file is told below
  }
  return load_operand(options.check, output);
}

/// The file of `--check`, [heads, m, d_v].
CheckedOutput load_checked(const AttnArguments& options, std::vector<std::int64_t> shape,
                           NonFiniteReport& non_finite) {
  const Operand got = load_checked_file(options);
  const TensorView& d = got.tensor();
  const std::optional<FormatId> id = format_of(d.type);
  require(id.has_value(), options.check, "floats or FP8 codes; uint8 codes need --check-dtype",
          to_string(d.type));
  const bool flat = shape.front() == 1 && d.shape.size() == 2;
  if (flat) shape.erase(shape.begin());
  require(d.shape == shape, options.check, shape_text(shape), shape_text(d.shape));
  non_finite.push_back({options.check, count_non_finite(*id, d.bytes)});
  warn_of_non_finite(non_finite);
  return {to_float(d), *id};
}

/// Compares an output of a kernel. Returns an exit code.
int check(const AttnArguments& options, const AttentionInputs& in, NonFiniteReport non_finite) {
  const CheckedOutput got =
      load_checked(options, {in.q.heads, in.q.rows, in.v.columns}, non_finite);
  const AttentionVerdict verdict =
      verify_attention(in, options.attention, got.values, got.format, options.tolerance);
  return print_verdict(options, verdict, gates_of(options, in, got.values, got.format), non_finite);
}

/// Floats [heads, rows, columns] of a file.
struct FloatsOfFile {
  std::vector<float> values;
  std::vector<std::int64_t> shape;
  ElementType type;
  NamedNonFinite non_finite;
};

FloatsOfFile load_floats(const std::string& name) {
  const Operand file = load_operand(name);
  const TensorView& tensor = file.tensor();
  std::vector<std::int64_t> shape = tensor.shape;
  if (shape.size() == 2) shape.insert(shape.begin(), 1);
  const std::optional<FormatId> id = format_of(tensor.type);
  require(id.has_value() && element_bytes(tensor.type) > 1, name,
          "floats, which SageAttention quantizes", to_string(tensor.type));
  require(shape.size() == 3 && !tensor.fortran_order, name,
          "row-major [heads, rows, columns] or [rows, columns]", shape_text(tensor.shape));
  return {to_float(tensor), shape, tensor.type, {name, count_non_finite(*id, tensor.bytes)}};
}

/// Heads and sizes of three tensors. Throws `Error` naming the file that does not fit.
AttentionShape sage_shape(const Names& files, const FloatsOfFile& q, const FloatsOfFile& k,
                          const FloatsOfFile& v) {
  require(k.shape[0] > 0 && q.shape[0] % k.shape[0] == 0, files.k,
          fmt::format("a number of heads that divides Q's {}", q.shape[0]),
          fmt::format("{}", k.shape[0]));
  require(k.shape[2] == q.shape[2], files.k, fmt::format("d = {}, as Q has", q.shape[2]),
          fmt::format("d = {}", k.shape[2]));
  require(v.shape[0] == k.shape[0] && v.shape[1] == k.shape[1], files.v,
          fmt::format("[{}, {}, d_v], as K has", k.shape[0], k.shape[1]), shape_text(v.shape));
  return {q.shape[0], q.shape[0] / k.shape[0], q.shape[1], k.shape[1], q.shape[2], v.shape[2]};
}

void print_sage(const AttnArguments& options, const AttentionShape& s, const SageOptions& o,
                const Comparison& errors, const NonFiniteReport& non_finite) {
  const std::string_view scales =
      options.sage->nvfp4 ? std::string_view("blocks of 16") : to_string(o.granularity);
  if (!options.json) {
    say("O [{}, {}, {}] over n = {}, d = {}{}; {}, scales {}, inputs in {}{}\n", s.heads, s.m,
        s.d_v, s.n, s.d, o.causal ? ", causal" : "", options.sage->name, scales,
        format(o.input).name, o.smooth ? ", K without its mean" : "");
    say("errors against FP64 on the inputs: relative L2 {:.4g}, max error {:.4g}, bias {:+.3g}\n",
        errors.relative_l2, errors.max_absolute, errors.mean_signed_relative);
    return;
  }
  const nlohmann::json text{{"call", options.sage->name},
                            {"heads", s.heads},
                            {"kv_heads", s.heads / s.group},
                            {"m", s.m},
                            {"n", s.n},
                            {"d", s.d},
                            {"d_v", s.d_v},
                            {"causal", o.causal},
                            {"smooth", o.smooth},
                            {"scales", scales},
                            {"input", format(o.input).name},
                            {"against_inputs", json_of(errors)},
                            {"non_finite_counts", to_json(non_finite)}};
  fmt::print("{}\n", json_text(text, 2));
}

/// SageAttention: computes O, or checks one.
int run_sage(const AttnArguments& options) {
  if (!options.output.empty()) require_savable(options.output);
  const FloatsOfFile q = load_floats(options.files.q);
  const FloatsOfFile k = load_floats(options.files.k);
  const FloatsOfFile v = load_floats(options.files.v);
  const AttentionShape s = sage_shape(options.files, q, k, v);
  const SageInputs in{q.values, k.values, v.values, s};
  SageOptions o;
  if (q.type == ElementType::f16) o.input = FormatId::f16;
  o.softmax_scale = options.attention.softmax_scale;
  o.causal = options.attention.causal;
  o.smooth = !options.no_smoothing;
  if (!options.granularity.empty()) o.granularity = find_sage_granularity(options.granularity);
  o.threads = options.attention.threads;
  NonFiniteReport non_finite{q.non_finite, k.non_finite, v.non_finite};
  if (!options.check.empty()) {
    const CheckedOutput got = load_checked(options, {s.heads, s.m, s.d_v}, non_finite);
    return print_verdict(
        options,
        verify_sage_attention(in, *options.sage, o, got.values, got.format, options.tolerance), {},
        non_finite);
  }
  const std::vector<float> out = sage_attention(in, *options.sage, o);
  if (!options.output.empty()) save(options, {s.heads, s.m, s.d_v}, out);
  non_finite.push_back({"O", count_non_finite(out)});
  warn_of_non_finite(non_finite);
  print_sage(options, s, o, compare(sage_reference(in, o), out), non_finite);
  return kPass;
}

int run(AttnArguments options) {
  if (options.sage != nullptr) return run_sage(options);
  options.attention.backend = find_backend(options.backends, options.backend);
  if (!options.tile_order.empty())
    options.attention.tile_order = find_tile_order(options.tile_order);
  if (!options.p_format.empty()) options.attention.p_format = find_format(options.p_format).id;
  if (!options.row_sum.empty()) options.attention.row_sum = find_row_sum(options.row_sum);
  const ModelBook book = load_models(options.models);
  options.attention.qk_model = book.resolve(options.attention.qk_model);
  options.attention.pv_model = book.resolve(options.attention.pv_model);
  if (!options.output.empty()) require_savable(options.output);
  const LoadedOperand q = load(options.files.q, options.scales.q, options);
  const bool rows = options.kv_cache == kDeepSeekCache;
  const LoadedOperand k = rows ? load_rows(options.files.k, kDeepSeekRowElements)
                               : load(options.files.k, options.scales.k, options, options.kv_cache);
  const LoadedOperand v = rows ? load_rows(options.files.v, kDeepSeekRowValues)
                               : load(options.files.v, options.scales.v, options, options.kv_cache);
  if (!options.pack_rows.empty()) save_rows(options.pack_rows, k.tensor);
  const AttentionInputs in{q.tensor.operand, k.tensor.operand, v.tensor.operand};
  if (!options.sinks.empty())
    options.attention.sinks = to_float(load_operand(options.sinks).tensor());
  const std::int64_t head = in.q.columns;
  if (options.q_tile_of != nullptr)
    options.attention.q_tile = options.q_tile_of->options_for(head).q_tile;
  if (options.kv_tile_of != nullptr)
    options.attention.kv_tile = options.kv_tile_of->options_for(head).kv_tile;
  NonFiniteReport non_finite{q.non_finite, k.non_finite, v.non_finite};
  require(!options.gates || !options.check.empty(), "--gate", "--check with a kernel's O",
          "no --check");
  if (!options.check.empty()) return check(options, in, std::move(non_finite));
  const AttentionReport report = attention_report(q.tensor, k.tensor, v.tensor, options.attention);
  non_finite.push_back({"O", count_non_finite(report.result.o)});
  warn_of_non_finite(non_finite);
  if (!options.output.empty())
    save(options, {in.q.heads, in.q.rows, in.v.columns}, report.result.o);
  if (options.json)
    print_json(options, in, report, non_finite);
  else
    print_text(options, in, report);
  return kPass;
}

}  // namespace

void add_attn(Command& app, Action& action, std::vector<Backend> backends) {
  auto options = std::make_shared<AttnArguments>();
  options->backends = std::move(backends);
  options->backend = options->backends.front().name;
  AttentionOptions& o = options->attention;
  Command* command = app.add_subcommand(
      "attn",
      "FP8 attention forward, as FlashAttention's kernels compute it, with errors against FP64");
  command->add_option("Q", options->files.q, "[heads, m, d] or [m, d]: floats or FP8 codes")
      ->required();
  command->add_option("K", options->files.k, "[kv_heads, n, d]")->required();
  command->add_option("V", options->files.v, "[kv_heads, n, d_v]")->required();
  command->add_option("--dtype", options->dtype, "format of uint8 codes: e4m3fn, e5m2");
  command->add_option("--scale-q", options->scales.q,
                      "file of Q's inverse scales, one value or one per head; floats are quantized "
                      "to e4m3fn, each head with its own amax");
  command->add_option("--scale-k", options->scales.k, "the same for K");
  command->add_option("--scale-v", options->scales.v, "the same for V");
  command->add_option("--qk-model", o.qk_model, "instruction of Q K^T")->capture_default_str();
  command->add_option("--pv-model", o.pv_model, "instruction of P V")->capture_default_str();
  add_models_option(*command, options->models);
  command->add_option("--q-tile", o.q_tile, "rows in a block")->capture_default_str();
  command->add_option("--kv-tile", o.kv_tile, "columns in a tile")->capture_default_str();
  command->add_option("--softmax-scale", o.softmax_scale, "0: 1 / sqrt(d)")->capture_default_str();
  command
      ->add_option("--p-offset", o.p_offset, "P is multiplied by 2 to this power before its cast")
      ->capture_default_str();
  command
      ->add_option("--rescale-threshold", o.rescale_threshold,
                   "log2 of the factor by which the running maximum may be stale; 0: never stale")
      ->capture_default_str();
  command->add_flag("--causal", o.causal, "row i attends to columns j <= i + n - m");
  command->add_flag("--two-level", o.two_level, "add each tile's P V to O in FP32");
  command->add_option("--tile-order", options->tile_order,
                      "last_to_first (FlashAttention-3, the default) or first_to_last (Triton)");
  command->add_option("--p-format", options->p_format, "of P: e4m3fn (the default) or e5m2");
  command->add_option("--row-sum", options->row_sum,
                      "order of a row's sum: columns (the default), or quads (FlashAttention-3)");
  command
      ->add_option("--window-left", o.window_left,
                   "columns to the left of i + n - m that row i attends to; -1: all")
      ->capture_default_str();
  command->add_option("--window-right", o.window_right, "the same to the right; -1: all")
      ->capture_default_str();
  command
      ->add_option("--soft-cap", o.soft_cap,
                   "scores s become cap tanh(s / cap) before the mask; 0: as they are")
      ->capture_default_str();
  command->add_option("--sinks", options->sinks,
                      "file of sinks, one per head of Q: scores without a value in the row sum");
  command
      ->add_option("--splits", o.splits,
                   "parts of the tiles of K and V, merged by their log-sum-exp in order")
      ->capture_default_str();
  command->add_option(
      "--call", options->call,
      "a kernel by name, which sets the options that are not given: " +
          names_of(attention_calls()) +
          "; or one that quantizes floats by its own rule: " + names_of(sage_kernels()));
  command->add_option("--granularity", options->granularity,
                      "of SageAttention's INT8 scales: per_thread (the default) or per_warp");
  command->add_flag("--no-smoothing", options->no_smoothing,
                    "SageAttention without the removal of K's mean");
  command->add_option(
      "--kv-cache", options->kv_cache,
      "how K and V of floats are stored: " + names_of(cache_rules()) +
          "; the default is e4m3.head. --scale-k and --scale-v are then calibrated "
          "scales. deepseek-v3.2: K is a file of rows of 656 bytes, V the same one");
  command->add_option("--pack-rows", options->pack_rows,
                      "file for K, floats [rows, 576], as rows of 656 bytes of DeepSeek-V3.2's "
                      "cache");
  command->add_option("--check", options->check,
                      "a kernel's O: check it and name the mistake. Exit 1 if it is wrong");
  command->add_option("--check-dtype", options->check_dtype, "format of its uint8 codes");
  command
      ->add_option("--tolerance,--tol", options->tolerance,
                   "largest relative L2 distance that --check passes; 0: every bit")
      ->capture_default_str();
  command->add_flag("--gate", options->gates,
                    "with --check: list what the gates that projects ship say of it, with sources");
  command->add_option("-o,--output", options->output, ".npy, .npz or .safetensors file for O");
  command->add_option("--out-dtype", options->output_dtype, "f32, bf16, f16, e4m3fn or e5m2")
      ->capture_default_str();
  command->add_option("--threads", o.threads, "0: all")->check(between(0, kMostThreads));
  command->add_flag("--json", options->json, "machine-readable output");
  if (options->backends.size() > 1)
    command
        ->add_option("--backend", options->backend,
                     fmt::format("backend of matrix products and the cast of P: {}",
                                 fmt::join(backend_names(options->backends), ", ")))
        ->capture_default_str();
  command->callback([options, command, &action] {
    use_call(*command, *options);
    action = [options] { return run(*options); };
  });
}

void add_attn(Command& app, Action& action) { add_attn(app, action, {Backend{}}); }

}  // namespace fp8lab::cli

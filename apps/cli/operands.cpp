#include "operands.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/product/calls.hpp"
#include "ignored_options.hpp"

namespace fp8lab::cli {
namespace {

std::optional<TensorView> load_optional(const std::string& name, std::vector<Operand>& loaded,
                                        const std::string& dtype = "") {
  if (name.empty()) return std::nullopt;
  loaded.push_back(load_operand(name, element_type(dtype)));
  return loaded.back().tensor();
}

/// Sets the tensor scale that `text` is, or that the file of that name holds, or those of groups.
void load_tensor_scale(std::string_view option, const std::string& text, ProductOperand& operand) {
  if (text.empty()) return;
  char* end = nullptr;
  float& all = operand.tensor_scale;
  all = std::strtof(text.c_str(), &end);
  if (*end == '\0') return;
  const Operand loaded = load_operand(text);
  require_scale_type(option, loaded.tensor().type);
  std::vector<float> values = to_float(loaded.tensor());
  require(values.size() == 1 || loaded.tensor().shape.size() == 1, option,
          "a number, or a file with one number or with [groups]",
          shape_text(loaded.tensor().shape));
  all = values.size() == 1 ? values.front() : 1.0F;
  if (values.size() != 1) operand.group_tensor_scales = std::move(values);
}

}  // namespace

void add_input_options(Command& command, OperandOptions& o) {
  command.add_option(
      "--scale-a", o.scale_a,
      "file of A's inverse scales: one value, [m], [m, 1], or a grid of tiles of [m, k]");
  command.add_option("--scale-b", o.scale_b, "the same for B, over [n, k]");
  command.add_option("--tiles-a", o.tiles_a,
                     "tiles of A's scales, such as 1x128 (0: all); required if a side is not 1, "
                     "16, 32, 128 or all");
  command.add_option("--tiles-b", o.tiles_b, "the same for B's");
  command
      .add_option("--scale-layout-a", o.scale_layout_a,
                  "layout of A's scales: row_major, column_major (torch's [1, n], DeepGEMM's in "
                  "memory), packed_ue8m0, packed_ue8m0_column_major (DeepGEMM's int32) or "
                  "blocked_128x4 (cuBLASLt's)")
      ->capture_default_str();
  command.add_option("--scale-layout-b", o.scale_layout_b, "the same for B's")
      ->capture_default_str();
  command.add_option("--scale-format", o.scale_format,
                     "format of uint8 scales: e8m0fnu, or e4m3fn for UE4M3");
  command.add_option("--tensor-scale-a", o.tensor_scale_a,
                     "second level of A's scales (NVFP4): a number, or a file with one number or "
                     "with one per group");
  command.add_option("--tensor-scale-b", o.tensor_scale_b, "the same for B's");
  command.add_option("--c", o.c, "file of C [m, n], floats");
  command.add_option("--dtype", o.dtype,
                     "format of uint8 codes of A (and B): e4m3fn, e5m2, e4m3fnuz, e2m1 (one per "
                     "byte), e2m1x2 (two) ...");
  command.add_option("--dtype-b", o.dtype_b, "the same for B, if it differs");
  command.add_flag("--transpose-b", o.transpose_b, "B is stored as [k, n], not [n, k]");
  command.add_option("--recipe", o.recipe,
                     "quantize float A and B first, as deepgemm or te-mxfp8 (fp8lab list recipes)");
  command.add_option("--threads", o.threads, "0: all")->check(between(0, kMostThreads));
  add_epilogue_options(command, o.epilogue);
  add_group_options(command, o.groups);
  add_models_option(command, o.models);
}

void add_operand_options(Command& command, OperandOptions& o) {
  add_input_options(command, o);
  add_split_options(command, o.split);
  command.add_option(
      "--call", o.call,
      "a library call: model, promotion, scale order, output (`fp8lab list calls`); or a "
      "table of observed ones: FILE.csv:fast, then ,FIELD=VALUE for what it leaves "
      "open");
  command
      .add_option("--model", o.model,
                  "instruction (`fp8lab list models`), or a definition: BASE:PARAMETER=VALUE,...")
      ->capture_default_str();
  command
      .add_option("--promotion", o.promotion,
                  "restart the accumulator every N terms and add into FP32; 0: never")
      ->capture_default_str();
  command
      .add_option("--scale-order", o.scale_order,
                  "product_then_fma, product_then_add, a_then_fma_b, b_then_fma_a or "
                  "a_then_b_then_add")
      ->capture_default_str();
  command.add_option("--c-enters", o.c_enters,
                     "where C enters: accumulator (the instruction's c), promoted_sum or epilogue; "
                     "needed with promotion or scales");
  command
      .add_option("--out-dtype", o.output_dtype,
                  "f32, bf16, f16, e4m3fn, e5m2; with a definition also e4m3fnuz, e5m2fnuz")
      ->capture_default_str();
  command.add_option("--profile", o.profile, "cast profile of the output (`fp8lab list profiles`)");
}

std::optional<ElementType> element_type(const std::string& name) {
  if (name.empty()) return std::nullopt;
  return find_element_type(name);
}

float one_tensor_scale(std::string_view option, const std::string& text) {
  ProductOperand operand;
  load_tensor_scale(option, text, operand);
  const std::size_t count = operand.group_tensor_scales.size();
  require(count == 0, option, "one number", count);
  return operand.tensor_scale;
}

std::optional<ScaleTiles> scale_tiles(std::string_view option, const std::string& text) {
  if (text.empty()) return std::nullopt;
  return parse_scale_tiles(option, text);
}

GemmOperands load_operands(const OperandOptions& o) {
  auto loaded = std::make_shared<std::vector<Operand>>();
  const std::optional<ElementType> dtype = element_type(o.dtype);
  loaded->push_back(load_operand(o.a, dtype));
  loaded->push_back(load_operand(o.b, o.dtype_b.empty() ? dtype : element_type(o.dtype_b)));
  GemmOperands operands;
  operands.a = {.codes = (*loaded)[0].tensor(),
                .scales = load_optional(o.scale_a, *loaded, o.scale_format),
                .tiles = scale_tiles("--tiles-a", o.tiles_a),
                .layout = find_scale_layout(o.scale_layout_a)};
  operands.b = {.codes = (*loaded)[1].tensor(),
                .transposed = o.transpose_b,
                .scales = load_optional(o.scale_b, *loaded, o.scale_format),
                .tiles = scale_tiles("--tiles-b", o.tiles_b),
                .layout = find_scale_layout(o.scale_layout_b)};
  load_tensor_scale("--tensor-scale-a", o.tensor_scale_a, operands.a);
  load_tensor_scale("--tensor-scale-b", o.tensor_scale_b, operands.b);
  operands.c = load_optional(o.c, *loaded);
  operands.bias = load_optional(o.epilogue.bias, *loaded);
  operands.row_scales = load_optional(o.epilogue.row_scales, *loaded);
  operands.column_scales = load_optional(o.epilogue.column_scales, *loaded);
  operands.recipe = o.recipe;
  operands.threads = o.threads;
  operands.owner = loaded;
  return operands;
}

void use_call(const Command& command, OperandOptions& o) {
  require_no_ignored_options(command);
  if (o.call.empty()) return;
  for (const char* name : {"--model", "--promotion", "--scale-order"})
    require(command.count(name) == 0, name, "no such option with --call, which sets it", o.call);
  const bool output_given = command.count("--out-dtype") > 0;
  if (is_table_call(o.call)) {
    for (const char* name : {"--split-k", "--split-cut", "--split-order", "--split-tile"})
      require(command.count(name) == 0, name, "no such option with a table of calls, which sets it",
              o.call);
    const std::optional<FormatId> output = parse_table_call(o.call).output;
    if (!output_given) o.output_dtype = output ? format(*output).name : "";
    return;
  }
  const LibraryCall& call = find_library_call(o.call);
  if (!output_given) o.output_dtype = format(call.output).name;
}

GemmSpec spec_of(const OperandOptions& o) {
  GemmSpec spec;
  const ModelBook book = load_models(o.models);
  if (o.call.empty()) spec.model = book.resolve(o.model);
  spec.call = o.call;
  spec.promotion_interval = o.promotion;
  spec.scale_order = find_scale_order(o.scale_order);
  if (!o.c_enters.empty()) spec.c_enters = find_c_placement(o.c_enters);
  require(!o.output_dtype.empty(), "--out-dtype", "the output's format with a table of calls",
          "none");
  spec.output = default_output(find_format(o.output_dtype).id);
  if (!o.profile.empty()) spec.output.policy = find_cast_profile(o.profile).policy;
  spec.epilogue = epilogue_of(o.epilogue);
  spec.split = split_of(o.split);
  return spec;
}

Product load_product(const OperandOptions& o) { return make_product(load_operands(o), spec_of(o)); }

GroupedProduct load_grouped_product(const OperandOptions& o, const Groups& groups) {
  return make_grouped_product(load_operands(o), spec_of(o), groups);
}

}  // namespace fp8lab::cli

#include "fp8lab/product/calls.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/csv.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/scaling/presets.hpp"

namespace fp8lab {
namespace {

using enum Standing;
using enum ScaleOrder;
using Split = std::pair<SplitCut, SplitOrder>;

constexpr std::array kContiguous{Split{SplitCut::contiguous, SplitOrder::serial}};
constexpr std::array kAdaSplits{Split{SplitCut::modulo, SplitOrder::serial},
                                Split{SplitCut::modulo, SplitOrder::pairwise}};

constexpr std::string_view kLtEpilogue =
    "scales, then bias (assumed), then the output's scale; FP8 saturates";
constexpr std::string_view kNoEpilogue = "the cast alone";
constexpr std::string_view kCutlassEpilogue =
    "beta * C + (alpha * sum + bias), activation, output scale";

constexpr std::string_view kMmaemuHopper =
    "sums with one scale each: the package mmaemu 0.1.0, which compared them with recordings of "
    "cuBLASLt 12.8 on an H100, split or not; these, scales of rows and bias: cuBLASLt 13.1 and "
    "torch._scaled_mm of PyTorch 2.11 on an H200, all outputs equal";
constexpr std::string_view kMmaemuAda =
    "sums with one scale each: the package mmaemu 0.1.0, which compared them with recordings of "
    "cuBLASLt 12.8 on an RTX 4060, split or not; scales of rows and bias are assumed";
constexpr std::string_view kBlackwell =
    "the instruction is from literature; that a call is one chain is assumed";
constexpr std::string_view kDeepGemm =
    "DeepGEMM, sm90_fp8_gemm_1d2d.cuh: final += (scale_a * scale_b) * accum every 128 terms; that "
    "nvcc contracts it to an FMA is assumed";
constexpr std::string_view kDeepGemmBoth =
    "DeepGEMM, sm90_fp8_gemm_1d1d.cuh: the same with 1x128 scales of both operands";
constexpr std::string_view kDeepGemmBlackwell =
    "DeepGEMM 54e2261, sm100_fp8_fp4_gemm_1d1d.cuh: tcgen05.mma kind::mxf8f6f4, one chain of all K "
    "in steps of 32 terms; E8M0 scales of 32 or 128 terms, for each operand, enter the instruction";
constexpr std::string_view kCutlassMx =
    "CUTLASS 7107b05, example 72c: OpClassBlockScaledTensorOp, one chain of all K; its epilogue as "
    "on sm_90; the bits of the instruction are from literature";
constexpr std::string_view kCutlassNvfp4 =
    "CUTLASS 7107b05, examples 72a and 72b: nv_float4_t, one chain of all K; its epilogue as on "
    "sm_90; the bits of the instruction are from literature";
constexpr std::string_view kLtMx =
    "cuBLASLt, CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0; that a call is one chain is assumed";
constexpr std::string_view kLtNvfp4 =
    "cuBLASLt, CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3, tensor scales as alpha; that a call is "
    "one chain is assumed";
constexpr std::string_view kTritonScaled =
    "Triton, tl.dot_scaled on capability 100: tcgen05.mma kind::mxf8f6f4; that a call is one chain "
    "is assumed";
constexpr std::string_view kCutlassFast =
    "CUTLASS, KernelTmaWarpSpecialized...FP8FastAccum: one chain of all K; its epilogue from "
    "epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp";
constexpr std::string_view kCutlassSlow =
    "CUTLASS, fp8_accumulation.hpp: mma_promotion_interval = 4 instructions of 32 terms, the "
    "default; its epilogue from epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp";
constexpr std::string_view kCutlassBlock =
    "CUTLASS, example 67: fp8_accumulation.hpp's scale_core every 128 terms; that nvcc contracts "
    "it to an FMA is assumed";
constexpr std::string_view kTritonHopper =
    "Triton, backend/compiler.py: max_num_imprecise_acc_default = 2**30 on capability 90: wgmma "
    "adds up all of K; a smaller value is the number of terms between two promotions";
constexpr std::string_view kTritonAda =
    "Triton, backend/compiler.py: max_num_imprecise_acc_default = 0, and mma.sync has no partial "
    "sums: one chain of all K";
constexpr std::string_view kTritonBlock =
    "the form of vLLM's and DeepSeek-V3's kernels: accumulator += dot(a, b) * s_a * s_b, every 128 "
    "terms";
constexpr std::string_view kTeFast =
    "TransformerEngine, pytorch/module/base.py: _2X_ACC_FPROP = False, so cuBLASLt's fast "
    "accumulation; the sum as cublaslt.h100.fast";
constexpr std::string_view kTeSlow =
    "TransformerEngine, pytorch/module/base.py: _2X_ACC_DGRAD = _2X_ACC_WGRAD = True, so split "
    "accumulation; the sum as cublaslt.h100.slow";

constexpr std::array kCalls{
    LibraryCall{"cublaslt.h100.fast", "sm90.wgmma.e4m3", 0, product_then_fma, b_then_fma_a,
                "one, or one per row", FormatId::bf16, 128, kContiguous, kLtEpilogue, measured,
                kMmaemuHopper},
    LibraryCall{"cublaslt.h100.slow", "sm90.wgmma.e4m3", 128, product_then_fma, b_then_fma_a,
                "one, or one per row", FormatId::bf16, 128, kContiguous, kLtEpilogue, measured,
                kMmaemuHopper},
    LibraryCall{"cublaslt.rtx4060.fast", "sm89.mma.e4m3", 0, product_then_fma, b_then_fma_a,
                "one, or one per row", FormatId::bf16, 64, kAdaSplits, kLtEpilogue, measured,
                kMmaemuAda},
    LibraryCall{"cublaslt.rtx4060.slow", "sm89.mma.e4m3", 128, product_then_fma, b_then_fma_a,
                "one, or one per row", FormatId::bf16, 64, kAdaSplits, kLtEpilogue, measured,
                kMmaemuAda},
    LibraryCall{"cublaslt.b200.fast", "sm100.tcgen05.e4m3", 0, product_then_fma, b_then_fma_a,
                "one, or one per row", FormatId::bf16, 128, kContiguous, kLtEpilogue, assumed,
                kBlackwell},
    LibraryCall{"cublaslt.b200.slow", "sm100.tcgen05.e4m3", 0, product_then_fma, b_then_fma_a,
                "one, or one per row", FormatId::bf16, 128, kContiguous, kLtEpilogue, assumed,
                kBlackwell},
    LibraryCall{"deepgemm.h100",
                "sm90.wgmma.e4m3",
                128,
                product_then_fma,
                product_then_fma,
                "1x128 and 128x128",
                FormatId::bf16,
                0,
                {},
                kNoEpilogue,
                from_literature,
                kDeepGemm},
    LibraryCall{"deepgemm.h100.1d1d",
                "sm90.wgmma.e4m3",
                128,
                product_then_fma,
                product_then_fma,
                "1x128 and 1x128",
                FormatId::f32,
                0,
                {},
                kNoEpilogue,
                from_literature,
                kDeepGemmBoth},
    LibraryCall{"cutlass.h100.fp8.fast",
                "sm90.wgmma.e4m3",
                0,
                product_then_fma,
                product_then_fma,
                "none: alpha",
                FormatId::bf16,
                0,
                {},
                kCutlassEpilogue,
                from_literature,
                kCutlassFast},
    LibraryCall{"cutlass.h100.fp8",
                "sm90.wgmma.e4m3",
                128,
                product_then_fma,
                product_then_fma,
                "none: alpha",
                FormatId::bf16,
                0,
                {},
                kCutlassEpilogue,
                from_literature,
                kCutlassSlow},
    LibraryCall{"cutlass.h100.fp8-blockwise",
                "sm90.wgmma.e4m3",
                128,
                product_then_fma,
                product_then_fma,
                "1x128 and 128x128",
                FormatId::bf16,
                0,
                {},
                kCutlassEpilogue,
                from_literature,
                kCutlassBlock},
    LibraryCall{"triton.dot.ada",
                "sm89.mma.e4m3",
                0,
                a_then_b_then_add,
                a_then_b_then_add,
                "one, or one per row",
                FormatId::f32,
                0,
                {},
                kNoEpilogue,
                from_literature,
                kTritonAda},
    LibraryCall{"triton.dot.hopper",
                "sm90.wgmma.e4m3",
                0,
                a_then_b_then_add,
                a_then_b_then_add,
                "one, or one per row",
                FormatId::f32,
                0,
                {},
                kNoEpilogue,
                from_literature,
                kTritonHopper},
    LibraryCall{"triton.dot.blackwell",
                "sm100.tcgen05.e4m3",
                0,
                a_then_b_then_add,
                a_then_b_then_add,
                "one, or one per row",
                FormatId::f32,
                0,
                {},
                kNoEpilogue,
                assumed,
                kBlackwell},
    LibraryCall{"triton.block.hopper",
                "sm90.wgmma.e4m3",
                128,
                a_then_b_then_add,
                a_then_b_then_add,
                "1x128 and 128x128",
                FormatId::bf16,
                0,
                {},
                kNoEpilogue,
                from_literature,
                kTritonBlock},
    LibraryCall{"deepgemm.b200",
                "sm100.tcgen05.mxf8f6f4.e4m3",
                0,
                product_then_fma,
                product_then_fma,
                "1x32 or 1x128 E8M0, B also 128x128",
                FormatId::bf16,
                0,
                {},
                kNoEpilogue,
                from_literature,
                kDeepGemmBlackwell},
    LibraryCall{"cutlass.b200.mxfp8",
                "sm100.tcgen05.mxf8f6f4.e4m3",
                0,
                product_then_fma,
                product_then_fma,
                "1x32 E8M0",
                FormatId::bf16,
                0,
                {},
                kCutlassEpilogue,
                from_literature,
                kCutlassMx},
    LibraryCall{"cutlass.b200.nvfp4",
                "sm100.tcgen05.mxf4nvf4",
                0,
                product_then_fma,
                product_then_fma,
                "1x16 UE4M3",
                FormatId::bf16,
                0,
                {},
                kCutlassEpilogue,
                from_literature,
                kCutlassNvfp4},
    LibraryCall{"cublaslt.b200.mxfp8",
                "sm100.tcgen05.mxf8f6f4.e4m3",
                0,
                product_then_fma,
                product_then_fma,
                "1x32 E8M0",
                FormatId::bf16,
                0,
                {},
                kLtEpilogue,
                assumed,
                kLtMx},
    LibraryCall{"cublaslt.b200.nvfp4",
                "sm100.tcgen05.mxf4nvf4",
                0,
                product_then_fma,
                product_then_fma,
                "1x16 UE4M3",
                FormatId::bf16,
                0,
                {},
                kLtEpilogue,
                assumed,
                kLtNvfp4},
    LibraryCall{"triton.dot_scaled.blackwell",
                "sm100.tcgen05.mxf8f6f4.e4m3",
                0,
                product_then_fma,
                product_then_fma,
                "1x32 E8M0",
                FormatId::f32,
                0,
                {},
                kNoEpilogue,
                assumed,
                kTritonScaled},
    LibraryCall{"transformer-engine.h100.fprop", "sm90.wgmma.e4m3", 0, product_then_fma,
                product_then_fma, "one", FormatId::bf16, 128, kContiguous, kLtEpilogue,
                from_literature, kTeFast},
    LibraryCall{"transformer-engine.h100.dgrad", "sm90.wgmma.e4m3", 128, product_then_fma,
                product_then_fma, "one", FormatId::bf16, 128, kContiguous, kLtEpilogue,
                from_literature, kTeSlow},
    LibraryCall{"transformer-engine.h100.wgrad", "sm90.wgmma.e4m3", 128, product_then_fma,
                product_then_fma, "one", FormatId::f32, 128, kContiguous, kLtEpilogue,
                from_literature, kTeSlow},
};

/// One scale a row, and more than one.
bool one_a_row(const ProductOperand& operand, std::int64_t k) {
  const std::optional<InverseScales>& read = operand.inverse;
  if (read) return read->values.size() > 1 && (read->k_block == 0 || read->k_block >= k);
  const std::optional<TensorView>& scales = operand.scales;
  if (!scales || element_count(scales->shape, "scales") < 2) return false;
  const std::vector<std::int64_t> grid = grid_shape(scales->shape);
  if (operand.layout == ScaleLayout::column_major) return grid[0] == 1 || scales->shape.size() == 1;
  return operand.layout == ScaleLayout::row_major && grid[1] == 1;
}

/// The format of an operand's codes. Floats have the one that the recipe gives them, or the call's.
FormatId format_for(ElementType type, const Recipe* recipe, FormatId usual) {
  const std::optional<FormatId> id = format_of(type);
  const bool codes = id && element_bytes(type) == 1;
  if (codes) return *id;
  return recipe != nullptr ? recipe->format : usual;
}

std::string splits_text(const LibraryCall& call) {
  std::vector<std::string> known;
  for (const auto& [cut, order] : call.splits)
    known.push_back(fmt::format("{} {}", to_string(cut), to_string(order)));
  return known.empty() ? "K whole" : fmt::format("{}", fmt::join(known, " or "));
}

}  // namespace

std::span<const LibraryCall> library_calls() { return kCalls; }

const LibraryCall& find_library_call(std::string_view name) {
  return find_named(kCalls, "call", name);
}

std::string_view model_reading(std::string_view model, std::string_view caller, FormatId a,
                               FormatId b) {
  const InstructionModel& own = find_instruction_model(model);
  const std::string_view family = model.substr(0, model.rfind('.'));
  std::vector<std::string> known;
  for (const InstructionModel& other : instruction_models()) {
    const bool same = other.name.starts_with(family) && other.accumulator == own.accumulator;
    if (same && other.a_format == a && other.b_format == b) return other.name;
    if (same)
      known.push_back(
          fmt::format("{} x {}", format(other.a_format).name, format(other.b_format).name));
  }
  throw Error("call",
              fmt::format("operands in formats that {} reads ({})", caller, fmt::join(known, ", ")),
              fmt::format("{} x {}", format(a).name, format(b).name));
}

std::string_view model_of(const LibraryCall& call, ElementType a, ElementType b,
                          std::string_view recipe) {
  const InstructionModel& usual = find_instruction_model(call.model);
  const Preset* preset = recipe.empty() ? nullptr : &find_preset(recipe);
  return model_reading(
      call.model, call.name,
      format_for(a, preset == nullptr ? nullptr : &preset->activation, usual.a_format),
      format_for(b, preset == nullptr ? nullptr : &preset->weight, usual.b_format));
}

void require_scales(const LibraryCall& call, bool of_a, bool of_b) {
  if (!call.scales.starts_with("1x")) return;  // of tiles
  for (const auto& [name, given] : {std::pair{"scale_a", of_a}, std::pair{"scale_b", of_b}})
    require(given, argument(name), fmt::format("scales of {}, as {} has", call.scales, call.name),
            "none");
}

GemmSpec with_call(const LibraryCall& call, const GemmOperands& operands, GemmSpec spec) {
  spec.call.clear();
  spec.model = model_of(call, operands.a.codes.type, operands.b.codes.type, operands.recipe);
  spec.promotion_interval = call.promotion_interval;
  const std::vector<std::int64_t>& shape = operands.a.codes.shape;
  const std::int64_t k = shape.empty() ? 0 : shape[operands.a.transposed ? 0 : shape.size() - 1];
  const bool by_rows = one_a_row(operands.a, k) || one_a_row(operands.b, k);
  spec.scale_order = by_rows ? call.row_scale_order : call.scale_order;
  if (spec.split.parts == 1) return spec;
  const Split asked{spec.split.cut, spec.split.order};
  require(std::find(call.splits.begin(), call.splits.end(), asked) != call.splits.end(), "split_k",
          fmt::format("{}, the known splits of {}", splits_text(call), call.name),
          fmt::format("{} {}", to_string(asked.first), to_string(asked.second)));
  if (spec.split.tile == 0) spec.split.tile = call.split_tile;
  return spec;
}

namespace {

constexpr std::array<std::string_view, 5> kRoundings{"once", "sum_too", "parts_too", "through_bf16",
                                                     "through_f16"};
constexpr std::string_view kFirst = "# fp8lab cublaslt 2";
constexpr std::array<std::string_view, 16> kFields{
    "m",       "n",        "k",     "a",    "b",   "output", "accumulation", "outputs",
    "fitting", "interval", "parts", "tile", "cut", "order",  "scale_order",  "rounding"};
constexpr std::size_t kModelFields = 9;  // the first of those that describe a candidate
constexpr std::string_view kNone = "-";
constexpr std::int64_t kMostSize = std::numeric_limits<std::int32_t>::max();

/// The fields of one row, for error messages with their names and the place of the row.
class Fields {
 public:
  Fields(const std::vector<std::string>& texts, std::string where)
      : texts_(texts), where_(std::move(where)) {}

  [[nodiscard]] bool is_none(std::size_t field) const { return texts_[field] == kNone; }

  [[nodiscard]] std::int64_t integer(std::size_t field, std::int64_t least,
                                     std::int64_t most) const {
    const std::string& text = texts_[field];
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    require(
        error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most,
        name(field), fmt::format("an integer from {} to {}", least, most), text);
    return value;
  }

  [[nodiscard]] FormatId format_of(std::size_t field, std::span<const FormatId> allowed) const {
    std::vector<std::string_view> names;
    for (const FormatId id : allowed) {
      if (texts_[field] == format(id).name) return id;
      names.push_back(format(id).name);
    }
    throw Error(name(field), fmt::format("{}", fmt::join(names, ", ")), texts_[field]);
  }

  [[nodiscard]] bool is(std::size_t field, std::string_view yes, std::string_view no) const {
    require(texts_[field] == yes || texts_[field] == no, name(field),
            fmt::format("{} or {}", yes, no), texts_[field]);
    return texts_[field] == yes;
  }

  /// `find(text)`, whose error gets the place of the field.
  template <typename Find>
  [[nodiscard]] auto named(std::size_t field, Find find) const {
    try {
      return find(texts_[field]);
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", name(field), error.what()));
    }
  }

  [[nodiscard]] std::string name(std::size_t field) const {
    return fmt::format("{}: {}", where_, kFields[field]);
  }

 private:
  const std::vector<std::string>& texts_;
  std::string where_;
};

CallShape parse_shape(const Fields& fields) {
  constexpr std::array kInputs{FormatId::e4m3fn, FormatId::e5m2};
  constexpr std::array kOutputs{FormatId::f32, FormatId::bf16, FormatId::f16, FormatId::e4m3fn,
                                FormatId::e5m2};
  return {fields.integer(0, 1, kMostSize), fields.integer(1, 1, kMostSize),
          fields.integer(2, 1, kMostSize), fields.format_of(3, kInputs),
          fields.format_of(4, kInputs),    fields.format_of(5, kOutputs),
          fields.is(6, "fast", "slow")};
}

CallModel parse_model(const Fields& fields, std::int64_t k) {
  CallModel model;
  model.interval = fields.integer(9, 0, kMostSize);
  model.split = {static_cast<int>(fields.integer(10, 1, k)), fields.integer(11, 1, kMostSize),
                 fields.named(12, find_split_cut), fields.named(13, find_split_order)};
  model.scale_order = fields.named(14, find_scale_order);
  model.rounding = fields.named(15, find_call_rounding);
  const std::int64_t tiles = (k + model.split.tile - 1) / model.split.tile;
  require(model.split.parts <= tiles, fields.name(10), fmt::format("at most {} tiles", tiles),
          model.split.parts);
  return model;
}

/// Adds the row to its call, the last one, or to a new one; `missing` counts the rows of the last
/// call that are still to come.
void add_row(const Fields& fields, const std::string& where, CallTable& table,
             std::int64_t& missing) {
  const CallShape call = parse_shape(fields);
  const auto outputs = static_cast<std::uint64_t>(fields.integer(7, 1, kMostSize));
  const std::int64_t fitting = fields.integer(8, 0, kMostSize);
  if (missing == 0) {
    require(table.find(call) == nullptr, where, "the rows of a call together, each call once",
            to_string(call));
    table.calls.push_back({call, outputs});
    missing = std::max<std::int64_t>(fitting, 1);
  }
  ObservedCall& last = table.calls.back();
  require(last.call == call && last.outputs == outputs &&
              missing + static_cast<std::int64_t>(last.fitting.size()) ==
                  std::max<std::int64_t>(fitting, 1),
          where, fmt::format("{} more rows of {}", missing, to_string(last.call)),
          "a row of another call");
  --missing;
  if (fitting > 0) {
    const CallModel model = parse_model(fields, call.k);
    require(std::ranges::count(last.fitting, model) == 0, where, "each candidate once",
            to_string(model));
    last.fitting.push_back(model);
    return;
  }
  for (std::size_t i = kModelFields; i < kFields.size(); ++i)
    require(fields.is_none(i), fields.name(i), "-, since no candidate fits", "a value");
}

void parse_header(std::string_view line, const std::string& where, CallTable& table) {
  const std::size_t colon = line.find(": ");
  require(line.starts_with("# ") && colon != std::string_view::npos && colon > 2, where,
          "`# key: value`", line);
  const std::string key(line.substr(2, colon - 2));
  require(table.header.emplace(key, line.substr(colon + 2)).second, where, "each key once", key);
}

/// Throws unless the text below the line that gives a checksum has this checksum.
void require_checksum(std::string_view line, std::string_view below, const std::string& where) {
  const std::string got = crc32_text(below);
  require(line.substr(line.find(": ") + 2) == got, where + ": crc32",
          fmt::format("{} (the file was changed; without this line it is read as it is)", got),
          line);
}

}  // namespace

std::string to_string(const CallShape& call) {
  return fmt::format("{}x{}x{} of {} and {} to {}, {}", call.m, call.n, call.k, format(call.a).name,
                     format(call.b).name, format(call.output).name, call.fast ? "fast" : "slow");
}

std::string_view to_string(CallRounding rounding) {
  return kRoundings[static_cast<std::size_t>(rounding)];
}
CallRounding find_call_rounding(std::string_view name) {
  return find_enumerator<CallRounding>(kRoundings, "rounding", name);
}

std::string to_string(const CallModel& model) {
  std::string text = fmt::format("N_C {}, ", model.interval);
  if (model.split.parts > 1)
    text += fmt::format("split {} {} {} tile {}, ", model.split.parts, to_string(model.split.cut),
                        to_string(model.split.order), model.split.tile);
  return text + fmt::format("{}, {}", to_string(model.scale_order), to_string(model.rounding));
}

std::vector<std::pair<std::string_view, std::string>> fields_of(const CallModel& model) {
  const std::array<std::string, kFields.size() - kModelFields> texts{
      std::to_string(model.interval),
      std::to_string(model.split.parts),
      std::to_string(model.split.tile),
      std::string(to_string(model.split.cut)),
      std::string(to_string(model.split.order)),
      std::string(to_string(model.scale_order)),
      std::string(to_string(model.rounding))};
  std::vector<std::pair<std::string_view, std::string>> fields;
  for (std::size_t i = 0; i < texts.size(); ++i)
    fields.emplace_back(kFields[kModelFields + i], texts[i]);
  return fields;
}

const ObservedCall* CallTable::find(const CallShape& call) const {
  const auto found = std::ranges::find(calls, call, &ObservedCall::call);
  return found == calls.end() ? nullptr : &*found;
}

std::string to_text(const CallTable& table) {
  std::string text;
  for (const auto& [key, value] : table.header) text += fmt::format("# {}: {}\n", key, value);
  text += fmt::format("# model: {}\n{}\n", table.model, fmt::join(kFields, ","));
  for (const ObservedCall& observed : table.calls) {
    const CallShape& call = observed.call;
    const std::string begin =
        fmt::format("{},{},{},{},{},{},{},{},{}", call.m, call.n, call.k, format(call.a).name,
                    format(call.b).name, format(call.output).name, call.fast ? "fast" : "slow",
                    observed.outputs, observed.fitting.size());
    for (const CallModel& model : observed.fitting) {
      text += begin;
      for (const auto& [name, value] : fields_of(model)) text += "," + value;
      text += "\n";
    }
    if (observed.fitting.empty()) {
      text += begin;
      for (std::size_t i = kModelFields; i < kFields.size(); ++i) text += fmt::format(",{}", kNone);
      text += "\n";
    }
  }
  return fmt::format("{}\n# crc32: {}\n{}", kFirst, crc32_text(text), text);
}

CallTable parse_call_table(const std::string& text, const std::string& name) {
  CallTable table;
  std::size_t begin = 0;
  int number = 0;
  for (; begin < text.size() && text[begin] == '#'; ++number) {
    const std::string where = fmt::format("{}:{}", name, number + 1);
    const std::size_t end = text.find('\n', begin);
    require(end != std::string::npos, where, "an end of line", "the end of the file");
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (number == 0)
      require(line == kFirst, where, kFirst, line);
    else if (number == 1 && line.starts_with("# crc32: "))
      require_checksum(line, std::string_view(text).substr(begin), where);
    else
      parse_header(line, where, table);
  }
  require(number > 0, name, kFirst, text.empty() ? "an empty file" : "another first line");
  auto model = table.header.extract("model");
  require(!model.empty(), name, "a line `# model: INSTRUCTION`", "none");
  try {
    table.model = find_instruction_model(model.mapped()).name;
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", name, error.what()));
  }
  require(text.ends_with('\n'), name, "an end of line", "the end of the file");
  std::vector<std::vector<std::string>> rows;
  try {
    rows = parse_csv(std::string_view(text).substr(begin));
  } catch (const Error& error) {
    throw Error(fmt::format("{}: below line {}: {}", name, number, error.what()));
  }
  const std::vector<std::string> columns(kFields.begin(), kFields.end());
  require(!rows.empty() && rows.front() == columns, fmt::format("{}:{}", name, number + 1),
          fmt::format("{}", fmt::join(kFields, ",")),
          rows.empty() ? "none" : fmt::format("{}", fmt::join(rows.front(), ",")));
  std::int64_t missing = 0;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const std::string where = fmt::format("{}:{}", name, static_cast<std::size_t>(number) + i + 1);
    add_row(Fields(rows[i], where), where, table, missing);
  }
  require(missing == 0, name,
          table.calls.empty()
              ? ""
              : fmt::format("{} more rows of {}", missing, to_string(table.calls.back().call)),
          "the end of the file");
  return table;
}

CallTable read_call_table(const std::filesystem::path& file) {
  return parse_call_table(read_file(file), file.string());
}

namespace {

constexpr std::string_view kEnding = ".csv";
constexpr std::string_view kForm = "FILE.csv:fast or FILE.csv:slow, then ,FIELD=VALUE";

/// The values that candidates have in a field, each once.
std::vector<std::string> values_of(const std::vector<CallModel>& fitting, std::size_t field) {
  std::vector<std::string> values;
  for (const CallModel& model : fitting) {
    std::string value = fields_of(model)[field].second;
    if (std::ranges::count(values, value) == 0) values.push_back(std::move(value));
  }
  return values;
}

std::size_t find_field(const std::string& name) {
  const auto fields = fields_of(CallModel{});
  std::vector<std::string_view> names{"output"};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].first == name) return i;
    names.push_back(fields[i].first);
  }
  throw Error("call", fmt::format("a field of {}", fmt::join(names, ", ")), name);
}

void require_one_scale(std::string_view name, const ProductOperand& operand) {
  const std::size_t count = operand.inverse  ? operand.inverse->values.size()
                            : operand.scales ? static_cast<std::size_t>(operand.scales->size())
                                             : 1;
  require(count <= 1, name, "one scale, as the calls of the table had", count);
}

void require_one_scale(std::string_view recipe) {
  const Preset& preset = find_preset(recipe);
  const auto whole = [](const Recipe& r) { return r.row_block == 0 && r.k_block == 0; };
  require(whole(preset.activation) && whole(preset.weight), "recipe",
          "one with a scale for a whole tensor, as the calls of the table had", recipe);
}

/// The formats of the codes that are multiplied.
std::pair<FormatId, FormatId> formats_of(const GemmOperands& operands) {
  if (!operands.recipe.empty()) {
    const Preset& preset = find_preset(operands.recipe);
    return {preset.activation.format, preset.weight.format};
  }
  const auto read = [](std::string_view name, ElementType type) {
    const std::optional<FormatId> id = format_of(type);
    require(id == FormatId::e4m3fn || id == FormatId::e5m2, name, "e4m3fn or e5m2 with a table",
            to_string(type));
    return *id;
  };
  return {read("A", operands.a.codes.type), read("B", operands.b.codes.type)};
}

}  // namespace

bool is_table_call(std::string_view text) {
  return text.ends_with(kEnding) || text.find(".csv:") != std::string_view::npos;
}

TableCall parse_table_call(std::string_view text) {
  const std::size_t at = text.rfind(".csv:");
  require(at != std::string_view::npos, "call", kForm, text);
  TableCall call{std::string(text), std::string(text.substr(0, at + kEnding.size()))};
  std::string_view rest = text.substr(at + kEnding.size() + 1);
  for (bool first = true; first || !rest.empty(); first = false) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, end);
    rest = rest.substr(std::min(end + 1, rest.size()));
    if (first) {
      require(item == "fast" || item == "slow", "call", kForm, text);
      call.fast = item == "fast";
      continue;
    }
    const std::size_t equals = item.find('=');
    require(equals != std::string_view::npos, "call", kForm, item);
    const std::string field(item.substr(0, equals));
    const std::string value(item.substr(equals + 1));
    if (field == "output") {
      require(!call.output, "call", "output once", text);
      call.output = find_format(value).id;
      continue;
    }
    (void)find_field(field);
    require(std::ranges::none_of(call.choices,
                                 [&](const auto& choice) { return choice.first == field; }),
            "call", "each field once", field);
    call.choices.emplace_back(field, value);
  }
  return call;
}

CallModel candidate_of(const CallTable& table, const TableCall& call, const CallShape& shape) {
  const ObservedCall* observed = table.find(shape);
  require(observed != nullptr, "call", fmt::format("a call in {}", call.file), to_string(shape));
  const std::string where = fmt::format("{}: {}", call.file, to_string(shape));
  require(!observed->fitting.empty(), where, "a candidate that gives the observed outputs", "none");
  std::vector<CallModel> left = observed->fitting;
  for (const auto& [name, value] : call.choices) {
    const std::size_t field = find_field(name);
    const std::vector<std::string> values = values_of(left, field);
    std::erase_if(left, [&, &wanted = value](const CallModel& m) {
      return fields_of(m)[field].second != wanted;
    });
    require(!left.empty(), fmt::format("{}: {}", where, name),
            fmt::format("{}, as observed", fmt::join(values, " or ")), value);
  }
  if (left.size() == 1) return left.front();
  std::vector<std::string> open;
  const auto fields = fields_of(left.front());
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (const std::vector<std::string> values = values_of(left, i); values.size() > 1)
      open.push_back(fmt::format("{}={}", fields[i].first, fmt::join(values, "|")));
  throw Error(where,
              fmt::format("a choice of what the observation leaves open ({}), behind the call "
                          "as ,FIELD=VALUE",
                          fmt::join(open, ", ")),
              counted(left.size(), "candidate"));
}

GemmSpec with_call(const CallTable& table, const TableCall& call, const GemmOperands& operands,
                   GemmSpec spec) {
  if (operands.recipe.empty()) {
    require_one_scale(argument("scale_a"), operands.a);
    require_one_scale(argument("scale_b"), operands.b);
  } else {
    require_one_scale(operands.recipe);
  }
  require(spec.split == SplitK{}, argument("split_k"), "none with a table, which sets it",
          spec.split.parts);
  spec.call.clear();
  require(call.output.value_or(spec.output.format) == spec.output.format, "call",
          fmt::format("output={}, as the product's", format(spec.output.format).name), call.text);
  const auto [a, b] = formats_of(operands);
  const auto [m, k] = sides_of("A", operands.a);
  const CallShape shape{m, sides_of("B", operands.b).first, k, a, b, spec.output.format, call.fast};
  const CallModel model = candidate_of(table, call, shape);
  require(model.rounding == CallRounding::once, fmt::format("{}: rounding", call.file),
          "once, as products round", to_string(model.rounding));
  spec.model = model_reading(table.model, call.file, a, b);
  spec.promotion_interval = model.interval;
  spec.split = model.split;
  if (spec.split.parts == 1) spec.split = {};
  spec.scale_order = model.scale_order;
  return spec;
}

void require_model_or_call(const GemmSpec& spec) {
  if (spec.call.empty()) {
    require(!spec.model.empty(), argument("model"),
            fmt::format("an instruction, or the name of a library call ({})", argument("call")),
            "neither");
    return;
  }
  if (!is_table_call(spec.call)) (void)find_library_call(spec.call);
  const auto check = [&](std::string_view name, bool unset, std::string_view got) {
    require(unset, argument(name), fmt::format("none with call '{}', which sets it", spec.call),
            got);
  };
  check("model", spec.model.empty(), spec.model);
  check("promotion", spec.promotion_interval == 0, std::to_string(spec.promotion_interval));
  check("scale_order", spec.scale_order == ScaleOrder::product_then_fma,
        to_string(spec.scale_order));
}

GemmSpec with_call(const GemmOperands& operands, GemmSpec spec) {
  require_model_or_call(spec);
  if (spec.call.empty()) return spec;
  if (is_table_call(spec.call)) {
    const TableCall call = parse_table_call(spec.call);
    return with_call(read_call_table(call.file), call, operands, std::move(spec));
  }
  const LibraryCall& call = find_library_call(spec.call);
  const bool quantized = !operands.recipe.empty();
  require_scales(call, quantized || operands.a.has_scales(), quantized || operands.b.has_scales());
  return with_call(call, operands, std::move(spec));
}

}  // namespace fp8lab

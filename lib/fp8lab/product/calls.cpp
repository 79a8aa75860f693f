#include "fp8lab/product/calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/named.hpp"
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
bool one_a_row(const std::optional<TensorView>& scales, ScaleLayout layout,
               const std::optional<InverseScales>& read, std::int64_t k) {
  if (read) return read->values.size() > 1 && (read->k_block == 0 || read->k_block >= k);
  if (!scales || element_count(scales->shape, "scales") < 2) return false;
  const std::vector<std::int64_t> grid = grid_shape(scales->shape);
  if (layout == ScaleLayout::column_major) return grid[0] == 1 || scales->shape.size() == 1;
  return layout == ScaleLayout::row_major && grid[1] == 1;
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
  spec.model = model_of(call, operands.a.type, operands.b.type, operands.recipe);
  spec.promotion_interval = call.promotion_interval;
  const std::int64_t k = operands.a.shape.empty() ? 0 : operands.a.shape.back();
  const bool by_rows = one_a_row(operands.scale_a, operands.layout_a, operands.inverse_a, k) ||
                       one_a_row(operands.scale_b, operands.layout_b, operands.inverse_b, k);
  spec.scale_order = by_rows ? call.row_scale_order : call.scale_order;
  if (spec.split.parts == 1) return spec;
  const Split asked{spec.split.cut, spec.split.order};
  require(std::find(call.splits.begin(), call.splits.end(), asked) != call.splits.end(), "split_k",
          fmt::format("{}, the known splits of {}", splits_text(call), call.name),
          fmt::format("{} {}", to_string(asked.first), to_string(asked.second)));
  if (spec.split.tile == 0) spec.split.tile = call.split_tile;
  return spec;
}

}  // namespace fp8lab

#include <fmt/format.h>

#include <array>
#include <string>

#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/accumulate/recordings.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/named.hpp"

namespace fp8lab {
namespace {

using enum FormatId;

constexpr std::string_view kRecorded =
    "Khattak and Mikaitis 2025 (MATLAB-tensor-core), GPU outputs replayed";
// Replayed, but no row of theirs is among the recordings of this repository. The published data
// have 5000 rows for each GPU and input.
constexpr std::string_view kAmpereElsewhere =
    "Khattak and Mikaitis 2025 (MATLAB-tensor-core), 5000 outputs each of A100 and A2 replayed; "
    "not kept here";
constexpr std::string_view kAdaElsewhere =
    "Khattak and Mikaitis 2025 (MATLAB-tensor-core), 5000 outputs each of Ada and L40S replayed; "
    "not kept here";
constexpr std::string_view kBlackwellElsewhere =
    "Khattak and Mikaitis 2025 (MATLAB-tensor-core), 5000 outputs of B200 replayed; not kept here";
constexpr std::string_view kHopperHere =
    "fp8lab-cuda on an H200: 2 x 10^8 outputs, all equal; CUDA 13.0";
constexpr std::string_view kHopperBoth =
    "fp8lab-cuda on an H200: 2 x 10^8 outputs, all equal; CUDA 13.0; Khattak and Mikaitis 2025 "
    "(MATLAB-tensor-core), H100 outputs replayed";
constexpr std::string_view kHalvesRows =
    "two HMMA and an addition of c in machine code of sm_90a and sm_100a (ptxas 12.8 to 13.0); "
    "Khattak and Mikaitis 2025, GPU outputs replayed; sm90: fp8lab-cuda on an H200, 2 x 10^8 "
    "outputs, all equal";
constexpr std::string_view kSeparate =
    "two HMMA and two additions in machine code of sm_90a (ptxas 12.4 to 12.6)";
constexpr std::string_view kMmaSim = "MMA-Sim, arXiv 2511.10909";
constexpr std::string_view kTuring =
    "MMA-Sim, arXiv 2511.10909 (the m16n8k8 shape; m8n8k4 uses 4 terms per step)";
constexpr std::string_view kTuringHalf =
    "MMA-Sim, arXiv 2511.10909; its lower limit is assumed to be Ampere's";
constexpr std::string_view kMxf8Source =
    "MMA-Sim, arXiv 2511.10909: scales enter the exponents before the alignment";
constexpr std::string_view kMxf4InMxf8 =
    "as FP8 operands, with E2M1's stored exponents: 0.5 is subnormal (MMA-Sim fails on E2M1)";
constexpr std::string_view kMxf6Source =
    "as FP8 operands, with the stored exponents of FP6: not in any publication";
constexpr std::string_view kMxf4Source =
    "MMA-Sim, arXiv 2511.10909: 35 bits (a report from a B200, DeepGEMM issue 176, says 34 to 37)";
constexpr std::string_view kCdna1Source =
    "MMA-Sim's later state and the MATLAB models of Khattak and Mikaitis; MMA-Sim's release adds "
    "pairs of products in binary32 instead";
constexpr std::string_view kCdna2Source = "MMA-Sim, arXiv 2511.10909, both states";
constexpr std::string_view kCdna2OldBf16 =
    "MMA-Sim, arXiv 2511.10909, both states: groups of 2 (the MATLAB models' code takes 4)";
constexpr std::string_view kCdna3Source =
    "MMA-Sim's release and the MATLAB models: 31 bits in the second stage; MMA-Sim's later state "
    "has 32, then 31";
constexpr std::string_view kCdnaFloatSource =
    "MMA-Sim, arXiv 2511.10909: one IEEE 754 fused multiply-add per term, in order";

/// The lowest exponent that units align to.
/// Binary32 output: Hawkeye on A100 and H100, MMA-Sim and the MATLAB models agree.
constexpr int kAmpereFloor = -132;
constexpr int kHopperFloor = -133;
constexpr int kWgmma8Floor = -139;
constexpr int kMxf4Floor = -139;  // MMA-Sim's later state
/// FP16 output, by the MATLAB models; MMA-Sim's are lower by one.
constexpr int kVoltaHalfFloor = -19;
constexpr int kAmpereHalfFloor = -20;
constexpr int kHopperHalfFloor = -21;

constexpr AccumulatorModel fused(int terms, int alignment, int output,
                                 int min_alignment_exponent = kNoMinAlignmentExponent) {
  return {.terms = terms,
          .alignment_fraction_bits = alignment,
          .output_fraction_bits = output,
          .rounding = RoundingMode::toward_zero,
          .min_alignment_exponent = min_alignment_exponent};
}

constexpr AccumulatorModel fused_to_half(int terms, int alignment,
                                         int min_alignment_exponent = kNoMinAlignmentExponent) {
  AccumulatorModel model = fused(terms, alignment, 10, min_alignment_exponent);
  model.rounding = RoundingMode::nearest_even;
  model.output_format = f16;
  return model;
}

/// A unit whose sums that round to zero are +0. Not said where no sum of its products can be so
/// small: of FP8 and FP16 with binary32 output, of E4M3 with FP16 output.
constexpr AccumulatorModel positive_zero(AccumulatorModel model) {
  model.zero_sign = ZeroSign::positive;
  return model;
}

constexpr AccumulatorModel halves_of(AccumulatorModel step,
                                     HalvesOrder order = HalvesOrder::chained) {
  step.kind = AccumulationKind::fp16_halves;
  step.terms *= 2;
  step.halves_order = order;
  return step;
}

constexpr AccumulatorModel sequential(int fraction_bits, RoundingMode rounding,
                                      int product_fraction_bits = -1) {
  return {.kind = AccumulationKind::sequential,
          .terms = 1,
          .output_fraction_bits = fraction_bits,
          .rounding = rounding,
          .product_fraction_bits = product_fraction_bits};
}

constexpr AccumulatorModel of_kind(AccumulationKind kind) {
  return {.kind = kind,
          .terms = 1,
          .alignment_fraction_bits = 23,
          .output_fraction_bits = 23,
          .rounding = RoundingMode::nearest_even};
}

constexpr AccumulatorModel exact_steps() {
  // Wide enough that E4M3 and E5M2 products never lose a bit to each other.
  AccumulatorModel model = fused(32, 62, 23);
  model.rounding = RoundingMode::nearest_even;
  return model;
}

constexpr AccumulatorModel kVolta16 = fused(4, 23, 23);
constexpr AccumulatorModel kVolta16Half = fused_to_half(4, 23, kVoltaHalfFloor);
constexpr AccumulatorModel kAmpere16 = fused(8, 24, 23, kAmpereFloor);
constexpr AccumulatorModel kAmpere16Half = fused_to_half(8, 24, kAmpereHalfFloor);
constexpr AccumulatorModel kAmpereTf32 = fused(4, 24, 23, kAmpereFloor);
constexpr AccumulatorModel kAda8 = fused(16, 13, 13, kAmpereFloor);
constexpr AccumulatorModel kAda8Half = fused_to_half(16, 13);
constexpr AccumulatorModel kHopper16 = fused(16, 25, 23, kHopperFloor);
constexpr AccumulatorModel kHopper16Half = fused_to_half(16, 25, kHopperHalfFloor);
constexpr AccumulatorModel kHopperTf32 = fused(8, 25, 23, kHopperFloor);
constexpr AccumulatorModel kWgmma8 = fused(32, 13, 13, kWgmma8Floor);
constexpr AccumulatorModel kWgmma8Half = fused_to_half(32, 13);
constexpr AccumulatorModel kHalves8 = halves_of(kHopper16);
constexpr AccumulatorModel kHalves8Half = halves_of(kHopper16Half);
constexpr AccumulatorModel kSeparate8 = halves_of(kHopper16, HalvesOrder::separate);
constexpr AccumulatorModel kSeparate8Half = halves_of(kHopper16Half, HalvesOrder::separate);
constexpr AccumulatorModel kTcgen8 = fused(32, 25, 23, kHopperFloor);
// No sum of FP8 products is so small that a limit of FP16 outputs could matter to these.
constexpr AccumulatorModel kTcgen8Half = fused_to_half(32, 25);

constexpr AccumulatorModel scaled(AccumulationKind kind, int terms, int alignment, int floor) {
  AccumulatorModel model = fused(terms, alignment, 23, floor);
  model.kind = kind;
  return model;
}

constexpr AccumulatorModel kMxf8f6f4 =
    scaled(AccumulationKind::scaled_dot_product, 32, 25, kHopperFloor);
constexpr AccumulatorModel kMxf4nvf4 =
    scaled(AccumulationKind::scaled_group_dot_product, 64, 35, kMxf4Floor);
constexpr AccumulatorModel kMxf4nvf4Wide = [] {
  AccumulatorModel model = kMxf4nvf4;
  model.takes_ue4m3_per_32 = true;
  return model;
}();

/// AMD's units: binary32 sums of `terms` a step, rounded to nearest even.
constexpr AccumulatorModel cdna(AccumulationKind kind, int terms) {
  return {.kind = kind,
          .terms = terms,
          .alignment_fraction_bits = 24,
          .output_fraction_bits = 23,
          .rounding = RoundingMode::nearest_even};
}

constexpr AccumulatorModel kCdna1Four = cdna(AccumulationKind::exact_dot_product, 4);
constexpr AccumulatorModel kCdna1Two = cdna(AccumulationKind::exact_dot_product, 2);
constexpr AccumulatorModel kCdna2Four = cdna(AccumulationKind::flushed_pairwise_sum, 4);
constexpr AccumulatorModel kCdna2Two = cdna(AccumulationKind::flushed_pairwise_sum, 2);
constexpr AccumulatorModel kCdna3Eight = cdna(AccumulationKind::two_stage_dot_product, 8);
constexpr AccumulatorModel kCdna3Four = cdna(AccumulationKind::two_stage_dot_product, 4);
constexpr AccumulatorModel kCdna3Fp8 = cdna(AccumulationKind::even_odd_dot_product, 16);
constexpr AccumulatorModel kCdnaFloat = cdna(AccumulationKind::fused_multiply_add, 1);

using enum Standing;

/// An instruction of which no source says what it does.
constexpr InstructionModel supposed(std::string_view name, FormatId a, FormatId b,
                                    const AccumulatorModel& accumulator, std::string_view source) {
  return {name, a, b, accumulator, assumed, source};
}

/// An instruction that is known from publications alone.
constexpr InstructionModel literature(std::string_view name, FormatId a, FormatId b,
                                      const AccumulatorModel& accumulator,
                                      std::string_view source = kMmaSim) {
  return {name, a, b, accumulator, from_literature, source};
}

constexpr InstructionModel amd(std::string_view name, FormatId a, FormatId b,
                               const AccumulatorModel& accumulator, std::string_view source) {
  InstructionModel model = literature(name, a, b, accumulator, source);
  model.vendor = Vendor::amd;
  return model;
}

constexpr std::array kModels{
    InstructionModel{"sm70.mma.f16", f16, f16, kVolta16, measured, kRecorded, kVolta},
    InstructionModel{"sm70.mma.f16.f16", f16, f16, kVolta16Half, measured, kRecorded, kVoltaHalf},
    literature("sm75.mma.f16", f16, f16, kAmpere16, kTuring),
    literature("sm75.mma.f16.f16", f16, f16, kAmpere16Half, kTuringHalf),
    InstructionModel{"sm80.mma.f16", f16, f16, kAmpere16, measured, kRecorded, kAmpere},
    InstructionModel{"sm80.mma.f16.f16", f16, f16, kAmpere16Half, measured, kRecorded, kAmpereHalf},
    InstructionModel{"sm80.mma.bf16", bf16, bf16, kAmpere16, measured, kAmpereElsewhere},
    InstructionModel{"sm80.mma.tf32", tf32, tf32, kAmpereTf32, measured, kAmpereElsewhere},
    InstructionModel{"sm89.mma.e4m3", e4m3fn, e4m3fn, kAda8, measured, kRecorded, kAda},
    InstructionModel{"sm89.mma.e5m2", e5m2, e5m2, kAda8, measured, kAdaElsewhere},
    InstructionModel{"sm89.mma.f16", f16, f16, kAmpere16, measured, kAdaElsewhere},
    InstructionModel{"sm89.mma.f16.f16", f16, f16, kAmpere16Half, measured, kAdaElsewhere},
    InstructionModel{"sm89.mma.bf16", bf16, bf16, kAmpere16, measured, kAdaElsewhere},
    InstructionModel{"sm89.mma.tf32", tf32, tf32, kAmpereTf32, measured, kAdaElsewhere},
    InstructionModel{"sm89.mma.e4m3.f16", e4m3fn, e4m3fn, kAda8Half, measured, kRecorded, kAdaHalf},
    InstructionModel{"sm89.mma.e5m2.f16", e5m2, e5m2, kAda8Half, measured, kAdaElsewhere},
    literature("sm89.mma.e4m3.e5m2", e4m3fn, e5m2, kAda8),
    literature("sm89.mma.e5m2.e4m3", e5m2, e4m3fn, kAda8),
    literature("sm89.mma.e4m3.e5m2.f16", e4m3fn, e5m2, kAda8Half),
    literature("sm89.mma.e5m2.e4m3.f16", e5m2, e4m3fn, kAda8Half),
    InstructionModel{"sm90.mma.f16", f16, f16, kHopper16, measured, kHopperBoth, kHopperF16},
    InstructionModel{"sm90.mma.f16.f16", f16, f16, positive_zero(kHopper16Half), measured,
                     kHopperBoth, kHopperF16Half},
    InstructionModel{"sm90.mma.bf16", bf16, bf16, positive_zero(kHopper16), measured, kHopperBoth,
                     kHopperBf16},
    InstructionModel{"sm90.mma.tf32", tf32, tf32, positive_zero(kHopperTf32), measured, kHopperBoth,
                     kHopperRowsTf32},
    InstructionModel{"sm90.mma.e4m3", e4m3fn, e4m3fn, kHalves8, measured, kHalvesRows, kHopperE4m3},
    InstructionModel{"sm90.mma.e5m2", e5m2, e5m2, kHalves8, measured, kHalvesRows, kHopperE5m2},
    InstructionModel{"sm90.mma.e4m3.f16", e4m3fn, e4m3fn, kHalves8Half, measured, kHalvesRows,
                     kHopperE4m3Half},
    InstructionModel{"sm90.mma.e5m2.f16", e5m2, e5m2, positive_zero(kHalves8Half), measured,
                     kHalvesRows, kHopperE5m2Half},
    InstructionModel{"sm90.mma.e4m3.separate", e4m3fn, e4m3fn, kSeparate8, assumed, kSeparate},
    InstructionModel{"sm90.mma.e5m2.separate", e5m2, e5m2, kSeparate8, assumed, kSeparate},
    InstructionModel{"sm90.mma.e4m3.f16.separate", e4m3fn, e4m3fn, kSeparate8Half, assumed,
                     kSeparate},
    InstructionModel{"sm90.mma.e5m2.f16.separate", e5m2, e5m2, positive_zero(kSeparate8Half),
                     assumed, kSeparate},
    InstructionModel{"sm90.wgmma.f16", f16, f16, kHopper16, measured, kHopperHere, kWgmmaF16},
    InstructionModel{"sm90.wgmma.f16.f16", f16, f16, positive_zero(kHopper16Half), measured,
                     kHopperHere, kWgmmaF16Half},
    InstructionModel{"sm90.wgmma.bf16", bf16, bf16, positive_zero(kHopper16), measured, kHopperHere,
                     kWgmmaBf16},
    InstructionModel{"sm90.wgmma.tf32", tf32, tf32, positive_zero(kHopperTf32), measured,
                     kHopperHere, kWgmmaTf32},
    InstructionModel{"sm90.wgmma.e4m3", e4m3fn, e4m3fn, kWgmma8, measured, kHopperBoth, kWgmmaE4m3},
    InstructionModel{"sm90.wgmma.e5m2", e5m2, e5m2, kWgmma8, measured, kHopperBoth, kWgmmaE5m2},
    InstructionModel{"sm90.wgmma.e4m3.e5m2", e4m3fn, e5m2, kWgmma8, measured, kHopperHere,
                     kWgmmaE4m3E5m2},
    InstructionModel{"sm90.wgmma.e5m2.e4m3", e5m2, e4m3fn, kWgmma8, measured, kHopperHere,
                     kWgmmaE5m2E4m3},
    InstructionModel{"sm90.wgmma.e4m3.f16", e4m3fn, e4m3fn, kWgmma8Half, measured, kHopperHere,
                     kWgmmaE4m3Half},
    InstructionModel{"sm90.wgmma.e5m2.f16", e5m2, e5m2, positive_zero(kWgmma8Half), measured,
                     kHopperHere, kWgmmaE5m2Half},
    InstructionModel{"sm90.wgmma.e4m3.e5m2.f16", e4m3fn, e5m2, positive_zero(kWgmma8Half), measured,
                     kHopperHere, kWgmmaE4m3E5m2Half},
    InstructionModel{"sm90.wgmma.e5m2.e4m3.f16", e5m2, e4m3fn, positive_zero(kWgmma8Half), measured,
                     kHopperHere, kWgmmaE5m2E4m3Half},
    InstructionModel{"sm100.mma.f16", f16, f16, kHopper16, measured, kBlackwellElsewhere},
    InstructionModel{"sm100.mma.f16.f16", f16, f16, kHopper16Half, measured, kBlackwellElsewhere},
    InstructionModel{"sm100.mma.bf16", bf16, bf16, kHopper16, measured, kBlackwellElsewhere},
    InstructionModel{"sm100.mma.tf32", tf32, tf32, kHopperTf32, measured, kBlackwellElsewhere},
    InstructionModel{"sm100.mma.e4m3", e4m3fn, e4m3fn, kHalves8, measured, kHalvesRows,
                     kBlackwellE4m3},
    InstructionModel{"sm100.mma.e5m2", e5m2, e5m2, kHalves8, measured, kHalvesRows, kBlackwellE5m2},
    InstructionModel{"sm100.mma.e4m3.f16", e4m3fn, e4m3fn, kHalves8Half, measured,
                     kBlackwellElsewhere},
    InstructionModel{"sm100.mma.e5m2.f16", e5m2, e5m2, kHalves8Half, measured, kBlackwellElsewhere},
    InstructionModel{"sm100.tcgen05.e4m3", e4m3fn, e4m3fn, kTcgen8, from_literature, kMmaSim},
    InstructionModel{"sm100.tcgen05.e5m2", e5m2, e5m2, kTcgen8, from_literature, kMmaSim},
    literature("sm100.tcgen05.f16", f16, f16, kHopper16),
    literature("sm100.tcgen05.f16.f16", f16, f16, kHopper16Half),
    literature("sm100.tcgen05.bf16", bf16, bf16, kHopper16),
    literature("sm100.tcgen05.tf32", tf32, tf32, kHopperTf32),
    literature("sm100.tcgen05.e4m3.f16", e4m3fn, e4m3fn, kTcgen8Half),
    literature("sm100.tcgen05.e5m2.f16", e5m2, e5m2, kTcgen8Half),
    literature("sm100.tcgen05.e4m3.e5m2", e4m3fn, e5m2, kTcgen8),
    literature("sm100.tcgen05.e5m2.e4m3", e5m2, e4m3fn, kTcgen8),
    literature("sm100.tcgen05.e4m3.e5m2.f16", e4m3fn, e5m2, kTcgen8Half),
    literature("sm100.tcgen05.e5m2.e4m3.f16", e5m2, e4m3fn, kTcgen8Half),
    literature("sm100.tcgen05.mxf8f6f4.e4m3", e4m3fn, e4m3fn, kMxf8f6f4, kMxf8Source),
    literature("sm100.tcgen05.mxf8f6f4.e5m2", e5m2, e5m2, kMxf8f6f4, kMxf8Source),
    literature("sm100.tcgen05.mxf8f6f4.e4m3.e5m2", e4m3fn, e5m2, kMxf8f6f4, kMxf8Source),
    literature("sm100.tcgen05.mxf8f6f4.e5m2.e4m3", e5m2, e4m3fn, kMxf8f6f4, kMxf8Source),
    supposed("sm100.tcgen05.mxf8f6f4.e2m1", e2m1, e2m1, kMxf8f6f4, kMxf4InMxf8),
    supposed("sm100.tcgen05.mxf8f6f4.e4m3.e2m1", e4m3fn, e2m1, kMxf8f6f4, kMxf4InMxf8),
    supposed("sm100.tcgen05.mxf8f6f4.e2m1.e4m3", e2m1, e4m3fn, kMxf8f6f4, kMxf4InMxf8),
    supposed("sm100.tcgen05.mxf8f6f4.e2m3", e2m3, e2m3, kMxf8f6f4, kMxf6Source),
    supposed("sm100.tcgen05.mxf8f6f4.e3m2", e3m2, e3m2, kMxf8f6f4, kMxf6Source),
    literature("sm100.tcgen05.mxf4nvf4", e2m1, e2m1, kMxf4nvf4, kMxf4Source),
    literature("sm120.mma.f16", f16, f16, kHopper16),
    literature("sm120.mma.f16.f16", f16, f16, kHopper16Half),
    literature("sm120.mma.bf16", bf16, bf16, kHopper16),
    literature("sm120.mma.tf32", tf32, tf32, kHopperTf32),
    literature("sm120.mma.e4m3", e4m3fn, e4m3fn, kTcgen8),
    literature("sm120.mma.e5m2", e5m2, e5m2, kTcgen8),
    literature("sm120.mma.e4m3.f16", e4m3fn, e4m3fn, kTcgen8Half),
    literature("sm120.mma.e5m2.f16", e5m2, e5m2, kTcgen8Half),
    literature("sm120.mma.e4m3.e5m2", e4m3fn, e5m2, kTcgen8),
    literature("sm120.mma.e5m2.e4m3", e5m2, e4m3fn, kTcgen8),
    literature("sm120.mma.e4m3.e5m2.f16", e4m3fn, e5m2, kTcgen8Half),
    literature("sm120.mma.e5m2.e4m3.f16", e5m2, e4m3fn, kTcgen8Half),
    literature("sm120.mma.mxf8f6f4.e4m3", e4m3fn, e4m3fn, kMxf8f6f4, kMxf8Source),
    literature("sm120.mma.mxf8f6f4.e5m2", e5m2, e5m2, kMxf8f6f4, kMxf8Source),
    literature("sm120.mma.mxf8f6f4.e4m3.e5m2", e4m3fn, e5m2, kMxf8f6f4, kMxf8Source),
    literature("sm120.mma.mxf8f6f4.e5m2.e4m3", e5m2, e4m3fn, kMxf8f6f4, kMxf8Source),
    supposed("sm120.mma.mxf8f6f4.e2m1", e2m1, e2m1, kMxf8f6f4, kMxf4InMxf8),
    supposed("sm120.mma.mxf8f6f4.e4m3.e2m1", e4m3fn, e2m1, kMxf8f6f4, kMxf4InMxf8),
    supposed("sm120.mma.mxf8f6f4.e2m1.e4m3", e2m1, e4m3fn, kMxf8f6f4, kMxf4InMxf8),
    supposed("sm120.mma.mxf8f6f4.e2m3", e2m3, e2m3, kMxf8f6f4, kMxf6Source),
    supposed("sm120.mma.mxf8f6f4.e3m2", e3m2, e3m2, kMxf8f6f4, kMxf6Source),
    literature("sm120.mma.mxf4nvf4", e2m1, e2m1, kMxf4nvf4Wide, kMxf4Source),
    amd("gfx908.mfma.f16", f16, f16, kCdna1Four, kCdna1Source),
    amd("gfx908.mfma.bf16", bf16, bf16, kCdna1Two, kCdna1Source),
    amd("gfx908.mfma.f32", f32, f32, kCdnaFloat, kCdnaFloatSource),
    amd("gfx90a.mfma.f16", f16, f16, kCdna2Four, kCdna2Source),
    amd("gfx90a.mfma.bf16", bf16, bf16, kCdna2Two, kCdna2OldBf16),
    amd("gfx90a.mfma.bf16_1k", bf16, bf16, kCdna2Four, kCdna2Source),
    amd("gfx90a.mfma.f32", f32, f32, kCdnaFloat, kCdnaFloatSource),
    amd("gfx942.mfma.f16", f16, f16, kCdna3Eight, kCdna3Source),
    amd("gfx942.mfma.bf16", bf16, bf16, kCdna3Eight, kCdna3Source),
    amd("gfx942.mfma.xf32", tf32, tf32, kCdna3Four, kCdna3Source),
    amd("gfx942.mfma.fp8", e4m3fnuz, e4m3fnuz, kCdna3Fp8, kCdna3Source),
    amd("gfx942.mfma.bf8", e5m2fnuz, e5m2fnuz, kCdna3Fp8, kCdna3Source),
    amd("gfx942.mfma.fp8.bf8", e4m3fnuz, e5m2fnuz, kCdna3Fp8, kCdna3Source),
    amd("gfx942.mfma.bf8.fp8", e5m2fnuz, e4m3fnuz, kCdna3Fp8, kCdna3Source),
    amd("gfx942.mfma.f32", f32, f32, kCdnaFloat, kCdnaFloatSource),
    InstructionModel{"exact", e4m3fn, e4m3fn, of_kind(AccumulationKind::exact), definition,
                     "exact sum, one rounding to binary32"},
    InstructionModel{
        "exact32", e4m3fn, e4m3fn, exact_steps(), definition,
        "32 terms and c in 62 bits (E4M3's products exactly), one rounding to binary32 per step"},
    InstructionModel{"fp32", e4m3fn, e4m3fn, of_kind(AccumulationKind::float32), definition,
                     "sequential binary32 additions"},
    InstructionModel{"sequential14.rne", e4m3fn, e4m3fn, sequential(13, RoundingMode::nearest_even),
                     definition, "14 significant bits after every addition, nearest even"},
    InstructionModel{"sequential14.rz", e4m3fn, e4m3fn, sequential(13, RoundingMode::toward_zero),
                     definition, "14 significant bits after every addition, truncated"},
    InstructionModel{"seed.listing", e4m3fn, e4m3fn, sequential(14, RoundingMode::nearest_even, 3),
                     definition,
                     "naive-FP8 tutorial: products rounded to 3 bits, sums to 14 fraction bits"},
};

}  // namespace

std::span<const InstructionModel> instruction_models() { return kModels; }

const InstructionModel& find_instruction_model(std::string_view name) {
  for (const InstructionModel& model : kModels)
    if (model.name == name) return model;
  if (is_definition(name)) return defined_model(name);
  throw Error(
      "model",
      fmt::format("one of {}, or a definition such as sm90.wgmma.e4m3:F=14", names_of(kModels)),
      fmt::format("'{}'", name));
}

}  // namespace fp8lab

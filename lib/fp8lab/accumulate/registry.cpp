#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "fp8lab/accumulate/halves.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 5> kKindNames{"fused_dot_product", "sequential", "float32",
                                                     "exact", "fp16_halves"};
constexpr std::array<std::string_view, 2> kProductExponentNames{"stored", "normalized"};
constexpr std::array<std::string_view, 2> kHalfCExponentNames{"stored", "widened"};
constexpr std::array<std::string_view, 2> kHalvesOrderNames{"chained", "separate"};

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
constexpr std::string_view kHopperElsewhere =
    "Khattak and Mikaitis 2025 (MATLAB-tensor-core), 5000 outputs each of H100 and H200 replayed; "
    "not kept here";
constexpr std::string_view kBlackwellElsewhere =
    "Khattak and Mikaitis 2025 (MATLAB-tensor-core), 5000 outputs of B200 replayed; not kept here";
constexpr std::string_view kWgmmaRows =
    "Khattak and Mikaitis 2025, H100 outputs replayed, all with c = 0; that c takes part in the "
    "alignment: mmaemu's recorded cuBLASLt calls, Hawkeye, SageAttention issue 287";
constexpr std::string_view kHalvesRows =
    "two HMMA and an addition of c in machine code of sm_90a and sm_100a (ptxas 12.8 to 13.0); "
    "Khattak and Mikaitis 2025, GPU outputs replayed";
constexpr std::string_view kSeparate =
    "two HMMA and two additions in machine code of sm_90a (ptxas 12.4 to 12.6)";
constexpr std::string_view kMmaSim = "MMA-Sim, arXiv 2511.10909";

// The files that stand behind a measured model. The rows of each are of one GPU.
constexpr std::array kVolta{ReplayedRows{"v100_mma_f16", "V100", 500}};
constexpr std::array kVoltaHalf{ReplayedRows{"v100_mma_f16_f16out", "V100", 250}};
constexpr std::array kAmpere{ReplayedRows{"a100_mma_f16", "A100", 1000}};
constexpr std::array kAmpereHalf{ReplayedRows{"a100_mma_f16_f16out", "A100", 500}};
constexpr std::array kAda{ReplayedRows{"ada_mma_e4m3", "Ada", 2000}};
constexpr std::array kAdaHalf{ReplayedRows{"ada_mma_e4m3_f16out", "Ada", 1000}};
constexpr std::array kHopperBf16{ReplayedRows{"h100_mma_bf16", "H100", 1000}};
constexpr std::array kHopperHalf{ReplayedRows{"h100_mma_f16_f16out", "H100", 500}};
constexpr std::array kHopperE4m3{ReplayedRows{"h100_mma_e4m3", "H100", 1000}};
constexpr std::array kHopperE5m2{ReplayedRows{"h100_mma_e5m2", "H100", 1000}};
constexpr std::array kHopperE4m3Half{ReplayedRows{"h100_mma_e4m3_f16out", "H100", 1000}};
constexpr std::array kHopperE5m2Half{ReplayedRows{"h100_mma_e5m2_f16out", "H100", 1000}};
constexpr std::array kWgmmaE4m3{ReplayedRows{"h100_wgmma_e4m3", "H100", 2000}};
constexpr std::array kWgmmaE5m2{ReplayedRows{"h100_wgmma_e5m2", "H100", 2000}};
constexpr std::array kBlackwellE4m3{ReplayedRows{"b200_mma_e4m3", "B200", 1000}};
constexpr std::array kBlackwellE5m2{ReplayedRows{"b200_mma_e5m2", "B200", 1000}};

/// The lowest exponent that units align to.
/// Binary32 output: Hawkeye on A100 and H100, MMA-Sim and the MATLAB models agree.
constexpr int kAmpereFloor = -132;
constexpr int kHopperFloor = -133;
constexpr int kWgmma8Floor = -139;
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

using enum Standing;

constexpr std::array kModels{
    InstructionModel{"sm70.mma.f16", f16, f16, kVolta16, measured, kRecorded, kVolta},
    InstructionModel{"sm70.mma.f16.f16", f16, f16, kVolta16Half, measured, kRecorded, kVoltaHalf},
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
    InstructionModel{"sm90.mma.f16", f16, f16, kHopper16, measured, kHopperElsewhere},
    InstructionModel{"sm90.mma.f16.f16", f16, f16, kHopper16Half, measured, kRecorded, kHopperHalf},
    InstructionModel{"sm90.mma.bf16", bf16, bf16, kHopper16, measured, kRecorded, kHopperBf16},
    InstructionModel{"sm90.mma.tf32", tf32, tf32, kHopperTf32, measured,
                     "as sm80, on 4 terms; that a step takes 8 is from MMA-Sim"},
    InstructionModel{"sm90.mma.e4m3", e4m3fn, e4m3fn, kHalves8, measured, kHalvesRows, kHopperE4m3},
    InstructionModel{"sm90.mma.e5m2", e5m2, e5m2, kHalves8, measured, kHalvesRows, kHopperE5m2},
    InstructionModel{"sm90.mma.e4m3.f16", e4m3fn, e4m3fn, kHalves8Half, measured, kHalvesRows,
                     kHopperE4m3Half},
    InstructionModel{"sm90.mma.e5m2.f16", e5m2, e5m2, kHalves8Half, measured, kHalvesRows,
                     kHopperE5m2Half},
    InstructionModel{"sm90.mma.e4m3.separate", e4m3fn, e4m3fn, kSeparate8, assumed, kSeparate},
    InstructionModel{"sm90.mma.e5m2.separate", e5m2, e5m2, kSeparate8, assumed, kSeparate},
    InstructionModel{"sm90.mma.e4m3.f16.separate", e4m3fn, e4m3fn, kSeparate8Half, assumed,
                     kSeparate},
    InstructionModel{"sm90.mma.e5m2.f16.separate", e5m2, e5m2, kSeparate8Half, assumed, kSeparate},
    InstructionModel{"sm90.wgmma.f16", f16, f16, kHopper16, from_literature, kMmaSim},
    InstructionModel{"sm90.wgmma.bf16", bf16, bf16, kHopper16, from_literature, kMmaSim},
    InstructionModel{"sm90.wgmma.tf32", tf32, tf32, kHopperTf32, from_literature, kMmaSim},
    InstructionModel{"sm90.wgmma.e4m3", e4m3fn, e4m3fn, kWgmma8, measured, kWgmmaRows, kWgmmaE4m3},
    InstructionModel{"sm90.wgmma.e5m2", e5m2, e5m2, kWgmma8, measured, kWgmmaRows, kWgmmaE5m2},
    InstructionModel{"sm90.wgmma.e4m3.e5m2", e4m3fn, e5m2, kWgmma8, assumed,
                     "as the unmixed instructions"},
    InstructionModel{"sm90.wgmma.e5m2.e4m3", e5m2, e4m3fn, kWgmma8, assumed,
                     "as the unmixed instructions"},
    InstructionModel{"sm90.wgmma.e4m3.f16", e4m3fn, e4m3fn, kWgmma8Half, from_literature, kMmaSim},
    InstructionModel{"sm90.wgmma.e5m2.f16", e5m2, e5m2, kWgmma8Half, from_literature, kMmaSim},
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
    InstructionModel{"exact", e4m3fn, e4m3fn, of_kind(AccumulationKind::exact), definition,
                     "exact sum, one rounding to binary32"},
    InstructionModel{
        "exact32", e4m3fn, e4m3fn, exact_steps(), definition,
        "32 terms and c in 62 bits (E4M3's products exactly), one rounding to binary32 a step"},
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

std::string join_names() {
  std::string names;
  for (const InstructionModel& model : kModels) {
    if (!names.empty()) names += ", ";
    names += model.name;
  }
  return names;
}

}  // namespace

void validate(const AccumulatorModel& m) {
  const auto check = [](std::string_view field, int value, int low, int high) {
    require(value >= low && value <= high, field, fmt::format("{} .. {}", low, high),
            fmt::format("{}", value));
  };
  check("terms", m.terms, 1, 256);
  check("alignment_fraction_bits", m.alignment_fraction_bits, 1, 64);
  check("output_fraction_bits", m.output_fraction_bits, 1, 23);
  check("product_fraction_bits", m.product_fraction_bits, -1, 23);
  if (m.min_alignment_exponent != kNoMinAlignmentExponent)
    check("min_alignment_exponent", m.min_alignment_exponent, -300, 100);
  require(m.output_format == FormatId::f32 || m.output_format == FormatId::f16, "output_format",
          "f32 or f16", format(m.output_format).name);
  require(m.rounding != RoundingMode::stochastic, "rounding", "a deterministic mode", "stochastic");
  if (m.kind == AccumulationKind::fp16_halves)
    require(m.terms % 4 == 0, "terms", "a multiple of 4 (fp16_halves)", fmt::format("{}", m.terms));
}

bool takes_formats(const AccumulatorModel& model, FormatId a, FormatId b) {
  return model.kind != AccumulationKind::fp16_halves ||
         (fits_half(format(a)) && fits_half(format(b)));
}

void require_formats(const AccumulatorModel& model, FormatId a, FormatId b) {
  if (takes_formats(model, a, b)) return;
  const bool first = !fits_half(format(a));
  throw Error(first ? "a" : "b", "an 8-bit format whose values FP16 has (fp16_halves)",
              format(first ? a : b).name);
}

std::string_view to_string(AccumulationKind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}

AccumulationKind find_accumulation_kind(std::string_view name) {
  return find_enumerator<AccumulationKind>(kKindNames, "kind", name);
}

std::string_view to_string(ProductExponent exponent) {
  return kProductExponentNames[static_cast<std::size_t>(exponent)];
}

ProductExponent find_product_exponent(std::string_view name) {
  return find_enumerator<ProductExponent>(kProductExponentNames, "product_exponent", name);
}

std::string_view to_string(HalfCExponent exponent) {
  return kHalfCExponentNames[static_cast<std::size_t>(exponent)];
}

HalfCExponent find_half_c_exponent(std::string_view name) {
  return find_enumerator<HalfCExponent>(kHalfCExponentNames, "half_c_exponent", name);
}

std::string_view to_string(HalvesOrder order) {
  return kHalvesOrderNames[static_cast<std::size_t>(order)];
}

HalvesOrder find_halves_order(std::string_view name) {
  return find_enumerator<HalvesOrder>(kHalvesOrderNames, "halves_order", name);
}

std::string_view to_string(Standing standing) {
  constexpr std::array<std::string_view, 4> kNames{"measured", "from literature", "assumed",
                                                   "definition"};
  return kNames[static_cast<std::size_t>(standing)];
}

std::span<const InstructionModel> instruction_models() { return kModels; }

const InstructionModel& find_instruction_model(std::string_view name) {
  for (const InstructionModel& model : kModels)
    if (model.name == name) return model;
  throw Error("model", "one of " + join_names(), "'" + std::string(name) + "'");
}

}  // namespace fp8lab

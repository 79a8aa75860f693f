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

using enum FormatId;

constexpr std::string_view kMeasured = "Khattak and Mikaitis 2025, GPU recordings replayed";
constexpr std::string_view kHopperRows =
    "Khattak and Mikaitis 2025, GPU recordings replayed (c = 0 only); not what CUDA 12.4 to 13.0 "
    "compile mma.sync to (two HMMA and an FADD), which does not give these rows";
constexpr std::string_view kMmaSim = "MMA-Sim, arXiv 2511.10909";

constexpr AccumulatorModel fused(int terms, int alignment, int output,
                                 RoundingMode rounding = RoundingMode::toward_zero) {
  return {.terms = terms,
          .alignment_fraction_bits = alignment,
          .output_fraction_bits = output,
          .rounding = rounding};
}

constexpr AccumulatorModel fused_to_half(int terms, int alignment) {
  AccumulatorModel model = fused(terms, alignment, 10, RoundingMode::nearest_even);
  model.output_format = f16;
  return model;
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

// Wide enough that E4M3 and E5M2 products never lose a bit to each other.
constexpr int kExactAlignment = 62;
constexpr AccumulatorModel kVolta16 = fused(4, 23, 23);
constexpr AccumulatorModel kAmpere16 = fused(8, 24, 23);
constexpr AccumulatorModel kAmpereTf32 = fused(4, 24, 23);
constexpr AccumulatorModel kAda8 = fused(16, 13, 13);
constexpr AccumulatorModel kHopper16 = fused(16, 25, 23);
constexpr AccumulatorModel kHopperTf32 = fused(8, 25, 23);
constexpr AccumulatorModel kHopper8 = fused(32, 13, 13);
constexpr AccumulatorModel kHalves8{.kind = AccumulationKind::fp16_halves,
                                    .terms = 32,
                                    .alignment_fraction_bits = kHopper16.alignment_fraction_bits,
                                    .output_fraction_bits = kHopper16.output_fraction_bits};
constexpr AccumulatorModel kExact32 = fused(32, kExactAlignment, 23, RoundingMode::nearest_even);
constexpr AccumulatorModel kTcgen8 = fused(32, 25, 23);

constexpr std::array kModels{
    InstructionModel{"sm70.mma.f16", f16, f16, kVolta16, Standing::measured, kMeasured},
    InstructionModel{"sm80.mma.f16", f16, f16, kAmpere16, Standing::measured, kMeasured},
    InstructionModel{"sm80.mma.bf16", bf16, bf16, kAmpere16, Standing::measured, kMeasured},
    InstructionModel{"sm80.mma.tf32", tf32, tf32, kAmpereTf32, Standing::measured, kMeasured},
    InstructionModel{"sm89.mma.e4m3", e4m3fn, e4m3fn, kAda8, Standing::measured, kMeasured},
    InstructionModel{"sm89.mma.e5m2", e5m2, e5m2, kAda8, Standing::measured, kMeasured},
    InstructionModel{"sm89.mma.f16", f16, f16, kAmpere16, Standing::measured, kMeasured},
    InstructionModel{"sm89.mma.bf16", bf16, bf16, kAmpere16, Standing::measured, kMeasured},
    InstructionModel{"sm89.mma.tf32", tf32, tf32, kAmpereTf32, Standing::measured, kMeasured},
    InstructionModel{"sm89.mma.e4m3.f16", e4m3fn, e4m3fn, fused_to_half(16, 13), Standing::measured,
                     kMeasured},
    InstructionModel{"sm89.mma.e5m2.f16", e5m2, e5m2, fused_to_half(16, 13), Standing::measured,
                     kMeasured},
    InstructionModel{"sm90.mma.f16", f16, f16, kHopper16, Standing::measured, kMeasured},
    InstructionModel{"sm90.mma.bf16", bf16, bf16, kHopper16, Standing::measured, kMeasured},
    InstructionModel{"sm90.mma.tf32", tf32, tf32, kHopperTf32, Standing::measured,
                     "as sm80, on 4 terms; that a step takes 8 is from MMA-Sim"},
    InstructionModel{"sm90.mma.e4m3", e4m3fn, e4m3fn, kHopper8, Standing::measured, kHopperRows},
    InstructionModel{"sm90.mma.e5m2", e5m2, e5m2, kHopper8, Standing::measured, kHopperRows},
    InstructionModel{"sm90.mma.e4m3.f16", e4m3fn, e4m3fn, fused_to_half(32, 13),
                     Standing::from_literature, "MATLAB model; not every H100 row replays"},
    InstructionModel{"sm90.mma.e5m2.f16", e5m2, e5m2, fused_to_half(32, 13),
                     Standing::from_literature, "MATLAB model; not every H100 row replays"},
    InstructionModel{"sm90.wgmma.f16", f16, f16, kHopper16, Standing::from_literature, kMmaSim},
    InstructionModel{"sm90.wgmma.bf16", bf16, bf16, kHopper16, Standing::from_literature, kMmaSim},
    InstructionModel{"sm90.wgmma.tf32", tf32, tf32, kHopperTf32, Standing::from_literature,
                     kMmaSim},
    InstructionModel{"sm90.wgmma.e4m3", e4m3fn, e4m3fn, kHopper8, Standing::from_literature,
                     kMmaSim},
    InstructionModel{"sm90.wgmma.e5m2", e5m2, e5m2, kHopper8, Standing::from_literature, kMmaSim},
    InstructionModel{"sm90.wgmma.e4m3.e5m2", e4m3fn, e5m2, kHopper8, Standing::assumed,
                     "as the unmixed instructions"},
    InstructionModel{"sm90.wgmma.e5m2.e4m3", e5m2, e4m3fn, kHopper8, Standing::assumed,
                     "as the unmixed instructions"},
    InstructionModel{"sm100.mma.f16", f16, f16, kHopper16, Standing::measured, kMeasured},
    InstructionModel{"sm100.mma.bf16", bf16, bf16, kHopper16, Standing::measured, kMeasured},
    InstructionModel{"sm100.mma.e4m3", e4m3fn, e4m3fn, kHalves8, Standing::measured,
                     "two HMMA and an FADD in machine code of sm_100a (ptxas 13.0); Khattak and "
                     "Mikaitis 2025, GPU recordings replayed"},
    InstructionModel{"sm100.mma.e5m2", e5m2, e5m2, kHalves8, Standing::assumed,
                     "two HMMA and an FADD in machine code of sm_100a (ptxas 13.0), as E4M3; no "
                     "recording replayed"},
    InstructionModel{"sm100.tcgen05.e4m3", e4m3fn, e4m3fn, kTcgen8, Standing::from_literature,
                     kMmaSim},
    InstructionModel{"sm100.tcgen05.e5m2", e5m2, e5m2, kTcgen8, Standing::from_literature, kMmaSim},
    InstructionModel{"exact", e4m3fn, e4m3fn, of_kind(AccumulationKind::exact),
                     Standing::definition, "exact sum, one rounding to binary32"},
    InstructionModel{
        "exact32", e4m3fn, e4m3fn, kExact32, Standing::definition,
        "32 terms and c in 62 bits (E4M3's products exactly), one rounding to binary32 a step"},
    InstructionModel{"fp32", e4m3fn, e4m3fn, of_kind(AccumulationKind::float32),
                     Standing::definition, "sequential binary32 additions"},
    InstructionModel{"sequential14.rne", e4m3fn, e4m3fn, sequential(13, RoundingMode::nearest_even),
                     Standing::definition,
                     "14 significant bits after every addition, nearest even"},
    InstructionModel{"sequential14.rz", e4m3fn, e4m3fn, sequential(13, RoundingMode::toward_zero),
                     Standing::definition, "14 significant bits after every addition, truncated"},
    InstructionModel{"seed.listing", e4m3fn, e4m3fn, sequential(14, RoundingMode::nearest_even, 3),
                     Standing::definition,
                     "seed 002: products rounded to 3 bits, sums to 14 fraction bits"},
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
  require(m.output_format == FormatId::f32 || m.output_format == FormatId::f16, "output_format",
          "f32 or f16", format(m.output_format).name);
  require(m.rounding != RoundingMode::stochastic, "rounding", "a deterministic mode", "stochastic");
  if (m.kind != AccumulationKind::fp16_halves) return;
  require(m.terms % 4 == 0, "terms", "a multiple of 4 (fp16_halves)", fmt::format("{}", m.terms));
  require(m.output_format == FormatId::f32, "output_format", "f32 (fp16_halves)",
          format(m.output_format).name);
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

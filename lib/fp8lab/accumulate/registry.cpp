#include <fmt/format.h>
#include <cstddef>
#include <string_view>
#include "fp8lab/formats/format.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"

namespace fp8lab {
namespace {

// The instructions that take any two of E4M3, E5M2, E3M2, E2M3 and E2M1 (PTX: f8f6f4, mxf8f6f4):
// their formats and names, one for each of 25 pairs.

constexpr std::array kPairedFormats{FormatId::e4m3fn, FormatId::e5m2, FormatId::e3m2,
                                    FormatId::e2m3, FormatId::e2m1};
constexpr std::size_t kPairs = kPairedFormats.size() * kPairedFormats.size();

struct FormatPair {
  FormatId a;
  FormatId b;
};
constexpr FormatPair format_pair(std::size_t i) {
  return {kPairedFormats[i / kPairedFormats.size()], kPairedFormats[i % kPairedFormats.size()]};
}

/// A text that is put together while compiling.
class PairName {
 public:
  constexpr PairName() = default;
  /// `prefix`, the format of both operands or those of a and b, `suffix`.
  constexpr PairName(std::string_view prefix, FormatPair pair, std::string_view suffix) {
    add(prefix);
    add(instruction_word(pair.a));
    if (pair.a != pair.b) {
      add(".");
      add(instruction_word(pair.b));
    }
    add(suffix);
  }
  [[nodiscard]] constexpr std::string_view view() const { return {text_.data(), size_}; }

 private:
  static constexpr std::string_view instruction_word(FormatId id) {
    return id == FormatId::e4m3fn ? "e4m3" : format(id).name;
  }
  constexpr void add(std::string_view part) {
    for (const char letter : part) text_[size_++] = letter;
  }

  std::array<char, 48> text_{};
  std::size_t size_ = 0;
};

constexpr std::array<PairName, kPairs> pair_names(std::string_view prefix,
                                                  std::string_view suffix = "") {
  std::array<PairName, kPairs> names;
  for (std::size_t i = 0; i < kPairs; ++i) names[i] = PairName(prefix, format_pair(i), suffix);
  return names;
}

// The files of recorded outputs that stand behind a measured model. The rows of each are of one
// GPU; tests/golden/silicon has some of them.

/// The cases that `fp8lab-cuda record` makes for an instruction.
constexpr ReplayedRows on_h200(std::string_view recording) { return {recording, "H200", 10240}; }

constexpr std::array kVolta{ReplayedRows{"v100_mma_f16", "V100", 500}};
constexpr std::array kVoltaHalf{ReplayedRows{"v100_mma_f16_f16out", "V100", 250}};
constexpr std::array kAmpere{ReplayedRows{"a100_mma_f16", "A100", 1000}};
constexpr std::array kAmpereHalf{ReplayedRows{"a100_mma_f16_f16out", "A100", 500}};
constexpr std::array kAda{ReplayedRows{"ada_mma_e4m3", "Ada", 2000}};
constexpr std::array kAdaHalf{ReplayedRows{"ada_mma_e4m3_f16out", "Ada", 1000}};
constexpr std::array kHopperF16{on_h200("h200_mma_f16")};
constexpr std::array kHopperBf16{ReplayedRows{"h100_mma_bf16", "H100", 1000},
                                 on_h200("h200_mma_bf16")};
constexpr std::array kHopperRowsTf32{on_h200("h200_mma_tf32")};
constexpr std::array kHopperF16Half{ReplayedRows{"h100_mma_f16_f16out", "H100", 500},
                                    on_h200("h200_mma_f16_f16out")};
constexpr std::array kHopperE4m3{ReplayedRows{"h100_mma_e4m3", "H100", 1000},
                                 on_h200("h200_mma_e4m3")};
constexpr std::array kHopperE5m2{ReplayedRows{"h100_mma_e5m2", "H100", 1000},
                                 on_h200("h200_mma_e5m2")};
constexpr std::array kHopperE4m3Half{ReplayedRows{"h100_mma_e4m3_f16out", "H100", 1000},
                                     on_h200("h200_mma_e4m3_f16out")};
constexpr std::array kHopperE5m2Half{ReplayedRows{"h100_mma_e5m2_f16out", "H100", 1000},
                                     on_h200("h200_mma_e5m2_f16out")};
constexpr std::array kWgmmaF16{on_h200("h200_wgmma_f16")};
constexpr std::array kWgmmaF16Half{on_h200("h200_wgmma_f16_f16out")};
constexpr std::array kWgmmaBf16{on_h200("h200_wgmma_bf16")};
constexpr std::array kWgmmaTf32{on_h200("h200_wgmma_tf32")};
constexpr std::array kWgmmaE4m3{ReplayedRows{"h100_wgmma_e4m3", "H100", 2000},
                                on_h200("h200_wgmma_e4m3")};
constexpr std::array kWgmmaE5m2{ReplayedRows{"h100_wgmma_e5m2", "H100", 2000},
                                on_h200("h200_wgmma_e5m2")};
constexpr std::array kWgmmaE4m3E5m2{on_h200("h200_wgmma_e4m3_e5m2")};
constexpr std::array kWgmmaE5m2E4m3{on_h200("h200_wgmma_e5m2_e4m3")};
constexpr std::array kWgmmaE4m3Half{on_h200("h200_wgmma_e4m3_f16out")};
constexpr std::array kWgmmaE5m2Half{on_h200("h200_wgmma_e5m2_f16out")};
constexpr std::array kWgmmaE4m3E5m2Half{on_h200("h200_wgmma_e4m3_e5m2_f16out")};
constexpr std::array kWgmmaE5m2E4m3Half{on_h200("h200_wgmma_e5m2_e4m3_f16out")};
constexpr std::array kBlackwellE4m3{ReplayedRows{"b200_mma_e4m3", "B200", 1000}};
constexpr std::array kBlackwellE5m2{ReplayedRows{"b200_mma_e5m2", "B200", 1000}};
constexpr std::array kZen4{ReplayedRows{"zen4_vdpbf16ps", "EPYC (Zen 4)", 6000},
                           ReplayedRows{"zen4_vdpbf16ps_chained", "EPYC (Zen 4)", 3000}};

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
/// A source and what is known of the sign of its zeros.
template <const std::string_view& Source>
struct ButSigns {
  static constexpr std::string_view kMore = "; the sign of zeros: mmasim 2.1.1";
  static constexpr auto kText = [] {
    std::array<char, Source.size() + kMore.size()> text{};
    std::copy(kMore.begin(), kMore.end(), std::copy(Source.begin(), Source.end(), text.begin()));
    return text;
  }();
  static constexpr std::string_view kWhole{kText.data(), kText.size()};
};
constexpr std::string_view kRecordedButSigns = ButSigns<kRecorded>::kWhole;
constexpr std::string_view kAmpereElsewhereButSigns = ButSigns<kAmpereElsewhere>::kWhole;
constexpr std::string_view kAdaElsewhereButSigns = ButSigns<kAdaElsewhere>::kWhole;
constexpr std::string_view kBlackwellElsewhereButSigns = ButSigns<kBlackwellElsewhere>::kWhole;
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
constexpr std::string_view kMmaSim =
    "MMA-Sim, arXiv 2511.10909; mmasim 2.1.1 (October 2026), whose authors compare it with chips";
constexpr std::string_view kTuring =
    "MMA-Sim, arXiv 2511.10909, and mmasim 2.1.1: the m16n8k8 shape (m8n8k4 is Volta's unit)";
constexpr std::string_view kMmaSimPairs =
    "mmasim 2.1.1 (October 2026), whose authors compare it with chips: FP6 and FP4 have their own "
    "smallest exponents";
constexpr std::string_view kMxf8Source =
    "MMA-Sim, arXiv 2511.10909, and mmasim 2.1.1: scales enter the exponents before the alignment";
constexpr std::string_view kMxf8Pairs =
    "mmasim 2.1.1 (October 2026), whose authors compare it with chips: scales enter the exponents "
    "before the alignment; FP6 and FP4 have their own smallest exponents";
constexpr std::string_view kMxf4Source =
    "MMA-Sim, arXiv 2511.10909, and mmasim 2.1.1: 35 bits (a report from a B200, DeepGEMM issue "
    "176, says 34 to 37)";
constexpr std::string_view kMxf4WideSource =
    "MMA-Sim, arXiv 2511.10909, and mmasim 2.1.1: 35 bits (a report from a B200, DeepGEMM issue "
    "176, says 34 to 37); UE4M3 per 32 is from MMA-Sim's release, mmasim 2.1.1 calls it invalid";
constexpr std::string_view kCdna1Source =
    "mmasim 2.1.1 and the MATLAB models of Khattak and Mikaitis; MMA-Sim's first release adds "
    "pairs of products in binary32 instead";
constexpr std::string_view kCdna2Source = "MMA-Sim, arXiv 2511.10909, and mmasim 2.1.1";
constexpr std::string_view kCdna2OldBf16 =
    "MMA-Sim, arXiv 2511.10909, and mmasim 2.1.1: groups of 2 (the MATLAB models' code takes 4)";
constexpr std::string_view kCdna3Source =
    "mmasim 2.1.1 (October 2026): 32 bits in the second stage, then 31; MMA-Sim's first release "
    "and "
    "the MATLAB models have 31 alone, which few rows tell";
constexpr std::string_view kVdpbf16Source =
    "fp8lab probe-cpu on an AMD EPYC of family 25, model 17 (Zen 4): 2 x 10^8 outputs, all equal; "
    "Intel's manual, VDPBF16PS; no processor of Intel's was compared";
constexpr std::string_view kVdpphSource =
    "Intel's AVX10.2 specification, VDPPHPS, as Bochs has it: VDPBF16PS's rule, with subnormals of "
    "FP16 read as they are";
constexpr std::string_view kTdpbf16Source =
    "Intel's manual, TDPBF16PS: FMA chains of even and odd elements from zero, then c";
constexpr std::string_view kTdpfp16Source =
    "Intel's manual, TDPFP16PS: TDPBF16PS's rule, with subnormals of FP16 read as they are";
constexpr std::string_view kTmmulSource =
    "Intel's pseudo-code of TMMULTF32PS (amxtf32intrin.h of LLVM): one FMA chain from zero, then "
    "c; subnormal operands are read as they are (Bochs flushes them)";
constexpr std::string_view kTdpf8Source =
    "Intel's Instruction Set Extensions reference 319433-062, TDP[B,H]F8PS, as others transcribe "
    "it: an exact sum, rounded once, then c, with subnormals of c (Bochs flushes these)";
constexpr std::string_view kTop2Source =
    "ACE 1.15, section 14.3.5 (TOP2BF16PS), as Bochs has it: two products, their sum, then c";
constexpr std::string_view kTop4Source =
    "ACE 1.15, sections 14.1.6 and 16.5 (TOP4MX[B,H]F8PS), as Bochs has it: an exact scaled sum of "
    "four, rounded once, then c; codes of NaN and infinity are numbers";
constexpr std::string_view kBfdotSource =
    "Arm's A-profile pseudo-code, BFDotAdd without FEAT_EBF16 (or FPCR.EBF = 0): rounded to odd";
constexpr std::string_view kEbf16Source =
    "Arm's A-profile pseudo-code, BFDotAdd with FPCR.EBF = 1 and the other bits of FPCR 0: exact "
    "pairs, rounded once, then c";
constexpr std::string_view kFdotHalfSource =
    "Arm's A-profile pseudo-code, FPDotAdd with FPCR = 0: exact pairs, rounded once, then c";
constexpr std::string_view kFdotSource =
    "Arm's A-profile pseudo-code, FP8DotAddFP with FPMR.LSCALE and OSM = 0: c and all products "
    "exact, rounded once";
constexpr std::string_view kCdnaFloatSource =
    "MMA-Sim, arXiv 2511.10909, and mmasim 2.1.1: one IEEE 754 fused multiply-add per term, in "
    "order";

/// The lowest exponent that units align to.
/// Binary32 output: Hawkeye on A100 and H100, MMA-Sim and the MATLAB models agree.
constexpr int kAmpereFloor = -132;
constexpr int kHopperFloor = -133;
constexpr int kWgmma8Floor = -139;
constexpr int kMxf4Floor = -139;  // mmasim 2.1.1
/// FP16 output: the MATLAB models and mmasim 2.1.1 agree.
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

/// CDNA3's. 32 bits of the products' sum, then 31 of the sum with c: see units-from-literature.md.
constexpr AccumulatorModel cdna3(AccumulationKind kind, int terms) {
  AccumulatorModel model = cdna(kind, terms);
  model.second_stage_fraction_bits = 32;
  return model;
}

constexpr AccumulatorModel kCdna1Four = cdna(AccumulationKind::exact_dot_product, 4);
constexpr AccumulatorModel kCdna1Two = cdna(AccumulationKind::exact_dot_product, 2);
constexpr AccumulatorModel kCdna2Four = cdna(AccumulationKind::flushed_pairwise_sum, 4);
constexpr AccumulatorModel kCdna2Two = cdna(AccumulationKind::flushed_pairwise_sum, 2);
constexpr AccumulatorModel kCdna3Eight = cdna3(AccumulationKind::two_stage_dot_product, 8);
constexpr AccumulatorModel kCdna3Four = cdna3(AccumulationKind::two_stage_dot_product, 4);
constexpr AccumulatorModel kCdna3Fp8 = cdna3(AccumulationKind::even_odd_dot_product, 16);
constexpr AccumulatorModel kCdnaFloat = cdna(AccumulationKind::fused_multiply_add, 1);

/// Units of processors: binary32 sums of `terms` a step, rounded to nearest even.
constexpr AccumulatorModel of_processor(AccumulationKind kind, int terms, Subnormals subnormals) {
  AccumulatorModel model = cdna(kind, terms);
  model.subnormals = subnormals;
  return model;
}

constexpr AccumulatorModel amx_chains(int terms, int chains, Subnormals subnormals) {
  AccumulatorModel model = of_processor(AccumulationKind::multiply_add_chains, terms, subnormals);
  model.chains = chains;
  return model;
}

/// Sums of products as integers, which have no -0.
constexpr AccumulatorModel integer_sum(AccumulationKind kind, int terms, Subnormals subnormals) {
  AccumulatorModel model = of_processor(kind, terms, subnormals);
  model.zero_sign = ZeroSign::positive;
  return model;
}

constexpr AccumulatorModel rounded_pairs_of(PairRounding rounding) {
  AccumulatorModel model = of_processor(AccumulationKind::rounded_pairs, 2, Subnormals::kept);
  model.pair_rounding = rounding;
  return model;
}

constexpr AccumulatorModel to_half(AccumulatorModel model) {
  model.output_format = f16;
  model.output_fraction_bits = 10;
  return model;
}

constexpr AccumulatorModel kX86Pairs =
    of_processor(AccumulationKind::multiply_add_pairs, 2, Subnormals::flushed);
constexpr AccumulatorModel kAmx16 = amx_chains(32, 2, Subnormals::flushed);
constexpr AccumulatorModel kAmxTf32 = amx_chains(16, 1, Subnormals::flushed_results);
constexpr AccumulatorModel kAmx8 =
    integer_sum(AccumulationKind::rounded_sum, 64, Subnormals::flushed_results);
constexpr AccumulatorModel kAce8 =
    integer_sum(AccumulationKind::scaled_rounded_sum, 4, Subnormals::flushed);
constexpr AccumulatorModel kAce16 = rounded_pairs_of(PairRounding::nearest_even);
constexpr AccumulatorModel kArmOdd = rounded_pairs_of(PairRounding::to_odd);
constexpr AccumulatorModel kArmExactPairs =
    of_processor(AccumulationKind::rounded_sum, 2, Subnormals::kept);

constexpr AccumulatorModel arm_fp8(int terms) {
  return cdna(AccumulationKind::exact_dot_product, terms);
}

using enum Standing;

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

/// Instructions of processors, whose vendors publish the rule: `transcribed` where it was read in
/// the words of others alone.
constexpr InstructionModel x86(std::string_view name, FormatId a, FormatId b,
                               const AccumulatorModel& accumulator, std::string_view source) {
  return {name, a, b, accumulator, specified, source, {}, Vendor::x86};
}
constexpr InstructionModel transcribed(std::string_view name, FormatId a, FormatId b,
                                       const AccumulatorModel& accumulator,
                                       std::string_view source) {
  return {name, a, b, accumulator, from_literature, source, {}, Vendor::x86};
}
constexpr InstructionModel arm(std::string_view name, FormatId a, FormatId b,
                               const AccumulatorModel& accumulator, std::string_view source) {
  return {name, a, b, accumulator, specified, source, {}, Vendor::arm};
}

constexpr auto kTcgenNames = pair_names("sm100.tcgen05.");
constexpr auto kTcgenHalfNames = pair_names("sm100.tcgen05.", ".f16");
constexpr auto kTcgenScaledNames = pair_names("sm100.tcgen05.mxf8f6f4.");
constexpr auto kMmaNames = pair_names("sm120.mma.");
constexpr auto kMmaHalfNames = pair_names("sm120.mma.", ".f16");
constexpr auto kMmaScaledNames = pair_names("sm120.mma.mxf8f6f4.");

/// One instruction a pair of formats. The first publication has those of FP8 alone.
constexpr std::array<InstructionModel, kPairs> of_pairs(const std::array<PairName, kPairs>& names,
                                                        const AccumulatorModel& accumulator,
                                                        std::string_view of_fp8,
                                                        std::string_view of_others) {
  std::array<InstructionModel, kPairs> models{};
  for (std::size_t i = 0; i < kPairs; ++i) {
    const auto [a, b] = format_pair(i);
    const bool fp8 = format(a).code_bits() == 8 && format(b).code_bits() == 8;
    models[i] = literature(names[i].view(), a, b, accumulator, fp8 ? of_fp8 : of_others);
  }
  return models;
}

template <std::size_t... Sizes>
constexpr auto joined(const std::array<InstructionModel, Sizes>&... parts) {
  std::array<InstructionModel, (Sizes + ...)> all{};
  auto to = all.begin();
  ((to = std::copy(parts.begin(), parts.end(), to)), ...);
  return all;
}

constexpr std::array kUpToBlackwellMma{
    InstructionModel{"sm70.mma.f16", f16, f16, kVolta16, measured, kRecorded, kVolta},
    InstructionModel{"sm70.mma.f16.f16", f16, f16, kVolta16Half, measured, kRecorded, kVoltaHalf},
    literature("sm75.mma.f16", f16, f16, kAmpere16, kTuring),
    literature("sm75.mma.f16.f16", f16, f16, kAmpere16Half, kTuring),
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
    InstructionModel{"sm90.mma.f16.f16", f16, f16, kHopper16Half, measured, kHopperBoth,
                     kHopperF16Half},
    InstructionModel{"sm90.mma.bf16", bf16, bf16, kHopper16, measured, kHopperBoth, kHopperBf16},
    InstructionModel{"sm90.mma.tf32", tf32, tf32, kHopperTf32, measured, kHopperBoth,
                     kHopperRowsTf32},
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
    InstructionModel{"sm90.wgmma.f16", f16, f16, kHopper16, measured, kHopperHere, kWgmmaF16},
    InstructionModel{"sm90.wgmma.f16.f16", f16, f16, kHopper16Half, measured, kHopperHere,
                     kWgmmaF16Half},
    InstructionModel{"sm90.wgmma.bf16", bf16, bf16, kHopper16, measured, kHopperHere, kWgmmaBf16},
    InstructionModel{"sm90.wgmma.tf32", tf32, tf32, kHopperTf32, measured, kHopperHere, kWgmmaTf32},
    InstructionModel{"sm90.wgmma.e4m3", e4m3fn, e4m3fn, kWgmma8, measured, kHopperBoth, kWgmmaE4m3},
    InstructionModel{"sm90.wgmma.e5m2", e5m2, e5m2, kWgmma8, measured, kHopperBoth, kWgmmaE5m2},
    InstructionModel{"sm90.wgmma.e4m3.e5m2", e4m3fn, e5m2, kWgmma8, measured, kHopperHere,
                     kWgmmaE4m3E5m2},
    InstructionModel{"sm90.wgmma.e5m2.e4m3", e5m2, e4m3fn, kWgmma8, measured, kHopperHere,
                     kWgmmaE5m2E4m3},
    InstructionModel{"sm90.wgmma.e4m3.f16", e4m3fn, e4m3fn, kWgmma8Half, measured, kHopperHere,
                     kWgmmaE4m3Half},
    InstructionModel{"sm90.wgmma.e5m2.f16", e5m2, e5m2, kWgmma8Half, measured, kHopperHere,
                     kWgmmaE5m2Half},
    InstructionModel{"sm90.wgmma.e4m3.e5m2.f16", e4m3fn, e5m2, kWgmma8Half, measured, kHopperHere,
                     kWgmmaE4m3E5m2Half},
    InstructionModel{"sm90.wgmma.e5m2.e4m3.f16", e5m2, e4m3fn, kWgmma8Half, measured, kHopperHere,
                     kWgmmaE5m2E4m3Half},
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
};

constexpr std::array kTcgen{
    literature("sm100.tcgen05.f16", f16, f16, kHopper16),
    literature("sm100.tcgen05.f16.f16", f16, f16, kHopper16Half),
    literature("sm100.tcgen05.bf16", bf16, bf16, kHopper16),
    literature("sm100.tcgen05.tf32", tf32, tf32, kHopperTf32),
};

constexpr std::array kScaledTcgen{
    literature("sm100.tcgen05.mxf4nvf4", e2m1, e2m1, kMxf4nvf4, kMxf4Source),
};

constexpr std::array kRtxBlackwell{
    literature("sm120.mma.f16", f16, f16, kHopper16),
    literature("sm120.mma.f16.f16", f16, f16, kHopper16Half),
    literature("sm120.mma.bf16", bf16, bf16, kHopper16),
    literature("sm120.mma.tf32", tf32, tf32, kHopperTf32),
};

constexpr std::array kScaledRtxBlackwell{
    literature("sm120.mma.mxf4nvf4", e2m1, e2m1, kMxf4nvf4Wide, kMxf4WideSource),
};

constexpr std::array kAmd{
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
};

constexpr std::array kX86{
    InstructionModel{"x86.vdpbf16ps", bf16, bf16, kX86Pairs, measured, kVdpbf16Source, kZen4,
                     Vendor::x86},
    transcribed("x86.vdpphps", f16, f16, kX86Pairs, kVdpphSource),
    x86("x86.tdpbf16ps", bf16, bf16, kAmx16, kTdpbf16Source),
    x86("x86.tdpfp16ps", f16, f16, kAmx16, kTdpfp16Source),
    x86("x86.tmmultf32ps", tf32, tf32, kAmxTf32, kTmmulSource),
    transcribed("x86.tdphf8ps", e4m3fn, e4m3fn, kAmx8, kTdpf8Source),
    transcribed("x86.tdpbf8ps", e5m2, e5m2, kAmx8, kTdpf8Source),
    transcribed("x86.tdphbf8ps", e4m3fn, e5m2, kAmx8, kTdpf8Source),
    transcribed("x86.tdpbhf8ps", e5m2, e4m3fn, kAmx8, kTdpf8Source),
    transcribed("x86.top2bf16ps", bf16, bf16, kAce16, kTop2Source),
    transcribed("x86.top4mxhf8ps", e4m3fn, e4m3fn, kAce8, kTop4Source),
    transcribed("x86.top4mxbf8ps", e5m2, e5m2, kAce8, kTop4Source),
    transcribed("x86.top4mxhbf8ps", e4m3fn, e5m2, kAce8, kTop4Source),
    transcribed("x86.top4mxbhf8ps", e5m2, e4m3fn, kAce8, kTop4Source),
};

constexpr std::array kArm{
    arm("arm.bfdot", bf16, bf16, kArmOdd, kBfdotSource),
    arm("arm.bfdot.ebf16", bf16, bf16, kArmExactPairs, kEbf16Source),
    arm("arm.bfmmla", bf16, bf16, kArmOdd, kBfdotSource),
    arm("arm.bfmmla.ebf16", bf16, bf16, kArmExactPairs, kEbf16Source),
    arm("arm.fdot.f16", f16, f16, kArmExactPairs, kFdotHalfSource),
    arm("arm.fdot.e4m3", e4m3fn, e4m3fn, arm_fp8(4), kFdotSource),
    arm("arm.fdot.e5m2", e5m2, e5m2, arm_fp8(4), kFdotSource),
    arm("arm.fdot.e4m3.e5m2", e4m3fn, e5m2, arm_fp8(4), kFdotSource),
    arm("arm.fdot.e5m2.e4m3", e5m2, e4m3fn, arm_fp8(4), kFdotSource),
    arm("arm.fdot.e4m3.f16", e4m3fn, e4m3fn, to_half(arm_fp8(2)), kFdotSource),
    arm("arm.fdot.e5m2.f16", e5m2, e5m2, to_half(arm_fp8(2)), kFdotSource),
    arm("arm.fdot.e4m3.e5m2.f16", e4m3fn, e5m2, to_half(arm_fp8(2)), kFdotSource),
    arm("arm.fdot.e5m2.e4m3.f16", e5m2, e4m3fn, to_half(arm_fp8(2)), kFdotSource),
    arm("arm.fmmla.e4m3", e4m3fn, e4m3fn, arm_fp8(8), kFdotSource),
    arm("arm.fmmla.e5m2", e5m2, e5m2, arm_fp8(8), kFdotSource),
    arm("arm.fmmla.e4m3.e5m2", e4m3fn, e5m2, arm_fp8(8), kFdotSource),
    arm("arm.fmmla.e5m2.e4m3", e5m2, e4m3fn, arm_fp8(8), kFdotSource),
    arm("arm.fmmla.e4m3.f16", e4m3fn, e4m3fn, to_half(arm_fp8(4)), kFdotSource),
    arm("arm.fmmla.e5m2.f16", e5m2, e5m2, to_half(arm_fp8(4)), kFdotSource),
    arm("arm.fmmla.e4m3.e5m2.f16", e4m3fn, e5m2, to_half(arm_fp8(4)), kFdotSource),
    arm("arm.fmmla.e5m2.e4m3.f16", e5m2, e4m3fn, to_half(arm_fp8(4)), kFdotSource),
};

constexpr std::array kDefinitions{
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

/// Whether a sum of the instruction's products can be so small that it rounds to zero, which asks
/// for the sign of that zero.
constexpr bool sums_round_to_zero(const InstructionModel& m) {
  using enum AccumulationKind;
  const AccumulationKind kind = m.accumulator.kind;
  if (kind == scaled_dot_product || kind == scaled_group_dot_product) return true;
  const auto lowest_bit = [](FormatId id) {
    return format(id).min_exponent() - format(id).mantissa_bits;
  };
  const int smallest = lowest_bit(m.accumulator.output_format);
  return lowest_bit(m.a_format) + lowest_bit(m.b_format) < smallest;
}

/// What is said of a measured unit whose recordings were compared as numbers.
constexpr std::string_view with_zero_sign(std::string_view source) {
  if (source == kRecorded) return kRecordedButSigns;
  if (source == kAmpereElsewhere) return kAmpereElsewhereButSigns;
  if (source == kAdaElsewhere) return kAdaElsewhereButSigns;
  return source == kBlackwellElsewhere ? kBlackwellElsewhereButSigns : source;
}

/// Sums that round to zero are +0 in all units of NVIDIA: measured on an H200, and mmasim 2.1.1
/// has it for the others. Not said where no sum can be so small.
template <std::size_t Size>
constexpr auto with_zero_signs(std::array<InstructionModel, Size> models) {
  for (InstructionModel& m : models) {
    const bool chip = m.vendor == Vendor::nvidia && m.standing != definition;
    if (!chip || !sums_round_to_zero(m)) continue;
    m.accumulator.zero_sign = ZeroSign::positive;
    m.source = with_zero_sign(m.source);
  }
  return models;
}

constexpr auto kModels = with_zero_signs(
    joined(kUpToBlackwellMma, kTcgen, of_pairs(kTcgenNames, kTcgen8, kMmaSim, kMmaSimPairs),
           of_pairs(kTcgenHalfNames, kTcgen8Half, kMmaSim, kMmaSimPairs),
           of_pairs(kTcgenScaledNames, kMxf8f6f4, kMxf8Source, kMxf8Pairs), kScaledTcgen,
           kRtxBlackwell, of_pairs(kMmaNames, kTcgen8, kMmaSim, kMmaSimPairs),
           of_pairs(kMmaHalfNames, kTcgen8Half, kMmaSim, kMmaSimPairs),
           of_pairs(kMmaScaledNames, kMxf8f6f4, kMxf8Source, kMxf8Pairs), kScaledRtxBlackwell, kAmd,
           kX86, kArm, kDefinitions));

}  // namespace

std::span<const InstructionModel> instruction_models() { return kModels; }

const InstructionModel& find_instruction_model(std::string_view name) {
  for (const InstructionModel& model : kModels)
    if (model.name == name) return model;
  if (is_definition(name)) return defined_model(name);
  throw Error("model",
              fmt::format("{}, or a definition such as sm90.wgmma.e4m3:F=14",
                          expected_name(name_list(kModels), name)),
              fmt::format("'{}'", name));
}

}  // namespace fp8lab

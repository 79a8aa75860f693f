// The registry against a second table, written from the literature that it cites: kernels and
// reference read one and the same row, and cannot tell where it is wrong.

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/accumulate/unit.hpp"

using namespace fp8lab;

namespace {

constexpr int kNone = kNoMinAlignmentExponent;
constexpr auto kFused = AccumulationKind::fused_dot_product;
constexpr auto kHalves = AccumulationKind::fp16_halves;
constexpr auto kScaled = AccumulationKind::scaled_dot_product;
constexpr auto kScaledGroups = AccumulationKind::scaled_group_dot_product;
constexpr auto kMeasured = Standing::measured;
constexpr auto kLiterature = Standing::from_literature;
constexpr auto kAssumed = Standing::assumed;

/// Kind, terms, fraction bits of the alignment (0 where the unit does not align) and of the output,
/// lower limit, FP16 output, standing.
using Row = std::tuple<AccumulationKind, int, int, int, int, bool, Standing>;

const std::map<std::string_view, Row> kTable{
    {"sm70.mma.f16", {kFused, 4, 23, 23, kNone, false, kMeasured}},
    {"sm70.mma.f16.f16", {kFused, 4, 23, 10, -19, true, kMeasured}},
    {"sm80.mma.f16", {kFused, 8, 24, 23, -132, false, kMeasured}},
    {"sm80.mma.f16.f16", {kFused, 8, 24, 10, -20, true, kMeasured}},
    {"sm80.mma.bf16", {kFused, 8, 24, 23, -132, false, kMeasured}},
    {"sm80.mma.tf32", {kFused, 4, 24, 23, -132, false, kMeasured}},
    {"sm89.mma.e4m3", {kFused, 16, 13, 13, -132, false, kMeasured}},
    {"sm89.mma.e5m2", {kFused, 16, 13, 13, -132, false, kMeasured}},
    {"sm89.mma.f16", {kFused, 8, 24, 23, -132, false, kMeasured}},
    {"sm89.mma.f16.f16", {kFused, 8, 24, 10, -20, true, kMeasured}},
    {"sm89.mma.bf16", {kFused, 8, 24, 23, -132, false, kMeasured}},
    {"sm89.mma.tf32", {kFused, 4, 24, 23, -132, false, kMeasured}},
    {"sm89.mma.e4m3.f16", {kFused, 16, 13, 10, kNone, true, kMeasured}},
    {"sm89.mma.e5m2.f16", {kFused, 16, 13, 10, kNone, true, kMeasured}},
    {"sm90.mma.f16", {kFused, 16, 25, 23, -133, false, kMeasured}},
    {"sm90.mma.f16.f16", {kFused, 16, 25, 10, -21, true, kMeasured}},
    {"sm90.mma.bf16", {kFused, 16, 25, 23, -133, false, kMeasured}},
    {"sm90.mma.tf32", {kFused, 8, 25, 23, -133, false, kMeasured}},
    {"sm90.mma.e4m3", {kHalves, 32, 25, 23, -133, false, kMeasured}},
    {"sm90.mma.e5m2", {kHalves, 32, 25, 23, -133, false, kMeasured}},
    {"sm90.mma.e4m3.f16", {kHalves, 32, 25, 10, -21, true, kMeasured}},
    {"sm90.mma.e5m2.f16", {kHalves, 32, 25, 10, -21, true, kMeasured}},
    {"sm90.mma.e4m3.separate", {kHalves, 32, 25, 23, -133, false, kAssumed}},
    {"sm90.mma.e5m2.separate", {kHalves, 32, 25, 23, -133, false, kAssumed}},
    {"sm90.mma.e4m3.f16.separate", {kHalves, 32, 25, 10, -21, true, kAssumed}},
    {"sm90.mma.e5m2.f16.separate", {kHalves, 32, 25, 10, -21, true, kAssumed}},
    {"sm90.wgmma.f16", {kFused, 16, 25, 23, -133, false, kMeasured}},
    {"sm90.wgmma.bf16", {kFused, 16, 25, 23, -133, false, kMeasured}},
    {"sm90.wgmma.tf32", {kFused, 8, 25, 23, -133, false, kMeasured}},
    {"sm90.wgmma.e4m3", {kFused, 32, 13, 13, -139, false, kMeasured}},
    {"sm90.wgmma.e5m2", {kFused, 32, 13, 13, -139, false, kMeasured}},
    {"sm90.wgmma.e4m3.e5m2", {kFused, 32, 13, 13, -139, false, kMeasured}},
    {"sm90.wgmma.e5m2.e4m3", {kFused, 32, 13, 13, -139, false, kMeasured}},
    {"sm90.wgmma.e4m3.f16", {kFused, 32, 13, 10, kNone, true, kMeasured}},
    {"sm90.wgmma.e5m2.f16", {kFused, 32, 13, 10, kNone, true, kMeasured}},
    {"sm100.mma.f16", {kFused, 16, 25, 23, -133, false, kMeasured}},
    {"sm100.mma.f16.f16", {kFused, 16, 25, 10, -21, true, kMeasured}},
    {"sm100.mma.bf16", {kFused, 16, 25, 23, -133, false, kMeasured}},
    {"sm100.mma.tf32", {kFused, 8, 25, 23, -133, false, kMeasured}},
    {"sm100.mma.e4m3", {kHalves, 32, 25, 23, -133, false, kMeasured}},
    {"sm100.mma.e5m2", {kHalves, 32, 25, 23, -133, false, kMeasured}},
    {"sm100.mma.e4m3.f16", {kHalves, 32, 25, 10, -21, true, kMeasured}},
    {"sm100.mma.e5m2.f16", {kHalves, 32, 25, 10, -21, true, kMeasured}},
    {"sm75.mma.f16", {kFused, 8, 24, 23, -132, false, kLiterature}},
    {"sm75.mma.f16.f16", {kFused, 8, 24, 10, -20, true, kLiterature}},
    {"sm89.mma.e4m3.e5m2", {kFused, 16, 13, 13, -132, false, kLiterature}},
    {"sm89.mma.e4m3.e5m2.f16", {kFused, 16, 13, 10, kNone, true, kLiterature}},
    {"sm89.mma.e5m2.e4m3", {kFused, 16, 13, 13, -132, false, kLiterature}},
    {"sm89.mma.e5m2.e4m3.f16", {kFused, 16, 13, 10, kNone, true, kLiterature}},
    {"sm90.wgmma.f16.f16", {kFused, 16, 25, 10, -21, true, kMeasured}},
    {"sm90.wgmma.e4m3.e5m2.f16", {kFused, 32, 13, 10, kNone, true, kMeasured}},
    {"sm90.wgmma.e5m2.e4m3.f16", {kFused, 32, 13, 10, kNone, true, kMeasured}},
    {"sm100.tcgen05.f16", {kFused, 16, 25, 23, -133, false, kLiterature}},
    {"sm100.tcgen05.f16.f16", {kFused, 16, 25, 10, -21, true, kLiterature}},
    {"sm100.tcgen05.bf16", {kFused, 16, 25, 23, -133, false, kLiterature}},
    {"sm100.tcgen05.tf32", {kFused, 8, 25, 23, -133, false, kLiterature}},
    {"sm100.tcgen05.mxf4nvf4", {kScaledGroups, 64, 35, 23, -139, false, kLiterature}},
    {"sm120.mma.f16", {kFused, 16, 25, 23, -133, false, kLiterature}},
    {"sm120.mma.f16.f16", {kFused, 16, 25, 10, -21, true, kLiterature}},
    {"sm120.mma.bf16", {kFused, 16, 25, 23, -133, false, kLiterature}},
    {"sm120.mma.tf32", {kFused, 8, 25, 23, -133, false, kLiterature}},
    {"sm120.mma.mxf4nvf4", {kScaledGroups, 64, 35, 23, -139, false, kLiterature}},
    {"gfx908.mfma.f16", {AccumulationKind::exact_dot_product, 4, 0, 23, kNone, false, kLiterature}},
    {"gfx908.mfma.bf16",
     {AccumulationKind::exact_dot_product, 2, 0, 23, kNone, false, kLiterature}},
    {"gfx908.mfma.f32",
     {AccumulationKind::fused_multiply_add, 1, 0, 23, kNone, false, kLiterature}},
    {"gfx90a.mfma.f16",
     {AccumulationKind::flushed_pairwise_sum, 4, 0, 23, kNone, false, kLiterature}},
    {"gfx90a.mfma.bf16",
     {AccumulationKind::flushed_pairwise_sum, 2, 0, 23, kNone, false, kLiterature}},
    {"gfx90a.mfma.bf16_1k",
     {AccumulationKind::flushed_pairwise_sum, 4, 0, 23, kNone, false, kLiterature}},
    {"gfx90a.mfma.f32",
     {AccumulationKind::fused_multiply_add, 1, 0, 23, kNone, false, kLiterature}},
    {"gfx942.mfma.f16",
     {AccumulationKind::two_stage_dot_product, 8, 24, 23, kNone, false, kLiterature}},
    {"gfx942.mfma.bf16",
     {AccumulationKind::two_stage_dot_product, 8, 24, 23, kNone, false, kLiterature}},
    {"gfx942.mfma.xf32",
     {AccumulationKind::two_stage_dot_product, 4, 24, 23, kNone, false, kLiterature}},
    {"gfx942.mfma.fp8",
     {AccumulationKind::even_odd_dot_product, 16, 24, 23, kNone, false, kLiterature}},
    {"gfx942.mfma.bf8",
     {AccumulationKind::even_odd_dot_product, 16, 24, 23, kNone, false, kLiterature}},
    {"gfx942.mfma.fp8.bf8",
     {AccumulationKind::even_odd_dot_product, 16, 24, 23, kNone, false, kLiterature}},
    {"gfx942.mfma.bf8.fp8",
     {AccumulationKind::even_odd_dot_product, 16, 24, 23, kNone, false, kLiterature}},
    {"gfx942.mfma.f32",
     {AccumulationKind::fused_multiply_add, 1, 0, 23, kNone, false, kLiterature}},
};

/// Kind, terms, chains, subnormals, rounding of pairs, FP16 output, formats of a and b, sign of a
/// sum of -0's, standing.
struct OfProcessor {
  AccumulationKind kind;
  int terms;
  int chains;
  Subnormals subnormals;
  PairRounding pairs;
  bool half;
  FormatId a;
  FormatId b;
  ZeroSign zeros = ZeroSign::kept;
  Standing standing = Standing::specified;
};

const std::map<std::string_view, OfProcessor>& processors() {
  using enum AccumulationKind;
  using enum FormatId;
  using enum Subnormals;
  constexpr auto kEven = PairRounding::nearest_even;
  constexpr auto kOdd = PairRounding::to_odd;
  constexpr auto kPlus = ZeroSign::positive;
  static const std::map<std::string_view, OfProcessor> table = [] {
    std::map<std::string_view, OfProcessor> rows{
        {"x86.vdpbf16ps",
         {multiply_add_pairs, 2, 2, flushed, kEven, false, bf16, bf16, ZeroSign::kept, kMeasured}},
        {"x86.vdpphps",
         {multiply_add_pairs, 2, 2, flushed, kEven, false, f16, f16, ZeroSign::kept, kLiterature}},
        {"x86.tdpbf16ps", {multiply_add_chains, 32, 2, flushed, kEven, false, bf16, bf16}},
        {"x86.tdpfp16ps", {multiply_add_chains, 32, 2, flushed, kEven, false, f16, f16}},
        {"x86.tmmultf32ps",
         {multiply_add_chains, 16, 1, flushed_results, kEven, false, tf32, tf32}},
        {"x86.top2bf16ps",
         {rounded_pairs, 2, 2, kept, kEven, false, bf16, bf16, ZeroSign::kept, kLiterature}},
        {"arm.bfdot", {rounded_pairs, 2, 2, kept, kOdd, false, bf16, bf16}},
        {"arm.bfmmla", {rounded_pairs, 2, 2, kept, kOdd, false, bf16, bf16}},
        {"arm.bfdot.ebf16", {rounded_sum, 2, 2, kept, kEven, false, bf16, bf16}},
        {"arm.bfmmla.ebf16", {rounded_sum, 2, 2, kept, kEven, false, bf16, bf16}},
        {"arm.fdot.f16", {rounded_sum, 2, 2, kept, kEven, false, f16, f16}},
    };
    constexpr auto kAmx = rounded_sum;
    constexpr auto kAce = scaled_rounded_sum;
    const auto fp8 = [&](FormatId a, FormatId b, std::string_view amx, std::string_view ace,
                         std::array<std::string_view, 4> arm) {
      rows[amx] = {kAmx, 64, 2, flushed_results, kEven, false, a, b, kPlus, kLiterature};
      rows[ace] = {kAce, 4, 2, flushed, kEven, false, a, b, kPlus, kLiterature};
      const int terms[] = {4, 2, 8, 4};
      for (std::size_t i = 0; i < 4; ++i)
        rows[arm[i]] = {exact_dot_product, terms[i], 2, kept, kEven, i % 2 == 1, a, b};
    };
    fp8(e4m3fn, e4m3fn, "x86.tdphf8ps", "x86.top4mxhf8ps",
        {"arm.fdot.e4m3", "arm.fdot.e4m3.f16", "arm.fmmla.e4m3", "arm.fmmla.e4m3.f16"});
    fp8(e5m2, e5m2, "x86.tdpbf8ps", "x86.top4mxbf8ps",
        {"arm.fdot.e5m2", "arm.fdot.e5m2.f16", "arm.fmmla.e5m2", "arm.fmmla.e5m2.f16"});
    fp8(e4m3fn, e5m2, "x86.tdphbf8ps", "x86.top4mxhbf8ps",
        {"arm.fdot.e4m3.e5m2", "arm.fdot.e4m3.e5m2.f16", "arm.fmmla.e4m3.e5m2",
         "arm.fmmla.e4m3.e5m2.f16"});
    fp8(e5m2, e4m3fn, "x86.tdpbhf8ps", "x86.top4mxbhf8ps",
        {"arm.fdot.e5m2.e4m3", "arm.fdot.e5m2.e4m3.f16", "arm.fmmla.e5m2.e4m3",
         "arm.fmmla.e5m2.e4m3.f16"});
    return rows;
  }();
  return table;
}

bool is_processor(const InstructionModel& model) {
  return model.vendor == Vendor::x86 || model.vendor == Vendor::arm;
}

/// The row of an instruction that takes any pair of FP8, FP6 and FP4, if `name` is one.
const Row* row_of_pair(const std::string& name) {
  static const Row kPlain{kFused, 32, 25, 23, -133, false, kLiterature};
  static const Row kHalf{kFused, 32, 25, 10, kNone, true, kLiterature};
  static const Row kBlocks{kScaled, 32, 25, 23, -133, false, kLiterature};
  for (const std::string chip : {"sm100.tcgen05.", "sm120.mma."})
    for (const std::string a : {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"})
      for (const std::string b : {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}) {
        const std::string pair = a == b ? a : a + "." + b;
        if (name == chip + pair) return &kPlain;
        if (name == chip + pair + ".f16") return &kHalf;
        if (name == chip + "mxf8f6f4." + pair) return &kBlocks;
      }
  return nullptr;
}
/// Whether some product is below half of the output's smallest number, in exact arithmetic.
bool has_tiny_products(const InstructionModel& model) {
  const auto smallest = [](FormatId id) { return format(id).min_subnormal(); };
  return smallest(model.a_format) * smallest(model.b_format) <
         smallest(model.accumulator.output_format);
}
constexpr std::size_t kRowsOfPairs = 2 * 25 * 3;

/// The formats of a and b that a name tells: one for both, or one each.
std::pair<FormatId, FormatId> formats_of(const std::string& name) {
  std::vector<FormatId> found;
  for (std::size_t at = name.find('.', name.find('.') + 1); at != std::string::npos;
       at = name.find('.', at + 1)) {
    const std::string part = name.substr(at + 1, name.find('.', at + 1) - at - 1);
    if (part == "e4m3") found.push_back(FormatId::e4m3fn);
    if (part == "e5m2") found.push_back(FormatId::e5m2);
    if (found.empty() && part == "f16") found.push_back(FormatId::f16);
    if (part == "bf16") found.push_back(FormatId::bf16);
    if (part == "bf16_1k") found.push_back(FormatId::bf16);
    if (part == "tf32" || part == "xf32") found.push_back(FormatId::tf32);
    if (part == "f32") found.push_back(FormatId::f32);
    if (part == "fp8") found.push_back(FormatId::e4m3fnuz);
    if (part == "bf8") found.push_back(FormatId::e5m2fnuz);
    if (part == "mxf4nvf4" || part == "e2m1") found.push_back(FormatId::e2m1);
    if (part == "e2m3") found.push_back(FormatId::e2m3);
    if (part == "e3m2") found.push_back(FormatId::e3m2);
  }
  return {found.at(0), found.size() > 1 ? found[1] : found[0]};
}

}  // namespace

TEST_CASE("registered instructions are those of the second table", "[accumulate]") {
  std::size_t instructions = 0;
  for (const InstructionModel& model : instruction_models()) {
    if (model.standing == Standing::definition || is_processor(model)) continue;
    ++instructions;
    INFO(model.name);
    const Row* pair = row_of_pair(std::string(model.name));
    REQUIRE((pair != nullptr) != kTable.contains(model.name));
    const auto& [kind, terms, alignment, output, floor, half, standing] =
        pair != nullptr ? *pair : kTable.at(model.name);
    const AccumulatorModel& m = model.accumulator;
    CHECK(m.kind == kind);
    CHECK(m.terms == terms);
    if (alignment == 0)
      CHECK_FALSE(traits_of(m).aligns);
    else
      CHECK(m.alignment_fraction_bits == alignment);
    CHECK(m.output_fraction_bits == output);
    CHECK(m.min_alignment_exponent == floor);
    CHECK(m.output_format == (half ? FormatId::f16 : FormatId::f32));
    const bool amd = model.vendor == Vendor::amd;
    CHECK(amd == model.name.starts_with("gfx"));
    CHECK(m.second_stage_fraction_bits == (traits_of(m).has_second_stage ? 32 : 31));
    CHECK(m.takes_ue4m3_per_32 == (model.name == "sm120.mma.mxf4nvf4"));
    CHECK(m.rounding == (half || amd ? RoundingMode::nearest_even : RoundingMode::toward_zero));
    CHECK(m.product_exponent == ProductExponent::stored);
    CHECK(m.half_c_exponent == HalfCExponent::stored);
    CHECK((m.halves_order == HalvesOrder::separate) == model.name.ends_with(".separate"));
    const bool scaled = kind == kScaled || kind == kScaledGroups;
    CHECK((m.zero_sign == ZeroSign::positive) == (!amd && (scaled || has_tiny_products(model))));
    CHECK(model.standing == standing);
    CHECK(std::pair(model.a_format, model.b_format) == formats_of(std::string(model.name)));
  }
  CHECK(instructions == kTable.size() + kRowsOfPairs);
}

TEST_CASE("registered instructions of processors are those of the second table", "[accumulate]") {
  std::size_t instructions = 0;
  for (const InstructionModel& model : instruction_models()) {
    if (!is_processor(model)) continue;
    ++instructions;
    INFO(model.name);
    REQUIRE(processors().contains(model.name));
    const OfProcessor& row = processors().at(model.name);
    const AccumulatorModel& m = model.accumulator;
    CHECK(m.kind == row.kind);
    CHECK(m.terms == row.terms);
    CHECK(m.chains == row.chains);
    CHECK(m.subnormals == row.subnormals);
    CHECK(m.pair_rounding == row.pairs);
    CHECK(m.zero_sign == row.zeros);
    CHECK(m.output_format == (row.half ? FormatId::f16 : FormatId::f32));
    CHECK(m.output_fraction_bits == (row.half ? 10 : 23));
    CHECK(m.rounding == RoundingMode::nearest_even);
    CHECK(model.a_format == row.a);
    CHECK(model.b_format == row.b);
    CHECK(model.standing == row.standing);
    CHECK((model.vendor == Vendor::x86) == model.name.starts_with("x86."));
    CHECK((model.vendor == Vendor::arm) == model.name.starts_with("arm."));
  }
  CHECK(instructions == processors().size());
}

TEST_CASE("measured models, and no others, name what they replay", "[accumulate]") {
  for (const InstructionModel& model : instruction_models()) {
    INFO(model.name);
    for (const ReplayedRows& one : model.evidence) {
      CHECK(model.standing == Standing::measured);
      CHECK(one.rows > 0);
      CHECK(!one.gpu.empty());
    }
    if (model.standing == Standing::measured)
      CHECK((!model.evidence.empty() ||
             model.source.find("not kept here") != std::string_view::npos));
  }
}

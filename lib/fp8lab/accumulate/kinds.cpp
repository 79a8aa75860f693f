// The kinds of units: one row each, in the order of the enumerators.

#include <array>
#include <cstddef>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/names.hpp"

namespace fp8lab {
namespace accumulate_detail {

// Each is defined in units/, in the file of its class.
const AccumulatorUnit& fused_dot_product_unit();
const AccumulatorUnit& sequential_unit();
const AccumulatorUnit& float32_unit();
const AccumulatorUnit& exact_unit();
const AccumulatorUnit& fp16_halves_unit();
const AccumulatorUnit& exact_dot_product_unit();
const AccumulatorUnit& flushed_pairwise_sum_unit();
const AccumulatorUnit& two_stage_dot_product_unit();
const AccumulatorUnit& even_odd_dot_product_unit();
const AccumulatorUnit& fused_multiply_add_unit();
const AccumulatorUnit& scaled_dot_product_unit();
const AccumulatorUnit& scaled_group_dot_product_unit();
const AccumulatorUnit& multiply_add_pairs_unit();
const AccumulatorUnit& multiply_add_chains_unit();
const AccumulatorUnit& rounded_sum_unit();
const AccumulatorUnit& scaled_rounded_sum_unit();
const AccumulatorUnit& rounded_pairs_unit();

}  // namespace accumulate_detail
namespace {

using enum AccumulationKind;
using namespace accumulate_detail;

constexpr std::array kKinds{
    AccumulatorKind{fused_dot_product, "fused_dot_product", "fused", "sm90.wgmma.e4m3",
                    fused_dot_product_unit},
    AccumulatorKind{sequential, "sequential", "", "sequential14.rne", sequential_unit},
    AccumulatorKind{float32, "float32", "", "fp32", float32_unit},
    AccumulatorKind{exact, "exact", "", "exact", exact_unit},
    AccumulatorKind{fp16_halves, "fp16_halves", "halves", "sm90.mma.e4m3", fp16_halves_unit},
    AccumulatorKind{exact_dot_product, "exact_dot_product", "", "gfx908.mfma.f16",
                    exact_dot_product_unit},
    AccumulatorKind{flushed_pairwise_sum, "flushed_pairwise_sum", "", "gfx90a.mfma.f16",
                    flushed_pairwise_sum_unit},
    AccumulatorKind{two_stage_dot_product, "two_stage_dot_product", "two_stage", "gfx942.mfma.f16",
                    two_stage_dot_product_unit},
    AccumulatorKind{even_odd_dot_product, "even_odd_dot_product", "even_odd", "gfx942.mfma.fp8",
                    even_odd_dot_product_unit},
    AccumulatorKind{fused_multiply_add, "fused_multiply_add", "fma", "gfx942.mfma.f32",
                    fused_multiply_add_unit},
    AccumulatorKind{scaled_dot_product, "scaled_dot_product", "scaled",
                    "sm100.tcgen05.mxf8f6f4.e4m3", scaled_dot_product_unit},
    AccumulatorKind{scaled_group_dot_product, "scaled_group_dot_product", "scaled_group",
                    "sm100.tcgen05.mxf4nvf4", scaled_group_dot_product_unit},
    AccumulatorKind{multiply_add_pairs, "multiply_add_pairs", "fma_pairs", "x86.vdpbf16ps",
                    multiply_add_pairs_unit},
    AccumulatorKind{multiply_add_chains, "multiply_add_chains", "fma_chains", "x86.tdpbf16ps",
                    multiply_add_chains_unit},
    AccumulatorKind{rounded_sum, "rounded_sum", "", "x86.tdphf8ps", rounded_sum_unit},
    AccumulatorKind{scaled_rounded_sum, "scaled_rounded_sum", "", "x86.top4mxhf8ps",
                    scaled_rounded_sum_unit},
    AccumulatorKind{rounded_pairs, "rounded_pairs", "", "arm.bfdot", rounded_pairs_unit},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kKinds.size(); ++i)
    if (static_cast<std::size_t>(kKinds[i].kind) != i) return false;
  return true;
}
static_assert(in_order());

}  // namespace

std::span<const AccumulatorKind> accumulator_kinds() { return kKinds; }

std::string_view to_string(AccumulationKind kind) {
  return kKinds[static_cast<std::size_t>(kind)].name;
}

AccumulationKind find_accumulation_kind(std::string_view name) {
  return find_named(kKinds, "kind", name).kind;
}

const AccumulatorUnit& unit_of(AccumulationKind kind) {
  return kKinds[static_cast<std::size_t>(kind)].unit();
}

}  // namespace fp8lab

// L12 and S13 - S15: what casts, matrix units and systems do to the operands of a product.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "accumulator-drift/drift.hpp"
#include "claims/formats.hpp"
#include "claims/groups.hpp"
#include "claims/recorded.hpp"
#include "common/spread.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/linear/layer_rule.hpp"

namespace fp8lab::experiments {
namespace {

Measurement measure_l12(const ClaimContext&) {
  const Recorded& rounded = recorded("to_e4m3_of_450");
  const double large = recorded("to_e4m3_of_1000").value;
  const double infinite = recorded("to_e5m2_of_1e6_is_infinite").value;
  const bool nan_before = cast(e4m3(), find_cast_profile("ml_dtypes").policy, 1000.0F).nan;
  Measurement m;
  m.figure = fmt::format(
      "{}: 450 becomes {:g} in E4M3 and 1000 {:g}; 10^6 becomes {} in E5M2; releases before 2.12 "
      "(by reading) make {} of 1000",
      rounded.system, rounded.value, large, infinite != 0.0 ? "Inf" : "finite",
      nan_before ? "NaN" : "a number");
  m.values = {{"e4m3_of_450", "1", rounded.value},
              {"e4m3_of_1000", "1", large},
              {"e5m2_infinite", "1", infinite},
              {"nan_in_older_releases", "1", nan_before ? 1.0 : 0.0}};
  return m;
}

Verdict judge_l12(Values values) {
  if (value_of(values, "e4m3_of_450") != 448.0 || value_of(values, "e4m3_of_1000") != 448.0)
    return Verdict::does_not_hold;
  const bool everywhere =
      value_of(values, "e5m2_infinite") == 0.0 && value_of(values, "nan_in_older_releases") == 0.0;
  return everywhere ? Verdict::holds : Verdict::holds_with_correction;
}

constexpr std::array<std::int64_t, 4> kSummedLengths{128, 1024, 4096, 16384};

/// Relative L2 error of products of N(0, 1), mean of three draws.
double product_error(const ClaimContext& context, std::int64_t k, const Stages& on) {
  const Pipeline pipeline{.name = "per tensor", .accumulator = "sm90.wgmma.e4m3"};
  std::vector<double> errors;
  for (std::uint64_t draw = 0; draw < 3; ++draw) {
    const Bf16Operands operands =
        make_operands({Distribution::normal, 16, 16, k}, context.seed + draw);
    errors.push_back(pipeline_error(operands, pipeline, on, context.threads, context.backend));
  }
  return spread_of(errors).mean;
}

Measurement measure_s13(const ClaimContext& context) {
  const Stages inputs{.product_rounding = false, .accumulation = false, .output_rounding = false};
  const Stages unit{.output_rounding = false};
  Measurement m;
  for (const std::int64_t k : kSummedLengths) {
    const double exact = product_error(context, k, inputs);
    const double hopper = product_error(context, k, unit);
    m.figure += fmt::format("{}K = {}: {:.2f} %, on Hopper without promotion {:.2f} %",
                            m.values.empty() ? "" : "; ", k, 100.0 * exact, 100.0 * hopper);
    m.values.push_back({fmt::format("error_{}", k), "1", exact});
    m.values.push_back({fmt::format("error_unpromoted_{}", k), "1", hopper});
  }
  return m;
}

Verdict judge_s13(Values values) {
  constexpr double kGrows = 1.5;
  const auto grows = [&](const std::string& name) {
    return value_of(values, name + "_16384") > kGrows * value_of(values, name + "_128");
  };
  if (grows("error")) return Verdict::holds;
  return grows("error_unpromoted") ? Verdict::holds_with_correction : Verdict::does_not_hold;
}

/// Weights of a block of DeepSeek-V3 by what the guide calls them, as its checkpoint names them.
struct ListedWeight {
  const char* group;
  const char* name;
  std::array<std::int64_t, 2> shape;
};
constexpr std::array<ListedWeight, 8> kListed{{
    {"attention", "model.layers.3.self_attn.q_a_proj.weight", {1536, 7168}},
    {"attention", "model.layers.3.self_attn.q_b_proj.weight", {24576, 1536}},
    {"attention", "model.layers.3.self_attn.kv_a_proj_with_mqa.weight", {576, 7168}},
    {"attention", "model.layers.3.self_attn.kv_b_proj.weight", {32768, 512}},
    {"attention", "model.layers.3.self_attn.o_proj.weight", {7168, 16384}},
    {"experts", "model.layers.3.mlp.experts.0.up_proj.weight", {2048, 7168}},
    {"experts", "model.layers.3.mlp.experts.0.down_proj.weight", {7168, 2048}},
    {"gating", "model.layers.3.mlp.gate.weight", {256, 7168}},
}};

Measurement measure_s14(const ClaimContext&) {
  const LayerRule& rule = find_layer_rule("deepseek-v3");
  Measurement m;
  for (const std::string_view group : {"attention", "experts", "gating"}) {
    double all = 0.0;
    double converted = 0.0;
    for (const ListedWeight& weight : kListed)
      if (weight.group == group) {
        all += 1.0;
        converted += decide(rule, weight.name, weight.shape).converts ? 1.0 : 0.0;
      }
    m.figure +=
        fmt::format("{}{}: {} of {} in FP8", m.values.empty() ? "" : ", ", group, converted, all);
    m.values.push_back({fmt::format("share_{}", group), "1", converted / all});
  }
  m.figure = "weights of a block by the rule of DeepSeek-V3's report (section 3.3.1): " + m.figure;
  return m;
}

Verdict judge_s14(Values values) {
  const bool others =
      value_of(values, "share_attention") == 1.0 && value_of(values, "share_experts") == 1.0;
  if (!others) return Verdict::does_not_hold;
  return value_of(values, "share_gating") == 1.0 ? Verdict::holds : Verdict::holds_with_correction;
}

/// The number after `letter` in the shape of an instruction, as 64 after n in "m64n64k32".
double extent(std::string_view shape, char letter) {
  const std::size_t at = shape.find(letter);
  require(at != std::string_view::npos, "instruction", "a shape such as m64n64k32",
          std::string(shape));
  double value = 0.0;
  for (std::size_t i = at + 1; i < shape.size() && shape[i] >= '0' && shape[i] <= '9'; ++i)
    value = 10.0 * value + (shape[i] - '0');
  return value;
}

/// The part of an instruction's name that is its shape: "m64n64k32" of "wgmma.m64n64k32.f32".
std::string_view shape_of(std::string_view instruction) {
  const std::size_t first = instruction.find(".m") + 1;
  return instruction.substr(first, instruction.find('.', first) - first);
}

Measurement measure_s15(const ClaimContext&) {
  // The smallest shapes of FP8 in NVIDIA's PTX ISA; the recorded one was executed.
  const std::string executed = recorded_rows().header.at("instruction");
  Measurement m;
  for (const auto& [name, shape] :
       {std::pair<std::string, std::string_view>{"wgmma_executed", shape_of(executed)},
        {"wgmma_least", "m64n8k32"},
        {"mma", "m16n8k32"}}) {
    m.figure += fmt::format("{}{} {}", m.values.empty() ? "" : ", ", name, shape);
    for (const char letter : {'m', 'n', 'k'})
      m.values.push_back({fmt::format("{}_{}", name, letter), "1", extent(shape, letter)});
  }
  m.figure = "FP8 instructions: " + m.figure +
             "; a dimension must be a multiple of 16 because cuBLASLt and TMA take rows that begin "
             "at multiples of 16 bytes";
  return m;
}

Verdict judge_s15(Values values) {
  bool square = false;
  bool divides = true;
  for (const std::string name : {"wgmma_executed", "wgmma_least", "mma"}) {
    const double m = value_of(values, name + "_m");
    const double n = value_of(values, name + "_n");
    const double k = value_of(values, name + "_k");
    square =
        square || (m == 16.0 && n == 16.0) || (n == 16.0 && k == 16.0) || (m == 16.0 && k == 16.0);
    for (const double extent_of : {m, n, k}) divides = divides && std::fmod(extent_of, 16.0) == 0.0;
  }
  if (square) return Verdict::holds;
  return divides ? Verdict::holds_with_correction : Verdict::does_not_hold;
}

}  // namespace

std::vector<Claim> conversion_claims() {
  return {
      {"L12", kTutorial, "the listing's .to(torch.float8_e4m3fn) rounds and saturates",
       "PyTorch's cast of 450 and 1000 to E4M3 and of 10^6 to E5M2 (recorded); older releases (by "
       "reading)",
       "holds if 450 and 1000 become 448, E5M2 stays finite, and older releases did the same; with "
       "a correction if only E4M3 in this release saturates",
       measure_l12, judge_l12, Basis::recorded},
      {"S13", kGuide, "the error of quantized products grows with K up to 16384",
       "products of N(0, 1) operands [16, K] in E4M3 with a scale per tensor, three draws, against "
       "BF16 operands: sums of the codes exact, and by Hopper's unit without promotion",
       "holds if the relative error with exact sums at K = 16384 is over 1.5 times that at 128; "
       "with a correction if only the unit's is",
       measure_s13, judge_s13},
      {"S14", kGuide,
       "DeepSeek-V3's projections of attention, its experts and its gating run in FP8",
       "the layers that its report lists (by reading), applied to the weights of one block",
       "holds if all of them convert; with a correction if all but the gating do", measure_s14,
       judge_s14, Basis::by_reading},
      {"S15", kFactoryPage, "FP8 GEMM kernels operate on 16x16 tiles, hence dimensions of 16",
       "shapes of the FP8 instruction that the recorded rows executed, and of the smallest in the "
       "PTX ISA (by reading)",
       "holds if one has two extents of 16; with a correction if 16 divides every extent of all",
       measure_s15, judge_s15, Basis::by_reading},
  };
}

}  // namespace fp8lab::experiments

// Operands on which the candidates that gave a call's output differ, so that the call can be asked
// again.

#include <algorithm>
#include <array>
#include <map>

#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "tool/lt_model.hpp"
#include "tool/lt_output.hpp"
#include "tool/random_problem.hpp"

namespace fp8lab::cuda {
namespace {

constexpr std::array<std::int64_t, 5> kGroups{128, 32, 512, 64, 256};
// Of 2048 outputs, one differs in about 30 draws of scales if BF16 hides the order of scales, and
// in about 500 if E4M3 does.
constexpr int kScales = 1500;

/// Operands of draw `draw`: sums whose magnitudes change along K, every second one with parts that
/// cancel; every fourth pair with few terms far apart.
void shape_operands(RandomProblem& data, int draw) {
  const std::int64_t group = kGroups[static_cast<std::size_t>(draw) % kGroups.size()];
  if (draw % 4 == 3) data.thin_along_k(group);
  data.vary_along_k(draw % 8 < 4 ? 32 : group);
  if (draw % 2 == 1) data.cancel_along_k(group);
}

using Sums = std::vector<std::vector<float>>;

/// The sums of all candidates; those with the same parts share them.
std::vector<const Sums*> sums_of(const Product& product, const std::vector<CallModel>& candidates,
                                 std::vector<std::pair<CallModel, Sums>>& made) {
  made.clear();
  made.reserve(candidates.size());  // pointers to elements are kept
  std::vector<const Sums*> sums;
  for (const CallModel& model : candidates) {
    CallModel parts;
    parts.interval = model.interval;
    parts.split = model.split;
    parts.split.order = SplitOrder::serial;
    auto found = std::ranges::find(made, parts, &std::pair<CallModel, Sums>::first);
    if (found == made.end()) {
      made.emplace_back(parts, sums_of_parts(of_candidate(product, parts)));
      found = made.end() - 1;
    }
    sums.push_back(&found->second);
  }
  return sums;
}

using Outputs = std::vector<std::vector<std::byte>>;

Outputs outputs_of(const Product& product, const std::vector<CallModel>& candidates,
                   const std::vector<const Sums*>& sums) {
  Outputs outputs;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    outputs.push_back(output_of(product, *sums[i], candidates[i]));
  return outputs;
}

bool all_same(const Outputs& outputs) {
  return std::ranges::adjacent_find(outputs, std::not_equal_to{}) == outputs.end();
}

/// Whether candidates have the same sum but scale it, or round it, in another way: other scales
/// may show it.
bool differ_behind_the_sum(const std::vector<CallModel>& candidates) {
  return std::ranges::any_of(candidates, [&](const CallModel& model) {
    return model.scale_order != candidates.front().scale_order ||
           model.rounding != candidates.front().rounding;
  });
}

}  // namespace

void separate(LtFinding& finding, const Product& product, const LtRun& run, std::uint64_t seed,
              int draws) {
  InstructionModel instruction;
  instruction.accumulator = product.problem.model;
  instruction.a_format = product.problem.a.format;
  instruction.b_format = product.problem.b.format;
  const RandomStream scales(seed, "lt.scales");
  std::uint64_t at = 0;
  std::vector<std::pair<CallModel, Sums>> made;
  for (int draw = 0; draw < draws && finding.fitting.size() > 1; ++draw) {
    RandomProblem data(instruction, product.rows(), product.columns(), product.problem.a.k,
                       draw % 3 == 2 ? Distribution::all_codes : Distribution::normal,
                       seed + static_cast<std::uint64_t>(draw) + 1);
    shape_operands(data, draw);
    const bool scaled = scaled_as_a_whole(product.problem);
    if (scaled) data.set_recipe(Recipe::per_tensor, 0, ScaleOrder::product_then_fma);
    Product one = product;
    const auto refresh = [&] { one.problem = data.problem(); };
    refresh();
    const std::vector<const Sums*> sums = sums_of(one, finding.fitting, made);
    Outputs outputs = outputs_of(one, finding.fitting, sums);
    if (scaled && differ_behind_the_sum(finding.fitting))
      for (int i = 0; i < kScales && all_same(outputs); ++i) {
        const auto next = [&] { return static_cast<float>(0.01 + scales.uniform(at++)); };
        const float a = next();
        data.set_scales(a, next());
        refresh();
        outputs = outputs_of(one, finding.fitting, sums);
      }
    if (all_same(outputs)) continue;
    const std::vector<std::byte> got = run(one);
    std::vector<CallModel> left;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i] == got) left.push_back(finding.fitting[i]);
    finding.fitting = std::move(left);
    finding.outputs += one.size();
  }
}

}  // namespace fp8lab::cuda

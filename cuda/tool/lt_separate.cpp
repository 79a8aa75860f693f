// Operands on which the candidates that gave a call's output differ, so that the call can be asked
// again.

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "fp8lab/core/random.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "tool/lt_model.hpp"
#include "tool/lt_output.hpp"
#include "tool/random_problem.hpp"

namespace fp8lab::cuda {
namespace {

constexpr std::array<std::int64_t, 5> kGroups{128, 32, 512, 64, 256};
constexpr int kScales = 64;  // aimed draws of scales for the same operands

/// Operands of draw `draw`: sums whose magnitudes change along K. In every second one they cancel,
/// so that what additions lose is most of the result; in every fourth one few terms are left.
void shape_operands(RandomProblem& data, int draw) {
  const std::int64_t group = kGroups[static_cast<std::size_t>(draw) % kGroups.size()];
  if (draw % 4 == 3) data.thin_along_k(group);
  data.vary_along_k(draw % 8 < 4 ? group : 32, -7, 16);
  if (draw % 2 == 1) data.cancel_along_k(group);
}

/// Candidates, and what each makes of one product.
class Rivals {
 public:
  Rivals(const Product& product, const std::vector<CallModel>& candidates)
      : candidates_(candidates) {
    // Those with the same parts share the sums of these.
    std::vector<std::pair<CallModel, std::vector<std::vector<float>>>> made;
    for (const CallModel& model : candidates) {
      CallModel parts;
      parts.interval = model.interval;
      parts.split = model.split;
      parts.split.order = SplitOrder::serial;
      auto found = std::ranges::find(made, parts, [](const auto& one) { return one.first; });
      if (found == made.end()) {
        made.emplace_back(parts, sums_of_parts(of_candidate(product, parts)));
        found = made.end() - 1;
      }
      sums_.push_back(sum_of(product, found->second, model));
    }
  }

  /// Scales decide the outputs anew.
  void scale(const Product& product) {
    outputs_.clear();
    for (std::size_t i = 0; i < sums_.size(); ++i)
      outputs_.push_back(output_of(product, sums_[i], candidates_[i]));
  }
  [[nodiscard]] bool all_same() const {
    return std::ranges::adjacent_find(outputs_, std::not_equal_to{}) == outputs_.end();
  }
  /// Those that give `output`.
  [[nodiscard]] std::vector<CallModel> that_give(const std::vector<std::byte>& output) const {
    std::vector<CallModel> found;
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      if (outputs_[i] == output) found.push_back(candidates_[i]);
    return found;
  }
  /// A sum that two candidates have otherwise, if there is one, or any sum.
  [[nodiscard]] float telling_sum(std::uint32_t draw) const {
    const std::vector<float>& first = sums_.front();
    const std::size_t begin = draw % first.size();
    for (std::size_t i = 0; i < first.size(); ++i) {
      const std::size_t at = (begin + i) % first.size();
      if (std::ranges::any_of(sums_, [&](const auto& other) { return other[at] != first[at]; }))
        return first[at];
    }
    return first[begin];
  }

 private:
  const std::vector<CallModel>& candidates_;
  std::vector<std::vector<float>> sums_;
  std::vector<std::vector<std::byte>> outputs_;
};

/// Scales that put a sum in the middle between two values of the output, or near it: where the
/// last bit of an FP32 sum, the order of scales or a rounding before the last one decides.
void aim_scales(RandomProblem& data, FormatId output, float sum, const RandomStream& random,
                std::uint64_t& at) {
  const int bits = output == FormatId::f32 ? 23 : format(output).mantissa_bits;
  const double steps = std::ldexp(1.0, bits + 1);
  const double odd = 2.0 * static_cast<double>(random.below(at++, std::uint64_t{1} << bits)) + 1.0;
  double middle = 1.0 + odd / steps;
  const auto aside = static_cast<int>(random.below(at++, 12));
  if (aside > 0) middle *= 1.0 + std::ldexp(random.uniform(at) - 0.5, -6 - aside);
  ++at;
  const auto a = static_cast<float>(0.01 + random.uniform(at++));
  const auto b = static_cast<float>(middle / std::abs(static_cast<double>(sum) * a));
  if (std::isnormal(b)) data.set_scales(a, b);
}

}  // namespace

void separate(LtFinding& finding, const Product& product, const LtRun& run, std::uint64_t seed,
              int draws) {
  InstructionModel instruction;
  instruction.accumulator = product.problem.model;
  instruction.a_format = product.problem.a.format;
  instruction.b_format = product.problem.b.format;
  const RandomStream random(seed, "lt.scales");
  std::uint64_t at = 0;
  for (int draw = 0; draw < draws && finding.fitting.size() > 1; ++draw) {
    RandomProblem data(instruction, product.rows(), product.columns(), product.problem.a.k,
                       draw % 3 == 2 ? Distribution::all_codes : Distribution::normal,
                       seed + static_cast<std::uint64_t>(draw) + 1);
    shape_operands(data, draw);
    const bool scaled = scaled_as_a_whole(product.problem);
    if (scaled) data.set_recipe(Recipe::per_tensor, 0, ScaleOrder::product_then_fma);
    Product one = product;
    one.problem = data.problem();
    Rivals rivals(one, finding.fitting);
    rivals.scale(one);
    for (int i = 0; scaled && i < kScales && rivals.all_same(); ++i) {
      aim_scales(data, product.output.format, rivals.telling_sum(random.bits32(at)), random, at);
      one.problem = data.problem();
      rivals.scale(one);
    }
    if (rivals.all_same()) continue;
    std::vector<CallModel> left = rivals.that_give(run(one));
    finding.fitting = std::move(left);
    finding.outputs += one.size();
  }
}

}  // namespace fp8lab::cuda

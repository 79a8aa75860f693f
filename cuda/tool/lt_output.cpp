#include "tool/lt_output.hpp"

#include <utility>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/product/partial_sums.hpp"

namespace fp8lab::cuda {
namespace {

void round_to(FormatId to, std::vector<float>& values) {
  const OutputCast output = default_output(to);
  for (float& value : values)
    value = static_cast<float>(decode(format(to), encode(format(to), output.policy, value)));
}

}  // namespace

Product of_candidate(const Product& product, const CallModel& model) {
  Product one = product;
  one.problem.promotion_interval = model.interval;
  one.problem.scale_order = model.scale_order;
  one.split = model.split;
  return one;
}

std::vector<std::vector<float>> sums_of_parts(const Product& product) {
  std::vector<std::vector<float>> sums;
  for (const Product& part : split_parts(product)) sums.push_back(compute_sums(part));
  return sums;
}

std::vector<float> sum_of(const Product& product, std::vector<std::vector<float>> parts,
                          const CallModel& model) {
  if (model.rounding == CallRounding::parts_too)
    for (std::vector<float>& part : parts) round_to(product.output.format, part);
  std::vector<float> sums = add_up(std::move(parts), model.split.order);
  if (model.rounding == CallRounding::sum_too) round_to(product.output.format, sums);
  return sums;
}

std::vector<std::byte> output_of(const Product& product, std::vector<float> sums,
                                 const CallModel& model) {
  GemmProblem problem = product.problem;
  problem.scale_order = model.scale_order;
  scale_sums(problem, sums);
  if (model.rounding == CallRounding::through_bf16) round_to(FormatId::bf16, sums);
  if (model.rounding == CallRounding::through_f16) round_to(FormatId::f16, sums);
  return cast_output(sums, product.output);
}

}  // namespace fp8lab::cuda

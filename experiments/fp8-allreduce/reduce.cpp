#include "fp8-allreduce/reduce.hpp"

#include <array>
#include <functional>
#include <span>
#include <string>

#include "fp8lab/core/error.hpp"
#include "fp8lab/metrics/sum.hpp"
#include "fp8lab/scaling/auto_scaling.hpp"
#include "training/collectives/scales.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::array<std::string_view, 5> kScalings{"none", "unified", "unified-over-n",
                                                    "requantized", "shipped"};

/// What a rank casts with, and what the sum is multiplied by to give the mean.
struct ReduceScales {
  std::vector<float> casts;  ///< one a hosted rank
  float inverse = 1.0F;
};

/// Gradients on the wire, summed, and the mean against its exact value.
Reduced reduce_scaled(Fabric& fabric, const ReduceInput& input, const WireFormat& wire,
                      Topology topology, const ReduceScales& scales, const Backend& backend,
                      const std::function<void(Message&, std::size_t)>& after_cast = {}) {
  const int ranks = static_cast<int>(input.gradients.ranks());
  const std::size_t elements = input.mean.size();
  const RankSpan hosted = fabric.hosted(ranks);
  RankBuffers buffers;
  for (std::size_t i = 0; i < scales.casts.size(); ++i) {
    Message codes(elements * wire.bytes);
    to_wire(wire, input.gradients.of_rank(hosted.first + static_cast<int>(i)), scales.casts[i],
            codes, backend);
    if (after_cast) after_cast(codes, i);
    buffers.push_back(std::move(codes));
  }
  Reduced reduced;
  reduced.counts =
      all_reduce(fabric, {topology, {wire, ReduceOp::sum, backend}, ranks, elements}, buffers);
  const double sums = topology == Topology::direct
                          ? static_cast<double>(elements)
                          : static_cast<double>(reduced.counts.total.additions);
  reduced.saturated_percent = 100.0 * static_cast<double>(reduced.counts.total.overflowed) / sums;
  if (hosted.first != 0 || buffers.empty()) return reduced;
  std::vector<float> mean(elements);
  from_wire(wire, buffers.front(), scales.inverse, mean);
  reduced.loss = loss_of(input.mean, mean);
  return reduced;
}

std::vector<float> own_amaxes(const Fabric& fabric, const ReduceInput& input) {
  return hosted_amaxes(fabric, static_cast<int>(input.gradients.ranks()),
                       [&](int rank) { return std::span(input.gradients.of_rank(rank)); });
}

/// The largest amax over all ranks, as each gets it by the max all-reduce.
float agreed_amax(Fabric& fabric, const ReduceInput& input, Topology topology,
                  CollectiveCounts* counts = nullptr) {
  return all_reduce_max(fabric, topology, static_cast<int>(input.gradients.ranks()),
                        own_amaxes(fabric, input), counts);
}

/// FP8-LM's way: tensors arrive in FP8 with scales of their own.
Reduced reduce_requantized(Fabric& fabric, const ReduceInput& input, const WireFormat& wire,
                           Topology topology, const Backend& backend) {
  const int ranks = static_cast<int>(input.gradients.ranks());
  std::vector<float> own = own_amaxes(fabric, input);
  for (float& value : own) value = scale_of(wire, value);
  // A minimum is a maximum of the negated scales.
  std::vector<float> negated(own);
  for (float& value : negated) value = -value;
  CollectiveCounts scale_counts;
  const float unified = -all_reduce_max(fabric, topology, ranks, negated, &scale_counts);
  const ReduceScales scales{own, own.empty() ? 1.0F : 1.0F / mean_scale(unified, ranks)};
  Reduced reduced = reduce_scaled(
      fabric, input, wire, topology, scales, backend,
      [&](Message& codes, std::size_t i) { requantize(wire, codes, own[i], unified, backend); });
  reduced.scale_counts = scale_counts;
  return reduced;
}

}  // namespace

std::string_view to_string(ReduceScaling scaling) {
  return kScalings[static_cast<std::size_t>(scaling)];
}

ReduceScaling find_reduce_scaling(std::string_view name) {
  for (std::size_t i = 1; i < kScalings.size(); ++i)
    if (kScalings[i] == name) return static_cast<ReduceScaling>(i);
  throw Error("schemes", "unified, unified-over-n, requantized or shipped",
              "'" + std::string(name) + "'");
}

ReduceInput::ReduceInput(const RandomStream& random, const GradientShape& shape, int ranks)
    : gradients(random, shape, ranks), mean(shape.elements) {
  for (std::size_t i = 0; i < mean.size(); ++i) {
    PairwiseSum sum;
    for (int rank = 0; rank < ranks; ++rank)
      sum.add(static_cast<double>(gradients.of_rank(rank)[i]));
    mean[i] = sum.total() / ranks;
  }
}

Reduced reduce_mean(Fabric& fabric, const ReduceInput& input, const WireFormat& wire,
                    Topology topology, ReduceScaling scaling, const Backend& backend) {
  const int ranks = static_cast<int>(input.gradients.ranks());
  if (scaling == ReduceScaling::none)
    return reduce_scaled(fabric, input, wire, topology,
                         {hosted_copies(fabric, ranks, 1.0F), 1.0F / mean_scale(1.0F, ranks)},
                         backend);
  if (scaling == ReduceScaling::requantized)
    return reduce_requantized(fabric, input, wire, topology, backend);
  CollectiveCounts scale_counts;
  const float amax = agreed_amax(fabric, input, topology, &scale_counts);
  float scale = scale_of(wire, amax);
  if (scaling == ReduceScaling::unified_over_n) scale /= static_cast<float>(ranks);
  float inverse = 1.0F / mean_scale(scale, ranks);
  if (scaling == ReduceScaling::shipped) {
    const ShippedScaling shipped = shipped_scaling(amax, ranks);
    scale = shipped.scale;
    inverse = shipped.inverse_scale;
  }
  Reduced reduced = reduce_scaled(fabric, input, wire, topology,
                                  {hosted_copies(fabric, ranks, scale), inverse}, backend);
  reduced.scale_counts = scale_counts;
  return reduced;
}

Loss reduce_with_one_off(Fabric& fabric, const ReduceInput& input, const WireFormat& wire,
                         Topology topology, double octaves, const Backend& backend) {
  const int ranks = static_cast<int>(input.gradients.ranks());
  const float scale =
      scale_of(wire, agreed_amax(fabric, input, topology)) / static_cast<float>(ranks);
  return reduce_scaled(fabric, input, wire, topology,
                       {first_off(fabric, ranks, scale, octaves), 1.0F / mean_scale(scale, ranks)},
                       backend)
      .loss;
}

Loss reduce_without_agreement(Fabric& fabric, const ReduceInput& input, const WireFormat& wire,
                              Topology topology, const Backend& backend) {
  const int ranks = static_cast<int>(input.gradients.ranks());
  std::vector<float> own = own_amaxes(fabric, input);
  for (float& value : own) value = scale_of(wire, value) / static_cast<float>(ranks);
  // What the sum is read with is what it should have been cast with.
  const float assumed =
      scale_of(wire, agreed_amax(fabric, input, topology)) / static_cast<float>(ranks);
  return reduce_scaled(fabric, input, wire, topology, {own, 1.0F / mean_scale(assumed, ranks)},
                       backend)
      .loss;
}

}  // namespace fp8lab::experiments

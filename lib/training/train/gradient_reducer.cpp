#include "training/train/gradient_reducer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>

#include "fp8lab/core/error.hpp"
#include "fp8lab/scaling/scale_rule.hpp"
#include "training/collectives/scales.hpp"

namespace fp8lab::train {
namespace {

constexpr std::array<std::string_view, 5> kScalings{"none", "pre", "post", "auto", "shipped"};

struct Scale {
  float cast = 1.0F;
  float inverse = 1.0F;  ///< what the sum is multiplied by to give the mean
};

Scale scale_for(const ReductionOptions& options, float amax, double mu) {
  if (options.scaling == GradientScaling::none)
    return {1.0F, 1.0F / mean_scale(1.0F, options.ranks)};
  if (options.scaling == GradientScaling::shipped) {
    const ShippedScaling shipped = shipped_scaling(amax, options.ranks);
    return {shipped.scale, shipped.inverse_scale};
  }
  float scale = tile_scale({.format = options.wire.format}, amax).scale;
  if (options.scaling == GradientScaling::pre) scale /= static_cast<float>(options.ranks);
  if (options.scaling == GradientScaling::automatic) scale *= static_cast<float>(mu);
  return {scale, 1.0F / mean_scale(scale, options.ranks)};
}

/// Elements at max finite in a tensor of FP8 codes.
std::size_t count_saturated(const WireFormat& wire, std::span<const std::byte> codes) {
  const auto largest = static_cast<std::byte>(format(wire.format).max_finite_code());
  return static_cast<std::size_t>(std::count_if(
      codes.begin(), codes.end(), [&](std::byte c) { return (c & std::byte{0x7f}) == largest; }));
}

}  // namespace

std::string_view to_string(GradientScaling scaling) {
  return kScalings[static_cast<std::size_t>(scaling)];
}

GradientScaling find_gradient_scaling(std::string_view name, std::string_view argument) {
  for (std::size_t i = 1; i < kScalings.size(); ++i)
    if (kScalings[i] == name) return static_cast<GradientScaling>(i);
  throw Error(std::string(argument), "pre, post, auto or shipped", fmt::format("'{}'", name));
}

GradientReducer::GradientReducer(Fabric& fabric, const ReductionOptions& options,
                                 std::size_t tensors)
    : fabric_(fabric), options_(options), scalers_(tensors, AutoScaler(options.auto_scaling)) {
  require(options.ranks >= 1, "ranks", "at least 1", fmt::format("{}", options.ranks));
  const bool narrow = options.wire.bytes == 1;
  require(narrow == (options.scaling != GradientScaling::none), "scaling",
          narrow ? "pre, post, auto or shipped for an FP8 wire" : "none for a wider wire",
          to_string(options.scaling));
}

void GradientReducer::reduce(std::size_t tensor, std::size_t elements,
                             const std::vector<std::span<float>>& gradients, bool look,
                             const Backend& backend) {
  std::vector<float> exact;
  if (look) exact = exact_mean(gradients, elements);
  Scale scale = scale_for(options_, 0.0F, 1.0);
  if (options_.scaling != GradientScaling::none) {
    std::vector<float> amaxes;
    for (const std::span<float> gradient : gradients) amaxes.push_back(amax(gradient, true));
    const float largest = all_reduce_max(fabric_, options_.topology, options_.ranks, amaxes);
    scale = scale_for(options_, largest, scalers_[tensor].mu());
  }
  CollectiveCounts counts;
  const RankBuffers sums = summed(gradients, elements, options_.topology,
                                  {options_.wire, ReduceOp::sum, backend}, scale.cast, &counts);
  bytes_ += counts.busiest_bytes;
  for (std::size_t i = 0; i < gradients.size(); ++i)
    from_wire(options_.wire, sums[i], scale.inverse, gradients[i]);
  if (sums.empty()) return;
  if (look) note_loss(exact, gradients.front());
  if (options_.wire.bytes == 1) note_saturation(tensor, sums.front());
}

double GradientReducer::mean(const std::vector<float>& values) {
  RankBuffers buffers;
  for (const float value : values) {
    const auto bytes = std::bit_cast<std::array<std::byte, sizeof(float)>>(value);
    buffers.emplace_back(bytes.begin(), bytes.end());
  }
  const Reduction sum{find_wire_format("f32"), ReduceOp::sum};
  all_reduce(fabric_, {Topology::direct, sum, options_.ranks, 1}, buffers);
  if (buffers.empty()) return 0.0;
  float total = 0.0F;
  from_wire(sum.wire, buffers.front(), 1.0F, {&total, 1});
  return static_cast<double>(total) / options_.ranks;
}

/// The ranks' gradients of one tensor, summed as `sum` and `scale` say.
RankBuffers GradientReducer::summed(const std::vector<std::span<float>>& gradients,
                                    std::size_t elements, Topology topology, const Reduction& sum,
                                    float scale, CollectiveCounts* counts) {
  RankBuffers buffers;
  for (const std::span<float> gradient : gradients) {
    buffers.emplace_back(elements * sum.wire.bytes);
    to_wire(sum.wire, gradient, scale, buffers.back(), sum.backend);
  }
  const CollectiveCounts done =
      all_reduce(fabric_, {topology, sum, options_.ranks, elements}, buffers);
  if (counts != nullptr) *counts = done;
  return buffers;
}

std::vector<float> GradientReducer::exact_mean(const std::vector<std::span<float>>& gradients,
                                               std::size_t elements) {
  const WireFormat& wire = find_wire_format("f32");
  const RankBuffers sums = summed(gradients, elements, Topology::direct, {wire}, 1.0F, nullptr);
  std::vector<float> mean(elements);
  if (!sums.empty()) from_wire(wire, sums.front(), 1.0F / mean_scale(1.0F, options_.ranks), mean);
  return mean;
}

void GradientReducer::note_loss(std::span<const float> exact, std::span<const float> got) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto e = static_cast<double>(exact[i]);
    const double difference = static_cast<double>(got[i]) - e;
    signal_.add(e * e);
    noise_.add(difference * difference);
    if (e != 0.0 && got[i] == 0.0F) ++underflowed_;
  }
  looked_at_ += got.size();
}

void GradientReducer::note_saturation(std::size_t tensor, std::span<const std::byte> codes) {
  const std::size_t count = count_saturated(options_.wire, codes);
  saturated_ += count;
  sums_ += codes.size();
  if (options_.scaling == GradientScaling::automatic)
    scalers_[tensor].update(static_cast<double>(count) / static_cast<double>(codes.size()));
}

void GradientReducer::set_scalers(const std::vector<AutoScaler>& scalers) {
  require(scalers.size() == scalers_.size(), "scalers", fmt::format("{}", scalers_.size()),
          fmt::format("{}", scalers.size()));
  scalers_ = scalers;
}

double GradientReducer::sqnr_db() const {
  return looked_at_ == 0 ? 0.0 : 10.0 * std::log10(signal_.total() / noise_.total());
}

double GradientReducer::underflow_percent() const {
  if (looked_at_ == 0) return 0.0;
  return 100.0 * static_cast<double>(underflowed_) / static_cast<double>(looked_at_);
}

double GradientReducer::saturated_percent() const {
  return sums_ == 0 ? 0.0 : 100.0 * static_cast<double>(saturated_) / static_cast<double>(sums_);
}

double GradientReducer::smallest_mu() const {
  if (scalers_.empty()) return 1.0;
  return std::ranges::min(scalers_, {}, &AutoScaler::mu).mu();
}

}  // namespace fp8lab::train

#include "data-parallel/workers.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <span>
#include <string>

#include "fp8-allreduce/loss.hpp"
#include "fp8lab/collectives/scales.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/metrics/sum.hpp"
#include "fp8lab/scaling/auto_scaling.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::array<std::string_view, 5> kScalings{"none", "pre", "post", "auto", "shipped"};

struct Scale {
  float cast = 1.0F;
  float inverse = 1.0F;  ///< what the sum is multiplied by to give the mean
};

Scale scale_for(const ParallelOptions& options, float amax, double mu) {
  if (options.scaling == GradientScaling::none)
    return {1.0F, 1.0F / mean_scale(1.0F, options.workers)};
  if (options.scaling == GradientScaling::shipped) {
    const ShippedScaling shipped = shipped_scaling(amax, options.workers);
    return {shipped.scale, shipped.inverse_scale};
  }
  float scale = scale_of(options.wire, amax);
  if (options.scaling == GradientScaling::pre) scale /= static_cast<float>(options.workers);
  if (options.scaling == GradientScaling::automatic) scale *= static_cast<float>(mu);
  return {scale, 1.0F / mean_scale(scale, options.workers)};
}

/// Elements at max finite in a tensor of FP8 codes.
std::size_t saturated(const WireFormat& wire, std::span<const std::byte> codes) {
  const auto largest = static_cast<std::byte>(format(wire.format).max_finite_code());
  return static_cast<std::size_t>(std::count_if(
      codes.begin(), codes.end(), [&](std::byte c) { return (c & std::byte{0x7f}) == largest; }));
}

/// What a reduction lost, over the steps that were looked at.
class Losses {
 public:
  void add(std::span<const float> exact, std::span<const float> got) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto e = static_cast<double>(exact[i]);
      const double difference = static_cast<double>(got[i]) - e;
      signal_.add(e * e);
      noise_.add(difference * difference);
      if (e != 0.0 && got[i] == 0.0F) ++underflowed_;
    }
    elements_ += got.size();
  }
  void store(ParallelRun& run) const {
    if (elements_ == 0) return;
    run.underflow_percent =
        100.0 * static_cast<double>(underflowed_) / static_cast<double>(elements_);
    run.sqnr_db = 10.0 * std::log10(signal_.total() / noise_.total());
  }

 private:
  PairwiseSum signal_;
  PairwiseSum noise_;
  std::size_t underflowed_ = 0;
  std::size_t elements_ = 0;
};

class Workers {
 public:
  Workers(Fabric& fabric, const StudySettings& settings, const Variant& variant,
          const ParallelOptions& options, std::uint64_t seed)
      : fabric_(fabric), options_(options), hosted_(fabric.hosted(options.workers)) {
    const auto data = training_data(settings, seed);
    // A process without ranks takes part in every operation and needs the shapes.
    for (int i = 0; i < std::max(1, hosted_.count); ++i)
      trainers_.push_back(
          std::make_unique<train::Trainer>(trainer_options(settings, variant, {}, seed), data));
    scalers_.assign(tensors().size(), AutoScaler(auto_scaling_options(AutoScaling::as_paper)));
  }

  /// The mean loss of step `step`, whose gradients are reduced and applied.
  double step(std::int64_t step, bool look) {
    std::vector<float> losses;
    for (int i = 0; i < hosted_.count; ++i)
      losses.push_back(static_cast<float>(
          trainer(i).compute_gradients(step * options_.workers + hosted_.first + i, {})));
    const double loss = mean_loss(losses);
    for (std::size_t tensor = 0; tensor < tensors().size(); ++tensor) reduce(tensor, look);
    for (int i = 0; i < hosted_.count; ++i) (void)trainer(i).apply_gradients(loss);
    return loss;
  }

  void store(ParallelRun& run) const {
    losses_.store(run);
    run.parameters = trainers_.front()->parameter_count();
    if (sums_ > 0)
      run.saturated_percent = 100.0 * static_cast<double>(saturated_) / static_cast<double>(sums_);
    for (const AutoScaler& scaler : scalers_)
      run.smallest_mu = std::min(run.smallest_mu, scaler.mu());
    run.bytes_per_step = static_cast<double>(bytes_) / static_cast<double>(run.losses.size());
  }

 private:
  train::Trainer& trainer(int i) { return *trainers_[static_cast<std::size_t>(i)]; }
  std::vector<train::Parameter<float>*> tensors() { return trainer(0).model().parameters(); }
  std::vector<float>& gradient(int i, std::size_t tensor) {
    return trainer(i).model().parameters()[tensor]->gradient;
  }

  /// One binary32 sum in rank order.
  double mean_loss(const std::vector<float>& losses) {
    RankBuffers buffers;
    for (const float loss : losses) {
      const auto bytes = std::bit_cast<std::array<std::byte, sizeof(float)>>(loss);
      buffers.emplace_back(bytes.begin(), bytes.end());
    }
    const Reduction sum{find_wire_format("f32"), ReduceOp::sum};
    all_reduce(fabric_, {Topology::direct, sum, options_.workers, 1}, buffers);
    if (buffers.empty()) return 0.0;
    float total = 0.0F;
    from_wire(sum.wire, buffers.front(), 1.0F, {&total, 1});
    return static_cast<double>(total) / options_.workers;
  }

  /// The workers' gradients of one tensor, summed on `wire` as `scale` says.
  RankBuffers summed(std::size_t tensor, Topology topology, const WireFormat& wire, float scale,
                     CollectiveCounts* counts) {
    const std::size_t elements = tensors()[tensor]->value.size();
    RankBuffers buffers;
    for (int i = 0; i < hosted_.count; ++i) {
      buffers.emplace_back(elements * wire.bytes);
      to_wire(wire, gradient(i, tensor), scale, buffers.back());
    }
    const CollectiveCounts done =
        all_reduce(fabric_, {topology, {wire, ReduceOp::sum}, options_.workers, elements}, buffers);
    if (counts != nullptr) *counts = done;
    return buffers;
  }

  std::vector<float> exact_mean(std::size_t tensor) {
    const WireFormat& wire = find_wire_format("f32");
    const RankBuffers sums = summed(tensor, Topology::direct, wire, 1.0F, nullptr);
    std::vector<float> mean(tensors()[tensor]->value.size());
    if (!sums.empty())
      from_wire(wire, sums.front(), 1.0F / mean_scale(1.0F, options_.workers), mean);
    return mean;
  }

  void reduce(std::size_t tensor, bool look) {
    std::vector<float> exact;
    if (look) exact = exact_mean(tensor);
    Scale scale = scale_for(options_, 0.0F, 1.0);
    if (options_.scaling != GradientScaling::none) {
      const float largest =
          all_reduce_max(fabric_, options_.topology, options_.workers,
                         hosted_amaxes(fabric_, options_.workers, [&](int rank) {
                           return std::span<const float>(gradient(rank - hosted_.first, tensor));
                         }));
      scale = scale_for(options_, largest, scalers_[tensor].mu());
    }
    CollectiveCounts counts;
    const RankBuffers sums = summed(tensor, options_.topology, options_.wire, scale.cast, &counts);
    bytes_ += counts.busiest_bytes;
    for (int i = 0; i < hosted_.count; ++i)
      from_wire(options_.wire, sums[static_cast<std::size_t>(i)], scale.inverse,
                gradient(i, tensor));
    if (sums.empty()) return;
    if (look) losses_.add(exact, gradient(0, tensor));
    if (options_.wire.bytes == 1) note_saturation(tensor, sums.front());
  }

  void note_saturation(std::size_t tensor, std::span<const std::byte> codes) {
    const std::size_t count = saturated(options_.wire, codes);
    saturated_ += count;
    sums_ += codes.size();
    if (options_.scaling == GradientScaling::automatic)
      scalers_[tensor].update(static_cast<double>(count) / static_cast<double>(codes.size()));
  }

  Fabric& fabric_;
  ParallelOptions options_;
  RankSpan hosted_;
  std::vector<std::unique_ptr<train::Trainer>> trainers_;  ///< one a hosted rank
  std::vector<AutoScaler> scalers_;                        ///< one a tensor
  Losses losses_;
  std::uint64_t bytes_ = 0;
  std::size_t saturated_ = 0;
  std::size_t sums_ = 0;
};

}  // namespace

std::string_view to_string(GradientScaling scaling) {
  return kScalings[static_cast<std::size_t>(scaling)];
}

GradientScaling find_gradient_scaling(std::string_view name) {
  for (std::size_t i = 1; i < kScalings.size(); ++i)
    if (kScalings[i] == name) return static_cast<GradientScaling>(i);
  throw Error("scalings", "pre, post, auto or shipped", "'" + std::string(name) + "'");
}

ParallelRun train_parallel(Fabric& fabric, const StudySettings& settings, const Variant& variant,
                           const ParallelOptions& options, std::uint64_t seed) {
  Workers workers(fabric, settings, variant, options, seed);
  ParallelRun run;
  const std::int64_t every = std::max<std::int64_t>(
      1, settings.schedule.steps / std::max<std::int64_t>(1, settings.samples));
  for (std::int64_t step = 0; step < settings.schedule.steps; ++step)
    run.losses.push_back(workers.step(step, step % every == every - 1));
  workers.store(run);
  return run;
}

}  // namespace fp8lab::experiments

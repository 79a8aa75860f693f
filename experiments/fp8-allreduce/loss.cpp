#include "fp8-allreduce/loss.hpp"

#include <cmath>

#include "fp8lab/metrics/comparison.hpp"
#include "fp8lab/scaling/scale_rule.hpp"

namespace fp8lab::experiments {

Loss loss_of(std::span<const double> reference, std::span<const float> got) {
  const Comparison difference = compare(reference, got);
  Loss loss{difference.relative_l2, difference.sqnr_db, 0.0};
  std::size_t lost = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (reference[i] != 0.0 && got[i] == 0.0F) ++lost;
  loss.underflow_percent = 100.0 * static_cast<double>(lost) / static_cast<double>(got.size());
  return loss;
}

float scale_of(const WireFormat& wire, float amax) {
  return tile_scale({.format = wire.format}, amax).scale;
}

std::vector<float> hosted_copies(const Fabric& fabric, int ranks, float value) {
  return std::vector<float>(static_cast<std::size_t>(fabric.hosted(ranks).count), value);
}

std::vector<float> hosted_amaxes(const Fabric& fabric, int ranks,
                                 const std::function<std::span<const float>(int)>& values_of) {
  const RankSpan hosted = fabric.hosted(ranks);
  std::vector<float> amaxes;
  for (int rank = hosted.first; rank < hosted.first + hosted.count; ++rank)
    amaxes.push_back(amax(values_of(rank), true));
  return amaxes;
}

std::vector<float> first_off(const Fabric& fabric, int ranks, float value, double octaves) {
  std::vector<float> values = hosted_copies(fabric, ranks, value);
  if (!values.empty() && fabric.hosted(ranks).first == 0)
    values.front() = static_cast<float>(static_cast<double>(value) * std::exp2(octaves));
  return values;
}

}  // namespace fp8lab::experiments

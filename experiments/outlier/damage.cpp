#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "common/quantize.hpp"
#include "common/tensors.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "outlier/outlier.hpp"

namespace fp8lab::experiments {

std::vector<float> make_outlier_tensor(const RandomStream& random, const OutlierTensor& shape) {
  require(shape.outlier_index < shape.elements, "outlier_index",
          fmt::format("below {} elements", shape.elements), fmt::format("{}", shape.outlier_index));
  std::vector<float> x;
  if (shape.bulk == nullptr) {
    x = normal(random, shape.elements, shape.sigma);
  } else {
    x = shape.bulk->draw(random, 1, shape.elements);
    normalize_rms(x, shape.sigma);
  }
  x[shape.outlier_index] = static_cast<float>(shape.outlier);
  if (shape.round_to_bf16)
    for (float& v : x) v = static_cast<float>(round_trip(format(FormatId::bf16), kNvidiaNosat, v));
  return x;
}

OutlierDamage measure_damage(std::span<const float> x, std::size_t outlier_index, std::size_t tile,
                             const Format& f, const CastPolicy& policy, const Backend& backend) {
  const Quantized q = quantize(x, tile, f, policy, backend);
  const double bound = std::ldexp(1.0, -(f.mantissa_bits + 1));
  std::vector<float> bulk;
  std::vector<float> bulk_hat;
  OutlierDamage damage;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i == outlier_index) continue;
    bulk.push_back(x[i]);
    bulk_hat.push_back(q.values[i]);
    const double error = std::abs(static_cast<double>(q.values[i]) - static_cast<double>(x[i]));
    if (x[i] != 0.0F && q.scaled[i] == 0.0F) damage.crushed += 1.0;
    if (error > bound * std::abs(static_cast<double>(x[i]))) damage.damaged += 1.0;
  }
  if (!bulk.empty()) damage.crushed_share = damage.crushed / static_cast<double>(bulk.size());
  damage.bulk_relative_l2 =
      compare(std::span<const float>(bulk), std::span<const float>(bulk_hat)).relative_l2;
  damage.whole_relative_l2 = compare(x, std::span<const float>(q.values)).relative_l2;
  return damage;
}

OutlierSpread repeat_damage(const RandomStream& random, const OutlierTensor& shape,
                            std::size_t repeats, std::size_t tile, const Format& f,
                            const CastPolicy& policy, const Backend& backend) {
  std::vector<double> bulk, whole, share, crushed, damaged;
  std::vector<OutlierDamage> all;
  for (std::size_t repeat = 0; repeat < repeats; ++repeat) {
    const RandomStream draws(random.bits64(repeat), repeat);
    const OutlierDamage d = measure_damage(make_outlier_tensor(draws, shape), shape.outlier_index,
                                           tile, f, policy, backend);
    bulk.push_back(d.bulk_relative_l2);
    whole.push_back(d.whole_relative_l2);
    share.push_back(d.crushed_share);
    crushed.push_back(d.crushed);
    damaged.push_back(d.damaged);
    all.push_back(d);
  }
  return {spread_of(bulk),    spread_of(whole),   spread_of(share),
          spread_of(crushed), spread_of(damaged), std::move(all)};
}

}  // namespace fp8lab::experiments

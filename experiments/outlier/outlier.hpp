#pragma once
// What one outlier does to the other elements of its tensor. Claims F2, F2a,
// L3 and L5 take their figures here.

#include <cstddef>
#include <span>
#include <vector>

#include "common/spread.hpp"
#include "common/tensor_source.hpp"
#include "fp8lab/cast/policy.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/gemm/backend.hpp"

namespace fp8lab::experiments {

/// A bulk of N(0, sigma^2) and one element of another size.
struct OutlierTensor {
  std::size_t elements = 16384;
  double sigma = 0.4;
  double outlier = 1000.0;
  std::size_t outlier_index = 8192;
  bool round_to_bf16 = false;  ///< as activations arrive in practice
  /// In place of N(0, sigma^2), with a root mean square of sigma; null: none.
  const TensorSource* bulk = nullptr;
};

/// Throws `Error` if the index is outside the tensor.
std::vector<float> make_outlier_tensor(const RandomStream& random, const OutlierTensor& shape);

/// The damage of an amax-scaled cast. The bulk is every element but the outlier.
struct OutlierDamage {
  double bulk_relative_l2 = 0.0;
  double whole_relative_l2 = 0.0;  ///< with the outlier, whose norm hides the rest
  double crushed_share = 0.0;      ///< share of the bulk that became zero, 0 to 1
  double crushed = 0.0;            ///< how many that is
  double damaged = 0.0;  ///< bulk elements off by more than the format's 2^-(mantissa_bits + 1)
};

/// Casts x with one scale for each `tile` elements (0: one for all).
OutlierDamage measure_damage(std::span<const float> x, std::size_t outlier_index, std::size_t tile,
                             const Format& f, const CastPolicy& policy,
                             const Backend& backend = {});

/// The same over `repeats` tensors drawn from (seed, stream, repeat).
struct OutlierSpread {
  Spread bulk_relative_l2, whole_relative_l2, crushed_share, crushed, damaged;
  std::vector<OutlierDamage> draws;
};
OutlierSpread repeat_damage(const RandomStream& random, const OutlierTensor& shape,
                            std::size_t repeats, std::size_t tile, const Format& f,
                            const CastPolicy& policy, const Backend& backend = {});

}  // namespace fp8lab::experiments

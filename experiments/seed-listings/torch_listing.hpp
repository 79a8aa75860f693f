#pragma once
// The PyTorch listing of the naive-FP8 tutorial: a BF16 activation tensor [64, 1024] with one
// outlier, cast to E4M3 per row and per 128-tile, and per tensor. The draws are
// our own, so the distribution is the listing's and the bits are not.

#include <cstdint>

#include "fp8lab/core/random.hpp"

namespace fp8lab::experiments {

/// Relative L2 errors of one round trip, over the whole tensor (what the listing
/// prints) and over the elements other than the outlier.
struct TorchListing {
  double per_tile = 0.0;
  double per_tensor = 0.0;
  double per_tile_bulk = 0.0;
  double per_tensor_bulk = 0.0;

  [[nodiscard]] double ratio() const { return per_tensor / per_tile; }
  [[nodiscard]] double bulk_ratio() const { return per_tensor_bulk / per_tile_bulk; }
};

/// Repeat number `repeat` of the listing on draws of `stream`; `outlier` is the
/// value put at (0, 511), 200 in the listing, rounded to BF16 as there.
TorchListing run_torch_listing(const RandomStream& stream, std::uint64_t repeat,
                               float outlier = 200.0F);

}  // namespace fp8lab::experiments

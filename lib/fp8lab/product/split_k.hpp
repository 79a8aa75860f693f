#pragma once
// Split-K and stream-K kernels sum K in separate parts. The cut of K and the order in which the
// parts are added decide bits.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace fp8lab {

struct Product;

/// The tiles of K that belong to a part.
enum class SplitCut : std::uint8_t {
  contiguous,  ///< ceil(tiles / parts) tiles in a row
  modulo,      ///< the tiles t with t mod parts equal to the number of the part
};
/// The order in which the FP32 sums of the parts are added, to nearest even.
enum class SplitOrder : std::uint8_t {
  serial,    ///< ((p0 + p1) + p2) + ...
  pairwise,  ///< cuBLASLt on Ada: p[i] += p[i + half] (except the last), then last, p[0], p[1]
             ///< ...
  tree,      ///< neighbours, then neighbouring sums: (p0 + p1) + (p2 + p3)
};
std::string_view to_string(SplitCut cut);
std::string_view to_string(SplitOrder order);
/// The value called `name`. Both throw `Error` that lists the names.
SplitCut find_split_cut(std::string_view name);
SplitOrder find_split_order(std::string_view name);

/// Each part is promoted and scaled like the whole. Scales of the whole sum, C in the epilogue and
/// the epilogue itself are applied to the sum of the parts. C in the accumulator or in the promoted
/// sum enters the first part.
struct SplitK {
  int parts = 1;  ///< 1: K is not split
  /// Terms in a tile. 0: the promotion interval, or the terms of an instruction without promotion.
  std::int64_t tile = 0;
  SplitCut cut = SplitCut::contiguous;
  SplitOrder order = SplitOrder::serial;

  friend bool operator==(const SplitK&, const SplitK&) = default;
};

/// Throws `Error` for fewer parts than 1 or more parts than tiles, tiles that do not fit the
/// scales along K, and an instruction that applies scales itself.
void validate_split(const Product& product);

/// The terms in a tile, also if `SplitK::tile` is 0.
std::int64_t split_tile(const Product& product);

/// The parts as separate products, without scales of the whole sum and epilogue; only the first has
/// C. A part without tiles is left out.
std::vector<Product> split_parts(const Product& product);

/// Adds the parts in the given order, in FP32.
std::vector<float> add_up(std::vector<std::vector<float>> parts, SplitOrder order);

}  // namespace fp8lab

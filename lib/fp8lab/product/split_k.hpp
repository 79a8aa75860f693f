#pragma once
// K in parts that are summed alone: split-K and stream-K kernels. How K is cut and in which order
// the parts are added decides bits.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace fp8lab {

struct Product;

/// Which tiles of K a part owns.
enum class SplitCut : std::uint8_t {
  contiguous,  ///< ceil(tiles / parts) tiles in a row
  modulo,      ///< every tile whose number leaves the part's number as a remainder
};
/// In which order the parts' FP32 sums are added, nearest even.
enum class SplitOrder : std::uint8_t {
  serial,    ///< ((p0 + p1) + p2) + ...
  pairwise,  ///< cuBLASLt's on Ada: p[i] += p[i + half] (but for the last), then last, p[0], p[1]
             ///< ...
  tree,      ///< neighbours, then neighbours of these: (p0 + p1) + (p2 + p3)
};
std::string_view to_string(SplitCut cut);
std::string_view to_string(SplitOrder order);
/// Throw `Error` that lists them.
SplitCut find_split_cut(std::string_view name);
SplitOrder find_split_order(std::string_view name);

/// Each part is promoted and scaled as the whole would be. Scales of the whole sum, C in the
/// epilogue and the epilogue itself come after the parts' sum; C in the accumulator or in the
/// promoted sum enters the first part.
struct SplitK {
  int parts = 1;  ///< 1: K is whole
  /// Terms of a tile. 0: the promotion interval, or else the terms of an instruction.
  std::int64_t tile = 0;
  SplitCut cut = SplitCut::contiguous;
  SplitOrder order = SplitOrder::serial;

  friend bool operator==(const SplitK&, const SplitK&) = default;
};

/// Throws `Error` for fewer parts than 1 or more than tiles, tiles that scales along K do
/// not fit, and an instruction that applies scales itself.
void validate_split(const Product& product);

/// The tile that 0 stands for.
std::int64_t split_tile(const Product& product);

/// The parts as products of their own: no scales of the whole sum, no C but the first one's, no
/// epilogue. A part that owns no tile is left out.
std::vector<Product> split_parts(const Product& product);

/// The whole sum, before scales of it, C in the epilogue and the epilogue are applied.
std::vector<float> sum_of_parts(const Product& product, int threads);

/// Adds the parts up in their order.
std::vector<float> add_up(std::vector<std::vector<float>> parts, SplitOrder order);

}  // namespace fp8lab

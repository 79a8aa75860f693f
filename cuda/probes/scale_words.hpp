#pragma once
// Block scales of a tile as instructions take them: a word for each row of A and of B.

#include <cstddef>
#include <cstdint>

#include "tiles.hpp"

namespace fp8lab::cuda {

/// kScales: how many scales a row has in one instruction, 1, 2 or 4, the first in the low byte of
/// the word.
template <int kScales>
class ScaleWords {
 public:
  /// `arguments`: of the batch.
  FP8LAB_HD ScaleWords(const TileArguments& arguments, std::size_t tile)
      : row_scales_(arguments.steps * kScales),
        a_(arguments.scale_a + tile * kTile * static_cast<std::size_t>(row_scales_)),
        b_(arguments.scale_b + tile * kTile * static_cast<std::size_t>(row_scales_)) {}

  [[nodiscard]] FP8LAB_HD std::uint32_t of_a(int row, int step) const {
    return word(a_, row, step);
  }
  [[nodiscard]] FP8LAB_HD std::uint32_t of_b(int row, int step) const {
    return word(b_, row, step);
  }

 private:
  [[nodiscard]] FP8LAB_HD std::uint32_t word(const std::uint8_t* scales, int row, int step) const {
    std::uint32_t bytes = 0;
    for (int i = 0; i < kScales; ++i)
      bytes |= static_cast<std::uint32_t>(scales[row * row_scales_ + step * kScales + i])
               << (8 * i);
    return bytes;
  }

  int row_scales_;
  const std::uint8_t* a_;
  const std::uint8_t* b_;
};

}  // namespace fp8lab::cuda

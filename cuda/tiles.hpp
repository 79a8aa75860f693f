#pragma once
// Batches of 64 x 64 outputs, the unit in which instructions are probed: 64
// cases give 64 rows of A and of B, and every pairing of them is an output. The
// diagonal holds the cases as they were built.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/vectors/vectors.hpp"
#include "host_device.hpp"
#include "layout.hpp"

namespace fp8lab::cuda {

inline constexpr int kTile = 64;
inline constexpr int kTileOutputs = kTile * kTile;

/// Which case's c output (row, column) of a tile starts from.
FP8LAB_HD constexpr int case_of_c(int row, int column) {
  return row == column ? row : (row + column) % kTile;
}

/// A batch in memory, as a probe's kernel takes it: a, b [tiles, 64, steps * 32] bytes; c
/// [tiles, 64], used as case_of_c says; d [tiles, 64, 64].
struct TileArguments {
  const std::uint8_t* a = nullptr;
  const std::uint8_t* b = nullptr;
  const float* c = nullptr;
  float* d = nullptr;
  int steps = 1;
  /// Codes of block scales, [tiles, 64, steps * scales a step]; null for instructions without.
  const std::uint8_t* scale_a = nullptr;
  const std::uint8_t* scale_b = nullptr;

  /// The same of one tile of instructions without scales.
  [[nodiscard]] FP8LAB_HD TileArguments of_tile(std::size_t tile) const {
    TileArguments one = *this;
    const std::size_t bytes =
        static_cast<std::size_t>(kTile) * static_cast<std::size_t>(steps) * kStepBytes;
    one.a += tile * bytes;
    one.b += tile * bytes;
    one.c += tile * kTile;
    one.d += tile * kTileOutputs;
    return one;
  }
};

/// Operands of a batch as the device reads them: bytes of A and B [tiles * 64,
/// steps * 32], c [tiles * 64].
struct TileBatch {
  int tiles = 0;
  int steps = 0;  ///< instructions chained along K, each of kStepBytes of a row
  std::vector<std::uint8_t> a;
  std::vector<std::uint8_t> b;
  std::vector<float> c;
  std::vector<std::uint8_t> scale_a = {};  ///< [tiles * 64, steps * scales a step]; often empty
  std::vector<std::uint8_t> scale_b = {};
};

/// Packs a multiple of 64 cases, each of as many terms as `steps` instructions take.
TileBatch pack_tiles(std::span<const VectorCase> cases, FormatId a, FormatId b, int steps);

/// The inputs of one output of the batch that `cases` were packed into.
VectorCase case_of_output(std::span<const VectorCase> cases, std::size_t output);

}  // namespace fp8lab::cuda

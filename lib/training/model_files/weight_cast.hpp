#pragma once
// Conversion of one weight of a file to codes and scales, and back, part by part: as binary32 the
// weight would have two or four times the size of the file, and not fit into a cache.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/scaling/quantize.hpp"
#include "fp8lab/scaling/two_level.hpp"
#include "fp8lab/tensors/tensor.hpp"

namespace fp8lab {

struct QuantizedWeight {
  std::vector<float> inverse_scales;      ///< of the recipe's tiles, row-major
  std::vector<std::uint8_t> scale_codes;  ///< the same as E8M0 or UE4M3, where the recipe has those
  TensorScale tensor;                     ///< the upper one of two levels
  std::int64_t nan_codes = 0;             ///< elements and scales
};

/// Receives codes [`first`, `first` + their number) of a row-major [rows, k], one per byte. Parts
/// are whole rows, in any order, from several threads at once.
using TakeCodes = std::function<void(std::int64_t first, std::span<const std::uint8_t> codes)>;

/// Releases the memory of a part of a tensor that was read for the last time.
using ReleasePart = std::function<void(std::span<const std::byte>)>;

/// Quantizes `weight` ([rows, k]; F32, F16 or BF16) with the bits of
/// `quantize(recipe, to_float(weight))`. The tiles of `recipe` are the whole tensor or have all
/// their rows in a block of rows. `known_amax` replaces the amax of the tensor if several tensors
/// share a tensor scale; only recipes with a tensor scale use it. Throws `Error` as `quantize`, and
/// what `take` throws.
QuantizedWeight quantize_weight(const Recipe& recipe, const TensorView& weight,
                                const TakeCodes& take, const ReleasePart& release,
                                std::optional<float> known_amax = {});

/// The largest magnitude of a weight, as the recipe's rule computes it.
float weight_amax(const Recipe& recipe, const TensorView& weight);

/// Codes [rows, k] (FP8, FP6 or FP4, one per byte) and their inverse scales: scale (r / row_block,
/// c / k_block) of a row-major [ceil(rows / row_block), ceil(k / k_block)].
struct ScaledCodes {
  TensorView codes;
  std::span<const float> inverse_scales;
  std::int64_t row_block = 1;
  std::int64_t k_block = 1;
};

/// How many values are not finite.
struct NonFiniteValues {
  std::int64_t nan = 0;
  std::int64_t infinite = 0;
};

/// Receives the bytes of values [`first`, ...) of a row-major [rows, k]. Parts are whole rows, in
/// any order, from several threads at once.
using TakeValues = std::function<void(std::int64_t first, std::span<const std::byte> bytes)>;

/// As `dequantize_weight`, part by part. Codes may be packed: their type says so then.
NonFiniteValues dequantize_parts(const ScaledCodes& weight, ElementType type,
                                 const TakeValues& take, const ReleasePart& release);

/// Writes code * scale, a binary32 product to nearest even, rounded once more to `type` (F32, F16
/// or BF16, to nearest even; overflow gives Inf). `bytes` holds rows * k elements. Throws `Error`
/// for another type and for sizes that disagree. Returns how many of the results are not finite.
NonFiniteValues dequantize_weight(const ScaledCodes& weight, ElementType type,
                                  std::span<std::byte> bytes);

}  // namespace fp8lab

#pragma once
// K and V as caches hold them between the steps of a decoder.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fp8lab/attention/report.hpp"

namespace fp8lab {

/// What the scales of a cache follow.
enum class CacheScale : std::uint8_t {
  head,    ///< the amax of each head
  tensor,  ///< the largest amax, for all heads
  one,     ///< nothing: all are 1, as where a checkpoint has no scales of K and V
  block,   ///< the amax of 16 columns, over that of the tensor: NVFP4, read as `format`
};

struct CacheRule {
  std::string_view name;
  FormatId format;
  CacheScale scale;
  std::string_view source;
};

/// All rules; `e4m3.head` has the same bits as `quantize_heads`.
std::span<const CacheRule> cache_rules();
/// The rule called `name`. Throws `Error` that lists the names.
const CacheRule& find_cache_rule(std::string_view name);

/// Floats [heads, rows, columns] as a cache holds them. The inverse scale is the amax over the
/// format's largest number, and 1 for an amax of 0; a code is the value over it in binary32, cast
/// to nearest even, saturating.
///
/// `calibrated`: inverse scales of other tensors, one or one for each head, in the place of those
/// of these values; larger values saturate. NVFP4 has none. Its values are E2M1 codes with UE4M3
/// scales of 16 columns and the tensor's amax / 2688 (`nvfp4` of the recipes); a kernel reads them
/// cast to E4M3 under the tensor's amax / 448 (*assumed*). Throws `Error` if sizes differ, or for
/// an amax or a scale that is not finite.
AttentionTensor cached_tensor(std::vector<float> values, std::int64_t heads, std::int64_t rows,
                              std::int64_t columns, const CacheRule& rule,
                              std::span<const float> calibrated = {});

/// Elements and bytes of a row of DeepSeek-V3.2's latent cache: 512 elements without position as
/// E4M3, 4 binary32 inverse scales of 128 of them each, and 64 elements with position as BF16, in
/// this order, little endian.
inline constexpr std::string_view kDeepSeekCache = "deepseek-v3.2";  ///< no rule: rows of bytes
inline constexpr std::int64_t kDeepSeekRowElements = 576;
inline constexpr std::int64_t kDeepSeekRowValues = 512;  ///< the first of them, which are V too
inline constexpr std::int64_t kDeepSeekRowBytes = 656;

/// Rows of 576 floats, each rounded to BF16 first, as such rows. An inverse scale is the smallest
/// power of two that is at least max(amax / 448, 1e-4), and a code the value over it, cast to
/// nearest even. Read in FlashMLA's `tests/quant.py` (520fec6a, V32_FP8Sparse); NaN is not
/// specified there and is refused, and so are infinities. Throws `Error` for another number of
/// values.
std::vector<std::uint8_t> pack_deepseek_rows(std::span<const float> values);

/// The values of such rows [rows, 576]: code times inverse scale, rounded to BF16, and the BF16
/// elements. Throws `Error` for a number of bytes that is no multiple of 656.
std::vector<float> read_deepseek_rows(std::span<const std::uint8_t> bytes);

}  // namespace fp8lab

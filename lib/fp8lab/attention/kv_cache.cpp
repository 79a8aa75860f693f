#include "fp8lab/attention/kv_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/argument.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "fp8lab/scaling/quantize.hpp"

namespace fp8lab {
namespace {

constexpr std::int64_t kPlain = 512;   ///< elements without position
constexpr std::int64_t kScaled = 128;  ///< of one scale

float amax_of(std::span<const float> values) {
  float largest = 0.0F;
  for (const float value : values) {
    if (!std::isfinite(value)) throw Error("values", "finite numbers", fmt::format("{}", value));
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

std::uint8_t code_of(const Format& f, float value) {
  return static_cast<std::uint8_t>(encode(f, kNvidiaSatfinite, value));
}

float bf16_of(float value) {
  return static_cast<float>(round_trip(format(FormatId::bf16), kNvidiaNosat, value));
}

/// The smallest power of two that is not below x, of a normal number.
float power_of_two_from(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  constexpr std::uint32_t kMantissa = (1U << 23) - 1;
  return std::bit_cast<float>((bits + kMantissa) & ~kMantissa);
}

void append(std::vector<std::uint8_t>& to, std::uint32_t word, int bytes) {
  for (int i = 0; i < bytes; ++i) to.push_back(static_cast<std::uint8_t>(word >> (8 * i)));
}

std::uint32_t word_at(std::span<const std::uint8_t> from, std::size_t at, int bytes) {
  std::uint32_t word = 0;
  for (int i = 0; i < bytes; ++i)
    word |= std::uint32_t{from[at + static_cast<std::size_t>(i)]} << (8 * i);
  return word;
}

}  // namespace

std::span<const CacheRule> cache_rules() {
  using enum CacheScale;
  constexpr std::string_view kTensor =
      "vLLM's and SGLang's kv_cache_dtype fp8: k_scale and v_scale of a layer";
  constexpr std::string_view kHead = "FlashAttention-3's and 4's descales, one per head of K";
  constexpr std::string_view kOne =
      "the scale that vLLM and SGLang use where a checkpoint has none";
  constexpr std::string_view kNvfp4 =
      "TensorRT-LLM's NVFP4 cache: blocks of 16 with UE4M3 scales, read as FP8; the scale of what "
      "is read is assumed";
  static const std::array<CacheRule, 7> kRules{{{"e4m3.head", FormatId::e4m3fn, head, kHead},
                                                {"e4m3.tensor", FormatId::e4m3fn, tensor, kTensor},
                                                {"e4m3.one", FormatId::e4m3fn, one, kOne},
                                                {"e5m2.head", FormatId::e5m2, head, kHead},
                                                {"e5m2.tensor", FormatId::e5m2, tensor, kTensor},
                                                {"e5m2.one", FormatId::e5m2, one, kOne},
                                                {"nvfp4", FormatId::e4m3fn, block, kNvfp4}}};
  return kRules;
}

const CacheRule& find_cache_rule(std::string_view name) {
  return find_named(cache_rules(), argument("kv_cache"), name);
}

namespace {

/// The values that an NVFP4 cache holds. One thread: the casts cost little beside the attention.
std::vector<float> through_nvfp4(const std::vector<float>& values, std::int64_t columns) {
  return dequantize(quantize(find_preset("nvfp4").activation,
                             FloatMatrix{values, std::ssize(values) / columns, columns}, false, 1));
}

void check_calibrated(std::span<const float> calibrated, std::int64_t heads,
                      const CacheRule& rule) {
  if (calibrated.empty()) return;
  require(rule.scale != CacheScale::block, "calibrated", "no scales with nvfp4, which has its own",
          counted(calibrated.size(), "value"));
  require(calibrated.size() == 1 || std::ssize(calibrated) == heads, "calibrated",
          fmt::format("1 or {} inverse scales", heads), counted(calibrated.size(), "value"));
  for (const float scale : calibrated)
    require(std::isfinite(scale) && scale > 0.0F, "calibrated", "finite scales above 0",
            fmt::format("{}", scale));
}

}  // namespace

AttentionTensor cached_tensor(std::vector<float> values, std::int64_t heads, std::int64_t rows,
                              std::int64_t columns, const CacheRule& rule,
                              std::span<const float> calibrated) {
  const FloatEnvironment environment;
  check_calibrated(calibrated, heads, rule);
  if (rule.format == FormatId::e4m3fn && rule.scale == CacheScale::head && calibrated.empty())
    return attention_tensor(std::move(values), heads, rows, columns);
  require(heads > 0 && static_cast<std::int64_t>(values.size()) == heads * rows * columns, "values",
          fmt::format("[{}, {}, {}] values", heads, rows, columns),
          fmt::format("{}", values.size()));
  const Format& f = format(rule.format);
  const auto size = static_cast<std::size_t>(rows * columns);
  QuantizedHeads made{heads, rows, columns, {}, {}, rule.format};
  const float of_tensor = amax_of(values);
  const std::vector<float> held =
      rule.scale == CacheScale::block ? through_nvfp4(values, columns) : values;
  for (std::size_t head = 0; head < static_cast<std::size_t>(heads); ++head) {
    const auto own = std::span(held).subspan(head * size, size);
    const float amax = rule.scale == CacheScale::head ? amax_of(own) : of_tensor;
    float inverse = rule.scale == CacheScale::one || amax == 0.0F
                        ? 1.0F
                        : amax / static_cast<float>(f.max_finite());
    if (!calibrated.empty()) inverse = calibrated[calibrated.size() == 1 ? 0 : head];
    made.inverse_scales.push_back(inverse);
    for (const float value : own) made.codes.push_back(code_of(f, value / inverse));
  }
  const auto owned = std::make_shared<const QuantizedHeads>(std::move(made));
  return {owned->operand(), std::move(values), owned};
}

std::vector<std::uint8_t> pack_deepseek_rows(std::span<const float> values) {
  const FloatEnvironment environment;
  require(!values.empty() && values.size() % kDeepSeekRowElements == 0, "values",
          fmt::format("rows of {} values", kDeepSeekRowElements), counted(values.size(), "value"));
  const Format& f = format(FormatId::e4m3fn);
  std::vector<std::uint8_t> bytes;
  for (std::size_t first = 0; first < values.size(); first += kDeepSeekRowElements) {
    std::vector<float> row(kDeepSeekRowElements);
    std::ranges::transform(values.subspan(first, kDeepSeekRowElements), row.begin(), bf16_of);
    std::array<float, kPlain / kScaled> inverse{};
    for (std::size_t i = 0; i < static_cast<std::size_t>(kPlain); ++i) {
      float& own = inverse[i / kScaled];
      if (i % kScaled == 0)
        own = power_of_two_from(
            std::max(amax_of(std::span(row).subspan(i, kScaled)) / 448.0F, 1e-4F));
      bytes.push_back(code_of(f, row[i] / own));
    }
    for (const float one : inverse) append(bytes, std::bit_cast<std::uint32_t>(one), 4);
    (void)amax_of(std::span(row).subspan(kPlain));
    for (const float value : std::span(row).subspan(kPlain))
      append(bytes, std::bit_cast<std::uint32_t>(value) >> 16, 2);
  }
  return bytes;
}

std::vector<float> read_deepseek_rows(std::span<const std::uint8_t> bytes) {
  const FloatEnvironment environment;
  require(!bytes.empty() && bytes.size() % kDeepSeekRowBytes == 0, "bytes",
          fmt::format("rows of {} bytes", kDeepSeekRowBytes), counted(bytes.size(), "byte"));
  const std::span<const float> table = decode_table(FormatId::e4m3fn);
  std::vector<float> values;
  for (std::size_t first = 0; first < bytes.size(); first += kDeepSeekRowBytes) {
    const auto row = bytes.subspan(first, kDeepSeekRowBytes);
    for (std::size_t i = 0; i < static_cast<std::size_t>(kPlain); ++i) {
      const auto scale = std::bit_cast<float>(word_at(row, kPlain + i / kScaled * 4, 4));
      values.push_back(bf16_of(table[row[i]] * scale));
    }
    for (std::size_t at = kPlain + 16; at < kDeepSeekRowBytes; at += 2)
      values.push_back(std::bit_cast<float>(word_at(row, at, 2) << 16));
  }
  return values;
}

}  // namespace fp8lab

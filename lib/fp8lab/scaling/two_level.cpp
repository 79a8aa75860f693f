#include "fp8lab/scaling/two_level.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/parallel.hpp"
#include "fp8lab/scaling/tile_kernels.hpp"

namespace fp8lab {
namespace {

constexpr float kElementMax = 6.0F;  // of E2M1
constexpr float kFloatMax = std::numeric_limits<float>::max();

/// Nearest even, at most 448; NaN is 0x7f.
std::uint8_t ue4m3_code(float x) {
  return static_cast<std::uint8_t>(encode(format(FormatId::e4m3fn), kNvidiaSatfinite, x) & 0x7fU);
}

float ue4m3_value(std::uint8_t code) { return decode_table(FormatId::e4m3fn)[code]; }

/// At least `low` and at most 448; NaN stays.
float clamped(float x, float low) { return x < low ? low : std::min(x, 448.0F); }

bool is_compressed(ScaleRule rule) {
  return rule == ScaleRule::compressed_nvfp4 || rule == ScaleRule::compressed_nvfp4_bf16;
}

/// What the tensor's amax is brought to.
float most(ScaleRule rule) { return traits(rule).tile_bound * kElementMax; }

/// The reciprocal that GPUs approximate, rounded to nearest.
float flushed_reciprocal(float x) {
  const auto flushed = [](float y) { return std::abs(y) < 0x1p-126F ? std::copysign(0.0F, y) : y; };
  return flushed(1.0F / flushed(x));
}

/// compressed-tensors in the tensor's type. PyTorch divides a number by a tensor as number * (1 /
/// tensor).
float compressed_tensor_scale(ScaleRule rule, float amax) {
  const auto typed = [&](float x) { return takes_bf16(rule) ? rounded_to_bf16(x) : x; };
  amax = typed(amax);
  const float quotient = typed(most(rule) * typed(1.0F / (amax < 0x1p-126F ? 0x1p-126F : amax)));
  return std::isfinite(quotient) ? quotient : 1.0F;
}

/// e4m3() of the tile's scale, before zeros are replaced.
float wanted_scale(ScaleRule rule, const TensorScale& tensor, float amax) {
  switch (rule) {
    case ScaleRule::te_nvfp4:
      return std::min(amax * (tensor.scale * (1.0F / kElementMax)), kFloatMax);
    case ScaleRule::torchao_nvfp4:
      return clamped((amax / kElementMax) / tensor.inverse_scale, 0x1p-6F);
    case ScaleRule::modelopt_nvfp4: {
      const float scale = amax / (kElementMax * tensor.inverse_scale);
      return clamped(scale == 0.0F ? 1.0F : scale, 0x1p-9F);
    }
    case ScaleRule::serving_nvfp4:
      return tensor.scale * (amax * flushed_reciprocal(kElementMax));
    case ScaleRule::compressed_nvfp4_bf16:
      return rounded_to_bf16(rounded_to_bf16(amax) / kElementMax) * tensor.scale;
    default:
      return (amax / kElementMax) * tensor.scale;
  }
}

float factor_of(ScaleRule rule, const TensorScale& tensor, float block) {
  switch (rule) {
    case ScaleRule::torchao_nvfp4:
      return (1.0F / tensor.inverse_scale) / block;
    case ScaleRule::compressed_nvfp4:
    case ScaleRule::compressed_nvfp4_bf16:
      return block / tensor.scale;
    case ScaleRule::modelopt_nvfp4:
      return block * tensor.inverse_scale;
    case ScaleRule::serving_nvfp4:
      return block == 0.0F ? 0.0F : flushed_reciprocal(block * flushed_reciprocal(tensor.scale));
    default: {
      const float factor = 1.0F / (block * tensor.inverse_scale);
      return factor > kFloatMax ? kFloatMax : factor;
    }
  }
}

/// Whether elements are divided by their factor instead of multiplied. `divides` is of rules with
/// one level, whose elements are divided by the stored scale.
bool divides_by_factor(ScaleRule rule) {
  return is_compressed(rule) || rule == ScaleRule::modelopt_nvfp4;
}

/// What belongs to a tile's scale of that code, but for zeros that a rule replaces.
TwoLevelScale scale_of_code(ScaleRule rule, const TensorScale& tensor, std::uint8_t code) {
  constexpr std::uint8_t kEighth = 0x20;
  TwoLevelScale tile;
  tile.code = is_compressed(rule) && code == 0 ? kEighth : code;
  tile.inverse_scale = ue4m3_value(tile.code);
  tile.factor = factor_of(rule, tensor, tile.inverse_scale);
  return tile;
}

}  // namespace

TensorScale tensor_scale(ScaleRule rule, float amax) {
  require(is_two_level(rule), "rule", "one with two levels of scales", to_string(rule));
  const FloatEnvironment environment;
  if (rule == ScaleRule::torchao_nvfp4 || rule == ScaleRule::modelopt_nvfp4) {
    const float inverse = amax / most(rule);
    return {1.0F / inverse, inverse, amax};
  }
  float scale = 1.0F;
  if (is_compressed(rule)) {
    scale = compressed_tensor_scale(rule, amax);
  } else {
    const float quotient = std::min(most(rule) / amax, kFloatMax);
    if (amax != 0.0F && quotient != 0.0F) scale = quotient;
  }
  return {scale, 1.0F / scale, amax};
}

TwoLevelScale two_level_scale(ScaleRule rule, const TensorScale& tensor, float amax) {
  return scale_of_code(rule, tensor, ue4m3_code(wanted_scale(rule, tensor, amax)));
}

namespace scaling_detail {
namespace {

/// Rows of a square tile of 4over6.
constexpr std::size_t kFourOverSixRows = 16;

/// What belongs to every UE4M3 code: tiles are more.
using ScalesOfCodes = std::array<TwoLevelScale, 128>;

ScalesOfCodes scales_of_codes(ScaleRule rule, const TensorScale& tensor) {
  const FloatEnvironment environment;
  ScalesOfCodes scales;
  for (std::size_t code = 0; code < scales.size(); ++code)
    scales[code] = scale_of_code(rule, tensor, static_cast<std::uint8_t>(code));
  return scales;
}

float e2m1_rounded(float x) {
  return decode_table(FormatId::e2m1)[encode(format(FormatId::e2m1), kNvidiaSatfinite, x)];
}

/// What one scale of a tile makes of elements of one row: the sum of their errors.
float row_error(FourOverSix how, const TensorScale& tensor, float denominator,
                const TwoLevelScale& tile, std::span<const float> x) {
  float sum = 0.0F;
  for (const float value : x) {
    const float got =
        e2m1_rounded(value * tile.factor) * tile.inverse_scale * tensor.amax / denominator;
    const float error = got - value;
    sum += how == FourOverSix::mse ? error * error : std::abs(error);
  }
  return sum;
}

/// The sum of a tile's rows in the order of a warp's reduction.
float sum_of_rows(std::array<float, kFourOverSixRows> rows) {
  for (std::size_t half = rows.size() / 2; half > 0; half /= 2)
    for (std::size_t r = 0; r < half; ++r) rows[r] += rows[r + half];
  return rows[0];
}

/// Rows of tiles, one at a time.
class TwoLevelEncoder {
 public:
  TwoLevelEncoder(const Recipe& recipe, const FloatMatrix& x, const TensorScale& tensor,
                  const ScalesOfCodes& of_code, const TwoLevelCast& cast, Target target,
                  QuantizedTensor& q)
      : recipe_(recipe),
        x_(x),
        tensor_(tensor),
        of_code_(of_code),
        cast_(cast),
        target_(target),
        q_(q) {
    policy_ = recipe.policy;
    if (cast.draws) policy_.rounding = RoundingMode::stochastic;
    const auto tiles = static_cast<std::size_t>(q.tile_columns());
    largest_.resize(tiles + kScalePadding);
    wanted_.resize(tiles);
    codes_.resize(tiles);
    factors_.resize(tiles + kScalePadding);
    scaled_.resize(static_cast<std::size_t>(x.k));
  }

  void run(std::int64_t tile_row) {
    const FloatEnvironment environment;
    const std::int64_t begin = tile_row * q_.row_block;
    const std::int64_t end = std::min(begin + q_.row_block, x_.rows);
    find_scales(begin, end);
    if (traits(recipe_.rule).four_over_six != FourOverSix::none) choose_scales(begin, end);
    store_scales(static_cast<std::size_t>(tile_row) * codes_.size());
    for (std::int64_t row = begin; row < end; ++row) encode_row(row);
  }

 private:
  [[nodiscard]] std::span<const float> row_of(std::int64_t row) const {
    const auto k = static_cast<std::size_t>(x_.k);
    return x_.values.subspan(static_cast<std::size_t>(row) * k, k);
  }

  [[nodiscard]] std::size_t side() const { return static_cast<std::size_t>(q_.k_block); }

  /// UE4M3 codes of a row of tiles, before zeros are replaced.
  void find_scales(std::int64_t begin, std::int64_t end) {
    constexpr std::int32_t kInfinity = 0x7f800000;
    constexpr std::int32_t kNan = 0x7fc00000;
    std::fill(largest_.begin(), largest_.end(), 0);
    const bool ignore_nan = amax_ignores_nan(recipe_.rule);
    for (std::int64_t row = begin; row < end; ++row)
      kernels_.amax(row_of(row).data(), row_of(row).size(), side(), ignore_nan, 0, largest_.data());
    for (std::size_t t = 0; t < wanted_.size(); ++t) {
      const std::int32_t bits = largest_[t] > kInfinity ? kNan : largest_[t];
      wanted_[t] = wanted_scale(recipe_.rule, tensor_, std::bit_cast<float>(bits));
    }
    encode_scales(codes_);
  }

  void encode_scales(std::vector<std::uint8_t>& codes) {
    encode(
        wanted_, std::span(codes),
        {.format = FormatId::e4m3fn, .policy = kNvidiaSatfinite, .threads = 1, .target = target_});
  }

  /// TransformerEngine's 4over6: a scale 1.5 times as large where it leaves the smaller error.
  void choose_scales(std::int64_t begin, std::int64_t end) {
    for (float& wanted : wanted_) wanted *= 1.5F;
    larger_.resize(codes_.size());
    encode_scales(larger_);
    for (std::size_t t = 0; t < codes_.size(); ++t)
      if (tile_error(begin, end, t, larger_[t]) < tile_error(begin, end, t, codes_[t]))
        codes_[t] = larger_[t];
  }

  [[nodiscard]] float tile_error(std::int64_t begin, std::int64_t end, std::size_t t,
                                 std::uint8_t code) const {
    std::array<float, kFourOverSixRows> rows{};
    const auto k = static_cast<std::size_t>(x_.k);
    for (std::int64_t row = begin; row < end; ++row)
      rows[static_cast<std::size_t>(row - begin)] = row_error(
          traits(recipe_.rule).four_over_six, tensor_, most(recipe_.rule), of_code_[code & 0x7fU],
          row_of(row).subspan(t * side(), std::min(side(), k - t * side())));
    return sum_of_rows(rows);
  }

  void store_scales(std::size_t at) {
    for (std::size_t t = 0; t < codes_.size(); ++t) {
      const TwoLevelScale& tile = of_code_[codes_[t] & 0x7fU];
      factors_[t] = tile.factor;
      q_.scales[at + t] = divides_ ? 1.0F / tile.factor : tile.factor;
      q_.inverse_scales[at + t] = tile.inverse_scale;
      q_.ue4m3[at + t] = tile.code;
    }
  }

  void encode_row(std::int64_t row) {
    std::span<const float> values = row_of(row);
    if (takes_bf16(recipe_.rule)) {
      kernels_.round_to_bf16(values.data(), values.size(), scaled_.data());
      values = scaled_;
    }
    const auto scale = divides_ ? kernels_.divide : kernels_.multiply;
    scale(values.data(), values.size(), side(), factors_.data(), scaled_.data());
    if (divides_)  // both systems lose the sign of a zero
      for (float& value : scaled_) value += 0.0F;
    encode(
        scaled_,
        std::span(q_.codes).subspan(static_cast<std::size_t>(row) * values.size(), values.size()),
        {.format = recipe_.format,
         .policy = policy_,
         .random = cast_.draws,
         .first_draw = static_cast<std::uint64_t>(row * x_.k),
         .threads = 1,
         .target = target_});
  }

  const Recipe& recipe_;
  const FloatMatrix& x_;
  TensorScale tensor_;
  const ScalesOfCodes& of_code_;
  const TwoLevelCast& cast_;
  CastPolicy policy_;
  Target target_;
  QuantizedTensor& q_;
  const TileKernels& kernels_ = tile_kernels(target_);
  const bool divides_ = divides_by_factor(recipe_.rule);
  std::vector<std::int32_t> largest_;  ///< amaxes of a row of tiles, as bits
  std::vector<float> wanted_;
  std::vector<std::uint8_t> codes_;
  std::vector<std::uint8_t> larger_;  ///< codes of 4over6's other scales
  std::vector<float> factors_;
  std::vector<float> scaled_;
};

}  // namespace

void validate_two_level(const Recipe& recipe) {
  require(recipe.format == FormatId::e2m1, "format",
          fmt::format("e2m1 for rule {}", to_string(recipe.rule)), format(recipe.format).name);
  require(recipe.k_block > 0, "block", "tiles along k (16 in NVFP4), since scales have two levels",
          fmt::format("{}x{}", recipe.row_block, recipe.k_block));
  require(recipe.source == ScaleSource::current || recipe.source == ScaleSource::calibration,
          "source", fmt::format("current or calibration for rule {}", to_string(recipe.rule)),
          to_string(recipe.source));
  require(
      !recipe.power_of_two && recipe.amax_floor == 0.0F, "power_of_two and amax_floor",
      fmt::format("their defaults for rule {}, which has no such options", to_string(recipe.rule)),
      "others");
  const bool fits = recipe.k_block == 16 && (recipe.row_block == 1 || recipe.row_block == 16);
  require(fits || traits(recipe.rule).four_over_six == FourOverSix::none, "block",
          fmt::format("1x16 or 16x16 for rule {}", to_string(recipe.rule)),
          fmt::format("{}x{}", recipe.row_block, recipe.k_block));
}

void encode_two_level(const Recipe& recipe, const FloatMatrix& x, const TwoLevelCast& cast,
                      QuantizedTensor& q, const Execution& execution) {
  const TensorScale tensor = tensor_scale(
      recipe.rule, cast.known_amax
                       ? *cast.known_amax
                       : whole_amax(x.values, amax_ignores_nan(recipe.rule), execution));
  const ScalesOfCodes of_code = scales_of_codes(recipe.rule, tensor);
  q.tensor_inverse_scale = tensor.inverse_scale;
  parallel_for_with(
      q.tile_rows(), execution.threads,
      [&] { return TwoLevelEncoder(recipe, x, tensor, of_code, cast, execution.target, q); },
      [](TwoLevelEncoder& encoder, std::int64_t row) { encoder.run(row); });
}

}  // namespace scaling_detail
}  // namespace fp8lab

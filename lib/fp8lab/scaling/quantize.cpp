#include "fp8lab/scaling/quantize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "fp8lab/core/counted.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/core/threads.hpp"
#include "fp8lab/scaling/backend_cast.hpp"
#include "fp8lab/scaling/encode_tiles.hpp"
#include "fp8lab/scaling/encode_transposed.hpp"
#include "fp8lab/scaling/tile_scales.hpp"
#include "fp8lab/scaling/two_level.hpp"

namespace fp8lab {
namespace {

using namespace scaling_detail;

// No amax and no scale is negative.
constexpr float kNoBatch = -1.0F;

constexpr std::array<std::string_view, 5> kSourceNames{"current", "delayed", "ms_amp",
                                                       "calibration", "momentum"};

Execution execution_of(int threads, std::optional<Target> target) {
  if (target) require_available(*target);
  return {target.value_or(current_target()), team_size(threads)};
}

void validate(const Recipe& recipe, const FloatMatrix& x) {
  require(x.rows >= 0 && x.k >= 0, "x", "rows >= 0 and k >= 0",
          fmt::format("[{}, {}]", x.rows, x.k));
  require(static_cast<std::int64_t>(x.values.size()) == x.rows * x.k, "x",
          fmt::format("[{}, {}] = {} values", x.rows, x.k, x.rows * x.k),
          fmt::format("{}", x.values.size()));
  require(x.rows % recipe.rows_multiple == 0, "x",
          fmt::format("rows divisible by {}", recipe.rows_multiple), fmt::format("{}", x.rows));
  require(x.k % recipe.k_multiple == 0, "x", fmt::format("k divisible by {}", recipe.k_multiple),
          fmt::format("{}", x.k));
}

/// Fields that say nothing under a recipe's source are not to be set.
void require_used(const Recipe& recipe) {
  const auto unless = [&](bool used, std::string_view field, bool is_default) {
    require(used || is_default, field,
            fmt::format("its default, since source {} does not use it", to_string(recipe.source)),
            "another");
  };
  const bool delayed = recipe.source == ScaleSource::delayed;
  const bool ms_amp = recipe.source == ScaleSource::ms_amp;
  const DelayedOptions defaults;
  const DelayedOptions& d = recipe.delayed;
  unless(delayed, "delayed",
         d.history == defaults.history && d.margin == defaults.margin &&
             d.algorithm == defaults.algorithm && d.zero_amax == defaults.zero_amax);
  unless(ms_amp, "window", recipe.window == Recipe{}.window);
  unless(!delayed && !ms_amp, "power_of_two", !recipe.power_of_two);
  unless(!delayed && !ms_amp, "amax_floor", recipe.amax_floor == 0.0F);
  const bool fits = delayed ? recipe.rule == ScaleRule::te || is_flax(recipe.rule)
                            : !ms_amp || recipe.rule == ScaleRule::ms_amp;
  require(fits, "rule",
          fmt::format("{} for source {}", delayed ? "te, flax or flax_bf16" : "ms_amp",
                      to_string(recipe.source)),
          to_string(recipe.rule));
}

/// Codes and scales of the right sizes; the memory that `q` has is kept.
void allocate(const Recipe& recipe, std::int64_t rows, std::int64_t k, QuantizedTensor& q) {
  q.format = recipe.format;
  q.rows = rows;
  q.k = k;
  const auto tile = [](std::int64_t block, std::int64_t size) {
    return std::max<std::int64_t>(1, block == 0 ? size : std::min(block, size));
  };
  q.row_block = tile(recipe.row_block, rows);
  q.k_block = tile(recipe.k_block, k);
  q.codes.resize(static_cast<std::size_t>(rows * k));
  const auto tiles = static_cast<std::size_t>(q.tile_rows() * q.tile_columns());
  q.scales.resize(tiles);
  q.inverse_scales.resize(tiles);
  q.e8m0.resize(is_mx(recipe.rule) ? tiles : 0);
  q.ue4m3.resize(is_two_level(recipe.rule) ? tiles : 0);
  q.tensor_inverse_scale = 1.0F;
}

TileScale scale_of(const QuantizedTensor& q) {
  return {q.scales[0], q.inverse_scales[0], q.e8m0.empty() ? std::uint8_t{0} : q.e8m0[0]};
}

/// The transpose's place in `q`, of its size.
QuantizedTensor& allocate_transpose(const Recipe& recipe, const FloatMatrix& x,
                                    QuantizedTensor& q) {
  validate(recipe, {x.values, x.k, x.rows});
  if (!q.transposed || q.transposed.use_count() > 1)
    q.transposed = std::make_shared<QuantizedTensor>();
  allocate(recipe, x.k, x.rows, *q.transposed);
  return *q.transposed;
}

}  // namespace

std::string_view to_string(ScaleSource source) {
  return kSourceNames[static_cast<std::size_t>(source)];
}

ScaleSource find_scale_source(std::string_view name) {
  return find_enumerator<ScaleSource>(kSourceNames, "source", name);
}

void encode_scaled(const Format& f, const CastPolicy& policy, std::span<const float> x,
                   const TileScale& scale, bool divide, std::span<std::uint8_t> codes,
                   const Backend& backend) {
  const FloatEnvironment environment;
  require(x.size() == codes.size(), "codes", fmt::format("{} codes, as x", x.size()),
          fmt::format("{}", codes.size()));
  const Recipe recipe{
      .format = f.id, .policy = policy, .rule = divide ? ScaleRule::deepseek : ScaleRule::unit};
  encode_whole(recipe, x, scale, std::nullopt, codes, {current_target(), 1});
  recast_on(backend, f.id, policy, x, scale, divide, codes);
}

CodeMatrix QuantizedTensor::matrix() const { return CodeMatrix::row_major(format, codes, rows, k); }

std::int64_t QuantizedTensor::scale_bytes() const {
  if (!ue4m3.empty()) return static_cast<std::int64_t>(ue4m3.size() + sizeof(float));
  return static_cast<std::int64_t>(e8m0.empty() ? 4 * inverse_scales.size() : e8m0.size());
}

std::vector<float> dequantize(const QuantizedTensor& q) {
  const FloatEnvironment environment;
  const std::span<const float> table = decode_table(q.format);
  std::vector<float> values(q.codes.size());
  for (std::int64_t r = 0; r < q.rows; ++r)
    for (std::int64_t c = 0; c < q.k; ++c) {
      const auto at = static_cast<std::size_t>(r * q.k + c);
      const auto tile = q.tile_of(r, c);
      values[at] = table[q.codes[at]] * q.total_inverse_scale(tile);
    }
  return values;
}

std::vector<float> transpose(const FloatMatrix& x) {
  std::vector<float> result(x.values.size());
  transpose_blocks(x.values.data(), x.rows, x.k, result.data());
  return result;
}

Quantizer::Quantizer(Recipe recipe) : recipe_(recipe) {
  require(recipe.row_block >= 0 && recipe.k_block >= 0, "block", "rows and columns >= 0",
          fmt::format("{}x{}", recipe.row_block, recipe.k_block));
  require(format(recipe.format).storage_bits == 8 && !format(recipe.format).is_scale_only(),
          "format", "an 8-bit element format", format(recipe.format).name);
  require(recipe.policy.rounding != RoundingMode::stochastic, "policy",
          "a rounding mode without random bits", "stochastic");
  require_used(recipe);
  if (is_two_level(recipe.rule))
    validate_two_level(recipe);
  else
    (void)tile_scale(scale_options(recipe), 1.0F);  // throws for a format that the rule lacks
  if (recipe.source == ScaleSource::current || is_two_level(recipe.rule)) return;
  require(recipe.row_block == 0 && recipe.k_block == 0, "block",
          "one tile (0x0), since the scale comes from earlier tensors",
          fmt::format("{}x{}", recipe.row_block, recipe.k_block));
  if (recipe.source == ScaleSource::delayed)
    delayed_.emplace(recipe.format, recipe.delayed, recipe.rule);
  if (recipe.source == ScaleSource::ms_amp) ms_amp_.emplace(recipe.format, recipe.window);
}

TileScale Quantizer::calibrated_scale() const {
  require(calibrated_amax_ || average_inverse_, "calibration", "at least one tensor", "none");
  if (average_inverse_) return {1.0F / *average_inverse_, *average_inverse_, 0};
  return tile_scale(scale_options(recipe_), *calibrated_amax_);
}

void Quantizer::observe(const FloatMatrix& x, int threads) {
  const FloatEnvironment environment;
  validate(recipe_, x);
  require(recipe_.source != ScaleSource::current, "recipe",
          "a recipe whose scale comes from earlier tensors (delayed, windowed or static)",
          "a recipe that uses only the current tensor");
  const bool ignore_nan = delayed_ && amax_ignores_nan(recipe_.rule);
  const float largest = whole_amax(x.values, ignore_nan, execution_of(threads, {}));
  if (delayed_) delayed_->record(largest);
  if (ms_amp_) (void)ms_amp_->scale_for(largest);
  if (delayed_ || ms_amp_) return take_step();
  require(std::isfinite(largest), "calibration", "finite values", "NaN or Inf in a batch");
  calibrate(largest);
}

void Quantizer::calibrate(float amax) {
  if (recipe_.source == ScaleSource::calibration) {
    calibrated_amax_ = std::max(calibrated_amax_.value_or(0.0F), amax);
    return;
  }
  const float inverse = tile_scale(scale_options(recipe_), amax).inverse_scale;
  // A scale of 1 is one that was never set.
  if (average_inverse_.value_or(1.0F) == 1.0F) {
    average_inverse_ = inverse;
    return;
  }
  const auto rounded = [&](float x) { return takes_bf16(recipe_.rule) ? rounded_to_bf16(x) : x; };
  constexpr auto kNew = static_cast<float>(1.0 - 0.9);
  average_inverse_ = rounded(rounded(0.9F * *average_inverse_) + rounded(inverse * kNew));
}

void Quantizer::take_step() {
  if (delayed_) delayed_->update();
  if (ms_amp_) ms_amp_->update();
}

void Quantizer::encode_by_past(const FloatMatrix& x, int threads, Target target,
                               QuantizedTensor& q) {
  const Execution execution{target, threads};
  const auto encode_with = [&](const TileScale& scale, std::optional<bool> ignore_nan) {
    for (std::size_t tile = 0; tile < q.scales.size(); ++tile) store_scale(q, tile, scale);
    return encode_whole(recipe_, x.values, scale, ignore_nan, q.codes, execution);
  };
  if (delayed_) {
    const float inverse = delayed_->inverse_scale();
    const TileScale scale{delayed_->scale(),
                          has_bf16_scale(recipe_.rule) ? rounded_to_bf16(inverse) : inverse, 0};
    delayed_->record(encode_with(scale, amax_ignores_nan(recipe_.rule)));
  } else if (!ms_amp_) {
    encode_with(calibrated_scale(), std::nullopt);
  } else if (ms_amp_->is_just_in_time()) {
    const float scale = ms_amp_->scale_for(whole_amax(x.values, false, execution));
    encode_with({scale, 1.0F / scale, 0}, std::nullopt);
  } else {
    const float scale = ms_amp_->scale();
    ms_amp_->scale_for(encode_with({scale, 1.0F / scale, 0}, false));
  }
}

std::vector<float> Quantizer::past() const {
  std::vector<float> past;
  if (delayed_) {
    past = delayed_->history();
    past.insert(past.begin(), delayed_->scale());
  } else if (ms_amp_) {
    past.assign(ms_amp_->window().begin(), ms_amp_->window().end());
    past.insert(past.begin(), {ms_amp_->scale(), static_cast<float>(ms_amp_->updates())});
  } else if (recipe_.source == ScaleSource::calibration) {
    past = {calibrated_amax_.value_or(kNoBatch)};
  } else if (recipe_.source == ScaleSource::momentum) {
    past = {average_inverse_.value_or(kNoBatch)};
  }
  return past;
}

void Quantizer::set_past(std::span<const float> past) {
  const std::size_t size = this->past().size();
  require(past.size() == size, "past", counted(size, "value"), fmt::format("{}", past.size()));
  if (delayed_) return delayed_->restore(past[0], past.subspan(1));
  if (ms_amp_)
    return ms_amp_->restore(past[0], static_cast<std::int64_t>(past[1]), past.subspan(2));
  if (size == 0) return;
  std::optional<float>& kept =
      recipe_.source == ScaleSource::calibration ? calibrated_amax_ : average_inverse_;
  kept = past[0] == kNoBatch ? std::nullopt : std::optional(past[0]);
}

void Quantizer::quantize_into(const FloatMatrix& x, QuantizedTensor& q, bool with_transpose,
                              int threads, std::optional<Target> target, const Backend& backend) {
  const FloatEnvironment environment;
  validate(recipe_, x);
  const Execution execution = execution_of(threads, target);
  allocate(recipe_, x.rows, x.k, q);
  if (is_two_level(recipe_.rule)) {
    require(recipe_.source == ScaleSource::current || calibrated_amax_, "calibration",
            "at least one tensor", "none");
    encode_two_level(recipe_, x, {calibrated_amax_, {}}, q, execution);
    q.transposed.reset();
    if (!with_transpose) return;
    QuantizedTensor& turned = allocate_transpose(recipe_, x, q);
    const std::vector<float> values = fp8lab::transpose(x);
    return encode_two_level(recipe_, {values, x.k, x.rows}, {calibrated_amax_, {}}, turned,
                            execution);
  }
  if (recipe_.source != ScaleSource::current) {
    encode_by_past(x, execution.threads, execution.target, q);
  } else if (q.scales.size() == 1) {
    const bool look = recipe_.rule != ScaleRule::unit;
    const float largest =
        look ? whole_amax(x.values, amax_ignores_nan(recipe_.rule), execution) : 0.0F;
    store_scale(q, 0, tile_scale(scale_options(recipe_), largest));
    encode_whole(recipe_, x.values, scale_of(q), std::nullopt, q.codes, execution);
  } else if (!with_transpose) {
    encode_tiles(recipe_, x, Source::as_is, q, execution);
  }
  if (with_transpose) {
    QuantizedTensor& turned = allocate_transpose(recipe_, x, q);
    encode_transposed(recipe_, x, q.scales.size() != 1, q, turned, execution);
  } else {
    q.transposed.reset();
  }
  if (!target) recast_on(backend, recipe_, x, execution.threads, q);
  take_step();
}

QuantizedTensor Quantizer::quantize(const FloatMatrix& x, bool with_transpose, int threads,
                                    std::optional<Target> target, const Backend& backend) {
  QuantizedTensor q;
  quantize_into(x, q, with_transpose, threads, target, backend);
  return q;
}

QuantizedTensor quantize(const Recipe& recipe, const FloatMatrix& x, bool with_transpose,
                         int threads, std::optional<Target> target, const Backend& backend) {
  require(recipe.source == ScaleSource::current, "recipe",
          "a recipe that uses only the current tensor",
          "a delayed, windowed or static one; use Quantizer");
  return Quantizer(recipe).quantize(x, with_transpose, threads, target, backend);
}

}  // namespace fp8lab

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/scaling/presets.hpp"
#include "pictures/json.hpp"
#include "pictures/pictures.hpp"

namespace fp8lab::explorer {
namespace {

std::vector<double> positive_values(const Format& f) {
  std::vector<double> values;
  for (std::uint32_t code = 1; code <= f.max_finite_code(); ++code)
    values.push_back(decode(f, code));
  return values;
}

std::string describe_format(const Format& f) {
  JsonObject object;
  object.text("name", f.name)
      .number("exponent_bits", f.exponent_bits)
      .number("mantissa_bits", f.mantissa_bits)
      .number("max_finite", f.max_finite())
      .number("min_normal", f.min_normal())
      .number("min_subnormal", f.min_subnormal());
  if (f.code_bits() <= 8) object.raw("values", json(positive_values(f)));
  return object.str();
}

std::string describe_recipe(const Preset& preset) {
  const Recipe& recipe = preset.activation;
  return JsonObject()
      .text("name", preset.name)
      .text("used_by", preset.used_by)
      .number("tile", static_cast<double>(recipe.k_block))
      .str();
}

std::string describe_model(const InstructionModel& model) {
  return JsonObject()
      .text("name", model.name)
      .text("standing", to_string(model.standing))
      .text("source", model.source)
      .text("kind", to_string(model.accumulator.kind))
      .text("a", format(model.a_format).name)
      .text("b", format(model.b_format).name)
      .text("output", format(model.accumulator.output_format).name)
      .number("output_max", format(model.accumulator.output_format).max_finite())
      .number("terms", traits_of(model.accumulator).has_steps ? model.accumulator.terms : 1)
      .str();
}

/// Whether running sums can be cut between two steps of the model.
bool adds_stepwise(const InstructionModel& model) {
  return format(model.a_format).storage_bits == 8 && format(model.b_format).storage_bits == 8 &&
         !traits_of(model.accumulator).keeps_all;
}

std::string_view fate_of(const CastResult& result, const Unpacked& decoded) {
  if (result.nan) return "nan";
  if (decoded.value_class == ValueClass::infinity) return "infinity";
  if (result.overflowed) return "saturated";
  if (result.underflowed) return "underflow";
  return to_string(decoded.value_class);
}

double relative_error(double x, double value) {
  return x == value ? 0.0 : std::abs(value - x) / std::abs(x);
}

std::string cast_row(const Format& f, const CastPolicy& policy, float x) {
  const CastResult result = cast(f, policy, x);
  const double value = decode(f, result.code);
  return JsonObject()
      .text("name", f.name)
      .text("code", fmt::format("0x{:0{}x}", result.code, (f.code_bits() + 3) / 4))
      .number("value", value)
      .number("relative_error", relative_error(static_cast<double>(x), value))
      .text("fate", fate_of(result, unpack(f, result.code)))
      .flag("inexact", result.inexact)
      .flag("tie", result.tie)
      .str();
}

template <typename Range, typename Keep>
auto kept(const Range& range, const Keep& keep) {
  std::vector<typename Range::value_type> result;
  std::copy_if(range.begin(), range.end(), std::back_inserter(result), keep);
  return result;
}

const std::vector<Format>& value_formats() {
  static const std::vector<Format> kFormatsOfValues =
      kept(kFormats, [](const Format& f) { return !f.is_scale_only() && f.id != FormatId::e8m13; });
  return kFormatsOfValues;
}

}  // namespace

std::string describe() {
  const auto stepwise =
      kept(std::vector(instruction_models().begin(), instruction_models().end()), adds_stepwise);
  // The outlier's picture casts to FP8 formats under the recipe's scales.
  const auto current = kept(std::vector(presets().begin(), presets().end()), [](const Preset& p) {
    return p.activation.source == ScaleSource::current &&
           format(p.activation.format).code_bits() == 8;
  });
  return JsonObject()
      .raw("formats", json_array(value_formats(), describe_format))
      .raw("profiles",
           json_array(kCastProfiles,
                      [](const CastProfile& p) {
                        return JsonObject().text("name", p.name).text("used_by", p.used_by).str();
                      }))
      .raw("recipes", json_array(current, describe_recipe))
      .raw("models", json_array(stepwise, describe_model))
      .raw("units", json_array(instruction_models(), describe_model))
      .str();
}

std::string cast_table(float x, std::string_view profile) {
  const CastPolicy& policy = find_cast_profile(profile).policy;
  return JsonObject()
      .number("x", static_cast<double>(x))
      .raw("rows",
           json_array(value_formats(), [&](const Format& f) { return cast_row(f, policy, x); }))
      .str();
}

std::string error_curve(FormatId id, std::string_view profile, float low, float high, int points) {
  constexpr std::uint32_t kParts = 32;
  require(points >= 2 && points <= 10000, "points", "2 .. 10000", fmt::format("{}", points));
  require(low > 0.0F && low < high && std::isfinite(high), "low, high", "0 < low < high, finite",
          fmt::format("{}, {}", low, high));
  const Format& f = format(id);
  const CastPolicy& policy = find_cast_profile(profile).policy;
  // Equal steps of binary32's bits are nearly equal steps of the logarithm, and exact.
  const auto first = std::bit_cast<std::uint32_t>(low);
  const auto last = std::bit_cast<std::uint32_t>(high);
  const std::uint32_t part =
      std::max<std::uint32_t>(1, (last - first) / static_cast<std::uint32_t>(points) / kParts);
  std::vector<double> xs;
  std::vector<double> errors;
  for (std::uint32_t bits = first; bits < last; bits += part * kParts) {
    xs.push_back(static_cast<double>(std::bit_cast<float>(bits + part * kParts / 2)));
    double largest = 0.0;
    for (std::uint32_t j = 0; j <= kParts; ++j) {
      const auto x = std::bit_cast<float>(bits + part * j);
      const double error = relative_error(static_cast<double>(x), round_trip(f, policy, x));
      if (!(error <= largest)) largest = error;  // NaN and Inf stay
    }
    errors.push_back(largest);
  }
  return JsonObject().raw("x", json(xs)).raw("relative_error", json(errors)).str();
}

}  // namespace fp8lab::explorer

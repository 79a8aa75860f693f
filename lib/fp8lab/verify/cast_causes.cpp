#include "fp8lab/verify/cast_causes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>

#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/triton_interpreter.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/verify/causes.hpp"
#include "fp8lab/verify/judge.hpp"

namespace fp8lab {
namespace {

/// Rounded to one format in this way, then cast to another.
std::function<std::uint32_t(float)> cast_through(FormatId between, RoundingMode rounding,
                                                 FormatId to, const CastPolicy& policy) {
  const auto cast = cast_as(to, policy);
  CastPolicy first = kNvidiaNosat;
  first.rounding = rounding;
  return [=](float x) {
    const Format& f = format(between);
    return cast(static_cast<float>(decode(f, encode(f, first, x))));
  };
}

/// Right results, changed before the cast.
void add_wrong_results(const std::function<std::uint32_t(float)>& cast,
                       std::vector<CastMistake>& mistakes) {
  const auto add = [&](std::string name, std::string text,
                       std::function<std::uint32_t(float)> code) {
    mistakes.push_back({std::move(name), std::move(text), std::move(code), true});
  };
  add("negated_output", "every sign is wrong", [=](float x) { return cast(-x); });
  add("relu", "negative results became zero", [=](float x) { return cast(x < 0.0F ? 0.0F : x); });
  add("doubled_output", "twice the right results", [=](float x) { return cast(2.0F * x); });
  add("halved_output", "half the right results", [=](float x) { return cast(0.5F * x); });
}

/// The numbers whose inverse, rounded to nearest, is a scale.
std::vector<float> numbers_with_inverse(float scale) {
  const float middle = 1.0F / scale;
  std::vector<float> numbers{middle};
  for (const float other : {std::nextafter(middle, 0.0F), std::nextafter(middle, HUGE_VALF)})
    if (1.0F / other == scale) numbers.push_back(other);
  if (1.0F / middle != scale && numbers.size() > 1) numbers.erase(numbers.begin());
  return numbers;
}

/// By what a kernel divides that divides where it should multiply by the scale, for each element:
/// of the numbers with this inverse the one that explains most of the elements with the scale.
std::vector<float> divisors(const std::function<std::uint32_t(float)>& cast,
                            std::span<const float> x, std::span<const float> scale,
                            std::span<const std::uint32_t> got) {
  const auto of = [&](std::size_t i) { return scale[scale.size() == 1 ? 0 : i]; };
  std::map<std::uint32_t, std::map<float, std::size_t>> same;  // of each scale: numbers and hits
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::map<float, std::size_t>& hits = same[std::bit_cast<std::uint32_t>(of(i))];
    if (hits.empty())
      for (const float number : numbers_with_inverse(of(i))) hits[number] = 0;
    for (auto& [number, count] : hits) count += cast(x[i] / number) == got[i] ? 1 : 0;
  }
  std::map<std::uint32_t, float> best;
  for (const auto& [s, hits] : same)
    best[s] = std::ranges::max_element(hits, {}, [](const auto& hit) { return hit.second; })->first;
  std::vector<float> result;
  for (std::size_t i = 0; i < x.size(); ++i)
    result.push_back(best[std::bit_cast<std::uint32_t>(of(i))]);
  return result;
}

}  // namespace

std::function<std::uint32_t(float)> cast_as(FormatId to, const CastPolicy& policy) {
  if (to == FormatId::f32) return [](float x) { return std::bit_cast<std::uint32_t>(x); };
  return [=](float x) { return encode(format(to), policy, x); };
}

std::vector<CastMistake> cast_mistakes(FormatId id, const CastPolicy& policy) {
  std::vector<CastMistake> mistakes;
  const auto add = [&](std::string name, std::string text, FormatId to, CastPolicy changed) {
    mistakes.push_back({std::move(name), std::move(text), cast_as(to, changed)});
  };
  const auto add_code = [&](std::string name, std::string text,
                            std::function<std::uint32_t(float)> code) {
    mistakes.push_back({std::move(name), std::move(text), std::move(code)});
  };
  const auto cast = cast_as(id, policy);
  for (const FormatId between : {FormatId::f16, FormatId::bf16})
    if (between != id)
      add_code(fmt::format("double_rounding_{}", format(between).name),
               fmt::format("double rounding: rounded to {} first, then to {}", format(between).name,
                           format(id).name),
               cast_through(between, RoundingMode::nearest_even, id, policy));
  for (const FormatId between : {FormatId::f16, FormatId::bf16})
    if (between != id)
      add_code(fmt::format("truncated_{}_first", format(between).name),
               fmt::format("truncated to {} first, then rounded to {}", format(between).name,
                           format(id).name),
               cast_through(between, RoundingMode::toward_zero, id, policy));
  if (id == FormatId::f32) {
    add_code("flushed_subnormals", "subnormal results flushed to zero", [](float x) {
      const bool subnormal = std::fpclassify(x) == FP_SUBNORMAL;
      return std::bit_cast<std::uint32_t>(subnormal ? std::copysign(0.0F, x) : x);
    });
    add_wrong_results(cast, mistakes);
    return mistakes;
  }
  CastPolicy changed = policy;
  changed.rounding = RoundingMode::toward_zero;
  add("rtz_cast", "truncated (round toward zero) instead of rounded to nearest", id, changed);
  changed.rounding = RoundingMode::nearest_away;
  add("ties_away_cast", "ties rounded away from zero instead of to even", id, changed);
  changed = policy;
  const bool saturates = policy.overflow == OverflowPolicy::saturate;
  changed.overflow = saturates ? OverflowPolicy::non_saturating : OverflowPolicy::saturate;
  changed.infinity = saturates ? InfinityPolicy::non_saturating : InfinityPolicy::saturate;
  add(saturates ? "not_saturated" : "saturated",
      saturates
          ? "values beyond the largest finite one became NaN or infinity instead of saturating"
          : "values beyond the largest finite one saturated instead of becoming NaN or infinity",
      id, changed);
  changed = policy;
  changed.subnormals = SubnormalPolicy::flush_to_zero;
  add("flushed_subnormals", "subnormal results flushed to zero", id, changed);
  if (const std::optional<FormatId> other = fnuz_counterpart(id)) {
    if (format(id).specials == SpecialValues::fnuz)
      add("fn_output", "encoded as FN (bias one lower), read as FNUZ", *other, policy);
    else
      add("fnuz_output", "encoded as FNUZ (bias one higher), read as FN", *other, policy);
  }
  if (is_cast_of_triton_interpreter(id))
    add_code("triton_interpreter_cast",
             "the cast of Triton's interpreter: a carry into the exponent is lost (127 becomes 64)",
             [id](float x) { return triton_interpreter_code(format(id), x); });
  add_wrong_results(cast, mistakes);
  return mistakes;
}

std::vector<CastMistake> rarer_cast_mistakes(FormatId id, const CastPolicy& policy) {
  const auto cast = cast_as(id, policy);
  std::vector<CastMistake> mistakes{
      {"zero_output", "zeros in place of all results", [=](float) { return cast(0.0F); }, true}};
  if (id == FormatId::f32) return mistakes;
  mistakes.push_back({"flushed_subnormals",
                      "results that round to subnormal numbers flushed to zero",
                      [cast, &f = format(id)](float x) {
                        const std::uint32_t code = cast(x);
                        const bool low = unpack(f, code).value_class == ValueClass::subnormal;
                        return low ? code & f.sign_mask() : code;
                      }});
  const Format& f = format(id);
  const auto add_code = [&](std::string name, std::string text, const auto& code) {
    mistakes.push_back(
        {std::move(name), std::move(text), [=](float x) { return code(x, cast(x)); }});
  };
  if (f.sign_mask() != 0 && !f.has_nan_for_negative_zero())
    add_code("negative_zero_lost", "-0 stored as +0", [&f](float, std::uint32_t code) {
      return unpack(f, code).value_class == ValueClass::zero ? code & ~f.sign_mask() : code;
    });
  add_code("sign_lost", "the sign left out", [&f](float x, std::uint32_t code) {
    return std::isnan(x) ? code : code & ~f.sign_mask();
  });
  for (const auto& [name, sign] : {std::pair{"largest", 1.0F}, std::pair{"lowest", -1.0F}})
    add_code(
        fmt::format("nan_to_{}", name),
        fmt::format("NaN became the {} finite number, as a clamp makes it", name),
        [cast, to = cast(std::copysign(static_cast<float>(decode(f, f.max_finite_code())), sign))](
            float x, std::uint32_t code) { return std::isnan(x) ? to : code; });
  add_code("nan_to_zero", "NaN became 0",
           [to = cast(0.0F)](float x, std::uint32_t code) { return std::isnan(x) ? to : code; });
  if (const std::optional<FormatId> other = other_format_of_width(id))
    for (const CastPolicy& how : {policy, kNvidiaSatfinite, kNvidiaNosat})
      mistakes.push_back(
          {fmt::format("{}_output", format(*other).name),
           fmt::format("encoded as {}, read as {}", format(*other).name, format(id).name),
           cast_as(*other, how)});
  return mistakes;
}

std::optional<CastMistake> clamp_mistake(FormatId id, const CastPolicy& policy,
                                         std::span<const float> right,
                                         std::span<const std::uint32_t> got) {
  constexpr std::ptrdiff_t kFewest = 3;  // results at a bound
  std::vector<float> values;
  for (const std::uint32_t code : got)
    if (const double x = decode(format(id), code); std::isfinite(x))
      values.push_back(static_cast<float>(x));
  if (values.empty()) return std::nullopt;
  const auto [least, most] = std::ranges::minmax(values);
  const auto [low, high] = std::ranges::minmax(right);
  const bool below = low < least && std::ranges::count(values, least) >= kFewest;
  const bool above = high > most && std::ranges::count(values, most) >= kFewest;
  if ((!below && !above) || least == most) return std::nullopt;
  const float from = below ? least : -HUGE_VALF;
  const float to = above ? most : HUGE_VALF;
  return CastMistake{"clamped_output",
                     below && above ? fmt::format("limited to {} and {} (measured)", from, to)
                     : below        ? fmt::format("limited to at least {} (measured)", from)
                                    : fmt::format("limited to at most {} (measured)", to),
                     [=, cast = cast_as(id, policy)](float x) {
                       return cast(std::isnan(x) ? x : std::clamp(x, from, to));
                     }};
}

std::vector<OtherQuantization> quantization_mistakes(const Product& product) {
  if (!product.a_original || !product.b_original) return {};
  std::vector<OtherQuantization> mistakes{{"truncated_quantization",
                                           "truncated where the recipe rounds to nearest",
                                           [](const Format& to, float x) {
                                             CastPolicy toward_zero = kNvidiaSatfinite;
                                             toward_zero.rounding = RoundingMode::toward_zero;
                                             return encode(to, toward_zero, x);
                                           }}};
  if (is_cast_of_triton_interpreter(product.problem.a.format) &&
      is_cast_of_triton_interpreter(product.problem.b.format))
    mistakes.push_back({"triton_interpreter_cast",
                        "quantized with the cast of Triton's interpreter, which loses carries "
                        "into the exponent (127 becomes 64)",
                        triton_interpreter_code});
  return mistakes;
}

Diagnosis diagnose_cast(const CastSpec& spec, std::span<const float> x,
                        std::span<const float> scale, std::span<const std::byte> got) {
  const FloatEnvironment environment;
  const std::vector<std::uint32_t> got_codes = code_words(spec.format, got);
  require(got_codes.size() == x.size(), "got", fmt::format("{} codes, as x", x.size()),
          fmt::format("{}", got_codes.size()));
  require(scale.size() == 1 || scale.size() == x.size(), "scale",
          fmt::format("1 or {} values", x.size()), fmt::format("{}", scale.size()));
  const auto codes_of = [&](const std::function<std::uint32_t(std::size_t)>& code) {
    std::vector<std::uint32_t> codes(x.size());
    for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = code(i);
    return codes;
  };
  const auto s = [&](std::size_t i) { return scale[scale.size() == 1 ? 0 : i]; };
  std::vector<float> right(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) right[i] = canonical(x[i] * s(i));
  const auto cast = cast_as(spec.format, spec.policy);
  Judge judge({spec.format, spec.policy}, codes_of([&](std::size_t i) { return cast(right[i]); }),
              got_codes);
  const auto consider = [&](const CastMistake& mistake) {
    judge.consider(mistake.name, mistake.text,
                   codes_of([&](std::size_t i) { return mistake.code(right[i]); }));
  };
  std::ranges::for_each(cast_mistakes(spec.format, spec.policy), consider);
  std::ranges::for_each(rarer_cast_mistakes(spec.format, spec.policy), consider);
  if (const auto clamped = clamp_mistake(spec.format, spec.policy, right, got_codes))
    consider(*clamped);
  const bool unit = std::all_of(scale.begin(), scale.end(), [](float one) { return one == 1.0F; });
  if (unit) return judge.finish();
  judge.consider("missing_scale", "the scale not applied",
                 codes_of([&](std::size_t i) { return cast(x[i]); }));
  judge.consider("doubled_scale", "the scale applied twice",
                 codes_of([&](std::size_t i) { return cast(x[i] * s(i) * s(i)); }));
  judge.consider("inverted_scale", "divided by the scale instead of multiplied",
                 codes_of([&](std::size_t i) { return cast(x[i] / s(i)); }));
  const std::vector<float> inverses = divisors(cast, x, scale, got_codes);
  judge.consider("divided_by_the_inverse", "divided by 1 / scale, which rounds differently",
                 codes_of([&](std::size_t i) { return cast(x[i] / inverses[i]); }));
  return judge.finish();
}

}  // namespace fp8lab

#include "fp8lab/accumulate/model.hpp"

#include <fmt/format.h>

#include <array>
#include <string>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 2> kProductExponentNames{"stored", "normalized"};
constexpr std::array<std::string_view, 2> kHalfCExponentNames{"stored", "widened"};
constexpr std::array<std::string_view, 2> kZeroSignNames{"kept", "positive"};
constexpr std::array<std::string_view, 2> kHalvesOrderNames{"chained", "separate"};
constexpr std::array<std::string_view, 3> kSubnormalsNames{"kept", "flushed_results", "flushed"};
constexpr std::array<std::string_view, 2> kPairRoundingNames{"nearest_even", "to_odd"};

}  // namespace

void validate(const AccumulatorModel& m) {
  unit_of(m.kind).validate(m);  // first: where a unit's range is narrower, its error names that
  const auto check = [](std::string_view field, int value, int low, int high) {
    // Every single dot product comes by here: no text is made unless it is needed.
    if (value < low || value > high)
      throw Error(field, fmt::format("{} .. {}", low, high), fmt::format("{}", value));
  };
  check("terms", m.terms, 1, 256);
  check("alignment_fraction_bits", m.alignment_fraction_bits, 1, 64);
  check("output_fraction_bits", m.output_fraction_bits, 1, 23);
  check("product_fraction_bits", m.product_fraction_bits, -1, 23);
  check("chains", m.chains, 1, 8);
  if (m.min_alignment_exponent != kNoMinAlignmentExponent)
    check("min_alignment_exponent", m.min_alignment_exponent, -300, 100);
  require(m.output_format == FormatId::f32 || m.output_format == FormatId::f16, "output_format",
          "f32 or f16", format(m.output_format).name);
  require(m.rounding != RoundingMode::stochastic, "rounding", "a deterministic mode", "stochastic");
  require(m.rounding != RoundingMode::to_odd, "rounding", "a mode of sums", "to_odd");
}

bool takes_formats(const AccumulatorModel& model, FormatId a, FormatId b) {
  const AccumulatorUnit& unit = unit_of(model.kind);
  const auto takes = [&](const Format& f) { return unit.takes(f) && f.fits_binary32(); };
  return takes(format(a)) && takes(format(b));
}

void require_formats(const AccumulatorModel& model, FormatId a, FormatId b) {
  if (takes_formats(model, a, b)) return;
  const AccumulatorUnit& unit = unit_of(model.kind);
  for (const FormatId id : {a, b})
    require(format(id).fits_binary32(), id == a ? "a" : "b",
            "a format whose values binary32 represents", format(id).name);
  const bool first = !unit.takes(format(a));
  throw Error(first ? "a" : "b", std::string(unit.operands()), format(first ? a : b).name);
}

std::vector<ModelParameter> parameters_of(const AccumulatorModel& m) {
  const auto number = [](int value) { return fmt::format("{}", value); };
  const auto text = [](std::string_view value) { return std::string(value); };
  std::vector<ModelParameter> all{{"kind", text(to_string(m.kind))},
                                  {"terms", number(m.terms)},
                                  {"alignment_fraction_bits", number(m.alignment_fraction_bits)},
                                  {"output_fraction_bits", number(m.output_fraction_bits)},
                                  {"rounding", text(to_string(m.rounding))},
                                  {"product_fraction_bits", number(m.product_fraction_bits)},
                                  {"output_format", text(format(m.output_format).name)},
                                  {"product_exponent", text(to_string(m.product_exponent))},
                                  {"min_alignment_exponent", number(m.min_alignment_exponent)},
                                  {"half_c_exponent", text(to_string(m.half_c_exponent))},
                                  {"zero_sign", text(to_string(m.zero_sign))},
                                  {"halves_order", text(to_string(m.halves_order))}};
  const UnitTraits traits = traits_of(m);
  if (traits.has_second_stage)
    all.push_back({"second_stage_fraction_bits", number(m.second_stage_fraction_bits)});
  if (m.kind == AccumulationKind::scaled_group_dot_product)
    all.push_back({"takes_ue4m3_per_32", m.takes_ue4m3_per_32 ? "true" : "false"});
  for (const std::string_view name : unit_of(m.kind).parameters(m)) {
    if (name == "chains") all.push_back({name, number(m.chains)});
    if (name == "subnormals") all.push_back({name, text(to_string(m.subnormals))});
    if (name == "pair_rounding") all.push_back({name, text(to_string(m.pair_rounding))});
  }
  return all;
}

std::string_view to_string(ProductExponent exponent) {
  return kProductExponentNames[static_cast<std::size_t>(exponent)];
}

ProductExponent find_product_exponent(std::string_view name) {
  return find_enumerator<ProductExponent>(kProductExponentNames, "product_exponent", name);
}

std::string_view to_string(HalfCExponent exponent) {
  return kHalfCExponentNames[static_cast<std::size_t>(exponent)];
}

HalfCExponent find_half_c_exponent(std::string_view name) {
  return find_enumerator<HalfCExponent>(kHalfCExponentNames, "half_c_exponent", name);
}

std::string_view to_string(ZeroSign sign) { return kZeroSignNames[static_cast<std::size_t>(sign)]; }

ZeroSign find_zero_sign(std::string_view name) {
  return find_enumerator<ZeroSign>(kZeroSignNames, "zero_sign", name);
}

std::string_view to_string(HalvesOrder order) {
  return kHalvesOrderNames[static_cast<std::size_t>(order)];
}

HalvesOrder find_halves_order(std::string_view name) {
  return find_enumerator<HalvesOrder>(kHalvesOrderNames, "halves_order", name);
}

std::string_view to_string(Subnormals subnormals) {
  return kSubnormalsNames[static_cast<std::size_t>(subnormals)];
}

Subnormals find_subnormals(std::string_view name) {
  return find_enumerator<Subnormals>(kSubnormalsNames, "subnormals", name);
}

std::string_view to_string(PairRounding rounding) {
  return kPairRoundingNames[static_cast<std::size_t>(rounding)];
}

PairRounding find_pair_rounding(std::string_view name) {
  return find_enumerator<PairRounding>(kPairRoundingNames, "pair_rounding", name);
}

std::string_view to_string(Standing standing) {
  constexpr std::array<std::string_view, 5> kNames{"measured", "specified", "from literature",
                                                   "assumed", "definition"};
  return kNames[static_cast<std::size_t>(standing)];
}

}  // namespace fp8lab

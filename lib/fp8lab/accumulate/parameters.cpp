#include "fp8lab/accumulate/parameters.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "fp8lab/core/error.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view kNone = "none";

int integer(std::string_view name, std::string_view expected, std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc{} && end == text.data() + text.size(), name, expected,
          fmt::format("'{}'", text));
  return value;
}

template <int AccumulatorModel::*Field>
std::string number_of(const InstructionModel& m) {
  return fmt::format("{}", m.accumulator.*Field);
}
template <int AccumulatorModel::*Field>
void set_number(InstructionModel& m, std::string_view name, std::string_view text) {
  m.accumulator.*Field = integer(name, "an integer", text);
}

std::string lower_limit_of(const InstructionModel& m) {
  const int limit = m.accumulator.min_alignment_exponent;
  return limit == kNoMinAlignmentExponent ? std::string(kNone) : fmt::format("{}", limit);
}
void set_lower_limit(InstructionModel& m, std::string_view name, std::string_view text) {
  int& limit = m.accumulator.min_alignment_exponent;
  limit = kNoMinAlignmentExponent;
  if (text == kNone) return;
  limit = integer(name, "an integer, or none", text);
  require(limit != kNoMinAlignmentExponent, name, "-300 .. 100, or none", text);
}

template <auto Field>
std::string word_of(const InstructionModel& m) {
  return std::string(to_string(m.accumulator.*Field));
}
template <auto Field, auto Find>
void set_word(InstructionModel& m, std::string_view /*name*/, std::string_view text) {
  m.accumulator.*Field = Find(text);
}

FormatId format_named(std::string_view name, std::string_view text) {
  try {
    return find_format(text).id;
  } catch (const Error&) {
    throw Error(name, "a format (`fp8lab list formats`)", fmt::format("'{}'", text));
  }
}
std::string output_of(const InstructionModel& m) {
  return std::string(format(m.accumulator.output_format).name);
}
void set_output(InstructionModel& m, std::string_view name, std::string_view text) {
  m.accumulator.output_format = format_named(name, text);
}
template <FormatId InstructionModel::*Field>
std::string operand_of(const InstructionModel& m) {
  return std::string(format(m.*Field).name);
}
template <FormatId InstructionModel::*Field>
void set_operand(InstructionModel& m, std::string_view name, std::string_view text) {
  m.*Field = format_named(name, text);
}

std::string wide_scales_of(const InstructionModel& m) {
  return m.accumulator.takes_ue4m3_per_32 ? "true" : "false";
}
void set_wide_scales(InstructionModel& m, std::string_view name, std::string_view text) {
  require(text == "true" || text == "false", name, "true or false", fmt::format("'{}'", text));
  m.accumulator.takes_ue4m3_per_32 = text == "true";
}

template <int AccumulatorModel::*Field>
constexpr AccumulatorParameter number(std::string_view name, std::string_view alias,
                                      std::string_view values, std::string_view help) {
  return {name, alias, values, help, number_of<Field>, set_number<Field>};
}
template <auto Field, auto Find>
constexpr AccumulatorParameter word(std::string_view name, std::string_view alias,
                                    std::string_view values, std::string_view help) {
  return {name, alias, values, help, word_of<Field>, set_word<Field, Find>};
}

using A = AccumulatorModel;
using I = InstructionModel;

constexpr std::array kParameters{
    number<&A::terms>("terms", "", "1 to 256", "products per step"),
    number<&A::alignment_fraction_bits>("alignment_fraction_bits", "F", "1 to 64",
                                        "fraction bits of aligned terms"),
    number<&A::output_fraction_bits>("output_fraction_bits", "M", "1 to 23",
                                     "fraction bits of a step's sum; 10 if output is f16"),
    word<&A::rounding, find_rounding_mode>("rounding", "round",
                                           "nearest_even, toward_zero or another fixed mode",
                                           "rounding of a step's sum"),
    AccumulatorParameter{"min_alignment_exponent", "e_min", "-300 to 100, or none",
                         "lower limit of the alignment exponent", lower_limit_of, set_lower_limit},
    AccumulatorParameter{"output_format", "output", "f32 or f16", "format of c and of a step's sum",
                         output_of, set_output},
    word<&A::product_exponent, find_product_exponent>(
        "product_exponent", "", "stored or normalized", "exponent by which a product is aligned"),
    number<&A::product_fraction_bits>("product_fraction_bits", "P", "0 to 23, or -1: exact",
                                      "fraction bits of a product"),
    word<&A::half_c_exponent, find_half_c_exponent>(
        "half_c_exponent", "", "stored or widened",
        "exponent by which a subnormal FP16 c is aligned"),
    word<&A::zero_sign, find_zero_sign>("zero_sign", "", "kept or positive",
                                        "sign of a sum that rounds to zero"),
    word<&A::halves_order, find_halves_order>("halves_order", "", "chained or separate",
                                              "how the two FP16 steps are combined"),
    number<&A::second_stage_fraction_bits>(
        "second_stage_fraction_bits", "S", "1 to 40",
        "fraction bits of the products' sum to which c is added"),
    AccumulatorParameter{"takes_ue4m3_per_32", "", "true or false",
                         "also UE4M3 scales per 32 terms, not only per 16", wide_scales_of,
                         set_wide_scales},
    AccumulatorParameter{"a_format", "a", "a format that the unit reads",
                         "format of a in vector files", operand_of<&I::a_format>,
                         set_operand<&I::a_format>},
    AccumulatorParameter{"b_format", "b", "a format that the unit reads",
                         "format of b in vector files", operand_of<&I::b_format>,
                         set_operand<&I::b_format>},
};

}  // namespace

std::span<const AccumulatorParameter> accumulator_parameters() { return kParameters; }

const AccumulatorParameter& find_accumulator_parameter(std::string_view name) {
  std::string known;
  for (const AccumulatorParameter& one : kParameters) {
    if (one.name == name || (!one.alias.empty() && one.alias == name)) return one;
    known += (known.empty() ? "" : ", ") + std::string(one.name);
    if (!one.alias.empty()) known += fmt::format(" ({})", one.alias);
  }
  throw Error("parameter", "one of " + known, fmt::format("'{}'", name));
}

}  // namespace fp8lab

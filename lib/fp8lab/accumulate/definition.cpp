#include "fp8lab/accumulate/definition.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"

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
    number<&A::chains>("chains", "", "1 to 8", "chains of FMAs among which products are dealt"),
    word<&A::subnormals, find_subnormals>("subnormals", "", "kept, flushed_results or flushed",
                                          "what becomes of binary32 numbers below 2^-126"),
    word<&A::pair_rounding, find_pair_rounding>(
        "pair_rounding", "", "nearest_even or to_odd",
        "rounding of products, of the sum of a pair, and of that with c"),
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

namespace {

constexpr std::string_view kArgument = "model";
constexpr std::string_view kOutputBits = "output_fraction_bits";
constexpr std::string_view kOutputFormat = "output_format";
constexpr int kHalfFractionBits = 10;

const InstructionModel* registered(std::string_view name) {
  for (const InstructionModel& model : instruction_models())
    if (model.name == name) return &model;
  return nullptr;
}

const AccumulatorKind* kind_named(std::string_view name) {
  for (const AccumulatorKind& one : accumulator_kinds())
    if (one.name == name || (!one.alias.empty() && one.alias == name)) return &one;
  return nullptr;
}

/// The instruction that a definition starts from. "exact" and "float32" are found as kinds.
const InstructionModel& base_named(std::string_view name) {
  if (const InstructionModel* model = registered(name)) return *model;
  if (const AccumulatorKind* kind = kind_named(name)) return *registered(kind->instruction);
  std::vector<std::string_view> kinds;
  std::vector<std::string_view> all;
  for (const AccumulatorKind& one : accumulator_kinds()) kinds.push_back(one.name);
  for (const InstructionModel& model : instruction_models()) all.push_back(model.name);
  all.insert(all.end(), kinds.begin(), kinds.end());
  throw Error("base",
              fmt::format("an instruction (`fp8lab list models`), or one of {}{}",
                          fmt::join(kinds, ", "), did_you_mean(all, name)),
              fmt::format("'{}'", name));
}

bool has(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Throws unless every parameter that was given makes a difference.
void require_used(const AccumulatorModel& model, const std::vector<std::string_view>& given) {
  const std::vector<std::string_view> used = parameters_that_matter(model);
  for (const std::string_view name : given) {
    if (has(used, name)) continue;
    const bool half = model.output_format == FormatId::f16;
    throw Error(name,
                half && name == kOutputBits
                    ? "nothing: an f16 output has 10 fraction bits"
                    : fmt::format("one of {}, the parameters of {}{}", fmt::join(used, ", "),
                                  to_string(model.kind),
                                  model.output_format == FormatId::f16 ? " with f16 output" : ""),
                "a value");
  }
}

/// FP16 has its own fraction bits; whoever leaves it must say how many follow.
void settle_output(const InstructionModel& base, const std::vector<std::string_view>& given,
                   AccumulatorModel& model) {
  if (model.output_format == FormatId::f16 && has(given, kOutputFormat))
    model.output_fraction_bits = kHalfFractionBits;
  const bool widened =
      base.accumulator.output_format == FormatId::f16 && model.output_format == FormatId::f32;
  if (widened && !has(parameters_that_matter(model), kOutputBits)) {
    model.output_fraction_bits = format(FormatId::f32).mantissa_bits;
    return;
  }
  require(!widened || has(given, kOutputBits), kOutputBits,
          fmt::format("a value, since {} has f16 output", base.name), "none");
}

InstructionModel model_of(const ModelText& text) {
  const InstructionModel& base = base_named(text.base);
  InstructionModel model = base;
  std::vector<std::string_view> given;
  for (const ModelText::Item& item : text.items) {
    const AccumulatorParameter& parameter = find_accumulator_parameter(item.parameter);
    require(!has(given, parameter.name), parameter.name, "to be given once",
            fmt::format("twice, as {} too", parameter.alias));
    given.push_back(parameter.name);
    parameter.set(model, parameter.name, item.value);
  }
  settle_output(base, given, model.accumulator);
  require_used(model.accumulator, given);
  validate(model.accumulator);
  require_formats(model.accumulator, model.a_format, model.b_format);
  model.standing = Standing::definition;
  model.evidence = {};
  return model;
}

void require_free(std::string_view name) {
  const bool taken = registered(name) != nullptr || kind_named(name) != nullptr;
  require(!taken, "name", "a name that no instruction or kind has", fmt::format("'{}'", name));
}

/// A model with the texts that it points to.
struct Kept {
  std::string text;
  std::string source;
  InstructionModel model;
};

std::unique_ptr<const Kept> make(std::string_view text) {
  try {
    const ModelText parts = ModelText::parse(kArgument, text);
    if (!parts.name.empty()) require_free(parts.name);
    auto kept = std::make_unique<Kept>(Kept{std::string(text),
                                            fmt::format("defined by the user from {}", parts.base),
                                            model_of(parts)});
    kept->model.name = kept->text;
    kept->model.source = kept->source;
    return kept;
  } catch (const Error& error) {
    const std::string_view reason = error.what();
    if (reason.starts_with("model: ")) throw;
    throw Error(fmt::format("model {}: {}", text, reason));
  }
}

std::string text_of(const InstructionModel& model, std::string_view base) {
  ModelText text{.name = {}, .base = std::string(base), .items = {}};
  for (const std::string_view name : parameters_that_matter(model.accumulator)) {
    const AccumulatorParameter& parameter = find_accumulator_parameter(name);
    text.set(parameter.alias.empty() ? parameter.name : parameter.alias, parameter.get(model));
  }
  return text.text();
}

}  // namespace

std::vector<std::string_view> parameters_that_matter(const AccumulatorModel& model) {
  std::vector<std::string_view> names = unit_of(model.kind).parameters(model);
  names.insert(names.end(), {"a_format", "b_format"});
  return names;
}

bool equal_but_for_zero_sign(const AccumulatorModel& one, const AccumulatorModel& other) {
  AccumulatorModel changed = one;
  changed.zero_sign = other.zero_sign;
  return changed == other;
}

bool is_definition(std::string_view text) {
  return text.find_first_of(":=") != std::string_view::npos ||
         (kind_named(text) != nullptr && registered(text) == nullptr);
}

const InstructionModel& defined_model(std::string_view text) {
  static std::mutex mutex;
  static std::map<std::string_view, std::unique_ptr<const Kept>> models;
  {
    const std::scoped_lock lock(mutex);
    if (const auto found = models.find(text); found != models.end()) return found->second->model;
  }
  std::unique_ptr<const Kept> made = make(text);
  const std::scoped_lock lock(mutex);
  const std::string_view key = made->text;
  return models.try_emplace(key, std::move(made)).first->second->model;
}

std::string definition_of(const AccumulatorModel& model, FormatId a, FormatId b) {
  validate(model);
  InstructionModel whole = base_named(to_string(model.kind));
  whole.accumulator = model;
  whole.a_format = a;
  whole.b_format = b;
  return text_of(whole, to_string(model.kind));
}

}  // namespace fp8lab

// One short dot product, taken apart: what each unit makes of the user's own numbers.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/accumulate/definition.hpp"
#include "fp8lab/accumulate/halves.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/accumulate/units/fused_dot_product.hpp"
#include "fp8lab/core/error.hpp"
#include "pictures/json.hpp"
#include "pictures/numbers.hpp"
#include "pictures/pictures.hpp"

namespace fp8lab::explorer {
namespace {

using namespace accumulate_detail;

constexpr std::size_t kMostTerms = 32;

double value_of(const KulischAccumulator& sum) {
  const Exact x = sum.value();
  const double magnitude = std::ldexp(static_cast<double>(x.significand), x.exponent);
  return x.negative ? -magnitude : magnitude;
}

/// `magnitude` units of 2^low in binary digits, the first of them 1; "0" for zero.
std::string digits(Wide magnitude) {
  std::string text;
  for (; magnitude != 0; magnitude >>= 1) text += (magnitude & 1) != 0 ? '1' : '0';
  if (text.empty()) text.push_back('0');
  std::reverse(text.begin(), text.end());
  return text;
}

/// Adds `units` of 2^low; zeros at its end may be below what the accumulator holds.
void add_units(KulischAccumulator& sum, Wide units, int low, bool subtracts) {
  const bool negative = (units < 0) != subtracts;
  Wide magnitude = units < 0 ? -units : units;
  for (; magnitude != 0 && (magnitude & 1) == 0; ++low) magnitude >>= 1;
  for (; magnitude != 0; magnitude >>= 32, low += 32)
    sum.add(negative, static_cast<std::uint64_t>(magnitude & 0xffffffff), low);
}

/// A number as the page draws it: sign, binary digits, the exponent of the last one, value.
JsonObject drawn(bool negative, Wide magnitude, int low) {
  KulischAccumulator sum;
  add_units(sum, negative ? -magnitude : magnitude, low, false);
  return JsonObject()
      .flag("negative", negative)
      .text("digits", digits(magnitude))
      .number("low", low)
      .number("value", value_of(sum));
}

/// A binary32 number without the zeros at its end.
JsonObject drawn(float x) {
  if (!std::isfinite(x)) return JsonObject().number("value", static_cast<double>(x));
  const Term t = as_term(unpack_float(x));
  Wide magnitude = t.significand;
  int low = t.exponent - t.fraction_bits;
  for (; magnitude != 0 && (magnitude & 1) == 0; ++low) magnitude >>= 1;
  return drawn(std::signbit(x), magnitude, magnitude == 0 ? 0 : low);
}

std::string binary32(float x) { return fmt::format("0x{:08x}", std::bit_cast<std::uint32_t>(x)); }

/// One term of a stage; `cut`: the exponent of the lowest digit that is kept, if the unit aligns.
std::string describe_term(const std::string& label, const Term& t, const int* cut) {
  const int low = t.exponent - t.fraction_bits;
  JsonObject object = drawn(t.negative, t.significand, low);
  object.text("label", label).number("exponent", t.exponent);
  if (cut == nullptr) return object.str();
  const Wide kept = aligned_toward_zero(t, *cut);
  KulischAccumulator lost;
  add(lost, t);
  add_units(lost, kept, *cut, true);
  return object.text("kept", digits(kept < 0 ? -kept : kept)).number("lost", value_of(lost)).str();
}

/// c without the zeros at its end; it brings the same exponent to an alignment.
Term trimmed(float c) {
  Term t = as_term(unpack_float(c));
  for (; t.significand != 0 && (t.significand & 1) == 0 && t.fraction_bits > 0; --t.fraction_bits)
    t.significand >>= 1;
  return t;
}

using Operands = std::vector<Unpacked>;

/// What one stage adds: products of `a` and `b`, and `c`, called `c_label`.
struct Stage {
  std::string title;
  Operands a{}, b{};
  std::vector<std::size_t> places{};  ///< of the products in the user's lists
  float c = 0.0F;
  std::string c_label = "c";
  float result = 0.0F;
};

bool finite(const Stage& s) {
  Specials specials;
  specials.note_value(unpack_float(s.c));
  specials.note_products(s.a, s.b);
  return !specials.any();
}

std::string describe_stage(const Stage& s, const AccumulatorModel* aligning) {
  JsonObject object;
  object.text("title", s.title)
      .raw("result", drawn(s.result).text("bits", binary32(s.result)).str());
  if (!finite(s)) return object.flag("special", true).raw("terms", "[]").str();
  const int largest = aligning == nullptr ? kNoExponent : fused_alignment(*aligning, s.a, s.b, s.c);
  // Zeros alone have no exponent, and nothing is cut from them.
  const bool cuts = largest != kNoExponent;
  const int cut = cuts ? largest - aligning->alignment_fraction_bits : 0;
  const int* const shown_cut = cuts ? &cut : nullptr;
  std::vector<Term> terms{trimmed(s.c)};
  std::vector<std::string> labels{s.c_label};
  for (std::size_t i = 0; i < s.a.size(); ++i) {
    terms.push_back(product(s.a[i], s.b[i]));
    labels.push_back(fmt::format("a{0} b{0}", s.places[i] + 1));
  }
  KulischAccumulator exact;
  Wide kept = 0;
  std::string list = "[";
  for (std::size_t i = 0; i < terms.size(); ++i) {
    if (i > 0) list += ',';
    list += describe_term(labels[i], terms[i], shown_cut);
    add(exact, terms[i]);
    if (shown_cut != nullptr) kept += aligned_toward_zero(terms[i], cut);
  }
  object.flag("special", false).raw("terms", list + ']').number("exact", value_of(exact));
  if (shown_cut != nullptr)
    object.number("largest", largest)
        .number("cut", cut)
        .raw("sum", drawn(kept < 0, kept < 0 ? -kept : kept, cut).str());
  return object.str();
}

/// The stages of a unit that adds `terms` products a step: c is the library's sum so far.
std::vector<Stage> steps(const AccumulatorModel& model, const Operands& a, const Operands& b,
                         float c, std::size_t terms, std::string_view name) {
  std::vector<Stage> stages;
  float sum = model.output_format == FormatId::f16 ? rounded_to_half(c) : c;
  for (std::size_t begin = 0; begin < a.size(); begin += terms) {
    const std::size_t end = std::min(a.size(), begin + terms);
    Stage s{.title = fmt::format("{} {}", name, stages.size() + 1)};
    for (std::size_t i = begin; i < end; ++i) {
      s.a.push_back(a[i]);
      s.b.push_back(b[i]);
      s.places.push_back(i);
    }
    s.c = sum;
    s.c_label = stages.empty() ? "c" : "sum so far";
    s.result = sum = dot_product(model, std::span(a).first(end), std::span(b).first(end), c);
    stages.push_back(std::move(s));
  }
  return stages;
}

/// FP8 as FP16: two fused steps an instruction, then c joins their sum.
std::vector<Stage> halves(const AccumulatorModel& model, const Operands& a, const Operands& b,
                          float c) {
  const AccumulatorModel half = step_of_halves(model);
  std::vector<Stage> stages;
  for (const Stage& whole : steps(model, a, b, c, static_cast<std::size_t>(model.terms), "Step")) {
    float first = 0.0F;
    for (int h = 0; h < 2; ++h) {
      const bool chained = h == 1 && model.halves_order == HalvesOrder::chained;
      Stage s{.title = fmt::format("{}, {} half", whole.title, h == 0 ? "first" : "second")};
      for (int i = 0; i < half.terms; ++i) {
        const auto at = static_cast<std::size_t>(term_of_halves(h * half.terms + i, model.terms));
        if (at >= whole.a.size()) continue;
        s.a.push_back(as_half(whole.a[at], "a"));
        s.b.push_back(as_half(whole.b[at], "b"));
        s.places.push_back(whole.places[at]);
      }
      s.c = chained ? first : 0.0F;
      s.c_label = chained ? "first half" : "zero";
      s.result = first = dot_product(half, s.a, s.b, s.c);
      stages.push_back(std::move(s));
    }
  }
  return stages;
}

Operands operands(std::string_view name, std::string_view text, FormatId id,
                  std::string& described) {
  const Format& f = format(id);
  const CastPolicy& policy = find_cast_profile("nvidia_satfinite").policy;
  Operands result;
  std::string list = "[";
  for (const double x : numbers_of(name, text, kMostTerms)) {
    const CastResult code = cast(f, policy, static_cast<float>(x));
    if (!result.empty()) list += ',';
    list += JsonObject()
                .number("typed", x)
                .number("value", decode(f, code.code))
                .text("code", fmt::format("0x{:0{}x}", code.code, (f.code_bits() + 3) / 4))
                .str();
    result.push_back(unpack(f, code.code));
  }
  described = list + ']';
  return result;
}

/// Products that a unit without an alignment takes at a time, for the picture.
std::size_t at_a_time(const AccumulatorModel& model, std::size_t all) {
  const UnitTraits traits = traits_of(model);
  if (traits.has_steps) return static_cast<std::size_t>(model.terms);
  return traits.keeps_all ? all : 1;
}

}  // namespace

std::string step(const StepQuestion& q) {
  const InstructionModel& model = find_instruction_model(q.model);
  const AccumulatorModel& unit = model.accumulator;
  std::string a_text;
  std::string b_text;
  const Operands a = operands("a", q.a, model.a_format, a_text);
  const Operands b = operands("b", q.b, model.b_format, b_text);
  require(a.size() == b.size(), "b", fmt::format("as many numbers as a, {}", a.size()),
          fmt::format("{}", b.size()));
  require(std::isfinite(static_cast<float>(q.c)), "c", "a finite binary32 number",
          fmt::format("{}", q.c));
  const auto c = static_cast<float>(q.c);
  const bool in_halves = unit.kind == AccumulationKind::fp16_halves;
  const bool aligns = in_halves || unit.kind == AccumulationKind::fused_dot_product ||
                      unit.kind == AccumulationKind::scaled_dot_product;
  const AccumulatorModel half = in_halves ? step_of_halves(unit) : unit;
  const std::vector<Stage> stages =
      in_halves ? halves(unit, a, b, c) : steps(unit, a, b, c, at_a_time(unit, a.size()), "Step");
  const float result = dot_product(unit, a, b, c);
  KulischAccumulator exact;
  add(exact, as_term(unpack_float(c)));
  for (std::size_t i = 0; i < a.size(); ++i) add(exact, product(a[i], b[i]));
  KulischAccumulator lost = exact;
  if (std::isfinite(result)) {
    Term t = as_term(unpack_float(result));
    t.negative = !t.negative;
    add(lost, t);
  }
  return JsonObject()
      .text("model", model.name)
      .text("standing", to_string(model.standing))
      .text("kind", to_string(unit.kind))
      .flag("aligns", aligns)
      .flag("halves", in_halves)
      .number("fraction_bits", half.alignment_fraction_bits)
      .number("output_fraction_bits", unit.output_fraction_bits)
      .text("output", format(unit.output_format).name)
      .text("rounding", to_string(unit.rounding))
      .number("min_alignment_exponent", half.min_alignment_exponent)
      .raw("a", a_text)
      .raw("b", b_text)
      .number("c", static_cast<double>(c))
      .raw("stages",
           json_array(stages,
                      [&](const Stage& s) { return describe_stage(s, aligns ? &half : nullptr); }))
      .number("result", static_cast<double>(result))
      .text("bits", binary32(result))
      .number("exact", value_of(exact))
      .number("lost", std::isfinite(result) ? value_of(lost) : std::nan(""))
      .str();
}

}  // namespace fp8lab::explorer

#include "fp8lab/formats/definition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/model_text.hpp"
#include "fp8lab/core/names.hpp"

namespace fp8lab {
namespace {

constexpr std::string_view kBase = "float";
constexpr int kFewestBits = 3;
constexpr int kMostBits = 16;

constexpr std::array<FormatParameter, 8> kParameters{{
    {"e", "1 to 15", "bits of the exponent field; required"},
    {"m", "0 to 15", "bits of the mantissa field; required"},
    {"bias", "-32768 to 32768", "exponent bias; 2^(e-1) - 1 if it is not given"},
    {"inf", "yes or no", "whether there is Inf; yes only with nan=ieee if it is not given"},
    {"nan", "ieee, one or none",
     "ieee: exponent field all ones; one: the code of -0 if that is no number, else all bits but "
     "the sign ones"},
    {"negative_zero", "yes or no",
     "whether the code of -0 is a zero; no: it is the NaN of nan=one"},
    {"subnormals", "yes, flushed or normal",
     "what exponent field 0 holds: subnormals, zeros alone, or (without a sign) normal numbers and "
     "no zero"},
    {"signed", "yes or no", "whether there is a sign bit"},
}};

constexpr std::array<NamedFormat, 5> kNamed{{
    {"e3m4", "float:e=3,m=4", "ml_dtypes float8_e3m4, as IEEE 754 has it"},
    {"e4m3_ieee", "float:e=4,m=3", "ml_dtypes float8_e4m3, as IEEE 754 has it"},
    {"e4m3b11fnuz", "float:e=4,m=3,bias=11,nan=one,negative_zero=no",
     "ml_dtypes float8_e4m3b11fnuz"},
    {"ue4m3", "float:e=4,m=3,nan=one,signed=no", "scales of NVFP4 (PTX ue4m3), 7 bits"},
    {"ue5m3", "float:e=5,m=3,nan=one,signed=no",
     "scales of FP4 (PTX ue5m3, preview of 13.4), 8 bits"},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOtherNames{{
    {"float8_e3m4", "e3m4"},
    {"float8_e4m3", "e4m3_ieee"},
    {"float8_e4m3b11fnuz", "e4m3b11fnuz"},
}};

int number_of(std::string_view name, std::string_view text) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  require(error == std::errc{} && stop == end, name, "a whole number", fmt::format("'{}'", text));
  return value;
}

/// The parameters of a text, as given.
struct Given {
  std::optional<int> e, m, bias;
  std::optional<bool> inf, negative_zero;
  std::string_view nan = "ieee";
  FieldZero field_zero = FieldZero::gradual;
  bool has_sign = true;
};

bool yes_of(std::string_view name, std::string_view text) {
  constexpr std::array<std::string_view, 2> kWords{"no", "yes"};
  return find_name(kWords, name, text) == 1;
}

void set(Given& given, std::string_view name, std::string_view value) {
  constexpr std::array<std::string_view, 3> kNans{"ieee", "one", "none"};
  constexpr std::array<std::string_view, 3> kFieldZero{"yes", "flushed", "normal"};
  if (name == "e") given.e = number_of(name, value);
  if (name == "m") given.m = number_of(name, value);
  if (name == "bias") given.bias = number_of(name, value);
  if (name == "inf") given.inf = yes_of(name, value);
  if (name == "negative_zero") given.negative_zero = yes_of(name, value);
  if (name == "signed") given.has_sign = yes_of(name, value);
  if (name == "nan") given.nan = kNans[find_name(kNans, name, value)];
  if (name == "subnormals") given.field_zero = find_enumerator<FieldZero>(kFieldZero, name, value);
}

/// The codes that are no numbers, if what was given does not contradict itself.
SpecialValues specials_of(const Given& given) {
  const bool ieee = given.nan == "ieee";
  const bool one = given.nan == "one";
  const bool inf = given.inf.value_or(ieee);
  const bool negative_zero = given.negative_zero.value_or(given.has_sign);
  require(given.has_sign || !negative_zero, "negative_zero", "no, since signed=no", "yes");
  require(!given.has_sign || negative_zero || one, "negative_zero",
          "yes, since no NaN takes its code (nan=one does)", "no");
  require(!ieee || inf, "inf", "yes, since nan=ieee (nan=one and nan=none go without)", "no");
  require(!ieee || *given.m > 0, "m",
          "1 or more, since nan=ieee tells NaN from Inf by the mantissa (nan=one does not)",
          *given.m);
  if (ieee) return SpecialValues::ieee;
  if (!one) return inf ? SpecialValues::inf_only : SpecialValues::none;
  if (given.has_sign && !negative_zero) return inf ? SpecialValues::fnuz_inf : SpecialValues::fnuz;
  return inf ? SpecialValues::nan_inf : SpecialValues::nan_only;
}

/// The traits without id and name.
Format traits_of(const Given& given) {
  require(given.e.has_value(), "e", "bits of the exponent field", "none");
  require(given.m.has_value(), "m", "bits of the mantissa field", "none");
  require(*given.e >= 1 && *given.e <= 15, "e", "1 to 15", *given.e);
  require(*given.m >= 0 && *given.m <= 15, "m", "0 to 15", *given.m);
  const int bits = *given.e + *given.m + (given.has_sign ? 1 : 0);
  require(bits >= kFewestBits && bits <= kMostBits, "e + m",
          fmt::format("{} to {} bits, with the sign", kFewestBits, kMostBits), bits);
  const int bias = given.bias.value_or((1 << (*given.e - 1)) - 1);
  require(given.has_sign ? given.field_zero != FieldZero::normal : true, "subnormals",
          "yes or flushed, since only unsigned formats have no zero", "normal");
  require(bias >= -32768 && bias <= 32768, "bias", "-32768 to 32768", bias);
  Format f{FormatId::f32,
           {},
           *given.e,
           *given.m,
           bias,
           given.has_sign,
           specials_of(given),
           bits <= 8 ? 8 : 16,
           given.field_zero};
  const int first_field = f.is_scale_only() ? 0 : 1;
  const int last =
      std::max(static_cast<int>(f.max_finite_code() >> f.mantissa_bits), first_field) - bias;
  const int least = f.min_exponent() - f.mantissa_bits;
  require(last <= 1023 && least >= -1074, "bias", "one with which binary64 represents all values",
          fmt::format("{} (values from 2^{} to 2^{})", bias, least, last));
  return f;
}

Format parse(std::string_view text) {
  const ModelText parts = ModelText::parse("format", text);
  require(parts.name.empty() && parts.base == kBase, "format", "float:e=BITS,m=BITS,...",
          fmt::format("'{}'", text));
  Given given;
  for (const ModelText::Item& item : parts.items) {
    static_cast<void>(find_named(kParameters, "parameter", item.parameter));
    set(given, item.parameter, item.value);
  }
  return traits_of(given);
}

bool equal_traits(const Format& a, const Format& b) {
  const auto key = [](const Format& f) {
    return std::tuple(f.exponent_bits, f.mantissa_bits, f.bias, f.has_sign, f.specials,
                      f.field_zero);
  };
  return key(a) == key(b);
}

/// K, P, whether there is a sign, and whether there is Inf.
struct P3109 {
  int bits = 0;
  int precision = 0;
  bool has_sign = true;
  bool extended = true;
};

/// The parts of `binaryKpP[s|u][e|f]`; nothing for another form.
std::optional<P3109> p3109_named(std::string_view name) {
  if (!name.starts_with("binary") && !name.starts_with("Binary")) return std::nullopt;
  P3109 one;
  const char* at = name.data() + 6;
  const char* const end = name.data() + name.size();
  const auto bits = std::from_chars(at, end, one.bits);
  if (bits.ec != std::errc{} || bits.ptr == end || *bits.ptr != 'p') return std::nullopt;
  const auto precision = std::from_chars(bits.ptr + 1, end, one.precision);
  if (precision.ec != std::errc{}) return std::nullopt;
  const std::string_view suffix(precision.ptr, static_cast<std::size_t>(end - precision.ptr));
  if (suffix.empty()) return one;
  if (suffix != "se" && suffix != "sf" && suffix != "ue" && suffix != "uf") return std::nullopt;
  one.has_sign = suffix[0] == 's';
  one.extended = suffix[1] == 'e';
  return one;
}

Format traits_of(const P3109& one) {
  require(one.bits >= kFewestBits && one.bits <= kMostBits, "K",
          fmt::format("{} to {} bits", kFewestBits, kMostBits), one.bits);
  const int most = one.has_sign ? one.bits - 1 : one.bits;
  require(one.precision >= 1 && one.precision <= most, "P",
          fmt::format("1 to {} of {} bits, {}", most, one.bits,
                      one.has_sign ? "one of them the sign (u: unsigned)" : "unsigned"),
          one.precision);
  Given given;
  given.m = one.precision - 1;
  given.e = one.bits - *given.m - (one.has_sign ? 1 : 0);
  given.bias = 1 << (*given.e - 1);
  given.inf = one.extended;
  given.nan = "one";
  given.negative_zero = false;
  given.has_sign = one.has_sign;
  return traits_of(given);
}

/// The name that P3109 has for the traits, if it has one.
std::optional<std::string> p3109_name(const Format& f) {
  const P3109 one{f.code_bits(), f.mantissa_bits + 1, f.has_sign, f.has_infinity()};
  if (f.code_bits() < kFewestBits || f.bias != 1 << (f.exponent_bits - 1) ||
      !equal_traits(f, traits_of(one)))
    return std::nullopt;
  return fmt::format("binary{}p{}{}{}", one.bits, one.precision, one.has_sign ? 's' : 'u',
                     one.extended ? 'e' : 'f');
}

std::string name_of(const Format& f) {
  for (const NamedFormat& one : kNamed)
    if (equal_traits(f, parse(one.text))) return std::string(one.name);
  return p3109_name(f).value_or(format_text(f));
}

/// A format with what it points to. Its tables are made when they are first asked for.
struct Kept {
  std::string name;
  Format format;
  std::once_flag once;
  FormatTables tables;
};

/// All formats beyond the table. Readers need no lock: an entry never changes or goes.
class Registry {
 public:
  const Format& keep(const Format& traits) {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = 0; i < count_; ++i)
      if (equal_traits(at(i).format, traits)) return at(i).format;
    require(count_ < kMostDefinedFormats, "format",
            fmt::format("at most {} formats beyond the table in a process", kMostDefinedFormats),
            "one more");
    auto kept = std::make_unique<Kept>();
    kept->name = name_of(traits);
    kept->format = traits;
    kept->format.id = static_cast<FormatId>(kFormats.size() + count_);
    kept->format.name = kept->name;
    entries_[count_].store(kept.release(), std::memory_order_release);
    return at(count_++).format;
  }

  Kept& at(std::size_t index) { return *entries_[index].load(std::memory_order_acquire); }
  Kept& of(FormatId id) { return at(static_cast<std::size_t>(id) - kFormats.size()); }

 private:
  std::mutex mutex_;
  std::size_t count_ = 0;
  std::array<std::atomic<Kept*>, kMostDefinedFormats> entries_{};
};

/// It outlives every static object that holds a format.
Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

const Format& kept(const Format& traits) {
  for (const Format& f : kFormats)
    if (f.code_bits() <= kMostBits && equal_traits(f, traits)) return f;
  return registry().keep(traits);
}

const Format& kept_with_context(std::string_view text, const Format (*make)(std::string_view)) {
  try {
    return kept(make(text));
  } catch (const Error& error) {
    const std::string_view reason = error.what();
    if (reason.starts_with("format: ")) throw;
    throw Error(fmt::format("format {}: {}", text, reason));
  }
}

}  // namespace

std::span<const FormatParameter> format_parameters() { return kParameters; }
std::span<const NamedFormat> named_formats() { return kNamed; }

const Format& defined_format(FormatId id) { return registry().of(id).format; }

const FormatTables& tables_of_defined(FormatId id) {
  Kept& one = registry().of(id);
  std::call_once(one.once, [&] { one.tables = format_tables(one.format); });
  return one.tables;
}

bool is_format_definition(std::string_view text) {
  return text.starts_with("float:") || p3109_named(text).has_value();
}

const Format* find_defined_format(std::string_view text) {
  for (const auto& [other, name] : kOtherNames)
    if (other == text) return find_defined_format(name);
  for (const NamedFormat& one : kNamed)
    if (one.name == text) return &kept(parse(one.text));
  if (p3109_named(text))
    return &kept_with_context(
        text, [](std::string_view t) -> const Format { return traits_of(*p3109_named(t)); });
  if (is_format_definition(text))
    return &kept_with_context(text, [](std::string_view t) -> const Format { return parse(t); });
  return nullptr;
}

std::string format_text(const Format& f) {
  std::string text = fmt::format("float:e={},m={}", f.exponent_bits, f.mantissa_bits);
  if (f.bias != (1 << (f.exponent_bits - 1)) - 1) text += fmt::format(",bias={}", f.bias);
  if (f.has_infinity() && f.specials != SpecialValues::ieee) text += ",inf=yes";
  if (f.specials != SpecialValues::ieee) text += f.has_nan() ? ",nan=one" : ",nan=none";
  if (f.has_nan_for_negative_zero()) text += ",negative_zero=no";
  if (f.field_zero == FieldZero::flushed) text += ",subnormals=flushed";
  if (f.field_zero == FieldZero::normal) text += ",subnormals=normal";
  if (!f.has_sign) text += ",signed=no";
  return text;
}

}  // namespace fp8lab

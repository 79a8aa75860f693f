#include "fp8lab/vectors/cases.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/vectors/case_builder.hpp"
#include "fp8lab/vectors/replay.hpp"

namespace fp8lab {
namespace {

using detail::Builder;
using detail::finite_code;
using detail::float_bits;
using detail::normal_code;

constexpr int kMaxTerms = 1 << 15;
constexpr std::array<std::string_view, 3> kKindNames{"random", "adversarial", "special"};

/// The cut that exponent gaps are measured from.
int cut_of(const AccumulatorModel& model) { return traits_of(model).cut_fraction_bits; }

// Each draw has a statement of its own, or a place in an order that the language sets: that of
// arguments is the compiler's, and cases must not depend on it.

/// Sets c to +-2^exponent with a drawn significand.
void set_c(Builder& c, int exponent, std::uint32_t mask = 0x7fffffu) {
  const std::uint32_t fraction = c.draws.bits() & mask;
  c.out.c = float_bits(c.draws.coin(), exponent, fraction);
}

void set_c_between(Builder& c, int low, int high) {
  const std::uint32_t fraction = c.draws.bits();
  const int exponent = c.draws.between(low, high);
  c.out.c = float_bits(c.draws.coin(), exponent, fraction);
}

void set_random_product(Builder& c, int i, int exponent) {
  const bool negative = c.draws.coin();
  c.set_random_product(i, negative, exponent);
}

/// At any place.
void set_random_product(Builder& c, int exponent) {
  const bool negative = c.draws.coin();
  const int i = c.any_index();
  c.set_random_product(i, negative, exponent);
}

void set_product(Builder& c, int exponent, std::uint32_t a_mantissa, std::uint32_t b_mantissa) {
  const bool negative = c.draws.coin();
  const int i = c.any_index();
  c.set_product(i, negative, exponent, a_mantissa, b_mantissa);
}

// Spreads from one binade to the whole format, so that some cases align within
// a few bits and others lose most of their terms.
void build_random(Builder& c) {
  constexpr std::array<int, 4> kSpreads{1, 4, 8, 200};
  const int spread = kSpreads[static_cast<std::size_t>(c.draws.between(0, 3))];
  for (int i = 0; i < c.terms; ++i) c.set_finite(i, spread);
  if (c.draws.one_in(4)) return;
  const int reach = std::min(2 * spread, 40);
  set_c_between(c, -reach, reach);
}

// Every product has its negative, but for one small term that decides the result.
void cancellation(Builder& c) {
  const int top = c.top_exponent(cut_of(c.model));
  for (int i = 0; i + 1 < c.terms; i += 2) {
    const int exponent = top - c.draws.between(0, 4);
    c.set_random_product(i, false, exponent);
    const auto at = static_cast<std::size_t>(i);
    c.set(i + 1, c.out.a[at] ^ c.a.sign_mask(), c.out.b[at]);
  }
  const int gap = c.draws.between(cut_of(c.model) - 4, cut_of(c.model) + 1);
  set_random_product(c, top - gap);
}

// One large term, and the rest exactly one gap below it: at, just above and
// just under the cut, or at the gaps where published models disagree.
void swamping(Builder& c) {
  constexpr std::array<int, 6> kGaps{12, 13, 14, 24, 25, 26};
  const int cut = cut_of(c.model);
  const int gap = c.draws.coin() ? cut + c.draws.between(-3, 2)
                                 : kGaps[static_cast<std::size_t>(c.draws.between(0, 5))];
  const int top = c.top_exponent(gap);
  const bool one_sign = c.draws.coin();
  for (int i = 0; i < c.terms; ++i) c.set_random_product(i, !one_sign && c.draws.coin(), top - gap);
  set_random_product(c, top);
}

// The large products reach [2, 4): an alignment to the normalised product
// would cut the small ones one bit earlier.
void wide_products(Builder& c) {
  const int cut = cut_of(c.model);
  const int top = c.top_exponent(cut);
  for (int i = 0; i < c.terms; ++i) {
    const int below = c.draws.between(cut - 8, cut);
    c.set_random_product(i, c.draws.one_in(4), top - below);
  }
  set_product(c, top, ~0u, ~0u);
}

// The two halves of a step meet only in one alignment: the small terms of one
// half survive if the halves are summed one after the other.
void split_halves(Builder& c) {
  const int step = std::min(c.model.terms, c.terms);
  const int gap = cut_of(c.model) + c.draws.between(-5, 1);
  const int top = c.top_exponent(gap);
  const bool large_first = c.draws.coin();
  const bool positive = c.draws.coin();
  for (int i = 0; i < c.terms; ++i) {
    const bool first = i % step < step / 2;
    const int below = first == large_first ? c.draws.between(0, 2) : gap;
    c.set_random_product(i, !positive && c.draws.coin(), top - below);
  }
  if (c.draws.coin()) set_c(c, top - gap + 2);
}

// c far above the products, among them or far below, with a full significand
// or a short one.
void far_c(Builder& c) {
  const int cut = cut_of(c.model);
  const int top = c.top_exponent(cut);
  for (int i = 0; i < c.terms; ++i) {
    const int below = c.draws.between(0, 6);
    c.set_random_product(i, c.draws.one_in(3), top - below);
  }
  const int offset = c.draws.between(-cut - 3, cut + 3);
  const std::uint32_t mask = c.draws.coin() ? 0x7ffc00u : 0x7fffffu;
  set_c(c, top + offset, mask);
}

// c subnormal, tiny or huge while the products stay where they are.
void extreme_c(Builder& c) {
  const int middle = std::max(c.floor_exponent() + 6, -20);
  for (int i = 0; i < c.terms; ++i) {
    if (c.draws.one_in(4)) continue;
    const int above = c.draws.between(0, 3);
    const int below = c.draws.between(0, 6);
    set_random_product(c, i, middle + above - below);
  }
  constexpr std::array<int, 6> kExponents{-149, -140, -127, -126, 100, 126};
  const int exponent = kExponents[static_cast<std::size_t>(c.draws.between(0, 5))];
  set_c(c, exponent);
}

// All ones and all of one value: the running sum that sticks.
void constant(Builder& c) {
  const std::uint32_t one = normal_code(c.a, false, 0, 0);
  const std::uint32_t value = c.draws.coin() ? one : finite_code(c.a, c.draws, 4);
  const std::uint32_t other = normal_code(c.b, false, 0, c.draws.coin() ? 0 : c.draws.bits());
  for (int i = 0; i < c.terms; ++i) c.set(i, value, other);
  const std::uint32_t fraction = c.draws.bits() & 0x7ffc00u;
  const int exponent = c.draws.between(0, 26);
  c.out.c = float_bits(c.draws.one_in(4), exponent, fraction);
}

void subnormals(Builder& c) {
  const std::uint32_t a_mask = (std::uint32_t{1} << c.a.mantissa_bits) - 1;
  const std::uint32_t b_mask = (std::uint32_t{1} << c.b.mantissa_bits) - 1;
  for (int i = 0; i < c.terms; ++i) {
    const std::uint32_t fraction = c.draws.bits() & a_mask;
    const std::uint32_t sign = c.draws.coin() ? c.a.sign_mask() : 0;
    const std::uint32_t tiny = detail::with_zero(c.a, sign | fraction);
    const std::uint32_t small = c.draws.bits() & b_mask;
    c.set(i, tiny, c.draws.coin() ? small : finite_code(c.b, c.draws, 10));
  }
  if (c.draws.coin()) set_c_between(c, c.lowest_product() - 16, c.lowest_product() + 12);
}

// Zero times the largest value: a zero product must not take part in the alignment.
void large_zeros(Builder& c) {
  const int top = std::min(c.floor_exponent() + 12, c.highest_product());
  for (int i = 0; i < c.terms; ++i) set_random_product(c, i, top);
  for (int n = 0; n < 1 + c.terms / 4; ++n) {
    const std::uint32_t zero = detail::with_zero(c.a, c.draws.coin() ? c.a.sign_mask() : 0);
    c.set(c.any_index(), zero, c.b.max_finite_code());
  }
  if (c.draws.coin()) set_c(c, top - 12);
}

// An FP16 sum at the middle between two outputs, or beside it by about the last bit that the
// alignment keeps.
void half_ties(Builder& c) {
  const int cut = cut_of(c.model);
  const int top = std::min(c.top_exponent(cut + 1), 14);
  const bool wide = c.draws.coin();  // the large product reaches [2, 4)
  const auto leading = [&](const Format& f) {
    return wide && f.mantissa_bits > 0 ? std::uint32_t{1} << (f.mantissa_bits - 1) : 0;
  };
  c.set_product(0, c.draws.coin(), top, leading(c.a), leading(c.b));
  if (c.terms > 1) c.set_product(1, c.draws.coin(), top - (wide ? 10 : 11), 0, 0);
  // Of FP16 halves the terms 0, 1 and 4 are in one.
  if (c.terms > 2) {
    const int exponent = top - cut + c.draws.between(-1, 1);
    c.set_product(c.terms > 4 ? 4 : 2, c.draws.coin(), exponent, 0, 0);
  }
}

// A sum that lies at, or one bit beside, the middle between two outputs.
void ties(Builder& c) {
  const bool half = c.model.output_format == FormatId::f16;
  if (half && c.draws.coin()) return half_ties(c);
  const int output = half ? 10 : c.model.output_fraction_bits;
  const int top = c.top_exponent(output + 2);
  c.set_product(0, false, top, 0, 0);
  if (c.terms > 1) c.set_product(1, c.draws.coin(), top - output - 1, 0, 0);
  if (c.terms > 2) c.set_product(2, false, top - output + c.draws.between(0, 2), 0, 0);
  if (c.terms > 3 && c.draws.coin()) {
    const int exponent = top - output - c.draws.between(2, 4);
    c.set_product(3, c.draws.coin(), exponent, 0, 0);
  }
  if (c.draws.coin()) c.out.c = float_bits(c.draws.coin(), top - output - 1, 0);
}

// Values at the top of the formats: results that overflow a narrow output.
void near_overflow(Builder& c) {
  for (int i = 0; i < c.terms; ++i) {
    const int exponent = std::min(c.highest_product(), 127) - c.draws.between(0, 3);
    c.set_random_product(i, c.draws.one_in(8), exponent);
  }
  if (c.draws.coin()) set_c_between(c, 12, 17);
}

// Many terms that lose a fraction each, with both signs: truncation toward
// zero, floor and rounding part ways.
void truncated_signs(Builder& c) {
  const int cut = cut_of(c.model);
  const int bits = c.a.mantissa_bits + c.b.mantissa_bits;
  const int top = c.top_exponent(cut);
  const int negative_share = c.draws.between(1, 4);
  for (int i = 0; i < c.terms; ++i) {
    const int below = std::max(1, cut - bits + c.draws.between(0, bits));
    c.set_random_product(i, c.draws.one_in(negative_share), top - below);
  }
  set_product(c, top, 0, 0);
}

/// Positive products that add up to (2^bits - 1) * 2^unit, from term `i` on; returns the next term.
int set_ones(Builder& c, int i, int bits, int unit) {
  const int most = c.a.mantissa_bits + 1;
  for (int left = bits; left > 0 && i < c.terms; ++i) {
    const int ones = std::min(left, most);
    const std::uint32_t mantissa = ((std::uint32_t{1} << (ones - 1)) - 1) << (most - ones);
    c.set_product(i, false, unit + left - 1, mantissa, 0);
    left -= ones;
  }
  return i;
}

// Sums so small that the unit's lower limit aligns them, one last place away from another output:
// places just above and below the limit's last one decide.
void lower_limit(Builder& c) {
  const int unit = c.model.min_alignment_exponent - c.model.alignment_fraction_bits;
  const bool half = c.model.output_format == FormatId::f16;
  const int step = half ? -24 : -126 - c.model.output_fraction_bits;  // the smallest output
  if (unit < c.lowest_bit() || unit >= step) return subnormals(c);
  c.out.c = c.draws.coin() ? 0x80000000u : 0;
  int next = 0;
  int lowest_tail = unit - 1;
  if (half) {
    c.set_product(next++, false, step - 1, 0, 0);  // a tie
    // A subnormal c cuts at the last place of FP16's smallest exponent, or of its own.
    if (c.draws.coin()) {
      c.out.c = float_bits(false, step + c.draws.between(0, 9), 0);
      lowest_tail = c.draws.between(unit - 1, -14 - c.model.alignment_fraction_bits);
    }
  } else {
    next = set_ones(c, next, step - unit, unit);
  }
  const int tail = lowest_tail + c.draws.between(0, 1);
  for (int n = c.draws.between(1, 2); n > 0 && next < c.terms; --n)
    c.set_power(next++, half && c.draws.coin(), tail);
}

using Strategy = void (*)(Builder&);
constexpr std::array<Strategy, 13> kAdversarial{
    cancellation, swamping,    wide_products, split_halves,  far_c,           extreme_c,  constant,
    subnormals,   large_zeros, ties,          near_overflow, truncated_signs, lower_limit};

void check_terms(int terms, int lowest) {
  require(terms >= lowest && terms <= kMaxTerms, "terms",
          fmt::format("{} .. {}", lowest, kMaxTerms), fmt::format("{}", terms));
}

RandomStream stream_of(const InstructionModel& model, CaseKind kind, std::uint64_t seed) {
  return {seed, fmt::format("cases.{}.{}", model.name, to_string(kind))};
}

VectorCase build(const InstructionModel& model, const std::optional<ScaleBlocks>& scales, int terms,
                 CaseKind kind, const RandomStream& stream, std::uint64_t index) {
  Builder builder(model, terms, {stream, index});
  switch (kind) {
    case CaseKind::random:
      build_random(builder);
      break;
    case CaseKind::adversarial:
      kAdversarial[index % kAdversarial.size()](builder);
      break;
    case CaseKind::special:
      detail::build_special(builder);
      break;
  }
  if (scales) {
    const bool special = kind == CaseKind::special;
    builder.out.scales_a = detail::scale_codes(*scales, terms, special, builder.draws);
    builder.out.scales_b = detail::scale_codes(*scales, terms, special, builder.draws);
  }
  return std::move(builder.out);
}

}  // namespace

std::string_view to_string(CaseKind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

CaseKind find_case_kind(std::string_view name) {
  for (std::size_t i = 0; i < kKindNames.size(); ++i)
    if (kKindNames[i] == name) return static_cast<CaseKind>(i);
  throw Error("kind", "random, adversarial or special", "'" + std::string(name) + "'");
}

VectorCase generate_case(const InstructionModel& model, int terms, CaseKind kind,
                         std::uint64_t seed, std::uint64_t index) {
  return generate_case(model, scales_of_cases(model), terms, kind, seed, index);
}

VectorCase generate_case(const InstructionModel& model, const std::optional<ScaleBlocks>& scales,
                         int terms, CaseKind kind, std::uint64_t seed, std::uint64_t index) {
  check_terms(terms, 1);
  return build(model, scales, terms, kind, stream_of(model, kind, seed), index);
}

CaseGenerator::CaseGenerator(const InstructionModel& model, std::optional<ScaleBlocks> scales,
                             int terms, std::uint64_t seed)
    : model_(model),
      scales_(scales),
      terms_(terms),
      streams_{stream_of(model, CaseKind::random, seed),
               stream_of(model, CaseKind::adversarial, seed),
               stream_of(model, CaseKind::special, seed)} {
  check_terms(terms, 1);
}

VectorCase CaseGenerator::make(CaseKind kind, std::uint64_t index) const {
  return build(model_, scales_, terms_, kind, streams_[static_cast<std::size_t>(kind)], index);
}

VectorFile generate_cases(const InstructionModel& model, CaseKind kind, std::size_t count,
                          std::uint64_t seed, int terms) {
  check_terms(terms, 0);
  VectorFile file;
  file.model = model.name;
  file.a_format = model.a_format;
  file.b_format = model.b_format;
  file.terms = terms == 0 ? model.accumulator.terms : terms;
  file.scales = scales_of_cases(model);
  file.output_format = model.accumulator.output_format;
  file.header["kind"] = to_string(kind);
  file.header["seed"] = fmt::format("{}", seed);
  file.cases.reserve(count);
  if (count == 0) return file;
  const CaseGenerator generator(model, file.scales, file.terms, seed);
  for (std::size_t i = 0; i < count; ++i) file.cases.push_back(generator.make(kind, i));
  fill_results(file, model.accumulator);
  return file;
}

void fill_results(VectorFile& file, const AccumulatorModel& model) {
  for (VectorCase& one : file.cases) one.d = result_bits(model, file, one);
}

}  // namespace fp8lab

#include "fp8lab/verify/budget.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "fp8lab/accumulate/bound.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/gemm/block_scales.hpp"
#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/verify/cast_interval.hpp"
#include "fp8lab/verify/epilogue_budget.hpp"

namespace fp8lab {
namespace {

double value_of(const Unpacked& x) {
  const double magnitude = std::ldexp(x.significand, x.exponent - x.mantissa_bits);
  return x.negative ? -magnitude : magnitude;
}

class Row {
 public:
  Row(const CodeMatrix& m, std::int64_t row) {
    values_.reserve(static_cast<std::size_t>(m.k));
    for (std::int64_t k = 0; k < m.k; ++k)
      values_.push_back(unpack(format(m.format), code_at(m, row, k)));
  }
  [[nodiscard]] const Unpacked& operator[](std::int64_t k) const {
    return values_[static_cast<std::size_t>(k)];
  }
  [[nodiscard]] bool finite() const {
    return std::all_of(values_.begin(), values_.end(),
                       [](const Unpacked& x) { return x.is_finite(); });
  }

 private:
  std::vector<Unpacked> values_;
};

/// The exact products of [begin, end) of K, as a unit meets them, with the scales that it applies
/// itself.
std::vector<BoundedTerm> terms_of(const Row& a, const Row& b, std::int64_t begin, std::int64_t end,
                                  const BlockScales& scales) {
  std::vector<BoundedTerm> terms;
  terms.reserve(static_cast<std::size_t>(end - begin));
  for (std::int64_t k = begin; k < end; ++k) {
    const Unpacked& x = a[k];
    const Unpacked& y = b[k];
    const bool subnormal =
        x.value_class == ValueClass::subnormal || y.value_class == ValueClass::subnormal;
    const auto at = static_cast<std::size_t>(k - begin);
    const Unpacked sx = scale_at(scales, scales.a, at);
    const Unpacked sy = scale_at(scales, scales.b, at);
    terms.push_back({value_of(x) * value_of(y) * (value_of(sx) * value_of(sy)),
                     x.exponent + y.exponent + sx.exponent + sy.exponent, subnormal});
  }
  return terms;
}

/// `sum` times `scale`, two binary32 roundings, added to `final` with one more.
void scale_into(const BoundedSum& sum, double scale, BoundedSum& final) {
  const double product = sum.value * scale;
  final.error += sum.error * std::abs(scale) +
                 2.0 * kFloatStep * (std::abs(product) + sum.error * std::abs(scale)) + kTiny;
  final.value += product;
  final.error += (std::abs(final.value) + final.error) * kFloatStep;
  final.overflows |= sum.overflows;
  final.check_range(FormatId::f32);
}

struct Scales {
  ScaleLookup a;
  ScaleLookup b;
  [[nodiscard]] double at(std::int64_t row, std::int64_t column, std::int64_t k) const {
    return static_cast<double>(a.at(row, k)) * static_cast<double>(b.at(column, k));
  }
};

/// Whether a scale that the unit applies to this element is NaN.
bool has_nan_scale(const BlockScales& scales) {
  const auto nan = [&](std::uint32_t code) {
    return unpack_scale(scales.format, code).value_class == ValueClass::nan;
  };
  return std::any_of(scales.a.begin(), scales.a.end(), nan) ||
         std::any_of(scales.b.begin(), scales.b.end(), nan);
}

/// What comes after the sum over K: scales of all of it, and C in the epilogue.
BoundedSum scaled_sum(const GemmProblem& p, const BoundedSum& sum, std::int64_t row,
                      std::int64_t column) {
  const Scales scales{{p.scale_a, p.a}, {p.scale_b, p.b}};
  const bool scaled_last = scaled_as_a_whole(p);
  const bool c_last = p.c != nullptr && c_placement(p) == CPlacement::epilogue;
  if (!scaled_last && !c_last) return sum;
  BoundedSum out{c_last ? p.c[row * p.b.rows + column] : 0.0, 0.0};
  scale_into(sum, scaled_last ? scales.at(row, column, 0) : 1.0, out);
  return out;
}

BoundedSum accumulate(const GemmProblem& given, const Row& a, const Row& b, std::int64_t row,
                      std::int64_t column) {
  const BlockScaleRows unit_scales(given);
  const GemmProblem p = gemm_detail::without_unit_scales(given);
  const Scales scales{{p.scale_a, p.a}, {p.scale_b, p.b}};
  const double c = p.c == nullptr ? 0.0 : p.c[row * p.b.rows + column];
  if (p.a.k == 0) return {c, 0.0};
  const BlockScales all_scales = unit_scales.at(row, column, 0, p.a.k);
  if (has_nan_scale(all_scales)) return {.overflows = true};
  const bool in_blocks = scaled_in_blocks(p);
  const CPlacement place = c_placement(p);
  const double start = place == CPlacement::accumulator ? c : 0.0;
  BoundedSum final{place == CPlacement::promoted_sum ? c : 0.0, 0.0};
  if (p.promotion_interval == 0) {
    final = bounded_start(p.model, start);
    bounded_dot_product(p.model, terms_of(a, b, 0, p.a.k, all_scales), final);
  } else {
    for (std::int64_t k = 0; k < p.a.k; k += p.promotion_interval) {
      BoundedSum sum = bounded_start(p.model, k == 0 ? start : 0.0);
      const std::int64_t end = std::min(p.a.k, k + p.promotion_interval);
      bounded_dot_product(p.model, terms_of(a, b, k, end, unit_scales.at(row, column, k, end - k)),
                          sum);
      scale_into(sum, in_blocks ? scales.at(row, column, k) : 1.0, final);
    }
  }
  return scaled_sum(p, final, row, column);
}

/// How far quantizing the operands can have moved the sum, term by term.
double quantization_error(const Product& product, const Row& a, const Row& b, std::int64_t row,
                          std::int64_t column) {
  if (!product.a_original || !product.b_original) return 0.0;
  const GemmProblem& p = product.problem;
  const ScaleLookup scale_a(p.scale_a, p.a);
  const ScaleLookup scale_b(p.scale_b, p.b);
  const float* x = product.a_original->data() + row * p.a.k;
  const float* y = product.b_original->data() + column * p.a.k;
  double error = 0.0;
  for (std::int64_t k = 0; k < p.a.k; ++k) {
    const double quantized_x = value_of(a[k]) * static_cast<double>(scale_a.at(row, k));
    const double quantized_y = value_of(b[k]) * static_cast<double>(scale_b.at(column, k));
    error +=
        std::abs(static_cast<double>(x[k]) * static_cast<double>(y[k]) - quantized_x * quantized_y);
  }
  return error;
}

double half_step(const Format& f, double x) {
  const int exponent = x == 0.0 ? f.min_exponent() : std::max(std::ilogb(x), f.min_exponent());
  return std::ldexp(0.5, exponent - f.mantissa_bits);
}

/// A sum over K, with what its split adds: the parts' errors, and half a unit an addition.
BoundedSum bounded_sum(const Product& product, const Row& a, const Row& b, std::int64_t row,
                       std::int64_t column) {
  if (product.split.parts == 1) return accumulate(product.problem, a, b, row, column);
  Product whole = product;
  whole.epilogue = {};
  BoundedSum sum{0.0, 0.0};
  double magnitude = 0.0;
  const std::vector<Product> parts = split_parts(take(whole, {{row}, {column}}));
  for (const Product& part : parts) {
    const BoundedSum one =
        accumulate(part.problem, Row(part.problem.a, 0), Row(part.problem.b, 0), 0, 0);
    sum.value += one.value;
    sum.error += one.error;
    sum.overflows |= one.overflows;
    magnitude += std::abs(one.value) + one.error;
  }
  sum.error += static_cast<double>(parts.size()) * kFloatStep * magnitude * 1.001 + kTiny;
  sum.check_range(FormatId::f32);
  return scaled_sum(product.problem, sum, row, column);
}

/// One sum of a product, before its epilogue.
struct Element {
  BoundedSum sum;
  double quantization = 0.0;
  bool special = false;
};

Element element_at(const Product& product, std::int64_t row, std::int64_t b_row) {
  const Row a(product.problem.a, row);
  const Row b(product.problem.b, b_row);
  Element element;
  element.sum = bounded_sum(product, a, b, row, b_row);
  element.special = !a.finite() || !b.finite() || element.sum.overflows;
  if (!element.special) element.quantization = quantization_error(product, a, b, row, b_row);
  return element;
}

/// What is cast, from one sum or two; `moved`: by what quantizing can have done, too.
BoundedSum through_epilogue(const Product& product, const Element& first,
                            const std::optional<Element>& up, std::int64_t row, std::int64_t column,
                            bool moved) {
  const Epilogue& e = product.epilogue;
  const auto before = [&](const Element& element, std::int64_t b_row) {
    BoundedSum sum = element.sum;
    if (moved) sum.error += element.quantization;
    return bounded_before_activation(e, sum, row, b_row, product.problem.b.rows);
  };
  const BoundedSum v = before(first, column);
  if (e.empty()) return v;
  if (!up) return bounded_activation(e, v, nullptr);
  const BoundedSum other = before(*up, product.columns() + column);
  return bounded_activation(e, v, &other);
}

}  // namespace

ErrorBudget error_budget(const Product& product, std::int64_t row, std::int64_t column) {
  const FloatEnvironment environment;
  const Epilogue& e = product.epilogue;
  const Element first = element_at(product, row, column);
  std::optional<Element> up;
  if (e.gated()) up = element_at(product, row, product.columns() + column);
  ErrorBudget budget;
  budget.special = first.special || (up && up->special);
  if (budget.special) return budget;
  const BoundedSum sum = through_epilogue(product, first, up, row, column, false);
  const BoundedSum moved = through_epilogue(product, first, up, row, column, true);
  budget.special = sum.overflows || moved.overflows;
  if (budget.special) return budget;
  budget.exact = sum.value;
  budget.accumulation = sum.error;
  budget.quantization = moved.error - sum.error;
  budget.rounding = half_step(format(product.output.format), sum.value);
  const double reach = budget.accumulation + budget.quantization;
  const CastInterval ends = cast_interval(product.output, sum.value - reach, sum.value + reach);
  budget.low = ends.low;
  budget.high = ends.high;
  return budget;
}

bool within(const ErrorBudget& budget, const OutputCast& output, std::uint32_t code) {
  return !budget.special && lies_in({budget.low, budget.high}, output.format, code);
}

bool allowed(const ErrorBudget& budget, const OutputCast& output, std::uint32_t golden,
             std::uint32_t code) {
  const auto is_nan = [&](std::uint32_t x) {
    return unpack(format(output.format), x).value_class == ValueClass::nan;
  };
  if (golden == code || (is_nan(golden) && is_nan(code))) return true;
  return within(budget, output, code);  // nothing is within a special element's
}

}  // namespace fp8lab

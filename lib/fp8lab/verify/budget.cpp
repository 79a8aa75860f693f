#include "fp8lab/verify/budget.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "fp8lab/accumulate/halves.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/float_environment.hpp"
#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab {
namespace {

constexpr double kFloatStep = 0x1p-24;   // of a binary32 operation, relative
constexpr double kDoubleStep = 0x1p-52;  // of this file's own FP64 sums, relative
constexpr double kTiny = 0x1p-149;       // binary32's smallest step

/// A sum with a bound on how far hardware may be from it.
struct Bounded {
  double value = 0.0;
  double error = 0.0;
  bool overflows = false;  ///< it may have passed the accumulator's largest number

  void check_range(FormatId id) {
    overflows |= !(std::abs(value) + error < format(id).max_finite());
  }
};

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

/// Follows one accumulator over [begin, end) of K.
class Accumulation {
 public:
  Accumulation(const AccumulatorModel& model, double start) : model_(model) {
    sum_.value = start;
    if (model.output_format == FormatId::f16) round_to_output();  // c enters as FP16
  }

  void run(const Row& a, const Row& b, std::int64_t begin, std::int64_t end) {
    if (model_.kind == AccumulationKind::fp16_halves) return run_halves(a, b, begin, end);
    const std::int64_t terms =
        model_.kind == AccumulationKind::fused_dot_product ? model_.terms : end - begin;
    std::vector<std::int64_t> at;
    for (std::int64_t k = begin; k < end; k += terms) {
      at.resize(static_cast<std::size_t>(std::min(terms, end - k)));
      std::iota(at.begin(), at.end(), k);
      step(a, b, at);
    }
  }
  [[nodiscard]] Bounded result() const { return sum_; }

 private:
  /// Instruction by instruction: two fused steps from zero, whose sum is added in binary32.
  /// FP8 operands bring exponents that are not below those of their FP16 values.
  void run_halves(const Row& a, const Row& b, std::int64_t begin, std::int64_t end) {
    const AccumulatorModel half = step_of_halves(model_);
    std::vector<std::int64_t> at;
    for (std::int64_t k = begin; k < end; k += model_.terms) {
      Accumulation both(half, 0.0);
      for (int place = 0; place < model_.terms;) {
        at.clear();
        for (int i = 0; i < half.terms; ++i, ++place)
          if (const std::int64_t term = k + term_of_halves(place, model_.terms); term < end)
            at.push_back(term);
        if (model_.halves_order == HalvesOrder::chained) {
          both.step(a, b, at);
        } else {
          Accumulation one(half, 0.0);
          one.step(a, b, at);
          both.add(one.sum_);
        }
      }
      add(both.sum_);
    }
  }

  /// An ordinary addition in the output's format, nearest even.
  void add(const Bounded& sum) {
    sum_.error += sum.error + kDoubleStep * std::abs(sum_.value + sum.value);
    sum_.value += sum.value;
    sum_.overflows |= sum.overflows;
    round_to_output();
    sum_.check_range(model_.output_format);
  }
  void round_to_output() {
    const bool half = model_.output_format == FormatId::f16;
    sum_.error += (std::abs(sum_.value) + sum_.error) * (half ? 0x1p-11 : kFloatStep);
    if (half) sum_.error += 0x1p-25;  // half a step of its subnormals
  }

  /// The terms `at`, which come together where the model has steps.
  void step(const Row& a, const Row& b, std::span<const std::int64_t> at) {
    const double reach = std::abs(sum_.value) + sum_.error;
    int largest = reach > 0.0 ? std::ilogb(reach) : std::numeric_limits<int>::min();
    int live = reach > 0.0 ? 1 : 0;
    double magnitude = 0.0;
    double partial = 0.0;
    double sequential = 0.0;
    for (const std::int64_t k : at) {
      const Unpacked& x = a[k];
      const Unpacked& y = b[k];
      if (x.significand == 0 || y.significand == 0) continue;
      ++live;
      largest = std::max(largest, x.exponent + y.exponent);
      const double p = value_of(x) * value_of(y);
      partial += p;
      magnitude += std::abs(p);
      sequential += std::abs(sum_.value + partial) + sum_.error;
      if (model_.product_fraction_bits >= 0)
        sum_.error += std::ldexp(std::abs(p), -model_.product_fraction_bits);
    }
    if (live == 0) return;
    largest = std::max(largest, model_.min_alignment_exponent);
    if (model_.output_format == FormatId::f16 && reach > 0.0)
      largest = std::max(largest, format(FormatId::f16).min_exponent());  // a subnormal c
    const double total = std::abs(sum_.value) + magnitude;
    sum_.value += partial;
    sum_.error += static_cast<double>(at.size()) * kDoubleStep * total;
    switch (model_.kind) {
      case AccumulationKind::fused_dot_product: {
        sum_.error += live * std::ldexp(1.0, largest - model_.alignment_fraction_bits);
        sum_.error += std::ldexp(std::abs(sum_.value) + sum_.error, -model_.output_fraction_bits);
        sum_.error += model_.output_format == FormatId::f16 ? 0x1p-24 : kTiny;
        break;
      }
      case AccumulationKind::sequential:
        // Errors of earlier partial sums enter later ones: a factor (1 + u)^n, below 2 here.
        sum_.error += 2.0 * std::ldexp(sequential, -model_.output_fraction_bits);
        break;
      case AccumulationKind::float32:
        sum_.error += 2.0 * sequential * kFloatStep;
        break;
      case AccumulationKind::fp16_halves:  // consists of fused steps
        break;
      case AccumulationKind::exact:
        sum_.error += (std::abs(sum_.value) + sum_.error) * kFloatStep + kTiny;
        break;
    }
    sum_.check_range(model_.output_format);
  }

  const AccumulatorModel& model_;
  Bounded sum_;
};

/// `sum` times `scale`, two binary32 roundings, added to `final` with one more.
void scale_into(const Bounded& sum, double scale, Bounded& final) {
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

Bounded accumulate(const GemmProblem& p, const Row& a, const Row& b, std::int64_t row,
                   std::int64_t column) {
  const Scales scales{{p.a_scales, p.a}, {p.b_scales, p.b}};
  const double c = p.c == nullptr ? 0.0 : p.c[row * p.b.rows + column];
  if (p.a.k == 0) return {c, 0.0};
  const bool scaled = !p.a_scales.empty() || !p.b_scales.empty();
  const bool in_blocks = scales.a.varies_along_k() || scales.b.varies_along_k();
  const CPlacement place = c_placement(p);
  const double start = place == CPlacement::accumulator ? c : 0.0;
  Bounded final{place == CPlacement::promoted_sum ? c : 0.0, 0.0};
  if (p.promotion_interval == 0) {
    Accumulation sum(p.model, start);
    sum.run(a, b, 0, p.a.k);
    final = sum.result();
  } else {
    for (std::int64_t k = 0; k < p.a.k; k += p.promotion_interval) {
      Accumulation sum(p.model, k == 0 ? start : 0.0);
      sum.run(a, b, k, std::min(p.a.k, k + p.promotion_interval));
      scale_into(sum.result(), in_blocks ? scales.at(row, column, k) : 1.0, final);
    }
  }
  const bool scaled_last = scaled && !in_blocks;
  const bool c_last = p.c != nullptr && place == CPlacement::epilogue;
  if (!scaled_last && !c_last) return final;
  Bounded out{c_last ? c : 0.0, 0.0};
  scale_into(final, scaled_last ? scales.at(row, column, 0) : 1.0, out);
  return out;
}

/// How far quantizing the operands can have moved the sum, term by term.
double quantization_error(const Product& product, const Row& a, const Row& b, std::int64_t row,
                          std::int64_t column) {
  if (!product.a_original || !product.b_original) return 0.0;
  const GemmProblem& p = product.problem;
  const ScaleLookup a_scales(p.a_scales, p.a);
  const ScaleLookup b_scales(p.b_scales, p.b);
  const float* x = product.a_original->data() + row * p.a.k;
  const float* y = product.b_original->data() + column * p.a.k;
  double error = 0.0;
  for (std::int64_t k = 0; k < p.a.k; ++k) {
    const double quantized_x = value_of(a[k]) * static_cast<double>(a_scales.at(row, k));
    const double quantized_y = value_of(b[k]) * static_cast<double>(b_scales.at(column, k));
    error +=
        std::abs(static_cast<double>(x[k]) * static_cast<double>(y[k]) - quantized_x * quantized_y);
  }
  return error;
}

/// A binary32 number not above (below) `x`.
float outward(double x, bool up) {
  const auto rounded = static_cast<float>(x);
  constexpr float kEnd = std::numeric_limits<float>::infinity();
  if (up) return static_cast<double>(rounded) < x ? std::nextafter(rounded, kEnd) : rounded;
  return static_cast<double>(rounded) > x ? std::nextafter(rounded, -kEnd) : rounded;
}

std::uint32_t cast_one(const OutputCast& output, float x) {
  if (output.format == FormatId::f32) return std::bit_cast<std::uint32_t>(x);
  return encode(format(output.format), output.policy, x);
}

double half_step(const Format& f, double x) {
  const int exponent = x == 0.0 ? f.min_exponent() : std::max(std::ilogb(x), f.min_exponent());
  return std::ldexp(0.5, exponent - f.mantissa_bits);
}

}  // namespace

ErrorBudget error_budget(const Product& product, std::int64_t row, std::int64_t column) {
  const FloatEnvironment environment;
  const Row a(product.problem.a, row);
  const Row b(product.problem.b, column);
  ErrorBudget budget;
  const Bounded sum = accumulate(product.problem, a, b, row, column);
  budget.special = !a.finite() || !b.finite() || sum.overflows;
  if (budget.special) return budget;
  budget.exact = sum.value;
  budget.accumulation = sum.error;
  budget.quantization = quantization_error(product, a, b, row, column);
  budget.rounding = half_step(format(product.output.format), sum.value);
  const double reach = budget.accumulation + budget.quantization;
  budget.low = cast_one(product.output, outward(sum.value - reach, false));
  budget.high = cast_one(product.output, outward(sum.value + reach, true));
  return budget;
}

bool within(const ErrorBudget& budget, const OutputCast& output, std::uint32_t code) {
  if (budget.special) return false;
  const Format& f = format(output.format);
  const double x = decode(f, code);
  const double low = decode(f, budget.low);
  const double high = decode(f, budget.high);
  // An end that overflowed to NaN has no order; the code must then be that NaN or beyond the other.
  if (std::isnan(x)) return std::isnan(low) || std::isnan(high);
  return !(x < low) && !(x > high);
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

#include "fp8lab/verify/measured_epilogue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numbers>
#include <optional>

#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/measure.hpp"
#include "fp8lab/verify/measured_view.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kMostFitted = 512;  // of a fit; the judge looks at all
constexpr int kMostSteps = 25;
constexpr double kNumberErrors = 6.0;

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double gelu(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }
double gelu_tanh(double x) {
  return x * sigmoid(2.0 * std::sqrt(2.0 * std::numbers::inv_pi) * (x + 0.044715 * x * x * x));
}
double silu(double x) { return x * sigmoid(x); }

/// A curve that a kernel may apply.
struct Curve {
  std::string_view name;
  double (*value)(double);
  bool homogeneous;                ///< a positive factor may stand before or behind it
  bool free_after = !homogeneous;  ///< a factor behind it is not one before it
};

constexpr std::array<Curve, 16> kCurves{{
    {"no activation", [](double x) { return x; }, true},
    {"relu", [](double x) { return std::max(x, 0.0); }, true},
    {"gelu", gelu, false},
    {"gelu_tanh", gelu_tanh, false},
    {"gelu by x sigmoid(1.702 x)", [](double x) { return x * sigmoid(1.702 * x); }, false},
    {"silu", silu, false},
    {"gelu of gelu", [](double x) { return gelu(gelu(x)); }, false},
    {"gelu_tanh of gelu_tanh", [](double x) { return gelu_tanh(gelu_tanh(x)); }, false},
    {"silu of silu", [](double x) { return silu(silu(x)); }, false},
    {"sigmoid", sigmoid, false},
    {"tanh", [](double x) { return std::tanh(x); }, false},
    {"relu squared", [](double x) { return x > 0.0 ? x * x : 0.0; }, false, false},
    {"relu of 6", [](double x) { return std::clamp(x, 0.0, 6.0); }, false},
    {"relu of 7", [](double x) { return std::clamp(x, 0.0, 7.0); }, false},
    {"the smaller of it and 0", [](double x) { return std::min(x, 0.0); }, true},
    {"the absolute value", [](double x) { return std::abs(x); }, true},
}};

/// One output: the sum before the epilogue's factors, its bias and its C, and what was stored.
struct Point {
  double sum = 0.0;
  double bias = 0.0;
  double c = 0.0;
  double got = 0.0;
};

/// The numbers of g = after * curve(sum * s + bias * b + c * C) + late_bias * b + late_c * C.
enum Number : std::size_t { kSum, kBias, kC, kAfter, kLateBias, kLateC, kNumbers };
using Numbers = std::array<double, kNumbers>;

double inner(const Numbers& n, const Point& p) {
  return n[kSum] * p.sum + n[kBias] * p.bias + n[kC] * p.c;
}
double model(const Curve& curve, const Numbers& n, const Point& p) {
  return n[kAfter] * curve.value(inner(n, p)) + n[kLateBias] * p.bias + n[kLateC] * p.c;
}

struct NumbersFit {
  Numbers numbers{};
  Numbers errors{};
  double left = INFINITY;
};

class EpilogueFit {
 public:
  EpilogueFit(const Product& product, const Sample& sample, const Product& sampled, Judge& judge,
              int threads)
      : whole_(product.epilogue),
        sample_(sample),
        p_(sampled),
        e_(sampled.epilogue),
        judge_(judge),
        whole_rows_(product.rows()),
        whole_columns_(product.columns()) {
    const std::vector<float> sums = compute_sums(sampled, threads);
    const Format& f = format(sampled.output.format);
    const std::int64_t n = sampled.columns();
    const float* c = e_.c != nullptr ? e_.c : sampled.problem.c;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(n);
      const std::size_t column = i % static_cast<std::size_t>(n);
      Point point{static_cast<double>(sums[i]), 0.0, 0.0, judge.got_value(i)};
      if (!e_.row_scales.empty()) point.sum *= static_cast<double>(e_.row_scales[row]);
      if (!e_.column_scales.empty()) point.sum *= static_cast<double>(e_.column_scales[column]);
      if (!e_.bias.empty()) point.bias = static_cast<double>(e_.bias[column]);
      if (c != nullptr) point.c = static_cast<double>(c[i]);
      points_.push_back(point);
      if (std::abs(point.got) >= f.max_finite()) points_.back().got = NAN;
    }
    right_ = {static_cast<double>(e_.alpha),
              e_.bias.empty() ? 0.0 : 1.0,
              e_.c == nullptr ? 0.0 : static_cast<double>(e_.beta),
              e_.output_scale ? static_cast<double>(*e_.output_scale) : 1.0,
              0.0,
              0.0};
  }

  void run(std::vector<std::string>& lines) {
    choose_points();
    if (few_.size() < 32) return;
    vectors(lines);
    if (!judge_.any_cause()) places_of_c();
    if (!judge_.any_cause()) slope_of_negative_side();
    if (judge_.any_cause()) return;
    std::vector<std::pair<const Curve*, NumbersFit>> fits;
    for (const Curve& curve : kCurves)
      if (const std::optional<NumbersFit> fit = best_fit(curve); fit && good(*fit))
        fits.emplace_back(&curve, *fit);
    std::ranges::stable_sort(fits, {}, [&](const auto& fit) {
      const std::string text = text_of(*fit.first, snapped(*fit.first, fit.second));
      return std::ranges::count(text, ';');
    });
    for (const auto& [curve, fit] : fits) {
      const Numbers numbers = snapped(*curve, fit);
      const std::string text = text_of(*curve, numbers);
      // Where the sum plays no part, any curve fits.
      const bool blind = std::abs(numbers[kSum]) < 1e-9 || std::abs(numbers[kAfter]) < 1e-9;
      if (text.empty() || (blind && curve != kCurves.data())) continue;
      lines.push_back("epilogue (measured): " + text);
      consider(*curve, numbers, text);
      if (judge_.any_cause()) return;
    }
  }

 private:
  void choose_points() {
    for (const std::int64_t i :
         spread(std::ssize(points_), static_cast<std::int64_t>(kMostFitted))) {
      const Point& point = points_[static_cast<std::size_t>(i)];
      if (std::isfinite(point.sum) && std::isfinite(point.got) && std::isfinite(point.c))
        few_.push_back(point);
    }
    double square = 0.0;
    for (const Point& point : few_) square += point.got * point.got;
    rms_ = few_.empty() ? 0.0 : std::sqrt(square / static_cast<double>(few_.size()));
  }

  [[nodiscard]] bool has_bias() const { return !e_.bias.empty(); }
  [[nodiscard]] bool has_c() const { return e_.c != nullptr || p_.problem.c != nullptr; }
  /// The numbers that a fit may change.
  [[nodiscard]] std::vector<std::size_t> free_numbers(const Curve& curve) const {
    std::vector<std::size_t> chosen{kSum};
    if (has_bias()) chosen.push_back(kBias);
    if (has_c()) chosen.push_back(kC);
    if (curve.free_after) chosen.push_back(kAfter);
    const bool linear = curve.name == kCurves[0].name;
    if (has_bias() && !linear) chosen.push_back(kLateBias);
    if (has_c() && !linear) chosen.push_back(kLateC);
    return chosen;
  }

  [[nodiscard]] double error_of(const Curve& curve, const Numbers& n) const {
    double square = 0.0;
    for (const Point& point : few_) {
      const double off = model(curve, n, point) - point.got;
      square += off * off;
    }
    return std::sqrt(square / static_cast<double>(few_.size()));
  }

  [[nodiscard]] std::optional<NumbersFit> best_fit(const Curve& curve) const {
    std::optional<NumbersFit> best;
    std::vector<double> factors{right_[kSum], 1.0};
    std::vector<double> afters{right_[kAfter], 1.0, 1.0 / right_[kAfter]};
    if (curve.homogeneous) {
      factors = {right_[kSum] * right_[kAfter]};
      afters = {1.0};
    }
    for (const double factor : factors)
      for (const double after : afters) {
        Numbers start = right_;
        start[kSum] = factor;
        start[kAfter] = after;
        const std::optional<NumbersFit> fit = descend(curve, start);
        if (fit && (!best || fit->left < best->left)) best = fit;
        if (best && good(*best)) return best;
      }
    return best;
  }

  /// Gauss and Newton's method with shorter steps where a step makes it worse.
  [[nodiscard]] std::optional<NumbersFit> descend(const Curve& curve, Numbers n) const {
    const std::vector<std::size_t> chosen = free_numbers(curve);
    NumbersFit fit{n, {}, error_of(curve, n)};
    for (int step = 0; step < kMostSteps; ++step) {
      const std::optional<Weights> move =
          least_squares(slopes(curve, fit.numbers, chosen), residuals(curve, fit.numbers));
      if (!move) return std::nullopt;
      bool better = false;
      const double before = fit.left;
      for (double length = 1.0; length > 0.01 && !better; length *= 0.5) {
        Numbers next = fit.numbers;
        for (std::size_t i = 0; i < chosen.size(); ++i)
          next[chosen[i]] += length * move->values(static_cast<Eigen::Index>(i));
        const double left = error_of(curve, next);
        if (!(left < fit.left)) continue;
        better = true;
        fit.numbers = next;
        fit.left = left;
      }
      for (std::size_t i = 0; i < chosen.size(); ++i)
        fit.errors[chosen[i]] = move->errors(static_cast<Eigen::Index>(i));
      if (!better || fit.left > 0.9999 * before) break;
    }
    return fit;
  }
  [[nodiscard]] Eigen::VectorXd residuals(const Curve& curve, const Numbers& n) const {
    Eigen::VectorXd left(std::ssize(few_));
    for (Eigen::Index i = 0; i < left.size(); ++i) {
      const Point& point = few_[static_cast<std::size_t>(i)];
      left(i) = point.got - model(curve, n, point);
    }
    return left;
  }
  [[nodiscard]] Eigen::MatrixXd slopes(const Curve& curve, const Numbers& n,
                                       const std::vector<std::size_t>& chosen) const {
    Eigen::MatrixXd slopes(std::ssize(few_), std::ssize(chosen));
    for (Eigen::Index i = 0; i < slopes.rows(); ++i) {
      const Point& point = few_[static_cast<std::size_t>(i)];
      const double v = inner(n, point);
      const double h = 1e-6 * std::max(std::abs(v), 1e-3);
      const double slope = (curve.value(v + h) - curve.value(v - h)) / (2.0 * h);
      const Numbers all{n[kAfter] * slope * point.sum,
                        n[kAfter] * slope * point.bias,
                        n[kAfter] * slope * point.c,
                        curve.value(v),
                        point.bias,
                        point.c};
      for (std::size_t j = 0; j < chosen.size(); ++j)
        slopes(i, static_cast<Eigen::Index>(j)) = all[chosen[j]];
    }
    return slopes;
  }

  /// No more is left than the rounding of the output and of a few operations.
  [[nodiscard]] bool good(const NumbersFit& fit) const {
    const Format& f = format(p_.output.format);
    return fit.left <= std::ldexp(1.0, -std::min(f.mantissa_bits, 20)) * rms_;
  }

  /// Numbers that a kernel has by mistake rather than any other near the measured one.
  [[nodiscard]] Numbers snapped(const Curve& curve, const NumbersFit& fit) const {
    const double alpha = right_[kSum];
    const double beta = right_[kC];
    const double after = right_[kAfter];
    std::vector<double> known{0.0, 1.0, -1.0, 2.0, 0.5, 3.0};
    for (const double x : {alpha, beta, after})
      for (const double y : {1.0, alpha, beta, after, after * after})
        for (const double number : {x * y, x / y, y / x, 1.0 / x, -x})
          if (std::isfinite(number)) known.push_back(number);
    if (!curve.homogeneous)
      for (const double number : std::vector<double>(known)) known.push_back(number * after);
    Numbers result = fit.numbers;
    const Numbers own = right_of(curve);
    for (std::size_t i = 0; i < kNumbers; ++i) {
      const double reach = kNumberErrors * fit.errors[i] + 1e-6 * std::abs(result[i]);
      double best = reach;
      for (const double number : known)
        if (std::abs(number - fit.numbers[i]) < best) {
          best = std::abs(number - fit.numbers[i]);
          result[i] = number;
        }
      if (std::abs(own[i] - fit.numbers[i]) <= reach) result[i] = own[i];
    }
    return result;
  }
  /// The right numbers, as a homogeneous curve has them: its output scale stands before it.
  [[nodiscard]] Numbers right_of(const Curve& curve) const {
    Numbers n = right_;
    if (!curve.homogeneous) return n;
    for (const Number i : {kSum, kBias, kC}) n[i] *= right_[kAfter];
    n[kAfter] = 1.0;
    return n;
  }

  [[nodiscard]] bool is_right_curve(const Curve& curve) const {
    switch (e_.activation) {
      case Activation::none:
        return curve.name == kCurves[0].name;
      case Activation::leaky_relu:
        return false;
      default:
        return curve.name == to_string(e_.activation);
    }
  }

  /// What differs from the right epilogue; empty if nothing does.
  [[nodiscard]] std::string text_of(const Curve& curve, const Numbers& n) const {
    std::vector<std::string> parts;
    if (!is_right_curve(curve))
      parts.push_back(fmt::format("{} in place of {}", curve.name,
                                  e_.activation == Activation::none
                                      ? "no activation"
                                      : std::string(to_string(e_.activation))));
    const Numbers right = right_of(curve);
    const bool late = n[kLateBias] != 0.0 && n[kBias] == 0.0;
    const bool late_c = n[kLateC] != 0.0 && n[kC] == 0.0 && right[kC] != 0.0;
    if (late) parts.emplace_back("the bias added after the activation");
    if (late_c) parts.emplace_back("C added after the activation");
    constexpr std::array<std::string_view, kNumbers> kOf{"the sum",
                                                         "the bias",
                                                         "C",
                                                         "the activation's result",
                                                         "the bias after the activation",
                                                         "C after the activation"};
    for (std::size_t i = 0; i < kNumbers; ++i) {
      if (n[i] == right[i]) continue;
      if (late && (i == kBias || (i == kLateBias && n[i] == right_[kAfter]))) continue;
      if (late_c && (i == kC || (i == kLateC && n[i] == right[kC]))) continue;
      parts.push_back(
          fmt::format("{} x {} (right: {})", kOf[i], measured_text(n[i]), measured_text(right[i])) +
          meaning(static_cast<Number>(i), n[i], right[i]));
    }
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
    return text;
  }
  [[nodiscard]] std::string meaning(Number of, double is, double right) const {
    const double alpha = right_[kSum];
    const auto same = [&](double x) { return std::abs(is - x) <= 1e-9 * std::abs(x); };
    if (is == 0.0) return ": left out";
    const double beta = right_[kC];
    const double after = right_[kAfter];
    if (of == kBias && alpha != 1.0 && same(right * alpha)) return ": alpha applied to it too";
    if ((of == kBias || of == kSum) && e_.c != nullptr && beta != 1.0 && same(right * beta))
      return ": beta applied to it too";
    if (after != 1.0 && same(right * after)) return ": the output's scale applied twice";
    if (after != 1.0 && same(right / after)) return ": the output's scale not applied";
    if (of == kC && alpha != 1.0 && same(right * alpha)) return ": alpha applied to it too";
    if (of == kSum && alpha != 1.0 && same(right / alpha)) return ": alpha not applied";
    if (of == kSum && alpha != 1.0 && same(right * alpha)) return ": alpha applied twice";
    if (of == kC && e_.c != nullptr && same(right / static_cast<double>(e_.beta)))
      return ": beta not applied";
    if (same(2.0 * right)) return ": twice";
    if (same(-right)) return ": the sign is wrong";
    return "";
  }

  void consider(const Curve& curve, const Numbers& n, const std::string& text) {
    consider(curve, n, is_right_curve(curve) ? "epilogue_factors" : "epilogue_activation",
             "epilogue (measured): " + text);
  }
  void consider(const Curve& curve, const Numbers& n, const std::string& name,
                const std::string& text) {
    std::vector<double> values;
    std::vector<double> sizes;
    for (const Point& point : points_) {
      values.push_back(model(curve, n, point));
      sizes.push_back(std::abs(values.back()) + std::abs(n[kAfter] * inner(n, point)) +
                      std::abs(n[kAfter] * n[kBias] * point.bias) +
                      std::abs(n[kAfter] * n[kC] * point.c));
    }
    judge_.consider_in_fp64(name, text, values, tolerances(values, sizes));
  }
  [[nodiscard]] std::vector<double> tolerances(const std::vector<double>& values,
                                               const std::vector<double>& sizes) const {
    constexpr double kSteps = 16.0;  // half units of binary32
    const Format& f = format(p_.output.format);
    std::vector<double> result;
    for (std::size_t i = 0; i < values.size(); ++i)
      result.push_back(
          std::ldexp(kSteps * sizes[i], -24) +
          std::max(std::ldexp(std::abs(values[i]), -f.mantissa_bits), f.min_subnormal()));
    return result;
  }

  /// C read from other places: as if it were transposed, one row or column of it for all, the
  /// next or the previous row.
  void places_of_c() {
    const float* c = whole_.c;
    if (c == nullptr || e_.activation != Activation::none) return;
    const std::int64_t m = whole_rows_;
    const std::int64_t n = whole_columns_;
    struct Place {
      std::string text;
      std::function<std::int64_t(std::int64_t row, std::int64_t column)> at;
    };
    std::vector<Place> places{
        {"in the other memory order", [=](auto i, auto j) { return j * m + i; }},
        {"transposed", [=](auto i, auto j) { return i < n && j < m ? j * n + i : -1; }},
        {"its first row for all rows", [=](auto, auto j) { return j; }},
        {"its first column for all columns", [=](auto i, auto) { return i * n; }},
        {"of the next row", [=](auto i, auto j) { return (i + 1) * n + j; }},
        {"of the previous row", [=](auto i, auto j) { return (i - 1) * n + j; }},
        {"of the next column", [=](auto i, auto j) { return i * n + j + 1; }},
        {"of the previous column", [=](auto i, auto j) { return i * n + j - 1; }},
    };
    for (const std::int64_t stride : {n - 8, n + 8, n - 1, n + 1, (n + 15) / 16 * 16,
                                      (n + 63) / 64 * 64, (n + 127) / 128 * 128, m})
      if (stride > 0 && stride != n)
        places.push_back({fmt::format("as if its rows had {} elements", stride),
                          [=](auto i, auto j) { return i * stride + j; }});
    const auto width = sample_.columns.size();
    for (const Place& place : places) {
      const std::vector<Point> right = points_;
      for (std::size_t i = 0; i < points_.size(); ++i) {
        const std::int64_t at = place.at(sample_.rows[i / width], sample_.columns[i % width]);
        points_[i].c = at < 0 || at >= m * n ? 0.0 : static_cast<double>(c[at]);
      }
      consider(kCurves[0], right_of(kCurves[0]), "c_from_other_places",
               fmt::format("C (measured) read {}", place.text));
      points_ = right;
      if (judge_.any_cause()) return;
    }
  }

  /// The slope of a leaky ReLU, from what stands where the activation's argument is negative.
  void slope_of_negative_side() {
    if (e_.activation != Activation::leaky_relu && e_.activation != Activation::relu) return;
    std::vector<double> slopes;
    for (const Point& point : points_)
      if (const double v = inner(right_, point); v < 0.0 && std::isfinite(point.got))
        slopes.push_back(point.got / (right_[kAfter] * v));
    if (slopes.size() < 16) return;
    std::ranges::nth_element(slopes, slopes.begin() + std::ssize(slopes) / 2);
    const double slope = short_slope(slopes[slopes.size() / 2]);
    std::vector<double> values;
    std::vector<double> sizes;
    for (const Point& point : points_) {
      const double v = inner(right_, point);
      values.push_back(right_[kAfter] * (v < 0.0 ? slope * v : v));
      sizes.push_back(std::abs(right_[kAfter] * v) +
                      std::abs(right_[kAfter] * right_[kBias] * point.bias));
    }
    judge_.consider_in_fp64(
        "activation_slope",
        fmt::format("the slope of the activation where its argument is negative (measured): {}",
                    measured_text(slope)),
        values, tolerances(values, sizes));
  }
  /// A number of three digits that is within 1 % of a measured one.
  static double short_slope(double x) {
    if (std::abs(x) < 1e-6) return 0.0;
    return of_few_decimals(x, 3, [&](double at) { return std::abs(at - x) <= 0.01 * std::abs(x); });
  }

  /// A vector over the columns or rows that is read in a wrong order: measured line by line, where
  /// the activation leaves a line straight.
  void vectors(std::vector<std::string>& lines) {
    if (e_.gated() || (e_.activation != Activation::none && e_.activation != Activation::relu))
      return;
    if (has_bias()) bias_by_line(lines);
    factors_by_line(true, lines);
    factors_by_line(false, lines);
  }

  [[nodiscard]] std::int64_t lines_of(bool columns) const {
    return columns ? p_.columns() : p_.rows();
  }
  [[nodiscard]] std::size_t place(bool columns, std::int64_t line, std::int64_t at) const {
    const std::int64_t row = columns ? at : line;
    const std::int64_t column = columns ? line : at;
    return static_cast<std::size_t>(row * p_.columns() + column);
  }
  [[nodiscard]] bool straight(const Point& point) const {
    return std::isfinite(point.got) && std::isfinite(point.sum) &&
           (e_.activation == Activation::none || point.got > 0.0);
  }

  /// The number that is added to each line, if the rest is right.
  void bias_by_line(std::vector<std::string>& lines) {
    for (const bool columns : {true, false}) {
      std::vector<double> added;
      double worst = 0.0;
      double most = 0.0;
      for (std::int64_t line = 0; line < lines_of(columns); ++line) {
        std::vector<double> off;
        for (std::int64_t at = 0; at < lines_of(!columns); ++at) {
          const Point& point = points_[place(columns, line, at)];
          if (straight(point))
            off.push_back(point.got / right_[kAfter] - right_[kSum] * point.sum -
                          right_[kC] * point.c);
        }
        if (off.size() < 3) return;
        std::ranges::nth_element(off, off.begin() + std::ssize(off) / 2);
        added.push_back(off[off.size() / 2]);
        for (const double x : off) worst = std::max(worst, std::abs(x - added.back()));
        most = std::max(most, std::abs(added.back()));
      }
      const double step = std::ldexp(1.0, -std::min(format(p_.output.format).mantissa_bits, 20));
      if (worst > 4.0 * step * rms_ * 4.0 + 0.02 * most) continue;
      lines.push_back(fmt::format("added to each {} (measured): {}, {}, {} ...",
                                  columns ? "column" : "row", measured_text(added[0]),
                                  measured_text(added[added.size() / 2]),
                                  measured_text(added.back())));
      match_bias(columns, added, std::max(worst, 1e-6 * most));
      if (judge_.any_cause()) return;
    }
  }
  /// The nearest of `known` to each number, its own one if that is within reach: the places of
  /// both, and how far off they are at most.
  struct Matches {
    std::vector<std::int64_t> from;
    std::vector<std::int64_t> to;
    double worst = 0.0;
  };
  [[nodiscard]] Matches nearest(bool columns, const std::vector<double>& numbers,
                                std::span<const float> known, double reach) const {
    const std::vector<std::int64_t>& own = columns ? sample_.columns : sample_.rows;
    Matches found;
    for (std::size_t line = 0; line < numbers.size(); ++line) {
      const auto off = [&](std::size_t i) {
        return std::abs(static_cast<double>(known[i]) - numbers[line]);
      };
      // Its own place first: numbers as near as those of a place that is right have not moved.
      auto best = static_cast<std::size_t>(own[line]) < known.size()
                      ? static_cast<std::size_t>(own[line])
                      : std::size_t{0};
      const bool stays = static_cast<std::size_t>(own[line]) == best && off(best) <= reach;
      for (std::size_t i = 0; i < known.size() && !stays; ++i)
        if (off(i) < off(best)) best = i;
      found.from.push_back(own[line]);
      found.to.push_back(static_cast<std::int64_t>(best));
      found.worst = std::max(found.worst, off(best));
    }
    return found;
  }

  /// Which element of the bias stands in each line: by a rule of tiles, or one by one.
  void match_bias(bool columns, const std::vector<double>& added, double reach) {
    const std::vector<std::int64_t>& own = columns ? sample_.columns : sample_.rows;
    for (std::int64_t n = 8; n < std::ssize(whole_.bias); n *= 2) {
      std::vector<std::int64_t> source;
      for (const std::int64_t at : own) source.push_back(at % n);
      bool holds = columns;
      for (std::size_t line = 0; line < added.size() && holds; ++line)
        holds = std::abs(bias_at(source[line]) - added[line]) <= 2.0 * reach;
      if (!holds) continue;
      changed_points(columns, "bias_of_other_column",
                     fmt::format("the bias (measured): column i has that of column i mod {}", n),
                     [&](Point& point, std::size_t line) { point.bias = bias_at(source[line]); });
      if (judge_.any_cause()) return;
    }
    Matches found = nearest(columns, added, whole_.bias, reach);
    if (found.worst > reach || (columns && found.from == found.to)) return;
    shift_alike(found, added, reach);
    const std::string rule = rule_text(found, std::ssize(whole_.bias));
    const auto change = [&](Point& point, std::size_t line) {
      point.bias = static_cast<double>(whole_.bias[static_cast<std::size_t>(found.to[line])]);
    };
    changed_points(columns, columns ? "bias_of_other_column" : "bias_by_row",
                   fmt::format("the bias (measured): {} i has that of {} {}",
                               columns ? "column" : "row", columns ? "column" : "element", rule),
                   change);
  }
  /// Numbers that are alike do not tell their place: the distance that most moved by decides.
  void shift_alike(Matches& found, const std::vector<double>& added, double reach) const {
    std::map<std::int64_t, std::size_t> distances;
    for (std::size_t i = 0; i < found.from.size(); ++i)
      if (found.to[i] != found.from[i]) ++distances[found.to[i] - found.from[i]];
    if (distances.empty()) return;
    const std::int64_t by =
        std::ranges::max_element(distances, {}, [](const auto& one) { return one.second; })->first;
    for (std::size_t i = 0; i < found.from.size(); ++i) {
      const std::int64_t place = found.from[i] + by;
      if (found.to[i] == found.from[i] || place < 0 || place >= std::ssize(whole_.bias)) continue;
      if (std::abs(bias_at(place) - added[i]) <= reach) found.to[i] = place;
    }
  }
  /// The rule of all lines, or of those that moved.
  [[nodiscard]] static std::string rule_text(const Matches& found, std::int64_t count) {
    std::vector<std::int64_t> from;
    std::vector<std::int64_t> to;
    for (std::size_t i = 0; i < found.from.size(); ++i) {
      if (found.from[i] == found.to[i]) continue;
      from.push_back(found.from[i]);
      to.push_back(found.to[i]);
    }
    if (from.empty() || from.size() == found.from.size())
      return rule_of(found.from, found.to, count).text;
    std::map<std::int64_t, std::size_t> distances;
    for (std::size_t i = 0; i < from.size(); ++i) ++distances[to[i] - from[i]];
    const auto [by, times] =
        *std::ranges::max_element(distances, {}, [](const auto& one) { return one.second; });
    if (times < from.size() && 10 * times >= 9 * from.size())
      return fmt::format("i {} {} in {} of {} columns, from {} to {}", by < 0 ? '-' : '+',
                         std::abs(by), times, from.size(), from.front(), from.back());
    return fmt::format("{}, from {} to {} alone", rule_of(from, to, count).text, from.front(),
                       from.back());
  }

  [[nodiscard]] double bias_at(std::int64_t column) const {
    return static_cast<double>(whole_.bias[static_cast<std::size_t>(column)]);
  }
  /// Considers the right epilogue of points that `change(point, line)` changes.
  template <typename Change>
  void changed_points(bool columns, const std::string& name, const std::string& text,
                      const Change& change) {
    std::vector<double> values;
    std::vector<double> sizes;
    const Curve& curve = kCurves[e_.activation == Activation::relu ? 1 : 0];
    const auto width = static_cast<std::size_t>(p_.columns());
    for (std::size_t i = 0; i < points_.size(); ++i) {
      Point point = points_[i];
      change(point, columns ? i % width : i / width);
      values.push_back(model(curve, right_, point));
      sizes.push_back(std::abs(values.back()) + 2.0 * std::abs(right_[kAfter] * point.bias) +
                      std::abs(right_[kAfter] * right_[kSum] * point.sum));
    }
    judge_.consider_in_fp64(name, text, values, tolerances(values, sizes));
  }

  /// One factor for each row or column.
  void factors_by_line(bool columns, std::vector<std::string>& lines) {
    if (has_bias() || has_c()) return;
    std::vector<double> factors;
    double worst = 0.0;
    for (std::int64_t line = 0; line < lines_of(columns); ++line) {
      double xy = 0.0;
      double xx = 0.0;
      double yy = 0.0;
      for (std::int64_t at = 0; at < lines_of(!columns); ++at) {
        const Point& point = points_[place(columns, line, at)];
        if (!straight(point)) continue;
        const double x = right_[kAfter] * right_[kSum] * point.sum;
        xy += x * point.got;
        xx += x * x;
        yy += point.got * point.got;
      }
      if (xx == 0.0) return;
      factors.push_back(xy / xx);
      if (yy > 0.0) worst = std::max(worst, std::sqrt(std::max(0.0, 1.0 - xy * xy / (xx * yy))));
    }
    const double step = std::ldexp(1.0, -std::min(format(p_.output.format).mantissa_bits, 20));
    const auto [least, most] = std::ranges::minmax(factors);
    if (worst > 2.0 * step || most - least < 4.0 * step * std::abs(most)) return;
    lines.push_back(fmt::format("factor of each {} (measured / right): {}, {}, {} ...",
                                columns ? "column" : "row", measured_text(factors[0]),
                                measured_text(factors[factors.size() / 2]),
                                measured_text(factors.back())));
    match_factors(columns, factors);
  }
  /// The scales of other lines, or a power of the right ones.
  void match_factors(bool columns, const std::vector<double>& factors) {
    const std::span<const float> scales = columns ? e_.column_scales : e_.row_scales;
    const std::span<const float> all = columns ? whole_.column_scales : whole_.row_scales;
    if (scales.empty()) return;
    const auto own = [&](std::size_t line) { return static_cast<double>(scales[line]); };
    const std::string_view of = columns ? "columns" : "rows";
    for (const double power : {2.0, 0.0, -1.0, 0.5}) {
      bool holds = true;
      for (std::size_t line = 0; line < factors.size() && holds; ++line)
        holds = std::abs(factors[line] * own(line) - std::pow(own(line), power)) <=
                1e-2 * std::abs(factors[line] * own(line));
      if (!holds) continue;
      changed_points(
          columns, columns ? "column_scales_to_a_power" : "row_scales_to_a_power",
          fmt::format("the scales of {} (measured): the right ones to the power {}", of, power),
          [&](Point& point, std::size_t line) { point.sum *= std::pow(own(line), power - 1.0); });
      return;
    }
    std::vector<double> used;
    for (std::size_t line = 0; line < factors.size(); ++line)
      used.push_back(factors[line] * own(line));
    const Matches found = nearest(columns, used, all, 0.0);
    const PositionRule rule = rule_of(found.from, found.to, static_cast<std::int64_t>(all.size()));
    changed_points(columns, columns ? "column_scales_moved" : "row_scales_moved",
                   fmt::format("the scales of {} (measured): {} i has that of {}", of,
                               columns ? "column" : "row", rule.text),
                   [&](Point& point, std::size_t line) {
                     point.sum *=
                         static_cast<double>(all[static_cast<std::size_t>(found.to[line])]) /
                         own(line);
                   });
  }

  const Epilogue& whole_;
  const Sample& sample_;
  const Product& p_;
  const Epilogue& e_;
  Judge& judge_;
  std::int64_t whole_rows_;
  std::int64_t whole_columns_;
  std::vector<Point> points_;
  std::vector<Point> few_;
  Numbers right_{};
  double rms_ = 0.0;
};

/// SwiGLU: what was done with the two halves of the sums.
class GatedFit {
 public:
  GatedFit(const Product& product, const Sample& sample, const Product& sampled, Judge& judge,
           int threads)
      : p_(sampled), judge_(judge), halves_(compute(linear(sampled), threads)) {
    // Gates and factors side by side: columns 2 j and 2 j + 1 of the sums.
    Sample pairs{sample.rows, {}};
    for (const std::int64_t column : sample.columns) pairs.columns.push_back(2 * column);
    for (const std::int64_t column : sample.columns) pairs.columns.push_back(2 * column + 1);
    pairs_ = compute(take(linear(product), pairs), threads);
  }

  void run() {
    halves_.swap(pairs_);
    consider("interleaved_gate",
             "gate and factor side by side (columns 2 j and 2 j + 1), not in two halves",
             [](double gate, double up) { return gate * sigmoid(gate) * up; });
    consider("interleaved_factor",
             "factor and gate side by side (columns 2 j and 2 j + 1), not in two halves",
             [](double up, double gate) { return gate * sigmoid(gate) * up; });
    halves_.swap(pairs_);
    limits();
    for (const Curve& curve : kCurves) {
      const std::string of(curve.name);
      if (of != "silu")
        consider("gate_" + of, of + " of the gate, in place of silu",
                 [&](double gate, double up) { return curve.value(gate) * up; });
      consider("gate_shifted_" + of, of + " of the gate times (factor + 1)",
               [&](double gate, double up) { return curve.value(gate) * (up + 1.0); });
      consider("gate_exchanged_" + of, of + " of the other half, times the gate",
               [&](double gate, double up) { return curve.value(up) * gate; });
    }
    consider("only_gate", "silu of the gate alone, without the factor",
             [](double gate, double) { return gate * sigmoid(gate); });
    consider("only_factor", "the factor alone, without the gate",
             [](double, double up) { return up; });
  }

 private:
  static Product linear(Product product) {
    product.epilogue.activation = Activation::none;
    product.epilogue.output_scale.reset();
    return product;
  }

  /// Gates below a limit, factors within it on both sides.
  void limits() {
    for (const double limit : {1.0, 2.0, 5.0, 6.0, 7.0, 10.0}) {
      consider(fmt::format("limit_{}", limit),
               fmt::format("the gate limited to {0} and the factor to -{0} and {0}", limit),
               [=](double gate, double up) {
                 const double low = std::min(gate, limit);
                 return low * sigmoid(low) * std::clamp(up, -limit, limit);
               });
      consider(fmt::format("limit_{}_of_gate", limit), fmt::format("the gate limited to {}", limit),
               [=](double gate, double up) {
                 const double low = std::min(gate, limit);
                 return low * sigmoid(low) * up;
               });
    }
  }

  template <typename Value>
  void consider(const std::string& name, const std::string& text, const Value& value) {
    const auto n = static_cast<std::size_t>(p_.columns());
    const double scale =
        p_.epilogue.output_scale ? static_cast<double>(*p_.epilogue.output_scale) : 1.0;
    const Format& f = format(p_.output.format);
    std::vector<double> values;
    std::vector<double> tolerances;
    for (std::size_t i = 0; i < p_.size(); ++i) {
      const std::size_t at = i / n * 2 * n + i % n;
      const double gate = static_cast<double>(halves_[at]);
      const double up = static_cast<double>(halves_[at + n]);
      values.push_back(scale * value(gate, up));
      const double size = std::abs(scale) * (std::abs(gate) + 1.0) * (std::abs(up) + 1.0);
      tolerances.push_back(
          std::ldexp(size, -20) +
          std::max(std::ldexp(std::abs(values.back()), -f.mantissa_bits), f.min_subnormal()));
    }
    judge_.consider_in_fp64(name, text, values, tolerances);
  }

  const Product& p_;
  Judge& judge_;
  std::vector<float> halves_;
  std::vector<float> pairs_;
};

}  // namespace

std::vector<std::string> measure_epilogue(const Product& product, const Sample& sample,
                                          const Product& sampled, Judge& judge, int threads) {
  std::vector<std::string> lines;
  if (sampled.epilogue.gated())
    GatedFit(product, sample, sampled, judge, threads).run();
  else
    EpilogueFit(product, sample, sampled, judge, threads).run(lines);
  return lines;
}

}  // namespace fp8lab

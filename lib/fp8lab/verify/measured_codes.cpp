// The values that a kernel reads in the codes of one operand: with the other operand known, the
// output is linear in them.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "fp8lab/formats/code_hex.hpp"
#include "fp8lab/product/variants.hpp"
#include "fp8lab/verify/measure.hpp"

namespace fp8lab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr double kCodeErrors = 6.0;
constexpr double kNear = 3e-3;  // relative: no other code is so near

/// The measured values of codes of one operand.
struct CodeTable {
  std::map<std::uint32_t, double> values;
  std::map<std::uint32_t, double> errors;
};

class CodeValues {
 public:
  explicit CodeValues(const MeasuredPart& part)
      : view_(part.product, part.got, {some(part.area.rows, 48), some(part.area.columns, 96)},
              part.threads) {}

  void measure(Measurement& result) const {
    if (!(view_.rms() > 0.0)) return;
    for (const Side side : {Side::a, Side::b}) {
      const CodeMatrix& m = matrix(side);
      if (format(m.format).storage_bits != 8) continue;
      if (const std::optional<CodeTable> table = fit(side, m)) describe(side, m, *table, result);
    }
  }

 private:
  [[nodiscard]] const CodeMatrix& matrix(Side side) const {
    const GemmProblem& p = view_.product().problem;
    return side == Side::a ? p.a : p.b;
  }

  [[nodiscard]] std::optional<CodeTable> fit(Side side, const CodeMatrix& m) const {
    const bool of_a = side == Side::a;
    const GemmProblem& p = view_.product().problem;
    std::map<std::uint32_t, Eigen::Index> index;
    for (std::int64_t row = 0; row < m.rows; ++row)
      for (std::int64_t k = 0; k < m.k; ++k) index.try_emplace(code_at(m, row, k), 0);
    Eigen::Index count = 0;
    for (auto& [code, at] : index) at = count++;
    const std::int64_t others = of_a ? view_.columns() : view_.rows();
    const double work = static_cast<double>(m.rows * m.k * others);
    if (m.rows * others < 2 * count || work > 4e8) return std::nullopt;
    Doubles scaled = of_a ? view_.b() : view_.a();
    const std::int64_t step = common_scale_block(p);
    for (std::int64_t at = 0; at < m.k; at += step)
      for (std::int64_t j = 0; j < others; ++j)
        scaled.row(j).segment(at, std::min(step, m.k - at)) *=
            of_a ? view_.scale_b(j, at) : view_.scale_a(j, at);
    const Doubles by_term = scaled.transpose();
    Eigen::MatrixXd x(m.rows * others, count);
    Eigen::VectorXd y(m.rows * others);
    for (std::int64_t row = 0; row < m.rows; ++row) {
      Doubles sums = Doubles::Zero(count, others);
      for (std::int64_t k = 0; k < m.k; ++k) {
        const double own =
            of_a ? view_.scale_a(row, k / step * step) : view_.scale_b(row, k / step * step);
        sums.row(index.at(code_at(m, row, k))) += own * by_term.row(k);
      }
      x.middleRows(row * others, others) = sums.transpose();
      for (std::int64_t j = 0; j < others; ++j)
        y(row * others + j) = of_a ? view_.sums()(row, j) : view_.sums()(j, row);
    }
    const std::optional<Weights> w = least_squares(x, y);
    if (!w || !view_.fits(w->left)) return std::nullopt;
    CodeTable table;
    for (const auto& [code, at] : index) {
      table.values[code] = w->values(at);
      table.errors[code] = w->errors(at);
    }
    return table;
  }

  /// 0, or a number of few significant bits, where one is near enough to a measured one.
  static double short_number(double x, double near_it) {
    if (std::abs(x) <= 2.0 * near_it) return 0.0;
    return of_few_bits(x, 0, 4, [&](double at) { return std::abs(at - x) <= near_it; });
  }

  /// Whether all values are the right ones times one number: that is a scale, not a table.
  static bool is_factor(const Format& f, const CodeTable& table) {
    double least = kInfinity;
    double most = -kInfinity;
    for (const auto& [code, value] : table.values) {
      const double right = decode(f, code);
      if (!std::isfinite(right) || right == 0.0) continue;
      const double room = kCodeErrors * table.errors.at(code) / std::abs(right);
      most = std::max(most, value / right - room);
      least = std::min(least, value / right + room);
    }
    // Numbers of another format are steps of an eighth apart; sums that truncate bend these.
    return most <= least * 1.02;
  }

  void describe(Side side, const CodeMatrix& m, const CodeTable& table, Measurement& result) const {
    const Format& f = format(m.format);
    std::map<std::uint32_t, double> other;
    for (const auto& [code, value] : table.values) {
      const double right = decode(f, code);
      const double off = kCodeErrors * table.errors.at(code) + 1e-6 * std::abs(value);
      if (!std::isfinite(off)) continue;
      if (!std::isfinite(right) || std::abs(value - right) > 2.0 * off + kNear * std::abs(right))
        other[code] = short_number(value, off);
    }
    if (other.empty() || is_factor(f, table)) return;
    const char letter = side == Side::a ? 'A' : 'B';
    std::string text;
    std::size_t listed = 0;
    for (const auto& [code, value] : other)
      if (listed++ < 4)
        text += fmt::format("{}0x{} as {} (right: {:.6g})", listed == 1 ? "" : ", ",
                            code_hex(f, code), measured_text(value), decode(f, code));
    const std::string how =
        fmt::format("{}'s codes (measured): {} of {} read as other values: {}{}", letter,
                    other.size(), table.values.size(), text, listed > 4 ? " ..." : "");
    result.lines.push_back(how);
    const CodeValue reads = [other, &f](std::uint32_t code) {
      const auto found = other.find(code);
      return found == other.end() ? decode(f, code) : found->second;
    };
    MeasuredMistake mistake{
        fmt::format("codes_read_otherwise_{}", side == Side::a ? "a" : "b"), how, nullptr, {}, {}};
    (side == Side::a ? mistake.a : mistake.b) = reads;
    result.mistakes.push_back(std::move(mistake));
  }

  MeasuredView view_;
};

}  // namespace

void measure_codes(const MeasuredPart& part, Measurement& result) {
  CodeValues(part).measure(result);
}

}  // namespace fp8lab

#include "fp8lab/verify/measured_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8lab/gemm/scaling.hpp"
#include "fp8lab/tensors/codes.hpp"
#include "fp8lab/verify/stand_in.hpp"

namespace fp8lab {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kLeastNoise = 0x1p-22;
constexpr double kNoiseMargin = 4.0;

Doubles finite_values(const CodeMatrix& m) {
  const Format& f = format(m.format);
  std::vector<double> table;
  if (f.storage_bits == 8)
    for (std::uint32_t code = 0; code < 256; ++code)
      table.push_back(code >> f.code_bits() == 0 ? decode(f, code) : 0.0);
  Doubles values(m.rows, m.k);
  for (std::int64_t row = 0; row < m.rows; ++row)
    for (std::int64_t k = 0; k < m.k; ++k) {
      const std::uint32_t code = code_at(m, row, k);
      const double value = table.empty() ? decode(f, code) : table[code];
      values(row, k) = std::isfinite(value) ? value : 0.0;
    }
  return values;
}

/// The sum behind an output value, or NaN.
double sum_behind(const Product& p, double value, std::int64_t i, std::int64_t j) {
  const Epilogue& e = p.epilogue;
  const Format& f = format(p.output.format);
  const bool full = p.output.policy.overflow == OverflowPolicy::saturate && f.storage_bits == 8 &&
                    std::abs(value) >= f.max_finite();
  if (!std::isfinite(value) || full) return kUnknown;
  const auto row = static_cast<std::size_t>(i);
  const auto column = static_cast<std::size_t>(j);
  const std::int64_t n = p.problem.b.rows;
  if (e.output_scale) value /= static_cast<double>(*e.output_scale);
  if (e.activation == Activation::relu || e.activation == Activation::leaky_relu) {
    if (value <= 0.0) return kUnknown;
  } else if (e.activation != Activation::none) {
    return kUnknown;
  }
  if (e.c != nullptr) value -= static_cast<double>(e.beta) * static_cast<double>(e.c[i * n + j]);
  if (!e.bias.empty()) value -= static_cast<double>(e.bias[column]);
  value /= static_cast<double>(e.alpha);
  if (!e.row_scales.empty()) value /= static_cast<double>(e.row_scales[row]);
  if (!e.column_scales.empty()) value /= static_cast<double>(e.column_scales[column]);
  if (p.problem.c != nullptr) value -= static_cast<double>(p.problem.c[i * n + j]);
  return std::isfinite(value) ? value : kUnknown;
}

/// Whether C is scaled with the sum, so that it cannot be taken off.
bool c_is_scaled(const GemmProblem& p) {
  return p.c != nullptr && scaled(p) && c_placement(p) == CPlacement::accumulator;
}

Doubles sums_behind(const Product& sampled, std::span<const float> outputs) {
  Doubles sums(sampled.rows(), sampled.columns());
  const bool hidden = sampled.epilogue.gated() || c_is_scaled(sampled.problem);
  for (std::int64_t i = 0; i < sampled.rows(); ++i)
    for (std::int64_t j = 0; j < sampled.columns(); ++j) {
      const auto at = static_cast<std::size_t>(i * sampled.columns() + j);
      sums(i, j) = hidden ? kUnknown : sum_behind(sampled, static_cast<double>(outputs[at]), i, j);
    }
  return sums;
}

double finite_rms(const Doubles& values) {
  double square = 0.0;
  std::size_t count = 0;
  for (const double x : values.reshaped()) {
    if (!std::isfinite(x)) continue;
    square += x * x;
    ++count;
  }
  return count == 0 ? 0.0 : std::sqrt(square / static_cast<double>(count));
}

}  // namespace

MeasuredView::MeasuredView(const Product& product, std::span<const std::byte> got, Sample sample,
                           int threads)
    : sample_(std::move(sample)),
      sampled_(take(product, sample_)),
      a_(finite_values(sampled_.problem.a)),
      b_(finite_values(sampled_.problem.b)) {
  const FormatId id = product.output.format;
  std::vector<float> outputs;
  for (const std::int64_t row : sample_.rows)
    for (const std::int64_t column : sample_.columns)
      outputs.push_back(static_cast<float>(decode(
          format(id),
          fp8lab::code_at(id, got, static_cast<std::size_t>(row * product.columns() + column)))));
  sums_ = sums_behind(sampled_, outputs);
  if (sampled_.epilogue.gated()) return;
  const std::vector<float> golden =
      decode_codes(id, cast_output(compute(sampled_, threads), product.output, threads));
  const Doubles right = right_sums();
  right_sums_ = sums_behind(sampled_, golden);
  const double right_rms = finite_rms(right);
  noise_ = right_rms > 0.0 ? std::max(finite_rms(right_sums_ - right) / right_rms, kLeastNoise)
                           : kLeastNoise;
  rms_ = finite_rms(sums_);
}

double MeasuredView::scale_a(std::int64_t row, std::int64_t at) const {
  return static_cast<double>(ScaleLookup(sampled_.problem.scale_a, sampled_.problem.a).at(row, at));
}

double MeasuredView::scale_b(std::int64_t column, std::int64_t at) const {
  return static_cast<double>(
      ScaleLookup(sampled_.problem.scale_b, sampled_.problem.b).at(column, at));
}

Doubles MeasuredView::products(std::int64_t begin, std::int64_t end, std::int64_t of_b) const {
  const std::int64_t count = std::min({end - begin, k() - begin, k() - of_b});
  return a_.middleCols(begin, count) * b_.middleCols(of_b, count).transpose();
}

void MeasuredView::apply_scales(Doubles& products, std::int64_t at) const {
  for (std::int64_t i = 0; i < rows(); ++i) products.row(i) *= scale_a(i, at);
  for (std::int64_t j = 0; j < columns(); ++j) products.col(j) *= scale_b(j, at);
}

Doubles MeasuredView::right_sums() const {
  Doubles total = Doubles::Zero(rows(), columns());
  const std::int64_t block = common_scale_block(sampled_.problem);
  for (std::int64_t begin = 0; begin < k(); begin += block) {
    Doubles part = products(begin, std::min(begin + block, k()));
    apply_scales(part, begin);
    total += part;
  }
  return total;
}

bool MeasuredView::fits(double left_rms) const {
  return rms_ > 0.0 && left_rms <= kNoiseMargin * noise_ * rms_;
}

std::optional<Weights> least_squares(const Eigen::MatrixXd& x, const Eigen::VectorXd& y,
                                     Eigen::Index spare) {
  std::vector<Eigen::Index> rows;
  for (Eigen::Index i = 0; i < y.size(); ++i)
    if (std::isfinite(y(i))) rows.push_back(i);
  const auto count = static_cast<Eigen::Index>(rows.size());
  std::vector<Eigen::Index> columns;
  for (Eigen::Index j = 0; j < x.cols(); ++j)
    if (x.col(j).squaredNorm() > 0.0) columns.push_back(j);
  const auto width = static_cast<Eigen::Index>(columns.size());
  if (width == 0 || count < width + spare) return std::nullopt;
  Eigen::MatrixXd kept = x(rows, columns);
  const Eigen::VectorXd norms = kept.colwise().norm();
  for (Eigen::Index j = 0; j < width; ++j)
    if (norms(j) > 0.0) kept.col(j) /= norms(j);
  const Eigen::VectorXd target = y(rows);
  const Eigen::LDLT<Eigen::MatrixXd> normal(kept.transpose() * kept);
  const Eigen::VectorXd d = normal.vectorD();
  constexpr double kDependent = 1e-9;
  if (normal.info() != Eigen::Success || d.minCoeff() < kDependent * d.maxCoeff())
    return std::nullopt;
  const Eigen::VectorXd solved = normal.solve(kept.transpose() * target);
  const double square = (target - kept * solved).squaredNorm();
  const Eigen::MatrixXd inverse = normal.solve(Eigen::MatrixXd::Identity(width, width));
  Weights result{Eigen::VectorXd::Zero(x.cols()),
                 Eigen::VectorXd::Constant(x.cols(), std::numeric_limits<double>::infinity()),
                 std::sqrt(square / static_cast<double>(count - width))};
  for (Eigen::Index j = 0; j < width; ++j) {
    const Eigen::Index to = columns[static_cast<std::size_t>(j)];
    result.values(to) = solved(j) / norms(j);
    result.errors(to) = result.left * std::sqrt(std::max(inverse(j, j), 0.0)) / norms(j);
  }
  return result;
}

std::vector<std::int64_t> some(const std::vector<std::int64_t>& of, std::int64_t most) {
  std::vector<std::int64_t> chosen;
  for (const std::int64_t i : spread(std::ssize(of), most))
    chosen.push_back(of[static_cast<std::size_t>(i)]);
  return chosen;
}

std::string measured_text(double value) {
  if (std::abs(value) < 5e-4) return "0";
  return fmt::format("{:.4g}", value);
}

}  // namespace fp8lab

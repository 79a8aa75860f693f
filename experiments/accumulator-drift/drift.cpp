#include "accumulator-drift/drift.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab::experiments {
namespace {

std::vector<double> product_under(const CodeMatrix& a, const CodeMatrix& b,
                                  const AccumulatorModel& model, std::int64_t promotion_interval,
                                  int threads, const Backend& backend) {
  GemmProblem problem;
  problem.model = model;
  problem.a = a;
  problem.b = b;
  problem.promotion_interval = promotion_interval;
  std::vector<float> d(static_cast<std::size_t>(a.rows * b.rows));
  gemm_on(backend, problem, d, threads);
  return {d.begin(), d.end()};
}

/// A value to `bits` fraction bits, ties to even, any exponent.
double round_significand(double v, int bits) {
  if (v == 0.0) return v;
  const int exponent = std::ilogb(v);
  return std::ldexp(std::nearbyint(std::ldexp(v, bits - exponent)), exponent - bits);
}

/// Sums of products rounded to `bits` fraction bits each (negative: not rounded).
std::vector<double> rounded_products(const CodeMatrix& a, const CodeMatrix& b, int bits) {
  const std::span<const float> values = decode_table(a.format);
  std::vector<double> d;
  d.reserve(static_cast<std::size_t>(a.rows * b.rows));
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < b.rows; ++j) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < a.k; ++k) {
        const double p = static_cast<double>(values[code_at(a, i, k)]) *
                         static_cast<double>(values[code_at(b, j, k)]);
        sum += bits < 0 ? p : round_significand(p, bits);
      }
      d.push_back(sum);
    }
  return d;
}

CodeMatrix bf16_matrix(std::span<const std::uint16_t> codes, std::int64_t rows, std::int64_t k) {
  return {FormatId::bf16, codes.data(), rows, k, k, 1};
}

std::vector<Unpacked> first_row(std::span<const std::uint8_t> codes, std::int64_t k) {
  std::vector<Unpacked> row(static_cast<std::size_t>(k));
  const std::span<const Unpacked> table = unpack_table(FormatId::e4m3fn);
  std::transform(codes.begin(), codes.begin() + k, row.begin(),
                 [&](std::uint8_t code) { return table[code]; });
  return row;
}

}  // namespace

std::vector<double> accumulate(const QuantizedOperands& operands, const AccumulatorModel& model,
                               std::int64_t promotion_interval, int threads,
                               const Backend& backend) {
  return product_under(operands.a_matrix(), operands.b_matrix(), model, promotion_interval, threads,
                       backend);
}

Comparison accumulation_error(const QuantizedOperands& operands, const AccumulatorModel& model,
                              std::int64_t promotion_interval, int threads,
                              const Backend& backend) {
  return compare(exact_product(operands),
                 accumulate(operands, model, promotion_interval, threads, backend));
}

Comparison accumulation_error(const Bf16Operands& operands, const AccumulatorModel& model,
                              std::int64_t promotion_interval, int threads,
                              const Backend& backend) {
  const CodeMatrix a = bf16_matrix(operands.a, operands.m, operands.k);
  const CodeMatrix b = bf16_matrix(operands.b, operands.n, operands.k);
  return compare(exact_product(operands),
                 product_under(a, b, model, promotion_interval, threads, backend));
}

RunningSums running_sums(const QuantizedOperands& operands, const AccumulatorModel& model,
                         std::int64_t promotion_interval, std::int64_t step) {
  const std::string multiple = fmt::format("a positive multiple of {} terms", model.terms);
  require(step > 0 && step % model.terms == 0, "step", multiple, fmt::format("{}", step));
  require(promotion_interval > 0 && promotion_interval % model.terms == 0, "promotion_interval",
          multiple, fmt::format("{}", promotion_interval));
  require(operands.k >= step, "k", fmt::format("at least one step of {}", step),
          fmt::format("{}", operands.k));
  const std::vector<Unpacked> a = first_row(operands.a, operands.k);
  const std::vector<Unpacked> b = first_row(operands.b, operands.k);
  const std::span<const float> values = decode_table(FormatId::e4m3fn);
  RunningSums sums;
  double exact = 0.0;
  float unpromoted = 0.0F;
  float partial = 0.0F;
  float promoted = 0.0F;
  const auto terms = static_cast<std::size_t>(model.terms);
  for (std::size_t k = 0; k < a.size(); k += terms) {
    const std::size_t count = std::min(terms, a.size() - k);
    const auto a_step = std::span(a).subspan(k, count);
    const auto b_step = std::span(b).subspan(k, count);
    unpromoted = dot_product(model, a_step, b_step, unpromoted);
    partial = dot_product(model, a_step, b_step, partial);
    for (std::size_t i = k; i < k + count; ++i)
      exact +=
          static_cast<double>(values[operands.a[i]]) * static_cast<double>(values[operands.b[i]]);
    const auto done = static_cast<std::int64_t>(k + count);
    if (done % promotion_interval == 0) {
      promoted += partial;
      partial = 0.0F;
    }
    if (done % step != 0) continue;
    const double unit = operands.inverse_scale;
    sums.k.push_back(static_cast<double>(done));
    sums.exact.push_back(exact * unit);
    sums.unpromoted.push_back(unpromoted * unit);
    sums.promoted.push_back((static_cast<double>(promoted) + partial) * unit);
  }
  return sums;
}

double pipeline_error(const Bf16Operands& operands, const Pipeline& pipeline, const Stages& on,
                      int threads, const Backend& backend) {
  const QuantizedOperands q = pipeline.seed_cast ? quantize_unscaled(operands, kSeedToy, backend)
                                                 : quantize(operands, backend);
  const CodeMatrix a =
      on.input_quantization ? q.a_matrix() : bf16_matrix(operands.a, operands.m, operands.k);
  const CodeMatrix b =
      on.input_quantization ? q.b_matrix() : bf16_matrix(operands.b, operands.n, operands.k);
  AccumulatorModel model = find_instruction_model(pipeline.accumulator).accumulator;
  if (!on.product_rounding) model.product_fraction_bits = -1;

  std::vector<double> d =
      on.accumulation ? product_under(a, b, model, pipeline.promotion_interval, threads, backend)
                      : rounded_products(a, b, model.product_fraction_bits);
  const double unit = on.input_quantization ? q.inverse_scale : 1.0;
  const bool round_output = on.output_rounding && pipeline.bf16_output;
  for (double& value : d) {
    value *= unit;
    if (round_output)
      value = round_trip(format(FormatId::bf16), kNvidiaNosat, static_cast<float>(value));
  }
  return compare(exact_product(operands), d).relative_l2;
}

}  // namespace fp8lab::experiments

// F1b and F4e: what the naive-FP8 tutorial says of Hopper's tensor cores, against rows of an H200.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "claims/formats.hpp"
#include "claims/groups.hpp"
#include "claims/recorded.hpp"
#include "fp8lab/core/counted.hpp"
#include "fp8lab/vectors/replay.hpp"

namespace fp8lab::experiments {
namespace {

bool is_subnormal(std::uint32_t code) {
  const std::uint32_t magnitude = code & e4m3().magnitude_mask();
  return magnitude != 0 && (magnitude >> e4m3().mantissa_bits) == 0;
}

/// The row as a unit sees it that takes subnormal operands as zeros of their sign.
VectorCase flushed(VectorCase row) {
  for (std::vector<std::uint32_t>* operand : {&row.a, &row.b})
    for (std::uint32_t& code : *operand)
      if (is_subnormal(code)) code &= e4m3().sign_mask();
  return row;
}

bool gives_row(const AccumulatorModel& model, const VectorFile& file, const VectorCase& row) {
  return is_same_result(file, row.d, result_bits(model, file, row));
}

/// Which chip gave the rows, by their header.
std::string chip_of(const VectorFile& file) {
  return fmt::format("{}, {}", file.header.at("gpu").substr(0, file.header.at("gpu").find(',')),
                     file.header.at("instruction"));
}

Measurement measure_f1b(const ClaimContext&) {
  const VectorFile& file = recorded_rows();
  const AccumulatorModel model = executed_model(file);
  double subnormal = 0.0;
  double kept = 0.0;
  double flush = 0.0;
  for (const VectorCase& row : file.cases) {
    if (!std::ranges::any_of(row.a, is_subnormal) && !std::ranges::any_of(row.b, is_subnormal))
      continue;
    subnormal += 1.0;
    kept += gives_row(model, file, row) ? 1.0 : 0.0;
    flush += gives_row(model, file, flushed(row)) ? 1.0 : 0.0;
  }
  Measurement m;
  m.figure = fmt::format(
      "of {} with subnormal operands of an {}, the model gives {} with their values and {} with "
      "zeros in their place",
      counted(static_cast<std::int64_t>(subnormal), "recorded row"), chip_of(file), kept, flush);
  m.values = {
      {"rows", "1", subnormal}, {"explained_kept", "1", kept}, {"explained_flushed", "1", flush}};
  return m;
}

Verdict judge_f1b(Values values) {
  const double rows = value_of(values, "rows");
  const double kept = value_of(values, "explained_kept");
  const double flushed_rows = value_of(values, "explained_flushed");
  if (flushed_rows == rows && kept < rows) return Verdict::holds;
  return kept == rows && flushed_rows < rows ? Verdict::does_not_hold : Verdict::cannot_tell;
}

/// To the nearest number of 3 fraction bits, as the listing's round_to_bits(product, 3).
double to_3_bits(double x) {
  if (x == 0.0) return 0.0;
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(x, 4 - exponent)), exponent - 4);
}

/// c plus the row's products, exact or each rounded to 3 bits. In binary64: products are multiples
/// of 2^-18 below 2^18.
double sum_of(const VectorCase& row, bool rounded) {
  auto sum = static_cast<double>(std::bit_cast<float>(row.c));
  for (std::size_t i = 0; i < row.a.size(); ++i) {
    const double product = decode(e4m3(), row.a[i]) * decode(e4m3(), row.b[i]);
    sum += rounded ? to_3_bits(product) : product;
  }
  return sum;
}

Measurement measure_f4e(const ClaimContext&) {
  const VectorFile& file = recorded_rows();
  const AccumulatorModel model = executed_model(file);
  double equal = 0.0;
  double nearer_rounded = 0.0;
  double off_exact = 0.0;
  double off_rounded = 0.0;
  for (const VectorCase& row : file.cases) {
    const auto d = static_cast<double>(std::bit_cast<float>(row.d));
    const double exact = std::abs(sum_of(row, false) / d - 1.0);
    const double rounded = std::abs(sum_of(row, true) / d - 1.0);
    equal += gives_row(model, file, row) ? 1.0 : 0.0;
    nearer_rounded += rounded < exact ? 1.0 : 0.0;
    off_exact = std::max(off_exact, exact);
    off_rounded = std::max(off_rounded, rounded);
  }
  const auto rows = static_cast<double>(file.cases.size());
  Measurement m;
  m.figure = fmt::format(
      "of {} rows of an {}, {} are nearer to the sum of products rounded to 3 bits than to that of "
      "exact ones; the largest distance is {:.3g} % from rounded and {:.2g} % from exact products; "
      "the model with exact products gives all bits of {}",
      rows, chip_of(file), nearer_rounded, 100.0 * off_rounded, 100.0 * off_exact, equal);
  m.values = {{"rows", "1", rows},
              {"nearer_rounded", "1", nearer_rounded},
              {"largest_off_rounded", "1", off_rounded},
              {"largest_off_exact", "1", off_exact},
              {"explained_exact", "1", equal}};
  return m;
}

Verdict judge_f4e(Values values) {
  const double rows = value_of(values, "rows");
  const double nearer = value_of(values, "nearer_rounded");
  if (nearer > 0.5 * rows) return Verdict::holds;
  return value_of(values, "explained_exact") == rows ? Verdict::does_not_hold
                                                     : Verdict::cannot_tell;
}

}  // namespace

std::vector<Claim> chip_claims() {
  return {
      {"F1b", kTutorial, "Hopper's FP8 path flushes subnormals to zero.",
       "recorded rows of an H200 with subnormal E4M3 operands, among them every one of a hundred "
       "that distinguishes the two readings, against the unit's model with and without a flush",
       "holds if the model gives every row with the flush alone; does not hold if it does without "
       "the flush alone; else cannot tell",
       measure_f1b, judge_f1b, Basis::recorded},
      {"F4e", kTutorial,
       "Products rounded to 3 bits make a simulation line up with Hopper's kernels.",
       "recorded rows of an H200, against the sums of exact products and of products rounded to 3 "
       "bits, and against the unit's model, whose products are exact",
       "holds if most rows are nearer to the sum of rounded products; does not hold if the model "
       "with exact products gives every row; else cannot tell",
       measure_f4e, judge_f4e, Basis::recorded},
  };
}

}  // namespace fp8lab::experiments

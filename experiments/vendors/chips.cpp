#include "vendors/chips.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "common/product.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/metrics/comparison.hpp"
#include "fp8lab/metrics/sum.hpp"

namespace fp8lab::experiments {
namespace {

Coding whole(FormatId id) { return {id, format(id).max_finite()}; }

bool is_fnuz(FormatId id) { return format(id).specials == SpecialValues::fnuz; }

Coding aligned(const Coding& coding) {
  if (!is_fnuz(coding.format)) return coding;
  return {coding.format, format(*fnuz_counterpart(coding.format)).max_finite() / 2.0};
}

/// What chips with the same codes share.
struct Coded {
  Coding a_coding;
  Coding b_coding;
  Quantized a;
  Quantized b;
  std::vector<float> exact;  ///< exact sums of the codes, scaled
};

std::vector<float> product(const Backend& backend, const Coded& coded,
                           const AccumulatorModel& model, std::int64_t promotion_interval) {
  GemmProblem problem;
  problem.model = model;
  problem.a = coded.a.matrix();
  problem.b = coded.b.matrix();
  problem.scale_a = coded.a.scales();
  problem.scale_b = coded.b.scales();
  problem.promotion_interval = promotion_interval;
  std::vector<float> d(coded.a.rows * coded.b.rows);
  gemm_on(backend, problem, d, 1);
  return d;
}

template <typename X>
double distance(std::span<const X> x, std::span<const float> y) {
  PairwiseSum squares;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = static_cast<double>(y[i]) - static_cast<double>(x[i]);
    squares.add(difference * difference);
  }
  return std::sqrt(squares.total());
}

double over(double part, double whole) {
  if (part == 0.0) return 0.0;
  return whole == 0.0 ? std::numeric_limits<double>::infinity() : part / whole;
}

double norm(std::span<const double> x) {
  const std::vector<float> zeros(x.size());
  return distance<double>(x, zeros);
}

std::vector<float> to_bf16(std::span<const float> x) {
  std::vector<float> rounded;
  rounded.reserve(x.size());
  for (const float value : x)
    rounded.push_back(static_cast<float>(round_trip(format(FormatId::bf16), kNvidiaNosat, value)));
  return rounded;
}

double share_of_other_bits(std::span<const float> x, std::span<const float> y) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::bit_cast<std::uint32_t>(x[i]) != std::bit_cast<std::uint32_t>(y[i])) ++count;
  return static_cast<double>(count) / static_cast<double>(x.size());
}

ChipErrors errors_of(std::span<const double> reference, std::span<const float> exact,
                     std::span<const float> outputs) {
  const double size = norm(reference);
  ChipErrors e;
  e.total = over(distance(reference, outputs), size);
  e.format = over(distance(reference, exact), size);
  e.accumulator = over(distance(exact, outputs), size);
  e.bias = compare(reference, outputs).mean_signed_relative;
  e.accumulator_bias = compare(exact, outputs).mean_signed_relative;
  return e;
}

/// The codes of one chip, made once for all chips that share them.
std::size_t coded_for(const Backend& backend, const Tensors& t, const Chip& chip, ScaleBlock block,
                      std::vector<Coded>& all) {
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].a_coding == chip.a && all[i].b_coding == chip.b) return i;
  Coded coded{chip.a,
              chip.b,
              quantize_for(chip.a, t.a, t.m, t.k, block, backend),
              quantize_for(chip.b, t.b, t.n, t.k, block, backend),
              {}};
  coded.exact = product(backend, coded, find_instruction_model("exact").accumulator, 0);
  all.push_back(std::move(coded));
  return all.size() - 1;
}

}  // namespace

double ChipErrors::accumulator_share() const {
  const double squares = format * format + accumulator * accumulator;
  return squares == 0.0 ? 0.0 : accumulator * accumulator / squares;
}

Chip make_chip(std::string_view instruction, std::int64_t promotion_interval) {
  const InstructionModel& model = find_instruction_model(instruction);
  for (const FormatId id : {model.a_format, model.b_format})
    require(format(id).has_sign && format(id).code_bits() == 8, "chips",
            "instructions that read 8-bit floating point",
            fmt::format("{}, which reads {}", instruction, format(id).name));
  std::string label(instruction);
  if (promotion_interval != 0) label += fmt::format("/{}", promotion_interval);
  return {std::move(label), model.accumulator, whole(model.a_format), whole(model.b_format),
          promotion_interval};
}

bool reads_fnuz(const Chip& chip) { return is_fnuz(chip.a.format) || is_fnuz(chip.b.format); }

Chip aligned_with_ocp(const Chip& chip) {
  Chip other = chip;
  other.a = aligned(chip.a);
  other.b = aligned(chip.b);
  other.label +=
      " to " + (other.a == other.b ? fmt::format("{}", other.a.largest)
                                   : fmt::format("{} x {}", other.a.largest, other.b.largest));
  return other;
}

std::string format_text(const Chip& chip) {
  const std::string_view a = format(chip.a.format).name;
  if (chip.a.format == chip.b.format) return std::string(a);
  return fmt::format("{} x {}", a, format(chip.b.format).name);
}

Quantized quantize_for(const Coding& coding, const std::vector<float>& x, std::size_t rows,
                       std::size_t k, ScaleBlock block, const Backend& backend) {
  const Format& f = format(coding.format);
  CastPolicy policy = kNvidiaSatfinite;
  if (coding.largest != f.max_finite()) policy.max_magnitude = coding.largest;
  return quantize(x, rows, k, block, f, policy, backend);
}

Measured measure_chips(const Tensors& tensors, const std::vector<Chip>& chips, ScaleBlock block,
                       const Backend& backend) {
  const std::vector<double> reference = exact_product(tensors.a, tensors.b, tensors.k);
  const double rms = norm(reference) / std::sqrt(static_cast<double>(reference.size()));
  std::vector<Coded> coded;
  std::vector<std::vector<float>> exact;
  std::vector<std::vector<float>> rounded;
  Measured measured;
  for (const Chip& chip : chips) {
    const Coded& codes = coded[coded_for(backend, tensors, chip, block, coded)];
    const std::vector<float> outputs = product(backend, codes, chip.model, chip.promotion_interval);
    measured.chips.push_back(errors_of(reference, codes.exact, outputs));
    exact.push_back(to_bf16(codes.exact));
    rounded.push_back(to_bf16(outputs));
  }
  for (std::size_t x = 0; x < chips.size(); ++x)
    for (std::size_t y = x + 1; y < chips.size(); ++y) {
      double largest = 0.0;
      for (std::size_t i = 0; i < reference.size(); ++i)
        largest = std::max(largest, std::abs(static_cast<double>(rounded[x][i]) -
                                             static_cast<double>(rounded[y][i])));
      measured.differences.push_back({share_of_other_bits(rounded[x], rounded[y]),
                                      share_of_other_bits(exact[x], exact[y]), over(largest, rms)});
    }
  return measured;
}

}  // namespace fp8lab::experiments

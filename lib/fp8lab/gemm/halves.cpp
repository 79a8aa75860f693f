#include "fp8lab/gemm/halves.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "fp8lab/accumulate/halves.hpp"
#include "fp8lab/accumulate/unit.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/core/ceil_divide.hpp"
#include "fp8lab/core/parallel.hpp"
#include "fp8lab/gemm/aligned_array.hpp"
#include "fp8lab/gemm/driver.hpp"
#include "fp8lab/gemm/half_codes.hpp"
#include "fp8lab/gemm/methods/methods.hpp"
#include "fp8lab/gemm/reference.hpp"
#include "fp8lab/gemm/scaling.hpp"

namespace fp8lab::gemm_detail {
namespace {

/// FP16 codes [rows, k] of a matrix, k filled up with zeros to whole instructions, each
/// of them in the order of its halves.
class HalfCodes {
 public:
  HalfCodes(const CodeMatrix& matrix, int terms, Target target, int threads)
      : rows_(matrix.rows), k_(round_up(matrix.k, terms)), codes_(rows_ * k_) {
    std::array<std::uint16_t, 256> half_of{};
    for (std::uint32_t code = 0; code < half_of.size(); ++code)
      half_of[code] = static_cast<std::uint16_t>(
          cast(format(FormatId::f16), kNvidiaNosat, unpack(format(matrix.format), code)).code);
    std::vector<std::int64_t> term_at;
    for (int place = 0; place < terms; ++place) term_at.push_back(term_of_halves(place, terms));
    const HalfCodeKernels* kernels = kernels_for(matrix, terms, target);
    const HalfCodeLayout layout = layout_of(format(matrix.format));
    const std::int64_t copied = kernels == nullptr ? 0 : matrix.k / terms * terms;
#pragma omp parallel for num_threads(threads)
    for (std::int64_t row = 0; row < rows_; ++row) {
      const auto* from = static_cast<const unsigned char*>(matrix.data) + row * matrix.row_stride;
      std::uint16_t* to = codes_.data() + row * k_;
      if (copied > 0) kernels->copy(from, copied, layout, to);
      to += copied;
      for (std::int64_t first = copied; first < k_; first += terms, to += terms) {
        if (first + terms <= matrix.k) {
          for (std::size_t i = 0; i < term_at.size(); ++i)
            to[i] = half_of[from[(first + term_at[i]) * matrix.k_stride]];
          continue;
        }
        for (std::size_t i = 0; i < term_at.size(); ++i) {
          const std::int64_t k = first + term_at[i];
          to[i] = k < matrix.k ? half_of[from[k * matrix.k_stride]] : std::uint16_t{0};
        }
      }
    }
  }
  /// The terms [begin, end), which stand between instructions or at the end of K.
  [[nodiscard]] CodeMatrix part(std::int64_t begin, std::int64_t end) const {
    return {FormatId::f16, codes_.data() + begin, rows_, std::min(end, k_) - begin, k_, 1};
  }
  [[nodiscard]] CodeMatrix all() const { return part(0, k_); }

 private:
  /// Null where there are none.
  static const HalfCodeKernels* kernels_for(const CodeMatrix& matrix, int terms, Target target) {
    const Format& f = format(matrix.format);
    const bool fits = f.has_sign && f.code_bits() == 8 && f.exponent_bits <= 5 &&
                      f.specials != SpecialValues::fnuz;
    return fits && matrix.k_stride == 1 && terms == kTermsOfHalves ? half_code_kernels(target)
                                                                   : nullptr;
  }
  static HalfCodeLayout layout_of(const Format& f) {
    constexpr int kHalfBias = 15;
    constexpr int kHalfMantissaBits = 10;
    const std::uint32_t largest = f.has_infinity() ? f.infinity_code() : f.max_finite_code();
    return {.shift = kHalfMantissaBits - f.mantissa_bits,
            .scale = std::ldexp(1.0F, kHalfBias - f.bias),
            .largest = static_cast<std::uint16_t>(largest)};
  }

  std::int64_t rows_;
  std::int64_t k_;
  AlignedArray<std::uint16_t> codes_;
};

/// Scales that stay the same along K, whatever its length.
void forget_k(InverseScales& scales, const CodeMatrix& matrix) {
  if (!ScaleLookup(scales, matrix).varies_along_k()) scales.k_block = 0;
}

/// What the copies of `given` are multiplied as: fused steps with a promotion after every
/// instruction, whose sum starts from zero and is added to `final`.
GemmProblem as_steps(const GemmProblem& given, const CodeMatrix& a, const CodeMatrix& b) {
  GemmProblem steps = given;
  steps.model = step_of_halves(given.model);
  steps.a = a;
  steps.b = b;
  steps.promotion_interval = given.model.terms;
  if (given.promotion_interval == 0 && c_placement(given) == CPlacement::accumulator)
    steps.c_enters = CPlacement::promoted_sum;
  forget_k(steps.scale_a, given.a);
  forget_k(steps.scale_b, given.b);
  return steps;
}

/// `given` on copies of its operands. One instruction an interval is added to zero first, which
/// changes nothing but -0, so that promotion every instruction is FP32's alone.
void multiply_copies(const GemmProblem& given, const CodeMatrix& a, const CodeMatrix& b,
                     std::span<float> d, Target target, int threads) {
  const GemmProblem steps = as_steps(given, a, b);
  MethodRequest request(steps);
  // The copies have no more bits than what they are copies of.
  request.a_values = &format(given.a.format);
  request.b_values = &format(given.b.format);
  const MethodPtr method = plan_for_data(request, {}, target, threads);
  const bool to_half = given.model.output_format == FormatId::f16 && given.promotion_interval == 0;
  const bool separate = given.model.halves_order == HalvesOrder::separate;
  run_planned({.problem = steps,
               .specified = given,
               .method = *method,
               .intervals = {.to_half = to_half,
                             .separate_steps = separate,
                             .start_from_zero = given.promotion_interval != 0}},
              d, target, threads);
}

/// Promotion at the problem's own interval: the sums of each, added by FP32 arithmetic.
void promote(const GemmProblem& p, const HalfCodes& a, const HalfCodes& b, std::span<float> d,
             Target target, int threads) {
  const ScaleLookup scale_a(p.scale_a, p.a);
  const ScaleLookup scale_b(p.scale_b, p.b);
  const bool in_blocks = scaled_in_blocks(p);
  const bool c_first = !scaled(p) || in_blocks;
  GemmProblem part = p;
  part.c = nullptr;  // which is the epilogue's, or what the promoted sum starts from
  part.scale_a = part.scale_b = {};
  part.promotion_interval = 0;
  const std::int64_t n = p.b.rows;
  const auto c_at = [&](std::int64_t at) { return p.c == nullptr ? 0.0F : p.c[at]; };
  /// sums[i, j] = combine(sums[i, j], partial[i, j]) of all outputs.
  const auto for_outputs = [&](const auto& combine) {
    parallel_for(p.a.rows, threads, [&](std::int64_t i) {
      for (std::int64_t j = 0; j < n; ++j) combine(i, j, static_cast<std::size_t>(i * n + j));
    });
  };
  std::vector<float> sums(d.size(), 0.0F);
  std::vector<float> partial(d.size());
  if (c_first && p.c != nullptr) std::copy_n(p.c, sums.size(), sums.begin());
  for (std::int64_t k = 0; k < p.a.k; k += p.promotion_interval) {
    const std::int64_t end = k + p.promotion_interval;
    part.a = part_of(p.a, k, end);
    part.b = part_of(p.b, k, end);
    multiply_copies(part, a.part(k, end), b.part(k, end), partial, target, threads);
    for_outputs([&](std::int64_t i, std::int64_t j, std::size_t at) {
      sums[at] = in_blocks ? scale_into(p.scale_order, partial[at], scale_a.at(i, k),
                                        scale_b.at(j, k), sums[at])
                           : canonical(sums[at] + partial[at]);
    });
  }
  for_outputs([&](std::int64_t i, std::int64_t j, std::size_t at) {
    d[at] = c_first ? sums[at]
                    : scale_into(p.scale_order, sums[at], scale_a.at(i, 0), scale_b.at(j, 0),
                                 c_at(i * n + j));
  });
}

/// Of few rows: whose copies stay in cache, where they are read once.
constexpr std::int64_t kFewRows = 8;
constexpr std::int64_t kColumns = 128;

bool takes_columns(const GemmProblem& p) {
  const std::int64_t block = p.scale_b.row_block;
  return p.a.rows <= kFewRows && p.b.rows > kColumns &&
         (p.scale_b.empty() || block >= p.b.rows || kColumns % block == 0);
}

/// The columns [first, first + count) of a product that takes_columns, whose C is copied to `c`.
GemmProblem columns_of(const GemmProblem& p, std::int64_t first, std::int64_t count,
                       std::vector<float>& c) {
  GemmProblem part = p;
  part.b.data = static_cast<const unsigned char*>(p.b.data) + first * p.b.row_stride;
  part.b.rows = count;
  const std::int64_t block = p.scale_b.row_block;
  if (!p.scale_b.empty() && block < p.b.rows) {
    const std::int64_t side = p.scale_b.k_block == 0 ? p.b.k : p.scale_b.k_block;
    const std::int64_t tiles = ceil_divide(p.b.k, side);
    part.scale_b.values =
        p.scale_b.values.subspan(static_cast<std::size_t>(first / block * tiles),
                                 static_cast<std::size_t>(ceil_divide(count, block) * tiles));
  }
  if (p.c == nullptr) return part;
  c.resize(static_cast<std::size_t>(p.a.rows * count));
  for (std::int64_t i = 0; i < p.a.rows; ++i)
    std::copy_n(p.c + i * p.b.rows + first, count, c.begin() + i * count);
  part.c = c.data();
  return part;
}

}  // namespace

bool runs_by_halves(const GemmProblem& problem) {
  if (problem.model.kind != AccumulationKind::fp16_halves) return false;
  GemmProblem steps;
  steps.model = step_of_halves(problem.model);
  steps.a.format = steps.b.format = FormatId::f16;
  const MethodPtr method = plan_method(MethodRequest(steps));
  // Only steps that a kernel promotes meet in other ways than FP32 promotion.
  const bool fp32_promotion = problem.model.halves_order == HalvesOrder::chained &&
                              problem.model.output_format == FormatId::f32;
  return method && (method->sums().promotion != SumForm::Promotion::rows || fp32_promotion);
}

namespace {

void multiply(const GemmProblem& problem, std::span<float> d, Target target, int threads) {
  const int terms = problem.model.terms;
  const HalfCodes a(problem.a, terms, target, threads);
  const HalfCodes b(problem.b, terms, target, threads);
  // Scales along K have no kernel that adds separate steps first.
  const bool in_blocks = scaled_in_blocks(problem);
  // Nor one that rounds their sum to FP16 and adds it to binary32.
  const bool separate = problem.model.halves_order == HalvesOrder::separate;
  const bool to_half = problem.model.output_format == FormatId::f16;
  const bool every_instruction =
      problem.promotion_interval == terms && !(separate && (in_blocks || to_half));
  if (problem.promotion_interval == 0 || every_instruction)
    multiply_copies(problem, a.all(), b.all(), d, target, threads);
  else
    promote(problem, a, b, d, target, threads);
}

}  // namespace

std::string_view gemm_by_halves(const GemmProblem& problem, std::span<float> d, Target target,
                                int threads) {
  if (!takes_columns(problem)) {
    multiply(problem, d, target, threads);
    return kMethodOfHalves;
  }
  const std::int64_t n = problem.b.rows;
  parallel_for(ceil_divide(n, kColumns), threads, [&](std::int64_t task) {
    const std::int64_t first = task * kColumns;
    const std::int64_t count = std::min(kColumns, n - first);
    std::vector<float> c;
    std::vector<float> part(static_cast<std::size_t>(problem.a.rows * count));
    multiply(columns_of(problem, first, count, c), part, target, 1);
    for (std::int64_t i = 0; i < problem.a.rows; ++i)
      std::copy_n(part.begin() + i * count, count, d.begin() + i * n + first);
  });
  return kMethodOfHalves;
}

}  // namespace fp8lab::gemm_detail

#pragma once
// Which error should a right kernel have? Right outputs of random or given operands against
// references that test suites use, the gate that passes them, and the faults that it sees.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// What an output is compared with: the product of the same dequantized operands, or, where a
/// recipe quantizes them and it is asked for, of the floats before.
enum class ReferenceKind : std::uint8_t {
  fp64,  ///< summed in FP64
  fp32,  ///< summed in FP32, a term after the other, promoted and scaled as the kernel does
  bf16,  ///< the FP32 one rounded to BF16
};
inline constexpr int kReferences = 3;
std::string_view to_string(ReferenceKind kind);

/// The values of an operand: all of one distribution, variance 1 where it has one.
enum class Distribution : std::uint8_t {
  normal,
  uniform,     ///< of [0, 1)
  student_t,   ///< 4 degrees of freedom
  log_normal,  ///< exp of a normal number, with a random sign
};
std::string_view to_string(Distribution distribution);
/// Throws `Error` that lists them.
Distribution find_distribution(std::string_view name);

struct ExpectOptions {
  GemmSpec gemm{};       ///< as a call or options say it; no C, and no vectors in the epilogue
  std::string recipe{};  ///< quantizes A (activation) and B (weight); empty: cast without a scale
  std::int64_t m = 4096;
  std::int64_t n = 4096;
  std::int64_t k = 4096;
  Distribution distribution = Distribution::normal;
  /// Operands of one's own in place of draws: trials take other rows and columns of them.
  std::optional<GemmOperands> operands{};
  bool against_originals = false;  ///< references of the floats that a recipe quantized
  int trials = 40;
  std::uint64_t seed = 1;
  double risk = 1e-6;  ///< that a gate fails a right output
  int threads = 0;
};

/// One metric over the trials. `tail` is the quantile of 1 - risk, worked out as follows.
///
/// Metrics of a whole output (relative_l2, calc_diff, 1 - cosine): a normal distribution of their
/// logarithms, whose deviation is taken at the upper end of its 95 % interval. Metrics of the
/// worst element (excess, max_ulp): trials are maxima of as many elements as a trial has, so a
/// Gumbel distribution of them (heavy-tailed data: of their logarithms) with the same allowance,
/// moved by the logarithm of m n over that number. 10^-6 cannot be seen in so few trials:
/// the tail is an extrapolation and says what these two shapes say.
struct MetricSpread {
  std::string_view name;
  double median = 0.0;
  double largest = 0.0;
  double tail = 0.0;
};

/// A gate in the forms that test suites have, against one reference.
struct ExpectedGate {
  ReferenceKind reference = ReferenceKind::fp64;
  std::vector<MetricSpread> metrics;  ///< relative_l2, calc_diff, one_minus_cosine, excess, max_ulp
  double rtol = 0.0;       ///< a unit of the output's significand; FP32: 1.3e-6, as torch has it
  double atol = 0.0;       ///< the tail of |y - x| - rtol |x|
  double calc_diff = 0.0;  ///< 1 - 2 x.y / (x.x + y.y) below this
  double cosine = 0.0;     ///< above this
  /// Of the output's format, against the reference cast to it. Sums near zero have no useful bound:
  /// 2^32 and more fail nothing, not even in FP32, and texts say none.
  std::uint64_t max_ulp = 0;
};

/// How one fault fares at the gate of a reference.
struct ExpectedFault {
  std::string name;
  std::string text;
  double size = 0.0;  ///< median relative L2 distance from the right output
  /// Of rtol and atol, calc_diff, cosine, max_ulp: which fail it in every trial that was tried.
  bool close = false;
  bool calc_diff = false;
  bool cosine = false;
  bool max_ulp = false;
};

struct Expectation {
  ExpectOptions options;
  std::int64_t sample_rows = 0;  ///< outputs of a trial
  std::int64_t sample_columns = 0;
  double rms = 0.0;                                ///< of right outputs
  std::vector<ExpectedGate> gates;                 ///< one a reference
  std::vector<std::vector<ExpectedFault>> faults;  ///< one list a reference, smallest first
};

/// Throws `Error` for sizes and counts that do not fit, and where a right output is not finite.
Expectation expect_errors(const ExpectOptions& options);

/// The report for people.
std::string describe(const Expectation& expectation);

/// A wrong output of a product and what was wrong.
struct WrongOutput {
  std::string name;
  std::string text;
  std::vector<std::byte> codes;
};

/// Wrong outputs of small and large mistakes: of stores, casts, scales, terms and sums.
std::vector<WrongOutput> wrong_outputs(const Product& product, std::span<const float> right);

}  // namespace fp8lab

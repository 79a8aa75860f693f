#pragma once
// The error that a right kernel should have: right outputs for random or given operands compared
// with the references of test suites, the gate that passes them, and the faults that it detects.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// The reference of an output: the product of the same dequantized operands, or on request, if a
/// recipe quantizes them, of the original floats.
enum class ReferenceKind : std::uint8_t {
  fp64,  ///< summed in FP64
  fp32,  ///< summed in FP32, one term after the other, promoted and scaled like the kernel
  bf16,  ///< the FP32 one rounded to BF16
};
inline constexpr int kReferences = 3;
std::string_view to_string(ReferenceKind kind);

/// The distribution of the values of an operand, with variance 1 unless stated.
enum class Distribution : std::uint8_t {
  normal,
  uniform,     ///< in [0, 1)
  student_t,   ///< 4 degrees of freedom
  log_normal,  ///< exp of a normal number, with a random sign
};
std::string_view to_string(Distribution distribution);
/// The distribution called `name`. Throws `Error` that lists them.
Distribution find_distribution(std::string_view name);

struct ExpectOptions {
  /// The computation; no C, and no vectors in the epilogue.
  GemmSpec gemm{.model = "sm90.wgmma.e4m3"};
  std::string recipe{};  ///< quantizes A (activation) and B (weight); empty: cast without a scale
  std::int64_t m = 4096;
  std::int64_t n = 4096;
  std::int64_t k = 4096;
  Distribution distribution = Distribution::normal;
  /// Given operands in place of random ones: each trial takes other rows and columns of them.
  std::optional<GemmOperands> operands{};
  bool against_originals = false;  ///< references use the floats that a recipe quantized
  int trials = 40;
  std::uint64_t seed = 1;
  double risk = 1e-6;  ///< the probability that a gate fails a right output
  int threads = 0;
};

/// One metric over the trials. `tail` is the quantile of 1 - risk, estimated as follows.
///
/// Metrics of a whole output (relative_l2, calc_diff, 1 - cosine): a normal distribution of their
/// logarithms, whose deviation is taken at the upper end of its 95 % interval. Metrics of the
/// worst element (excess, max_ulp): trials are maxima of as many elements as a trial has, so a
/// Gumbel distribution of them (heavy-tailed data: of their logarithms) with the same allowance,
/// moved by the logarithm of m n over that number. A probability of 10^-6 cannot be observed in
/// so few trials: the tail is an extrapolation with these two distributions.
struct MetricSpread {
  std::string_view name;
  double median = 0.0;
  double largest = 0.0;
  double tail = 0.0;
};

/// A gate against one reference, in the forms that test suites use.
struct ExpectedGate {
  ReferenceKind reference = ReferenceKind::fp64;
  std::vector<MetricSpread> metrics;  ///< relative_l2, calc_diff, one_minus_cosine, excess, max_ulp
  double rtol = 0.0;       ///< one unit of the output's significand; FP32: 1.3e-6, as in torch
  double atol = 0.0;       ///< the tail of |y - x| - rtol |x|
  double calc_diff = 0.0;  ///< upper limit of 1 - 2 x.y / (x.x + y.y)
  double cosine = 0.0;     ///< lower limit
  /// Largest distance in steps of the output's format from the reference cast to it. Empty where
  /// the bound would catch none of the faults: sums near zero change sign, which is as many steps
  /// as there are small numbers.
  std::optional<std::uint64_t> max_ulp{};
};

/// Whether the gate of a reference detects one fault.
struct ExpectedFault {
  std::string name;
  std::string text;
  double size = 0.0;  ///< median relative L2 distance from the right output
  /// Whether this limit detects the fault in every trial. `close`: rtol and atol.
  bool close = false;
  bool calc_diff = false;
  bool cosine = false;
  bool max_ulp = false;
};

struct Expectation {
  ExpectOptions options;
  std::int64_t sample_rows = 0;  ///< rows of the outputs of a trial
  std::int64_t sample_columns = 0;
  double rms = 0.0;                                ///< root mean square of right outputs
  std::vector<ExpectedGate> gates;                 ///< one for each reference
  std::vector<std::vector<ExpectedFault>> faults;  ///< for each reference, smallest first
};

/// Runs the trials. Throws `Error` for bad sizes and counts, and if a right output is not finite.
Expectation expect_errors(const ExpectOptions& options);

/// The report as text.
std::string describe(const Expectation& expectation);

/// A wrong output of a product and its mistake.
struct WrongOutput {
  std::string name;
  std::string text;
  std::vector<std::byte> codes;
};

/// Outputs with small and large mistakes in stores, casts, scales, terms and sums.
std::vector<WrongOutput> wrong_outputs(const Product& product, std::span<const float> right);

}  // namespace fp8lab

#pragma once
// An unknown kernel under test: products of fixed shape, from codes to numbers.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// The operands of `calls` products D [m, n] = A [m, k] . B [n, k]^T. Codes are storage words,
/// row-major [calls, m, k] and [calls, n, k] (1 byte for formats of at most 8 bits, 2 for FP16
/// and BF16, 4 for TF32 and FP32).
struct ProbeCalls {
  FormatId a_format = FormatId::e4m3fn;
  FormatId b_format = FormatId::e4m3fn;
  std::int64_t calls = 0;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::vector<std::byte> a;
  std::vector<std::byte> b;
};

/// The outputs of the kernel: row-major [calls, m, n] as binary32, and their original format (f32,
/// f16 or bf16).
struct ProbeOutputs {
  std::vector<float> d;
  FormatId output = FormatId::f32;
};

using ProbeKernel = std::function<ProbeOutputs(const ProbeCalls&)>;

/// The shape and operands of every call.
struct ProbeShape {
  std::int64_t m = 32;
  std::int64_t n = 32;
  std::int64_t k = 256;
  FormatId a_format = FormatId::e4m3fn;
  FormatId b_format = FormatId::e4m3fn;
};

/// One dot product of k values each, which must be exact in the formats.
struct Probe {
  std::vector<float> a;
  std::vector<float> b;
};

/// Appends the storage words of values, which must be exact in the format. TF32 uses binary32.
void append_words(FormatId format, std::span<const float> values, std::vector<std::byte>& words);

/// Products of powers of two in two formats.
class PowerProducts {
 public:
  /// `most`: the largest magnitude of a factor's exponent.
  PowerProducts(FormatId a, FormatId b, int most = 20);

  [[nodiscard]] int largest() const { return a_high_ + b_high_; }
  [[nodiscard]] int smallest() const { return a_low_ + b_low_; }  ///< subnormals too
  [[nodiscard]] int smallest_normal() const {
    return a_normal_ + b_normal_;
  }  ///< of normal operands

  /// Two factors of 2^exponent with similar exponents; from `smallest` to `largest`.
  [[nodiscard]] std::pair<float, float> factors(int exponent) const;

 private:
  int a_low_, a_normal_, a_high_;
  int b_low_, b_normal_, b_high_;
};

/// Runs probes. Probe i of a call gives its output (i, i).
class ProbeRunner {
 public:
  /// Throws `Error` for a shape without outputs or terms, or an operand format without a sign.
  ProbeRunner(ProbeShape shape, ProbeKernel kernel);

  /// Returns one output per probe. Calls of whole matrices, if any, precede them in the batch;
  /// their outputs [calls, m, n] are stored in `whole_outputs`. Throws `Error` if the kernel
  /// returns another number of outputs or changes their format.
  std::vector<float> run(std::span<const Probe> probes, std::span<const Probe> whole = {},
                         std::vector<float>* whole_outputs = nullptr);

  [[nodiscard]] const ProbeShape& shape() const { return shape_; }
  [[nodiscard]] FormatId output() const { return output_; }
  [[nodiscard]] std::int64_t probes() const { return probes_; }  ///< number of probes so far
  [[nodiscard]] std::int64_t rounds() const { return rounds_; }  ///< number of batches so far

 private:
  ProbeShape shape_;
  ProbeKernel kernel_;
  FormatId output_ = FormatId::f32;
  std::int64_t probes_ = 0;
  std::int64_t rounds_ = 0;
};

}  // namespace fp8lab

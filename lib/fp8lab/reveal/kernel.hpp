#pragma once
// An unknown kernel as probes see it: products of fixed shape, codes in, numbers out.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "fp8lab/formats/format.hpp"

namespace fp8lab {

/// `calls` products D [m, n] = A [m, k] . B [n, k]^T, one after the other. Codes are in storage
/// words, row-major [calls, m, k] and [calls, n, k] (1 byte for formats of at most 8 bits, 2 for
/// FP16 and BF16, 4 for TF32 and FP32).
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

/// What the kernel made of them: row-major [calls, m, n] as binary32, and the format in which it
/// gave them (f32, f16 or bf16).
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

/// One dot product: k values each, which the formats hold exactly.
struct Probe {
  std::vector<float> a;
  std::vector<float> b;
};

/// Storage words of values that the format holds, which they must. TF32 lives in binary32.
void append_words(FormatId format, std::span<const float> values, std::vector<std::byte>& words);

/// Products of powers of two under two formats.
class PowerProducts {
 public:
  /// `most`: the largest magnitude of a factor's exponent.
  PowerProducts(FormatId a, FormatId b, int most = 20);

  [[nodiscard]] int largest() const { return a_high_ + b_high_; }
  [[nodiscard]] int smallest() const { return a_low_ + b_low_; }  ///< subnormals too
  [[nodiscard]] int smallest_normal() const {
    return a_normal_ + b_normal_;
  }  ///< of normal operands

  /// Two factors of 2^exponent, as even as can be; `smallest` to `largest`.
  [[nodiscard]] std::pair<float, float> factors(int exponent) const;

 private:
  int a_low_, a_normal_, a_high_;
  int b_low_, b_normal_, b_high_;
};

/// Runs probes: probe i of a call is its output (i, i), all else there is zero.
class ProbeRunner {
 public:
  /// Throws `Error` for a shape without outputs or terms, or an operand format without a sign.
  ProbeRunner(ProbeShape shape, ProbeKernel kernel);

  /// One output a probe. Calls of whole matrices, if any, go first in the same batch; their outputs
  /// [calls, m, n] come back in `whole_outputs`. Throws `Error` if the kernel gives another number
  /// of outputs, or changes their format.
  std::vector<float> run(std::span<const Probe> probes, std::span<const Probe> whole = {},
                         std::vector<float>* whole_outputs = nullptr);

  [[nodiscard]] const ProbeShape& shape() const { return shape_; }
  [[nodiscard]] FormatId output() const { return output_; }
  [[nodiscard]] std::int64_t probes() const { return probes_; }  ///< that were run so far
  [[nodiscard]] std::int64_t rounds() const { return rounds_; }  ///< batches

 private:
  ProbeShape shape_;
  ProbeKernel kernel_;
  FormatId output_ = FormatId::f32;
  std::int64_t probes_ = 0;
  std::int64_t rounds_ = 0;
};

}  // namespace fp8lab

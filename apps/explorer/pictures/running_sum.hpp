#pragma once
// One dot product, step after step: what a kernel would return if the product ended there.

#include <cstdint>
#include <span>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/accumulate/arithmetic.hpp"

namespace fp8lab::explorer {

/// The sum under `model`, with promotion to binary32 every `promotion_interval` terms (0: never).
/// After every step it equals `gemm` of the terms so far.
class RunningSum {
 public:
  RunningSum(const AccumulatorModel& model, std::int64_t promotion_interval)
      : model_(model), interval_(promotion_interval) {}

  /// The next `model.terms` products (fewer only at the end of the dot product).
  void add(std::span<const Unpacked> a, std::span<const Unpacked> b);

  [[nodiscard]] float value() const;

 private:
  AccumulatorModel model_;
  std::int64_t interval_;
  std::int64_t terms_ = 0;  ///< since the last promotion
  float partial_ = 0.0F;
  float promoted_ = 0.0F;
};

/// The exact sum of finite products.
class ExactSum {
 public:
  void add(std::span<const Unpacked> a, std::span<const Unpacked> b);

  /// In binary64; exact while the sum has at most 53 significant bits.
  [[nodiscard]] double value() const;

 private:
  KulischAccumulator sum_;
};

}  // namespace fp8lab::explorer

#pragma once
// Sums over K that hypotheses have in common: under promotion, parts of a split K, orders of
// scales and places of C are FP32 arithmetic on the same partial sums.

#include <cstdint>
#include <span>
#include <vector>

#include "fp8lab/identify/hypotheses.hpp"

namespace fp8lab {

/// Whether the sums over K of this one are FP32 arithmetic on partial sums: it is promoted, and its
/// instruction applies no scales.
bool has_partial_sums(const Product& product, std::span<const NamedAccumulator> accumulators,
                      const Accumulation& one);

/// The partial sums of one accumulator and promotion interval, unscaled.
class PartialSums {
 public:
  /// Those of `one`, for which has_partial_sums; computed by one thread. `product` must outlive
  /// them.
  PartialSums(const Product& product, std::span<const NamedAccumulator> accumulators,
              const Accumulation& one);

  /// sums_of(...) of `one`, which differs from the constructor's in its order of scales, split
  /// and place of C at most. Needs rounding to nearest.
  [[nodiscard]] std::vector<float> sums_of(const Accumulation& one) const;

 private:
  [[nodiscard]] float* row(std::vector<float>& sums, std::int64_t i) const {
    return sums.data() + i * stride_;
  }
  /// The sums over K of a problem without scales and promotion, in rows of the stride.
  [[nodiscard]] std::vector<float> sums_of(const GemmProblem& part) const;
  void add(const std::vector<float>& partial, std::int64_t interval, ScaleOrder order,
           std::vector<float>& sums) const;
  void add_plain(const std::vector<float>& part, std::vector<float>& sums) const;

  const Product& product_;
  std::span<const NamedAccumulator> accumulators_;
  std::int64_t rows_;
  std::int64_t columns_;
  std::int64_t stride_;                      ///< of rows of sums, for whole vectors
  std::int64_t intervals_;                   ///< along K
  bool in_blocks_;                           ///< scales change along K
  std::vector<std::vector<float>> partial_;  ///< [interval][row][stride]
  std::vector<float> first_from_c_;          ///< the first where the instruction starts from C
  std::vector<float> a_scales_;              ///< [interval][row]
  std::vector<float> b_scales_;              ///< [interval][stride]
};

}  // namespace fp8lab

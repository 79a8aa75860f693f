#pragma once
// The FP64 sum of all metrics: pairwise, in an order that depends only on the number
// of elements, so that metrics depend neither on threads nor on vector width.

#include <array>
#include <cstddef>
#include <cstdint>

namespace fp8lab {

/// Adds blocks of 128 elements in order and the blocks in pairs, as a tree. The
/// relative error is below (128 + log2(n / 128)) 2^-53 for terms of one sign.
/// NaN and infinities propagate as in IEEE 754.
class PairwiseSum {
 public:
  void add(double term) {
    partial_ += term;
    if (++in_partial_ == kBlock) carry();
  }

  [[nodiscard]] double total() const {
    double sum = partial_;
    for (std::size_t level = 0; level < levels_.size(); ++level)
      if ((blocks_ >> level & 1) != 0) sum += levels_[level];
    return sum;
  }

 private:
  static constexpr std::size_t kBlock = 128;

  /// Counts blocks in binary; level l holds the sum of 2^l blocks if bit l is set.
  void carry() {
    double sum = partial_;
    std::size_t level = 0;
    for (; (blocks_ >> level & 1) != 0; ++level) sum += levels_[level];
    levels_[level] = sum;
    ++blocks_;
    partial_ = 0.0;
    in_partial_ = 0;
  }

  std::array<double, 48> levels_{};
  std::uint64_t blocks_ = 0;
  double partial_ = 0.0;
  std::size_t in_partial_ = 0;
};

}  // namespace fp8lab

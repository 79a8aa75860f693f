#pragma once
// Random matrix products that own their data.

#include <cstdint>
#include <vector>

#include "fp8lab/gemm/gemm.hpp"

namespace fp8lab::cuda {

enum class Recipe : int { unscaled, per_tensor, rowwise, blockwise };
inline constexpr int kRecipes = 4;
const char* to_string(Recipe recipe);

/// How elements are distributed before the cast.
enum class Distribution : int { normal, uniform_positive, uniform_signed, lognormal, all_codes };
const char* to_string(Distribution distribution);

class RandomProblem {
 public:
  /// A [m,k] and B [n,k] under `model`, whose formats have 8 or 16 bits. `all_codes` draws
  /// finite codes, all equally likely; the others are cast with satfinite.
  RandomProblem(const InstructionModel& model, std::int64_t m, std::int64_t n, std::int64_t k,
                Distribution distribution, std::uint64_t seed);
  RandomProblem(const RandomProblem&) = delete;
  RandomProblem& operator=(const RandomProblem&) = delete;

  /// Scales of a recipe, not powers of two; blockwise wants a promotion interval
  /// that divides 128.
  void set_recipe(Recipe recipe, std::int64_t promotion_interval, ScaleOrder order);
  /// Scales of whole tensors in place of those of `set_recipe`.
  void set_scales(float a, float b);
  /// Divides the elements of both operands by 2^s, with one of `count` values of s from `least` on
  /// for each `group` terms of K. Partial sums then differ so much that FP32 rounds their sum;
  /// otherwise it is often exact.
  void vary_along_k(std::int64_t group = 32, int least = 0, int count = 8);
  /// Pairs the groups of `group` terms of K at random, and makes one of each pair the other with A
  /// negated, so that partial sums cancel.
  void cancel_along_k(std::int64_t group);
  /// Leaves one term in each `group` terms of K, and zeros.
  void thin_along_k(std::int64_t group);
  /// A random C in the products' range.
  void add_c();

  [[nodiscard]] const GemmProblem& problem() const { return problem_; }
  [[nodiscard]] GemmProblem& problem() { return problem_; }
  [[nodiscard]] std::size_t outputs() const;
  /// The codes in memory, row by row.
  [[nodiscard]] const std::vector<std::uint8_t>& a() const { return a_; }
  [[nodiscard]] const std::vector<std::uint8_t>& b() const { return b_; }
  [[nodiscard]] const std::vector<float>& scale_a() const { return a_scales_; }
  [[nodiscard]] const std::vector<float>& scale_b() const { return b_scales_; }

 private:
  std::uint64_t seed_;
  std::vector<std::uint8_t> a_;
  std::vector<std::uint8_t> b_;
  std::vector<float> c_;
  std::vector<float> a_scales_;
  std::vector<float> b_scales_;
  GemmProblem problem_;
};

/// How many elements of x and y have different bits.
std::size_t count_differing(const std::vector<float>& x, const std::vector<float>& y);

}  // namespace fp8lab::cuda

#pragma once
// The second stage of CDNA3's sums: a sum of products and c, both rounded down, then to nearest.

#include <array>

#include "fp8lab/accumulate/arithmetic.hpp"
#include "fp8lab/accumulate/unit.hpp"

namespace fp8lab::accumulate_detail {

/// The exponent of a c whose magnitude is zero or subnormal.
inline constexpr int kSmallestExponentOfC = -126;

/// A sum of products: `value` units of 2^(exponent - model.alignment_fraction_bits), or nothing
/// where `exponent` is kNoExponent (no product but zeros).
struct FirstStage {
  Wide value = 0;
  int exponent = kNoExponent;
};

/// Products aligned to the largest of them, each truncated toward zero, and added.
class ProductSum {
 public:
  explicit ProductSum(const AccumulatorModel& model) : model_(model) {}
  void add(const Term& product);
  [[nodiscard]] FirstStage sum() const;

 private:
  static constexpr std::size_t kMostTerms = 256;
  const AccumulatorModel& model_;
  std::array<Term, kMostTerms> terms_;
  std::size_t count_ = 0;
  int largest_ = kNoExponent;
};

/// c joins: `c` is finite. `drops_small_c`: a c more than 25 binades below the sum's exponent is
/// zero; otherwise a negative one, however small, is one unit.
float add_second_stage(const AccumulatorModel& model, const FirstStage& products, float c,
                       bool drops_small_c);

/// Whether a product counts as infinite: |p| >= 2^128.
bool passes_binary32(const Term& product);

/// A unit whose steps each end in `add_second_stage`.
class TwoStageUnit : public AccumulatorUnit {
 public:
  [[nodiscard]] std::vector<std::string_view> parameters(
      const AccumulatorModel& model) const override;
  [[nodiscard]] UnitTraits traits(const AccumulatorModel& model) const override;
  void validate(const AccumulatorModel& model) const override;
  [[nodiscard]] float dot_product(const AccumulatorModel& model, std::span<const Unpacked> a,
                                  std::span<const Unpacked> b, const BlockScales& scales,
                                  float c) const override;
  void bound(const AccumulatorModel& model, std::span<const BoundedTerm> terms,
             BoundedSum& sum) const override;

 private:
  /// One instruction: c and the products of at most `model.terms` elements.
  [[nodiscard]] virtual float step(const AccumulatorModel& model, std::span<const Unpacked> a,
                                   std::span<const Unpacked> b, float c) const = 0;
};

}  // namespace fp8lab::accumulate_detail

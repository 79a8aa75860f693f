#pragma once
// Finds the known mistake that explains a wrong output. Each hypothesis computes the
// output (or the cast) again with one mistake. It is judged by the mismatches that it
// explains and the right elements that it would have changed.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

struct Cause {
  std::string name;                ///< `double_rounding_f16`, `missing_scale_a` ...
  std::string text;                ///< a description
  std::uint64_t explained = 0;     ///< mismatches of the sample whose code it gives exactly
  std::uint64_t contradicted = 0;  ///< right elements of the sample that it would make wrong
  /// It was computed in FP64, since no instruction computes it: `explained` counts values within
  /// the error that the right output has, not codes.
  bool in_fp64 = false;
  std::uint64_t undecided = 0;  ///< mismatches on which the FP64 values cannot decide
  bool vague = false;  ///< measured numbers without a rule: any simpler cause is the better one

  friend bool operator==(const Cause&, const Cause&) = default;
};

struct Diagnosis {
  std::vector<Cause> causes;     ///< best first; empty if no known mistake explains it
  std::uint64_t mismatches = 0;  ///< in the sample
  std::uint64_t right = 0;       ///< in the sample
  std::uint64_t tried = 0;       ///< hypotheses that are possible for the problem
  /// Weights, scales, codes and factors that were measured, where no known mistake explains the
  /// sample (measure.hpp).
  std::vector<std::string> measured{};
};

/// A cause is reported if it explains at least this share of the mismatches ...
inline constexpr double kExplainedShare = 0.95;
/// ... and would change no right element. Where nearness decides (budgets, FP64 sums), this share.
inline constexpr double kContradictedShare = 0.01;

/// The criterion for a mismatch, and for an explained mismatch.
enum class Closeness : std::uint8_t {
  bits,    ///< a code other than the golden one; the same code
  budget,  ///< outside the error budget; at a distance of at most the budget's width
};

/// A wrong product from a mistake that involves other data, such as that of a neighbouring group.
struct WrongProduct {
  std::string name;
  std::string text;
  Product product;
  bool must_be_seen = false;  ///< a check that does not detect it has no power
};

struct DiagnosisOptions {
  Closeness closeness = Closeness::bits;
  /// The golden codes of the whole output. With them it searches right values in wrong places.
  std::span<const std::byte> golden{};
  std::span<const WrongProduct> more{};  ///< tried first
  int threads = 0;
  std::optional<Sample> area{};  ///< where one mistake is thought to be; unset: everywhere
};

/// Diagnoses `got`, the codes of the whole output [m, n], on at most 16 rows and 256
/// columns that have mismatches. `mismatches`: indices of some of them, ascending.
Diagnosis diagnose(const Product& product, std::span<const std::byte> got,
                   std::span<const std::int64_t> mismatches, const DiagnosisOptions& options = {});

/// The same for the elements of `sample`, whether they differ or not.
Diagnosis diagnose(const Product& product, std::span<const std::byte> got, const Sample& sample,
                   const DiagnosisOptions& options = {});

/// The cast to check: codes of x[i] * scale[i] under a policy.
struct CastSpec {
  FormatId format = FormatId::e4m3fn;
  CastPolicy policy = kNvidiaSatfinite;
};

/// Diagnoses a cast. `got` has the codes of the elements of `x`; `scale` (one value,
/// or one for each element) multiplied them before the cast.
Diagnosis diagnose_cast(const CastSpec& spec, std::span<const float> x,
                        std::span<const float> scale, std::span<const std::byte> got);

}  // namespace fp8lab

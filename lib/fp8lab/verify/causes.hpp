#pragma once
// Which known mistake explains an output that is wrong? Every hypothesis computes
// the output (or the cast) again with one mistake in it, and is judged by what it
// gets right: mismatches explained, and right elements that it would have changed.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/product/product.hpp"

namespace fp8lab {

struct Cause {
  std::string name;                ///< `double_rounding_f16`, `missing_scale_a` ...
  std::string text;                ///< for people
  std::uint64_t explained = 0;     ///< mismatches in the sample whose code it gives exactly
  std::uint64_t contradicted = 0;  ///< right elements in the sample that it would make wrong

  friend bool operator==(const Cause&, const Cause&) = default;
};

struct Diagnosis {
  std::vector<Cause> causes;     ///< best first; empty: none of the known ones
  std::uint64_t mismatches = 0;  ///< in the sample
  std::uint64_t right = 0;       ///< in the sample
  std::uint64_t tried = 0;       ///< hypotheses that the problem has a place for
};

/// A cause is named if it explains at least this share of the mismatches ...
inline constexpr double kExplainedShare = 0.95;
/// ... and would change at most this share of the right elements.
inline constexpr double kContradictedShare = 0.05;

/// What counts as a mismatch, and as explained.
enum class Closeness : std::uint8_t {
  bits,    ///< another code than the golden one; the same code
  budget,  ///< outside of the error budget; as near to it as the budget is wide
};

/// The product that a mistake makes which one product alone does not know of.
struct WrongProduct {
  std::string name;
  std::string text;
  Product product;
  bool must_be_seen = false;  ///< a check that does not see it has no power
};

struct DiagnosisOptions {
  Closeness closeness = Closeness::bits;
  /// The golden codes of the whole output: with them right values in wrong places are sought.
  std::span<const std::byte> golden{};
  std::span<const WrongProduct> more{};  ///< tried first
  int threads = 0;
};

/// Diagnoses `got`, the codes of the whole output [m, n], on at most 16 rows and
/// 256 columns in most of which mismatches lie. `mismatches`: indices of some, ascending.
Diagnosis diagnose(const Product& product, std::span<const std::byte> got,
                   std::span<const std::int64_t> mismatches, const DiagnosisOptions& options = {});

/// The same on the elements of `sample`, whether they differ or not.
Diagnosis diagnose(const Product& product, std::span<const std::byte> got, const Sample& sample,
                   const DiagnosisOptions& options = {});

/// What a quantized dump should be: codes of x[i] * scale[i] under a policy.
struct CastSpec {
  FormatId format = FormatId::e4m3fn;
  CastPolicy policy = kNvidiaSatfinite;
};

/// Diagnoses a cast: `got` are the codes of the elements of `x`, which `scale`
/// (one, or as many as x) multiplied before the cast.
Diagnosis diagnose_cast(const CastSpec& spec, std::span<const float> x,
                        std::span<const float> scale, std::span<const std::byte> got);

}  // namespace fp8lab

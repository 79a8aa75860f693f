#pragma once
// Tests whether a check could have failed. Known faults are applied to the problem itself,
// and the same check judges the wrong outputs.
//
// Faults have classes. A bitwise check claims that nothing is wrong: it has power if it
// detects every applicable fault. A check with a tolerance (the budget, a gate) allows some
// errors, such as other roundings of sums and casts. It has power if it detects wrong outputs
// and wrong operands, at least one fault of each of these classes that applies. An output without
// elements cannot be wrong, so no check of it has power.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/product/product.hpp"
#include "fp8lab/verify/causes.hpp"

namespace fp8lab {

/// The rule that decides whether an output is right.
struct Check {
  enum class Kind : std::uint8_t {
    bitwise,  ///< every code is the golden one
    budget,   ///< every code is within the error budget of the exact result
    gate,     ///< a rule that a public project ships
  };
  Kind kind = Kind::bitwise;
  std::size_t gate = 0;  ///< index into `gates()`

  [[nodiscard]] std::string_view name() const;
};

/// The check called `name`: `bitwise`, `budget` or the name of a gate. Throws `Error`.
Check find_check(std::string_view name);
/// All checks.
std::vector<Check> all_checks();

enum class FaultClass : std::uint8_t {
  output,    ///< zeros, noise, signs, gain
  operands,  ///< a wrong operand, scale or part of K
  rounding,  ///< the right sum, accumulated or cast in another way
};
std::string_view to_string(FaultClass kind);

/// One fault and the checks that detect it.
struct FaultOutcome {
  std::string name;
  std::string text;  ///< what goes wrong
  FaultClass kind = FaultClass::output;
  bool applies = true;         ///< false: not possible in this problem, see `reason`
  std::string reason;          ///< why it does not apply, or why a check cannot detect it
  double mismatch_rate = 0.0;  ///< share of output codes that the fault changes
  std::vector<bool> detected;  ///< one for each check
};

struct PowerReport {
  std::vector<Check> checks;
  std::vector<FaultOutcome> faults;
  std::int64_t rows = 0;  ///< rows of the sample of the output on which faults were tried
  std::int64_t columns = 0;

  /// The first applicable fault that check number `index` does not detect.
  [[nodiscard]] const FaultOutcome* undetected(std::size_t index) const;
  /// The numbers of applicable and of detected faults of a class.
  struct Seen {
    std::size_t applicable = 0;
    std::size_t seen = 0;
  };
  [[nodiscard]] Seen seen(std::size_t index, FaultClass kind) const;
  /// Whether check number `index` has power, as defined above.
  [[nodiscard]] bool has_power(std::size_t index) const;
};

/// Tries the faults on at most 64 x 512 outputs, evenly spread: zeros, random
/// output, sign flip, gain 0.72, a dropped K tile, swapped scales, transposed B,
/// FNUZ codes read as FN, a missing promotion, another accumulator, and those of
/// `more` that a check must detect.
PowerReport power(const Product& product, const std::vector<Check>& checks, int threads = 0,
                  std::span<const WrongProduct> more = {});

/// The faults that check number `index` detects and misses, as lines of a report.
std::string describe(const PowerReport& power, std::size_t index);

/// The number of elements on which faults are tried if there are no inputs.
inline constexpr std::int64_t kPowerSample = 64 * 512;

/// Tries the faults that need no inputs, on a golden output or an evenly spread sample of
/// one. Throws `Error` for a `budget` check.
PowerReport power(const OutputCast& output, std::span<const std::byte> golden,
                  const std::vector<Check>& checks, int threads = 0);

/// Tries the faults of a cast on `values`, which are already scaled: the same faults,
/// truncation instead of rounding, and a cast to FNUZ.
PowerReport power_of_cast(const OutputCast& output, std::span<const float> values,
                          const std::vector<Check>& checks, int threads = 0);

}  // namespace fp8lab

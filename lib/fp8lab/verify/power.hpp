#pragma once
// Could the test have failed? Known faults are made from the problem itself and
// put through the very check in use.
//
// Faults come in classes. A bitwise check claims that nothing is wrong: it has power if it
// sees every fault that applies. A check with a tolerance (the budget, a gate) says nothing of
// errors that it allows: how sums and casts round is not its business. It has power if it
// sees wrong outputs and wrong operands, some fault of each class that applies.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/product/product.hpp"
#include "fp8lab/verify/causes.hpp"

namespace fp8lab {

/// What decides that an output is right.
struct Check {
  enum class Kind : std::uint8_t {
    bitwise,  ///< every code is the golden one
    budget,   ///< every code lies in the error budget of the exact result
    gate,     ///< a rule that a public project ships
  };
  Kind kind = Kind::bitwise;
  std::size_t gate = 0;  ///< index into `gates()`

  [[nodiscard]] std::string_view name() const;
};

/// `bitwise`, `budget` or a gate's name. Throws `Error`.
Check find_check(std::string_view name);
/// All of them.
std::vector<Check> all_checks();

enum class FaultClass : std::uint8_t {
  output,    ///< zeros, noise, signs, gain
  operands,  ///< another operand or scale, or a part of K, was read
  rounding,  ///< the right sum, accumulated or cast in another way
};
std::string_view to_string(FaultClass kind);

/// One fault and which checks saw it.
struct FaultOutcome {
  std::string name;
  std::string text;  ///< what goes wrong
  FaultClass kind = FaultClass::output;
  bool applies = true;         ///< false: the problem has no place for it, see `reason`
  std::string reason;          ///< why it does not apply, or why a check cannot see it
  double mismatch_rate = 0.0;  ///< share of output codes that the fault changes
  std::vector<bool> detected;  ///< one a check
};

struct PowerReport {
  std::vector<Check> checks;
  std::vector<FaultOutcome> faults;
  std::int64_t rows = 0;  ///< of the output, that the faults were tried on
  std::int64_t columns = 0;

  /// The first applicable fault that check number `index` lets pass.
  [[nodiscard]] const FaultOutcome* undetected(std::size_t index) const;
  /// Faults of this class that apply, and those of them that the check sees.
  struct Seen {
    std::size_t applicable = 0;
    std::size_t seen = 0;
  };
  [[nodiscard]] Seen seen(std::size_t index, FaultClass kind) const;
  /// Check number `index` could have failed for what it claims, see above.
  [[nodiscard]] bool has_power(std::size_t index) const;
};

/// Tries the faults on at most 64 x 512 outputs, evenly spread: zeros, random
/// output, sign flip, gain 0.72, a dropped K tile, swapped scales, transposed B,
/// FNUZ codes read as FN, a missing promotion, another accumulator.
/// Then those of `more` that must be seen.
PowerReport power(const Product& product, const std::vector<Check>& checks, int threads = 0,
                  std::span<const WrongProduct> more = {});

/// What check number `index` sees and misses, as lines of a report.
std::string describe(const PowerReport& power, std::size_t index);

/// Elements of an output without inputs that faults are tried on.
inline constexpr std::int64_t kPowerSample = 64 * 512;

/// The faults that need no inputs, on an output, or an evenly spread sample of one,
/// that is all there is. A `budget` check then throws `Error`.
PowerReport power(const OutputCast& output, std::span<const std::byte> golden,
                  const std::vector<Check>& checks, int threads = 0);

/// The faults of a cast, on `values` that are scaled already: those, truncation
/// instead of rounding, and a cast to FNUZ.
PowerReport power_of_cast(const OutputCast& output, std::span<const float> values,
                          const std::vector<Check>& checks, int threads = 0);

}  // namespace fp8lab

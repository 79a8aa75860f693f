#pragma once
// Judges how well a hypothesis explains a sample of an output.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/product/product.hpp"
#include "fp8lab/verify/budget.hpp"
#include "fp8lab/verify/cast_interval.hpp"
#include "fp8lab/verify/causes.hpp"

namespace fp8lab {

/// Codes of an output, one word each.
std::vector<std::uint32_t> code_words(FormatId id, std::span<const std::byte> codes);

/// Counts the elements that hypotheses explain, and ranks those that explain enough.
class Judge {
 public:
  /// With budgets, one per element, codes within them are right.
  Judge(const OutputCast& output, std::vector<std::uint32_t> golden, std::vector<std::uint32_t> got,
        std::vector<ErrorBudget> budgets = {});

  /// Codes within these intervals, one an element, are right too (epilogue.hpp).
  void allow(std::vector<CastInterval> reach);

  /// Judges the output of a mistake on the sample: true if it is a cause.
  bool consider(std::string name, std::string text, std::span<const std::uint32_t> codes);
  /// What an FP64 value says of the mismatch at `place`.
  enum class Evidence : std::uint8_t {
    explains,   ///< the output is within the tolerance of the value, and the right output is not
    undecided,  ///< both are: the mistake changes too little here to be seen
    denies,     ///< the output is not
  };
  [[nodiscard]] Evidence evidence(std::size_t place, double value, double tolerance) const;
  /// Judges the output of a mistake that was computed in FP64. `tolerances` say how far a kernel's
  /// output may be from it. Undecided mismatches do not count, but few may be undecided.
  void consider_in_fp64(std::string name, std::string text, std::span<const double> values,
                        std::span<const double> tolerances);
  [[nodiscard]] bool any_cause() const { return !diagnosis_.causes.empty(); }

  /// Whether a cause explains all mismatches and changes nothing that is right.
  [[nodiscard]] bool any_whole_cause() const {
    return std::ranges::any_of(diagnosis_.causes, [&](const Cause& cause) { return whole(cause); });
  }
  /// Leaves only such causes, if the bits of one say so.
  void prefer_whole_causes() {
    if (std::ranges::any_of(diagnosis_.causes,
                            [&](const Cause& cause) { return whole(cause) && !cause.in_fp64; }))
      std::erase_if(diagnosis_.causes, [&](const Cause& cause) { return !whole(cause); });
  }

  /// Marks the causes found so far: their numbers were measured and follow no rule.
  void call_vague() {
    for (Cause& cause : diagnosis_.causes) cause.vague = true;
  }

  /// Counts a hypothesis that was not computed, since it cannot explain even a few mismatches.
  void dismiss() { ++diagnosis_.tried; }

  [[nodiscard]] bool is_right(std::size_t place) const { return right(place, got_[place]); }
  [[nodiscard]] std::uint32_t got(std::size_t place) const { return got_[place]; }
  [[nodiscard]] double got_value(std::size_t place) const {
    return decode(format(output_.format), got_[place]);
  }
  /// Whether a mistake that gives `code` explains the mismatch at `place`.
  [[nodiscard]] bool explains(std::size_t place, std::uint32_t code) const;

  /// Some rows and columns of the sample [rows, columns], if possible with a mismatch in each of
  /// them; the worst mismatch is among them.
  [[nodiscard]] Sample probe(std::int64_t rows, std::int64_t columns) const;

  Diagnosis finish();

 private:
  [[nodiscard]] bool whole(const Cause& cause) const {
    return cause.explained + cause.undecided == diagnosis_.mismatches && cause.contradicted == 0 &&
           !cause.vague;
  }
  [[nodiscard]] bool is_nan(std::uint32_t code) const;
  [[nodiscard]] bool same(std::uint32_t a, std::uint32_t b) const {
    return a == b || (is_nan(a) && is_nan(b));
  }
  [[nodiscard]] bool right(std::size_t place, std::uint32_t code) const;
  /// Whether a mistake that gives `code` would have made the right element at `place` wrong.
  [[nodiscard]] bool contradicts(std::size_t place, std::uint32_t code) const {
    return budgets_.empty() && reach_.empty() ? !same(got_[place], code) : !right(place, code);
  }

  /// The mismatch that is the furthest from the right value, relative to it.
  [[nodiscard]] std::size_t worst() const;
  /// Whether the code is within the tolerance of the value, special values being alike.
  [[nodiscard]] bool near(std::uint32_t code, double value, double tolerance) const;
  /// Keeps a cause if it explains enough of so many mismatches and contradicts little.
  bool keep(Cause cause, std::uint64_t mismatches);

  OutputCast output_;
  std::vector<std::uint32_t> golden_;
  std::vector<std::uint32_t> got_;
  std::vector<ErrorBudget> budgets_;  // one an element, or none
  std::vector<CastInterval> reach_;   // one an element, or none
  Diagnosis diagnosis_;
};

}  // namespace fp8lab

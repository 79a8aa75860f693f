#pragma once
// Judges how well a hypothesis explains a sample of an output.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8lab/product/product.hpp"
#include "fp8lab/verify/budget.hpp"
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

  /// Judges the output of a mistake on the sample.
  void consider(std::string name, std::string text, std::span<const std::uint32_t> codes);
  /// Counts a hypothesis that was not computed, since it cannot explain even a few mismatches.
  void dismiss() { ++diagnosis_.tried; }

  [[nodiscard]] bool is_right(std::size_t place) const { return right(place, got_[place]); }
  [[nodiscard]] std::uint32_t got(std::size_t place) const { return got_[place]; }
  /// Whether a mistake that gives `code` explains the mismatch at `place`.
  [[nodiscard]] bool explains(std::size_t place, std::uint32_t code) const;

  /// Some rows and columns of the sample [rows, columns], if possible with a mismatch in each of
  /// them.
  [[nodiscard]] Sample probe(std::int64_t rows, std::int64_t columns) const;

  Diagnosis finish();

 private:
  [[nodiscard]] bool is_nan(std::uint32_t code) const;
  [[nodiscard]] bool same(std::uint32_t a, std::uint32_t b) const {
    return a == b || (is_nan(a) && is_nan(b));
  }
  [[nodiscard]] bool right(std::size_t place, std::uint32_t code) const;
  /// Whether a mistake that gives `code` would have made the right element at `place` wrong.
  [[nodiscard]] bool contradicts(std::size_t place, std::uint32_t code) const {
    return budgets_.empty() ? !same(got_[place], code) : !right(place, code);
  }

  OutputCast output_;
  std::vector<std::uint32_t> golden_;
  std::vector<std::uint32_t> got_;
  std::vector<ErrorBudget> budgets_;  // one an element, or none
  Diagnosis diagnosis_;
};

}  // namespace fp8lab

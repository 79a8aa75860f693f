#pragma once
// How well a hypothesis explains a sample of an output.

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

/// Counts what a hypothesis gets right and sorts the ones that explain enough.
class Judge {
 public:
  /// With budgets, one an element, codes within them are right.
  Judge(const OutputCast& output, std::vector<std::uint32_t> golden, std::vector<std::uint32_t> got,
        std::vector<ErrorBudget> budgets = {});

  /// The output that a mistake gives, of the sample.
  void consider(std::string name, std::string text, std::span<const std::uint32_t> codes);
  /// A hypothesis that cannot explain even a few mismatches and was not computed.
  void dismiss() { ++diagnosis_.tried; }

  [[nodiscard]] bool is_right(std::size_t place) const { return right(place, got_[place]); }
  [[nodiscard]] std::uint32_t got(std::size_t place) const { return got_[place]; }
  /// The mismatch there is what a mistake gives that gives `code`.
  [[nodiscard]] bool explains(std::size_t place, std::uint32_t code) const;

  /// Some rows and columns of the sample [rows, columns], with a mismatch in each of them where
  /// there are any.
  [[nodiscard]] Sample probe(std::int64_t rows, std::int64_t columns) const;

  Diagnosis finish();

 private:
  [[nodiscard]] bool is_nan(std::uint32_t code) const;
  [[nodiscard]] bool same(std::uint32_t a, std::uint32_t b) const {
    return a == b || (is_nan(a) && is_nan(b));
  }
  [[nodiscard]] bool right(std::size_t place, std::uint32_t code) const;
  /// A mistake that gives `code` there would have made the element, which is right, wrong.
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

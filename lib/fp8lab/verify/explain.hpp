#pragma once
// What a report of a wrong product says of its reasons: causes, and regions with theirs.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fp8lab/verify/verify.hpp"

namespace fp8lab {

/// `VerifyOptions::more`, or none.
std::vector<WrongProduct> more_mistakes(const VerifyOptions& options);

/// Rows and columns that are spread over a region, at most so many.
Sample sample_of(const Region& region, std::int64_t most_rows, std::int64_t most_columns);

/// Whether nothing but measured numbers without a rule explains a sample, or nothing at all.
bool says_little(const Diagnosis& diagnosis);

/// The diagnosis of the regions, where these hold all mismatches and one cause explains them all.
std::optional<Diagnosis> diagnosis_of_regions(const VerifyReport& report);

/// Sets the diagnosis, fitted to `mismatches`; with a budget only to elements outside of theirs,
/// since what lies inside is allowed to differ.
void diagnose_what_counts(const Product& product, std::span<const std::byte> golden,
                          std::span<const std::byte> got, std::span<const std::int64_t> mismatches,
                          const VerifyOptions& options, std::span<const WrongProduct> more,
                          VerifyReport& report);

/// The regions that are wrong (with a budget: outside of it), with the causes of those whose
/// content does not say what they are.
std::vector<Region> look_at_regions(const Product& product, std::span<const std::byte> golden,
                                    std::span<const std::byte> got, const VerifyOptions& options,
                                    std::span<const WrongProduct> more, const VerifyReport& report);

}  // namespace fp8lab

#pragma once
// What a report begins with: the failures in pictures, what remedies buy, and the claims by
// verdict.

#include <span>
#include <string>

#include "lab/report/input.hpp"

namespace fp8lab {

/// Of the runs that have a headline: a card each with its plot, a sentence and what to do, then a
/// table of the figures without a remedy and with it. Empty where none has one.
std::string html_failures(std::span<const StoredRun> runs);

/// The claims of every run whose table `claims.csv` has the columns id, claim, measured and
/// verdict, by verdict, those that do not hold first. Empty where there is none.
std::string html_claims(std::span<const StoredRun> runs);

}  // namespace fp8lab

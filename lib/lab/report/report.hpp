#pragma once
// One HTML file out of result folders: findings first, then plots and tables.
// It holds everything it shows and loads nothing, so it can be mailed.

#include <span>
#include <string>

#include "lab/report/input.hpp"

namespace fp8lab {

/// The report on runs and sweeps (`read_run`), in their order, as UTF-8 HTML. A function of what
/// they hold alone.
std::string html_report(std::span<const StoredRun> runs);

/// Two folders' runs side by side: those of one experiment (both runs, or both sweeps) are
/// compared, in the order of `a`; what only one has follows whole. For each pair: whether they are
/// the same to the last byte, parameters that differ, findings side by side, tables joined on
/// their keys with difference and ratio, plots side by side. Throws `Error` if they have no
/// experiment in common (`comparable`).
std::string html_comparison(std::span<const StoredRun> a, std::span<const StoredRun> b);

/// Whether `a` and `b` have an experiment in common, and neither has one twice.
bool comparable(std::span<const StoredRun> a, std::span<const StoredRun> b);

}  // namespace fp8lab

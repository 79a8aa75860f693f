#pragma once
// The report's style sheet and its scripts, embedded by the build: page.css; page.js and plot.js as
// one text; Vega, Vega-Lite and Vega-Embed as vl-convert bundles them.

#include <string_view>

namespace fp8lab {

extern const std::string_view kReportCss;

/// Sorts a table by the column whose heading is pressed, opens what is folded before the page is
/// printed, and draws plots from their specifications with `kVegaScript`.
extern const std::string_view kReportScript;

/// The source by which a Content-Security-Policy allows that text and no other.
extern const std::string_view kReportScriptHash;

/// Vega, which draws the plots, and by what a policy allows it.
extern const std::string_view kVegaScript;
extern const std::string_view kVegaScriptHash;

}  // namespace fp8lab

#pragma once
// The report's style sheet and its scripts, embedded by the build: page.css; page.js, picture.js,
// plot.js and heat_map.js as one text.

#include <string_view>

namespace fp8lab {

extern const std::string_view kReportCss;

/// Sorts a table by the column whose heading is pressed, opens what is folded before the page is
/// printed, and draws plots and heat maps from their data, with values on pointing and zoom.
extern const std::string_view kReportScript;

/// The source by which a Content-Security-Policy allows that text and no other.
extern const std::string_view kReportScriptHash;

}  // namespace fp8lab

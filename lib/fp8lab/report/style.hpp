#pragma once
// The report's style sheet and its only script: page.css and page.js, embedded by the build.

#include <string_view>

namespace fp8lab {

extern const std::string_view kReportCss;

/// Sorts a table by the column whose heading is pressed, and opens what is
/// folded before the page is printed.
extern const std::string_view kReportScript;

/// The source by which a Content-Security-Policy allows that script and no other.
extern const std::string_view kReportScriptHash;

}  // namespace fp8lab

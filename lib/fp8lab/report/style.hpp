#pragma once
// The report's style sheet and its only script.

#include <string_view>

namespace fp8lab {

extern const std::string_view kReportCss;

/// Sorts a table by the column whose heading is pressed, and opens what is
/// folded before the page is printed.
extern const std::string_view kReportScript;

}  // namespace fp8lab

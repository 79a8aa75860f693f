#pragma once
// One HTML file out of result folders: findings first, then plots and tables.
// It holds everything it shows and loads nothing, so it can be mailed.

#include <filesystem>
#include <span>
#include <string>

namespace fp8lab {

/// The rows of a table that the page shows; the rest is in its CSV file.
inline constexpr std::size_t kReportRows = 300;

/// The report on the runs in `folders`, in that order, as UTF-8 HTML. A function
/// of their files alone. Throws `Error` with file and reason for a result.json
/// that is missing or malformed, for a CSV that is not the table that
/// result.json describes, and for a listed plot that is missing.
std::string html_report(std::span<const std::filesystem::path> folders);

/// `text` with what HTML would take for markup escaped, in text and in quoted attributes.
std::string html_escaped(std::string_view text);

}  // namespace fp8lab

#pragma once
// Pieces of the report's page: text, tables, pictures, lists.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/report/input.hpp"

namespace fp8lab {

/// The rows of a table that the page shows; the rest is in its CSV file.
inline constexpr std::size_t kReportRows = 300;

/// `text` with what HTML would take for markup escaped, in text and in quoted attributes.
std::string html_escaped(std::string_view text);

/// Text for people: escaped, and `^` before a number or a capital T raises it, as in plots. Not for
/// attributes, commands and names of files.
std::string html_written(std::string_view text);

/// A cell of a table; a number is right-aligned and shown short, in full to the sort and the
/// pointer.
std::string html_cell(const std::string& text, bool numeric);

/// The head of a column, with its button for sorting. `description` shows on pointing at it.
std::string html_heading(const Column& column, bool numeric);

/// A table that sorts, in a box that scrolls: `head` has a `th` a column, `rows` a `tr` a row.
std::string html_sortable(std::string_view title, std::span<const std::string> head,
                          std::span<const std::string> rows);

/// A folding box; open where `open`. `summary` and `content` are HTML.
std::string html_fold(bool open, std::string_view summary, std::string_view content);

/// What columns mean, as a list.
std::string html_columns(std::span<const Column> columns);

std::string html_table(const StoredTable& table);

/// A plot as data, which the page's script draws, or a picture; nothing where there is neither
/// (an older folder has pictures alone). `curves`: those that a small picture shows.
std::string html_figure(const StoredPlot& plot, std::span<const Headline::Curve> curves = {});

/// The sentence that answers a run's question: that of its headline, or else its first finding.
std::string answer_of(const StoredRun& run);

std::string html_list(std::span<const std::string> sentences);

/// A table of names and values, without sorting.
std::string html_pairs(const StoredPairs& pairs);

/// Badges for a sweep and for the quick form, each after a blank.
std::string html_badges(const StoredRun& run);

/// A run's section without its heading: findings, plots, tables, command, parameters, machine.
std::string html_run(const StoredRun& run);

/// A whole page around `body`, with the style sheet and the script.
std::string html_page(std::string_view heading, std::string_view lead, std::string_view body);

}  // namespace fp8lab

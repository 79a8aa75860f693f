#include "lab/report/first_screen.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "lab/report/html.hpp"

namespace fp8lab {
namespace {

std::string card_of(const StoredRun& run, std::size_t number) {
  const Headline& headline = *run.headline;
  const auto plot = std::ranges::find(run.plots, headline.plot, &StoredPlot::name);
  return fmt::format(
      "<article class=card>\n<h3>{}</h3>\n{}<p><strong>What to do.</strong> {} "
      "<a href=\"#run-{}\">All of {}</a></p>\n</article>\n",
      html_written(headline.title),
      plot == run.plots.end() ? "" : html_figure(*plot, headline.curves),
      html_written(headline.advice), number, html_escaped(run.experiment));
}

std::string remedy_row(const Headline& headline) {
  std::string row = "<tr>";
  for (const std::string& text : {headline.title, headline.measure, headline.failing,
                                  headline.mitigation, headline.mitigated})
    row += fmt::format("<td>{}</td>", html_written(text));
  return row + "</tr>\n";
}

/// Where the columns of a table of claims are.
struct ClaimColumns {
  std::size_t id, claim, criterion, measured, verdict;
};

std::optional<ClaimColumns> claim_columns(const StoredTable& table) {
  std::array<std::size_t, 5> found{};
  constexpr std::array<std::string_view, 5> kNames{"id", "claim", "criterion", "measured",
                                                   "verdict"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const auto column = std::ranges::find(table.columns, kNames[i], &Column::name);
    if (column == table.columns.end()) return std::nullopt;
    found[i] = static_cast<std::size_t>(column - table.columns.begin());
  }
  return ClaimColumns{found[0], found[1], found[2], found[3], found[4]};
}

std::string claims_of(const StoredTable& table, const ClaimColumns& column) {
  std::vector<std::string> verdicts;
  std::map<std::string, std::string> lists;
  std::map<std::string, std::size_t> counts;
  for (const auto& row : table.rows) {
    const std::string& verdict = row[column.verdict];
    if (!lists.contains(verdict)) verdicts.push_back(verdict);
    lists[verdict] +=
        fmt::format("<dt>{}</dt><dd>{} <span class=quiet>Criterion: {}. Measured: {}</span></dd>\n",
                    html_escaped(row[column.id]), html_written(row[column.claim]),
                    html_written(row[column.criterion]), html_written(row[column.measured]));
    ++counts[verdict];
  }
  // "does not hold" is what a reader looks for; alphabetical order puts it first.
  std::ranges::sort(verdicts);
  std::string html;
  for (const std::string& verdict : verdicts)
    html += html_fold(false,
                      fmt::format("{} <span class=quiet>({} of {})</span>", html_escaped(verdict),
                                  counts[verdict], table.rows.size()),
                      fmt::format("<dl class=claims>\n{}</dl>\n", lists[verdict]));
  return html;
}

}  // namespace

std::string html_failures(std::span<const StoredRun> runs) {
  std::string cards;
  std::string rows;
  std::size_t count = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].headline) continue;
    cards += card_of(runs[i], i + 1);
    rows += remedy_row(*runs[i].headline);
    ++count;
  }
  if (count == 0) return "";
  return fmt::format(
      "<div id=failures>\n<h2>How naive FP8 fails</h2>\n<div class=cards>\n{}</div>\n"
      "<h2>What a remedy buys</h2>\n<div class=scroll tabindex=0 role=region "
      "aria-label=\"What a remedy buys\"><table class=remedies><thead><tr><th scope=col>Failure"
      "<th scope=col>Figure<th scope=col>Without<th scope=col>Remedy<th scope=col>With</tr></thead>"
      "\n<tbody>\n{}</tbody></table></div>\n</div>\n",
      cards, rows);
}

std::string html_claims(std::span<const StoredRun> runs) {
  std::string html;
  for (const StoredRun& run : runs)
    for (const StoredTable& table : run.tables) {
      const auto columns = table.file == "claims.csv" ? claim_columns(table) : std::nullopt;
      if (columns) html += claims_of(table, *columns);
    }
  if (html.empty()) return "";
  return "<section id=claims>\n<h2>What is said about FP8, measured again</h2>\n" + html +
         "</section>\n";
}

}  // namespace fp8lab

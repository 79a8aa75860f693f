#include "lab/report/report.hpp"

#include <fmt/format.h>

#include <vector>

#include "fp8lab/core/counted.hpp"
#include "lab/report/first_screen.hpp"
#include "lab/report/html.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t kSummaryFindings = 2;  ///< of each experiment, more are folded

/// The first findings in sight, the rest folded: a summary is there to be read.
std::string short_list_of(const std::vector<std::string>& findings) {
  if (findings.size() <= kSummaryFindings + 1) return html_list(findings);
  const std::span<const std::string> all(findings);
  return html_list(all.first(kSummaryFindings)) +
         html_fold(false, fmt::format("{} more findings", all.size() - kSummaryFindings),
                   html_list(all.subspan(kSummaryFindings)));
}

std::string summary_of(std::span<const StoredRun> runs) {
  std::string html = "<section id=summary>\n<h2>Findings of each experiment</h2>\n";
  for (std::size_t i = 0; i < runs.size(); ++i)
    html += fmt::format("<h3><a href=\"#run-{}\">{}</a>{}</h3>\n<p class=quiet>{}</p>\n{}", i + 1,
                        html_escaped(runs[i].experiment), html_badges(runs[i]),
                        html_written(runs[i].question), short_list_of(runs[i].findings));
  return html + "</section>\n";
}

std::string contents_of(std::span<const StoredRun> runs) {
  std::string html;
  for (std::size_t i = 0; i < runs.size(); ++i)
    html +=
        fmt::format("<li><a href=\"#run-{}\">{}</a>{}: {}, {}</li>\n", i + 1,
                    html_escaped(runs[i].experiment), html_badges(runs[i]),
                    counted(runs[i].plots.size(), "plot"), counted(runs[i].tables.size(), "table"));
  return fmt::format("<nav aria-label=Contents>{}</nav>\n",
                     html_fold(false, "Contents", "<ol>\n" + html + "</ol>"));
}

}  // namespace

std::string html_report(std::span<const StoredRun> runs) {
  // The first screen, then the first section: the claims.
  std::string body = html_failures(runs) + html_claims(runs) + contents_of(runs) + summary_of(runs);
  // Ids count, since one experiment may come twice, with other parameters.
  for (std::size_t i = 0; i < runs.size(); ++i)
    body += fmt::format(
        "<section class=run id=run-{}>\n<h2>{}{}</h2>\n<p class=question>{}</p>\n{}</section>\n",
        i + 1, html_escaped(runs[i].experiment), html_badges(runs[i]),
        html_written(runs[i].question), html_run(runs[i]));
  return html_page("What FP8 does: fp8lab report",
                   counted(runs.size(), "experiment") +
                       ". Each section ends with the command that reproduces the same bytes.",
                   body);
}

}  // namespace fp8lab

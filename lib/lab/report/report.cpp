#include "lab/report/report.hpp"

#include <fmt/format.h>

#include <vector>

#include "fp8lab/core/counted.hpp"
#include "lab/report/first_screen.hpp"
#include "lab/report/html.hpp"

namespace fp8lab {
namespace {

std::string summary_of(std::span<const StoredRun> runs) {
  std::string html = "<section id=summary>\n<h2>Questions and answers</h2>\n<dl class=answers>\n";
  for (std::size_t i = 0; i < runs.size(); ++i)
    html += fmt::format("<dt><a href=\"#run-{}\">{}</a>{}</dt>\n<dd>{}</dd>\n", i + 1,
                        html_written(runs[i].question), html_badges(runs[i]),
                        html_written(answer_of(runs[i])));
  return html + "</dl>\n</section>\n";
}

std::string contents_of(std::span<const StoredRun> runs) {
  std::string html;
  for (std::size_t i = 0; i < runs.size(); ++i)
    html += fmt::format("<li><a href=\"#run-{}\">{}</a>{} <span class=quiet>{}</span></li>\n",
                        i + 1, html_escaped(runs[i].experiment), html_badges(runs[i]),
                        html_written(runs[i].question));
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

#include "fp8lab/experiment/report_style.hpp"

namespace fp8lab {

const std::string_view kReportCss = R"css(
:root {
  color-scheme: light dark;
  --page: #ffffff; --text: #1d2329; --quiet: #57606a; --line: #d0d7de;
  --soft: #f4f6f8; --link: #0b5cad; --mark: #8a4b00; --mark-soft: #fff3dc;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181d; --text: #e3e8ee; --quiet: #9aa5b1; --line: #353d47;
    --soft: #1d232a; --link: #7ab8ff; --mark: #ffc872; --mark-soft: #3a2c12;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 4rem;
  background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif;
}
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.45rem; line-height: 1.25; margin: 0 0 .6rem; }
h3 { font-size: 1.1rem; margin: 1.4rem 0 .3rem; }
p { margin: .4rem 0; }
a { color: var(--link); }
ul { margin: .3rem 0 .8rem; padding-left: 1.3rem; }
li { margin: .3rem 0; }
.quiet { color: var(--quiet); }
.question { font-size: 1.08rem; color: var(--quiet); margin-bottom: .8rem; }
.badge {
  font-size: .8rem; font-weight: 600; vertical-align: middle; padding: .1rem .5rem;
  border-radius: 1rem; color: var(--mark); background: var(--mark-soft);
}
.warning { color: var(--mark); background: var(--mark-soft); padding: .5rem .8rem; border-radius: .4rem; }
nav { background: var(--soft); border-radius: .5rem; padding: .7rem 1.1rem; margin: 1.6rem 0; }
nav ol { margin: .3rem 0; padding-left: 1.4rem; }
section.run { border-top: 2px solid var(--line); margin-top: 2.6rem; padding-top: 1.6rem; }
figure { margin: 1.1rem 0; }
figure img {
  display: block; width: 100%; height: auto; max-width: 900px;
  background: #ffffff; border: 1px solid var(--line); border-radius: .5rem; padding: .3rem;
}
details { margin: .7rem 0; border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .8rem; }
summary { cursor: pointer; font-weight: 600; }
.scroll { overflow: auto; max-height: 34rem; margin-top: .5rem; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; white-space: nowrap; }
thead th { position: sticky; top: 0; background: var(--page); }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
th[aria-sort=ascending] button::after { content: " \2191"; }
th[aria-sort=descending] button::after { content: " \2193"; }
table.facts td:first-child { color: var(--quiet); white-space: nowrap; }
table.facts td { overflow-wrap: anywhere; }
dl { font-size: .86rem; margin: .6rem 0 .2rem; display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dt { font-family: ui-monospace, "DejaVu Sans Mono", monospace; }
dd { margin: 0; color: var(--quiet); }
pre { background: var(--soft); padding: .6rem .8rem; border-radius: .4rem; overflow-x: auto; font-size: .86rem; white-space: pre-wrap; overflow-wrap: anywhere; }
@media print {
  :root { --page: #fff; --text: #000; --quiet: #444; --line: #bbb; --soft: #f4f4f4; --link: #000; --mark: #000; --mark-soft: #eee; }
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  section.run { break-before: page; border: 0; margin: 0; }
  figure, tr { break-inside: avoid; }
  figure img { max-width: 17cm; }
  .scroll { max-height: none; overflow: visible; }
  thead th { position: static; }
  a { text-decoration: none; }
}
)css";

const std::string_view kReportScript = R"js(
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
    const numeric = head.classList.contains("n");
    const compare = (a, b) => {
      if (!numeric) return a.localeCompare(b);
      const x = Number(a.replace("inf", "Infinity")), y = Number(b.replace("inf", "Infinity"));
      return Number.isNaN(x) - Number.isNaN(y) || x - y || 0;
    };
    const body = table.tBodies[0];
    const rows = [...body.rows].sort((a, b) => (up ? 1 : -1) * compare(value(a), value(b)));
    body.append(...rows);
  }));
}
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details")) folded.open = true;
});
)js";

}  // namespace fp8lab

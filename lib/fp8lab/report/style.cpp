#include "fp8lab/report/style.hpp"

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
  font: 16px/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; overflow-wrap: break-word;
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
  display: inline-block; font-size: .8rem; font-weight: 600; vertical-align: middle;
  padding: .1rem .5rem; border-radius: 1rem; color: var(--mark); background: var(--mark-soft);
}
.warning { color: var(--mark); background: var(--mark-soft); padding: .5rem .8rem; border-radius: .4rem; }
#summary { margin-top: 1.6rem; }
nav { background: var(--soft); border-radius: .5rem; padding: .7rem 1.1rem; margin: 1.6rem 0; }
nav ol { margin: .3rem 0; padding-left: 1.8rem; columns: 20rem; }
nav li { margin: 0 0 .3rem; break-inside: avoid; }
section.run { border-top: 2px solid var(--line); margin-top: 2.6rem; padding-top: 1.6rem; }
figure { margin: 1.1rem 0; }
figure img {
  display: block; width: 100%; height: auto; max-width: 900px;
  background: #ffffff; border: 1px solid var(--line); border-radius: .5rem; padding: .3rem;
}
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 0 1rem; }
.pair > div { min-width: 0; }
.pair figure { margin-top: .2rem; }
.side { font-weight: 600; color: var(--quiet); margin: .8rem 0 0; }
details { margin: .7rem 0; border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .8rem; }
summary { cursor: pointer; font-weight: 600; }
.scroll { overflow: auto; max-height: 34rem; margin-top: .5rem; }
.scroll:focus-visible, summary:focus-visible, a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
table.sortable td { white-space: nowrap; }
table.sortable td.t { white-space: normal; min-width: 18rem; }
td.n, th.n { text-align: right; white-space: nowrap; }
.paper { display: none; }
thead th { position: sticky; top: 0; background: var(--page); vertical-align: bottom; white-space: nowrap; }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
th button::after { content: " \2195"; color: var(--line); }
th[aria-sort=ascending] button::after { content: " \2191"; color: inherit; }
th[aria-sort=descending] button::after { content: " \2193"; color: inherit; }
tr.differs { background: var(--mark-soft); }
table.facts th[scope=row] { color: var(--quiet); font-weight: 400; white-space: nowrap; }
table.facts td { overflow-wrap: anywhere; }
table.halves { table-layout: fixed; width: 100%; font-size: .95rem; }
dl { font-size: .86rem; margin: .6rem 0 .2rem; display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dt { font-family: ui-monospace, "DejaVu Sans Mono", monospace; }
dd { margin: 0; color: var(--quiet); min-width: 0; }
pre { background: var(--soft); padding: .6rem .8rem; border-radius: .4rem; font-size: .86rem; white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  body { padding: 1.2rem .8rem 3rem; }
  details { padding: .4rem .5rem; }
  figure img { padding: 0; }
  dl { display: block; }
  dd { margin: 0 0 .3rem 1rem; }
  table.facts th[scope=row] { white-space: normal; }
  table.halves thead { display: none; }
  table.halves td { display: block; }
  table.halves td:first-child { border: 0; }
  table.halves td:first-child::before { content: "A: "; font-weight: 600; }
  table.halves td:last-child::before { content: "B: "; font-weight: 600; }
}
@media print {
  :root { --page: #fff; --text: #000; --quiet: #444; --line: #bbb; --soft: #f4f4f4; --link: #000; --mark: #000; --mark-soft: #eee; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  section.run { break-before: page; border: 0; margin: 0; padding: 0; }
  h2, h3, summary, .side { break-after: avoid; }
  figure, tr, .pair { break-inside: avoid; }
  figure img { max-width: 16cm; border: 0; padding: 0; }
  details { border: 0; padding: 0; }
  summary { list-style: none; }
  .scroll { max-height: none; overflow: visible; }
  /* A column takes about five ems: all of them fit the page. */
  table.sortable { font-size: min(8pt, calc(516pt / 5.2 / var(--columns))); }
  table.sortable th, table.sortable td { padding: .1em .4em; }
  table.sortable td.t { min-width: 12em; }
  tbody tr:nth-child(n+61) { display: none; }
  .paper { display: block; color: var(--quiet); }
  thead { display: table-header-group; }
  thead th { position: static; white-space: normal; }
  th button::after, th[aria-sort] button::after { content: none; }
  a { text-decoration: none; }
}
@page { size: A4; margin: 14mm; }
)css";

const std::string_view kReportScript = R"js(
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const numeric = head.classList.contains("n");
    const value = row => {
      const text = row.cells[column].dataset.v ?? row.cells[column].textContent;
      if (!numeric) return text;
      return text === "" ? NaN : Number(text.replace("inf", "Infinity"));
    };
    // What is no number comes last in both directions.
    const compare = (a, b) => {
      if (!numeric) return (up ? 1 : -1) * a.localeCompare(b);
      return Number.isNaN(a) - Number.isNaN(b) || (up ? 1 : -1) * (a === b ? 0 : a - b) || 0;
    };
    const rows = [...table.tBodies[0].rows].map(row => [value(row), row]);
    rows.sort((a, b) => compare(a[0], b[0]));
    table.tBodies[0].append(...rows.map(row => row[1]));
  }));
}
// Paper has nothing to unfold; what was folded is folded again afterwards.
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll("details:not([open])")];
  for (const details of unfolded) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of unfolded) details.open = false;
});
)js";

}  // namespace fp8lab

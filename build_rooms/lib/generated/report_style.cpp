#include "fp8lab/report/style.hpp"

namespace fp8lab {

const std::string_view kReportCss = R"page(
:root {
  color-scheme: light dark;
  --page: #ffffff; --text: #1d2329; --quiet: #57606a; --line: #d0d7de;
  --soft: #f4f6f8; --link: #0b5cad; --mark: #8a4b00; --mark-soft: #fff3dc;
  --s0: #0072b2; --s1: #d55e00; --s2: #009e73; --s3: #cc79a7; --s4: #e69f00; --s5: #56b4e9; --s6: #000000;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181d; --text: #e3e8ee; --quiet: #9aa5b1; --line: #353d47;
    --soft: #1d232a; --link: #7ab8ff; --mark: #ffc872; --mark-soft: #3a2c12;
    --s0: #3fa9f5; --s1: #ff8a3d; --s2: #2fd0a5; --s3: #e79ec6; --s4: #f5b83d; --s5: #9bd6f7; --s6: #e3e8ee;
  }
  figure img { filter: invert(.92) hue-rotate(180deg); }
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
nav { position: sticky; top: 0; z-index: 2; margin: 1.2rem 0; }
nav details { background: var(--soft); margin: 0; max-height: 90vh; overflow: auto; }
nav ol { margin: .3rem 0; padding-left: 1.8rem; columns: 20rem; }
nav li { margin: 0 0 .3rem; break-inside: avoid; }
section { scroll-margin-top: 3.5rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1rem; }
#failures h2, #claims h2 { margin-top: 1.8rem; }
.card { border: 1px solid var(--line); border-radius: .5rem; padding: .2rem 1rem .6rem; min-width: 0; }
.card h3 { margin-top: .6rem; }
.card figcaption { display: none; }
table.remedies { font-size: .95rem; }
dl.claims dd { color: var(--text); margin-bottom: .4rem; }
section.run { border-top: 2px solid var(--line); margin-top: 2.6rem; padding-top: 1.6rem; }
figure { margin: 1.1rem 0; }
figure img {
  display: block; width: 100%; height: auto; max-width: 900px;
  background: #ffffff; border: 1px solid var(--line); border-radius: .5rem; padding: .3rem;
}
.plot { position: relative; }
.plot figcaption { font-weight: 600; margin-bottom: .3rem; }
.plot > svg { display: block; touch-action: pan-y; }
.plot text { font-size: 13px; fill: var(--text); }
.plot .raised { font-size: 11px; }
sup { font-size: .8em; line-height: 0; }
.plot .grid, .plot .frame { fill: none; stroke: var(--line); stroke-width: 1; }
.plot .frame { stroke: var(--quiet); }
.plot .line { fill: none; stroke-width: 2; }
.plot .mark { stroke-width: 1.5; }
.plot .band { stroke: none; }
.plot .drag { fill: var(--link); fill-opacity: .15; }
.plot .spot { fill: none; stroke: var(--text); stroke-width: 1.5; pointer-events: none; }
.plot .s0 { stroke: var(--s0); fill: var(--s0); }
.plot .s1 { stroke: var(--s1); fill: var(--s1); }
.plot .s2 { stroke: var(--s2); fill: var(--s2); }
.plot .s3 { stroke: var(--s3); fill: var(--s3); }
.plot .s4 { stroke: var(--s4); fill: var(--s4); }
.plot .s5 { stroke: var(--s5); fill: var(--s5); }
.plot .s6 { stroke: var(--s6); fill: var(--s6); }
.plot .line.line { fill: none; }
.plot .band.band { stroke: none; }
.legend, .tools { display: flex; flex-wrap: wrap; gap: .2rem .5rem; margin: .3rem 0; font-size: .86rem; }
.legend button, .tools button {
  font: inherit; color: var(--text); background: none; border: 1px solid transparent; border-radius: .4rem;
  padding: .1rem .4rem; cursor: pointer; text-align: left;
}
.tools button { border-color: var(--line); }
.tools button[aria-pressed=true] { background: var(--soft); font-weight: 600; }
.legend button[aria-pressed=false] { color: var(--quiet); text-decoration: line-through; }
.legend svg { vertical-align: middle; }
.tip {
  position: absolute; z-index: 1; max-width: 20rem; padding: .2rem .5rem; pointer-events: none; font-size: .86rem;
  color: var(--page); background: var(--text); border-radius: .3rem;
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
  figure { overflow-x: auto; }
  figure img { padding: 0; width: 46rem; max-width: none; }
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
  :root { --page: #fff; --text: #000; --quiet: #444; --line: #bbb; --soft: #f4f4f4; --link: #000; --mark: #000; --mark-soft: #eee;
    --s0: #0072b2; --s1: #d55e00; --s2: #009e73; --s3: #cc79a7; --s4: #e69f00; --s5: #56b4e9; --s6: #000000; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  section.run { break-before: page; border: 0; margin: 0; padding: 0; }
  h2, h3, summary, .side { break-after: avoid; }
  figure, tr, .pair { break-inside: avoid; }
  figure img { max-width: 16cm; border: 0; padding: 0; filter: none; }
  .plot > svg { max-width: 100%; height: auto; }
  .tools { display: none; }
  .card { break-inside: avoid; }
  nav { position: static; }
  details { border: 0; padding: 0; }
  summary { list-style: none; }
  .scroll { max-height: none; overflow: visible; }
  /* A column takes about five ems: all of them fit the page. */
  table.sortable { font-size: min(8pt, calc(516pt / 5.2 / var(--columns))); width: 100%; }
  table.sortable th, table.sortable td { padding: .1em .3em; white-space: normal; }
  table.sortable td, table.sortable td.t { min-width: 0; overflow-wrap: anywhere; }
  table.sortable td.n { overflow-wrap: normal; }
  th button { overflow-wrap: anywhere; }
  tbody tr:nth-child(n+61) { display: none; }
  .paper { display: block; color: var(--quiet); }
  thead { display: table-header-group; }
  thead th { position: static; white-space: normal; overflow-wrap: anywhere; }
  th button::after, th[aria-sort] button::after { content: none; }
  a { text-decoration: none; }
}
@page { size: A4; margin: 14mm; }
)page";

const std::string_view kReportScript = R"page(
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
// What line plots and heat maps of the report have in common: text, numbers, scales, the parts around
// a picture, and what is seen as CSV or SVG.
const SVG = "http://www.w3.org/2000/svg";
const RAISED = /\^(-?\d+(?:\.\d+)*|T(?![A-Za-z0-9]))/;

const node = (name, attributes = {}, text = "") => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.append(...written(text, raised => node("tspan", {dy: "-0.4em", class: "raised"}, raised), node));
  return made;
};

/// A text as nodes; `^` before a number or a capital T raises it, as in gnuplot's pictures.
const written = (text, raise, back) => {
  const parts = text.split(RAISED);
  if (parts.length === 1) return [text];
  return parts.flatMap((part, i) => {
    if (part === "") return [];
    if (i % 2 === 1) return [raise(part)];
    return [i > 0 && back ? back("tspan", {dy: "0.34em"}, part) : part];
  });
};

const writtenHtml = text => written(text, raised => {
  const made = document.createElement("sup");
  made.textContent = raised;
  return made;
});

const plain = text => text.replace(RAISED, "$1");

const shortNumber = value => {
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return String(value);
  if (size >= 1e-3 && size < 1e5) return String(Number(value.toPrecision(4)));
  return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
};

const superscript = number => String(number).replace("-", "⁻").replace(/\d/g, digit => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);

/// A map from values to pixels and back, with its ticks.
class Scale {
  constructor(low, high, from, to, log, base) {
    Object.assign(this, {low, high, from, to, log, base});
    const t = this.forward = log ? Math.log : value => value;
    this.backward = log ? Math.exp : value => value;
    [this.start, this.end] = [t(low), t(high)];
  }
  pixel(value) {
    return this.from + (this.forward(value) - this.start) / (this.end - this.start) * (this.to - this.from);
  }
  value(pixel) {
    return this.backward(this.start + (pixel - this.from) / (this.to - this.from) * (this.end - this.start));
  }
  /// At most `most` ticks as [value, text]; `least` is the least step of a linear scale.
  ticks(most, least = 0) {
    const values = this.log ? this.logTicks(most) : Scale.linearTicks(this.low, this.high, most, least);
    const power = value => Math.log(value) / Math.log(this.base);
    const powers = values.every(value => value > 0 && Math.abs(power(value) - Math.round(power(value))) < 1e-9);
    const [short, long] = this.base === 2 ? [1 / 16, 2 ** 17] : [1e-3, 1e4];
    // One way of writing for all of an axis.
    const raise = this.log && powers && values.some(value => value < short * 0.999 || value > long * 1.001);
    return values.map(value => [value, !raise || value === 1 ? shortNumber(value) : this.base + superscript(Math.round(power(value)))]);
  }
  logTicks(most) {
    const power = value => Math.log(value) / Math.log(this.base);
    const [first, last] = [Math.ceil(power(this.low) - 1e-9), Math.floor(power(this.high) + 1e-9)];
    if (this.base === 10 && last - first < 2) {
      const within = [];
      for (let n = first - 1; n <= last; ++n) within.push(...[1, 2, 5].map(digit => Number(`${digit}e${n}`)));
      const seen = within.filter(value => value >= this.low * (1 - 1e-9) && value <= this.high * (1 + 1e-9));
      if (seen.length > 2) return seen;
    }
    if (last - first < 1) return Scale.linearTicks(this.low, this.high, most);
    const step = Math.ceil((last - first + 1) / most);
    return Array.from({length: Math.floor((last - first) / step) + 1}, (_, i) => this.base === 10 ? Number(`1e${first + i * step}`) : this.base ** (first + i * step));
  }
  static linearTicks(low, high, most, least = 0) {
    const rough = (high - low) / most;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(least, unit * [1, 2, 5, 10].find(factor => factor * unit >= rough * (1 - 1e-9)));
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12) + step * 1e-9; ++i) ticks.push(i * step);
    return ticks;
  }
}

/// A figure of the page: title, picture, tip, tools, note. Who extends it has draw() and csv().
class Picture {
  constructor(figure, data) {
    Object.assign(this, {figure, data});
    this.box = document.createElement("div");
    this.box.className = "plot";
    this.title = document.createElement("figcaption");
    this.title.append(...writtenHtml(data.title));
    this.svg = node("svg", {role: "img", "aria-label": plain(data.title)});
    this.note = document.createElement("p");
    this.note.className = "quiet";
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    figure.append(this.box);
  }

  /// Puts `parts` between the picture and its tools, and draws whenever there is room.
  begin(parts, tools) {
    const bar = document.createElement("div");
    bar.className = "tools";
    bar.append(...tools, this.button("CSV", () => this.save("csv", "text/csv", this.csv())),
      this.button("SVG", () => this.save("svg", "image/svg+xml", this.picture())));
    this.box.append(this.title, this.svg, this.tip, ...parts, bar, this.note);
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  button(text, press, pressed) {
    const made = document.createElement("button");
    made.type = "button";
    made.append(text);
    if (pressed !== undefined) made.setAttribute("aria-pressed", pressed);
    made.addEventListener("click", () => {
      press();
      if (pressed !== undefined) made.setAttribute("aria-pressed", made.getAttribute("aria-pressed") !== "true");
      this.draw();
    });
    return made;
  }

  size(width, height) {
    for (const [key, value] of Object.entries({width, height, viewBox: `0 0 ${width} ${height}`}))
      this.svg.setAttribute(key, value);
  }

  /// Where the pointer is in the picture.
  where(event) {
    const box = this.svg.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  showTip(text, x, y) {
    this.tip.hidden = false;
    this.tip.replaceChildren(...writtenHtml(text));
    this.tip.style.left = `${Math.min(x + 12, Math.max(0, this.box.clientWidth - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${this.svg.offsetTop + y + 12}px`;
  }

  static cell(text) {
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  /// The picture with the colours that it has now, to stand alone.
  picture() {
    const copy = this.svg.cloneNode(true);
    const from = this.svg.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((element, i) => {
      const style = getComputedStyle(from[i]);
      for (const name of ["fill", "fill-opacity", "stroke", "stroke-width", "font-family", "font-size"])
        element.setAttribute(name, style.getPropertyValue(name));
    });
    copy.setAttribute("xmlns", SVG);
    return new XMLSerializer().serializeToString(copy);
  }

  save(ending, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], {type}));
    link.download = `${this.data.name}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}
// Line plots out of the data beside their pictures: values on pointing, zoom by dragging, curves
// switched on and off, logarithmic or linear axes.
const MARGIN = {left: 74, right: 14, top: 10, bottom: 60};
const SHAPES = [
  "M-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0", "M-3.2,-3.2h6.4v6.4h-6.4z", "M0,-4.2L4,3.2H-4z",
  "M0,-4.4L4.4,0L0,4.4L-4.4,0z", "M0,4.2L4,-3.2H-4z", "M-3.4,-3.4L3.4,3.4M3.4,-3.4L-3.4,3.4", "M-4,0H4M0,-4V4",
];

class LinePlot extends Picture {
  constructor(figure, data) {
    super(figure, data);
    Object.assign(this, {zoom: null, log: {x: data.x.log, y: data.y.log}});
    this.height = figure.closest(".card") ? 280 : 400;
    this.top = MARGIN.top + (data.x.second ? 38 : 0);
    this.bands = data.series.filter(series => series.low).length;
    this.shown = data.series.map(() => true);
    this.begin([this.legend()], this.tools());
    this.listen();
  }

  legend() {
    const list = document.createElement("div");
    list.className = "legend";
    this.data.series.forEach((series, i) => {
      if (!series.label) return;
      const button = this.button("", () => { this.shown[i] = !this.shown[i]; }, true);
      const swatch = node("svg", {width: 26, height: 12, "aria-hidden": true});
      swatch.append(...this.strokeOf(series, i, "M1,6H25"), ...this.marksOf(series, i, [[13, 6]]));
      button.append(swatch, " ", ...writtenHtml(series.label));
      list.append(button);
    });
    return list;
  }

  tools() {
    const axes = ["x", "y"].map(axis =>
      this.button(`log ${axis}`, () => { this.log[axis] = !this.log[axis]; this.zoom = null; }, this.log[axis]));
    return [...axes, this.button("all of it", () => { this.zoom = null; })];
  }

  /// The points that the axes can show, [x, y, low, high], and how many they cannot.
  points(series) {
    const can = (value, log) => value !== null && (!log || value > 0);
    const at = (list, i) => list && can(list[i], this.log.y) ? list[i] : null;
    return series.x.map((x, i) => can(x, this.log.x) && can(series.y[i], this.log.y)
      ? [x, series.y[i], at(series.low, i), at(series.high, i)] : null);
  }

  /// Curves that run away on a linear axis, as the drawn pictures leave them out of its range.
  runaways() {
    if (this.log.y) return [];
    const heights = this.visible.map((points, i) => [points.reduce((most, p) => p ? Math.max(most, Math.abs(p[1])) : most, 0), i])
      .sort((a, b) => a[0] - b[0]);
    const found = [];
    for (; heights.length > 1; heights.pop()) {
      const [others, [most, i]] = [heights[heights.length - 2][0], heights[heights.length - 1]];
      if (!(others > 0 && most > 1e4 * others)) break;
      found.push({i, most});
    }
    return found;
  }

  range(of, log, without = []) {
    const values = this.visible.filter((points, i) => !without.includes(i)).flatMap(points => points.filter(p => p).flatMap(of)).filter(v => v !== null);
    if (values.length === 0) return log ? [1, 10] : [0, 1];
    let [low, high] = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
    if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    const pad = 0.03;
    return log ? [low * (low / high) ** pad, high * (high / low) ** pad]
      : [low - pad * (high - low), high + pad * (high - low)];
  }

  colour(i) {
    return this.data.series[i].colour ?? i;
  }
  strokeOf(series, i, d) {
    if (series.style === "points" || !d) return [];
    const dash = series.style === "dashed" ? "8 5" : this.colour(i) >= 7 ? "2 3" : "none";
    return [node("path", {d, class: `line s${this.colour(i) % 7}`, "stroke-dasharray": dash})];
  }
  marksOf(series, i, places) {
    if (series.style !== "points" && series.style !== "lines_points") return [];
    const every = Math.ceil(places.length / (series.style === "points" ? 5000 : 40));
    return places.filter((_, n) => n % every === 0).map(([x, y]) =>
      node("path", {d: SHAPES[this.colour(i) % SHAPES.length], class: `mark s${this.colour(i) % 7}`, transform: `translate(${x.toFixed(1)},${y.toFixed(1)})`}));
  }

  draw() {
    const width = Math.max(this.box.clientWidth, 260);
    this.visible = this.data.series.map((series, i) => this.shown[i] ? this.points(series) : []);
    const xs = this.zoom?.x ?? this.range(p => [p[0]], this.log.x);
    const ys = this.zoom?.y ?? this.range(p => [p[1], p[2], p[3]], this.log.y, this.runaways().map(curve => curve.i));
    this.x = new Scale(...xs, MARGIN.left, width - MARGIN.right, this.log.x, this.data.x.base);
    this.y = new Scale(...ys, this.height - MARGIN.bottom, this.top, this.log.y, this.data.y.base);
    this.size(width, this.height);
    const inside = {x: MARGIN.left, y: this.top, width: width - MARGIN.left - MARGIN.right, height: this.height - this.top - MARGIN.bottom};
    const id = `clip-${this.data.name}-${LinePlot.count = (LinePlot.count ?? 0) + 1}`;
    const clip = node("clipPath", {id});
    clip.append(node("rect", inside));
    const curves = node("g", {"clip-path": `url(#${id})`});
    // Bands below all curves; the first curve above the others, dashed ones above all (as in plots/look.hpp).
    const order = this.data.series.map((_, i) => i).reverse();
    const dashed = i => this.data.series[i].style === "dashed";
    for (const i of order) curves.append(...this.band(i));
    for (const i of [...order.filter(i => !dashed(i)), ...order.filter(dashed)]) curves.append(...this.curve(this.data.series[i], i));
    this.drag = node("rect", {class: "drag"});
    this.spot = node("circle", {class: "spot", r: 6, visibility: "hidden"});
    this.svg.replaceChildren(clip, ...this.axes(inside), curves, this.drag, this.spot);
    const lost = this.data.series.reduce((sum, series, i) =>
      sum + (this.shown[i] ? this.visible[i].filter((p, n) => !p && series.y[n] !== null).length : 0), 0);
    const notes = this.runaways().map(({i, most}) => `${this.data.series[i].label} leaves the plot, to ${shortNumber(most)}: log y shows it.`);
    if (lost > 0) notes.push(`${lost} value${lost === 1 ? "" : "s"} ≤ 0 left out: the axis is logarithmic.`);
    this.note.textContent = notes.join(" ");
  }

  curve(series, i) {
    const points = this.visible[i];
    const place = p => [this.x.pixel(p[0]), this.y.pixel(p[1])];
    let path = "";
    let pen = false;
    for (const p of points) {
      if (p) {
        const [x, y] = place(p).map(v => v.toFixed(1));
        path += !pen ? `M${x},${y}` : series.style === "steps" ? `H${x}V${y}` : `L${x},${y}`;
      }
      pen = Boolean(p);
    }
    return [...this.strokeOf(series, i, path), ...this.marksOf(series, i, points.filter(p => p).map(place))];
  }

  band(i) {
    const band = this.visible[i].filter(p => p && p[2] !== null && p[3] !== null);
    if (band.length < 2) return [];
    const side = which => band.map(p => `${this.x.pixel(p[0]).toFixed(1)},${this.y.pixel(p[which]).toFixed(1)}`);
    const opacity = this.bands > 3 ? 0.54 / this.bands : 0.18;
    return [node("path", {class: `band s${this.colour(i) % 7}`, "fill-opacity": opacity, d: `M${[...side(2), ...side(3).reverse()].join("L")}z`})];
  }

  axes(inside) {
    const [bottom, right] = [inside.y + inside.height, inside.x + inside.width];
    const drawn = [];
    const many = Math.max(3, Math.floor(inside.width / 55));
    const whole = this.data.series.every(series => series.x.every(Number.isInteger)) ? 1 : 0;
    for (const [value, text] of this.x.ticks(many, whole)) {
      const at = this.x.pixel(value).toFixed(1);
      drawn.push(node("path", {class: "grid", d: `M${at},${inside.y}V${bottom}`}),
        node("text", {x: at, y: bottom + 18, "text-anchor": "middle"}, text));
    }
    for (const [value, text] of this.y.ticks(this.height < 300 ? 6 : 8)) {
      const at = this.y.pixel(value).toFixed(1);
      drawn.push(node("path", {class: "grid", d: `M${inside.x},${at}H${right}`}),
        node("text", {x: inside.x - 7, y: at, dy: "0.33em", "text-anchor": "end"}, text));
    }
    if (this.data.x.second) drawn.push(...this.second(inside, many));
    const middle = inside.y + inside.height / 2;
    drawn.push(node("path", {class: "frame", d: `M${inside.x},${inside.y}V${bottom}H${right}`}),
      this.xLabel(inside.x + inside.width / 2, inside.width),
      node("text", {transform: `translate(14,${middle}) rotate(-90)`, "text-anchor": "middle"}, this.data.y.label));
    return drawn;
  }

  /// The x axis in other units, at the top.
  second(inside, many) {
    const {label, unit} = this.data.x.second;
    const scale = new Scale(this.x.low / unit, this.x.high / unit, this.x.from, this.x.to, this.log.x, this.data.x.base);
    const marks = scale.ticks(many).flatMap(([value, text]) => {
      const at = scale.pixel(value).toFixed(1);
      return [node("path", {class: "frame", d: `M${at},${inside.y}v-5`}), node("text", {x: at, y: inside.y - 8, "text-anchor": "middle"}, text)];
    });
    return [...marks, node("path", {class: "frame", d: `M${inside.x},${inside.y}h${inside.width}`}),
      node("text", {x: inside.x + inside.width / 2, y: inside.y - 27, "text-anchor": "middle"}, label)];
  }

  /// One line, or two where it is too long for one.
  xLabel(x, room) {
    const words = this.data.x.label.split(" ");
    const label = node("text", {"text-anchor": "middle"});
    const width = text => text.length * 7;
    let lines = [words.join(" ")];
    if (width(lines[0]) > room) {
      const half = words.findIndex((_, i) => width(words.slice(0, i + 1).join(" ")) > width(lines[0]) / 2);
      lines = [words.slice(0, half).join(" "), words.slice(half).join(" ")];
    }
    label.append(...lines.map((line, i) => node("tspan", {x, y: this.height - 8 - 15 * (lines.length - 1 - i)}, line)));
    return label;
  }

  listen() {
    let start = null;
    const where = event => this.where(event);
    this.svg.addEventListener("pointerdown", event => {
      if (event.pointerType === "mouse") start = where(event);
    });
    this.svg.addEventListener("pointermove", event => {
      const at = where(event);
      if (!start) return this.point(at);
      const [x, y] = [0, 1].map(i => Math.min(start[i], at[i]));
      const size = {x, y, width: Math.abs(at[0] - start[0]), height: Math.abs(at[1] - start[1])};
      for (const [key, value] of Object.entries(size)) this.drag.setAttribute(key, value);
    });
    addEventListener("pointerup", event => {
      if (!start) return;
      const [a, b] = [start, where(event)];
      start = null;
      if (Math.abs(a[0] - b[0]) > 8 && Math.abs(a[1] - b[1]) > 8) {
        const between = (scale, p, q) => [scale.value(p), scale.value(q)].sort((v, w) => v - w);
        this.zoom = {x: between(this.x, a[0], b[0]), y: between(this.y, a[1], b[1])};
      }
      this.draw();
    });
    this.svg.addEventListener("dblclick", () => { this.zoom = null; this.draw(); });
    this.svg.addEventListener("pointerleave", () => this.point(null));
  }

  /// Shows the point nearest to `at`, if one is near.
  point(at) {
    let best = null;
    let nearest = 30;
    if (at) this.visible.forEach((points, i) => points.forEach(p => {
      if (!p) return;
      const far = Math.hypot(this.x.pixel(p[0]) - at[0], this.y.pixel(p[1]) - at[1]);
      if (far < nearest) [nearest, best] = [far, [i, p]];
    }));
    this.tip.hidden = !best;
    this.spot.setAttribute("visibility", best ? "visible" : "hidden");
    if (!best) return;
    const [i, p] = best;
    const [x, y] = [this.x.pixel(p[0]), this.y.pixel(p[1])];
    this.spot.setAttribute("cx", x);
    this.spot.setAttribute("cy", y);
    const band = p[2] === null || p[3] === null ? "" : ` (${shortNumber(p[2])} to ${shortNumber(p[3])})`;
    this.showTip(`${this.data.series[i].label}: ${shortNumber(p[1])}${band} at ${shortNumber(p[0])}`, x, y);
  }

  csv() {
    const cell = Picture.cell;
    const inside = (scale, value) => value >= scale.low && value <= scale.high;
    const lines = [["series", this.data.x.label, this.data.y.label].map(cell).join(",")];
    this.visible.forEach((points, i) => {
      for (const p of points)
        if (p && inside(this.x, p[0]) && inside(this.y, p[1])) lines.push([cell(this.data.series[i].label), p[0], p[1]].join(","));
    });
    return lines.join("\n") + "\n";
  }

}
// Heat maps out of their data: the number in each cell, its place and full value on pointing.
const VIRIDIS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"]
  .map(colour => [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16)));
const UNCOLOURED = [204, 204, 204];
const LETTER = 7.4;  // pixels

const colourAt = place => {
  const at = Math.min(Math.max(place, 0), 1) * (VIRIDIS.length - 1);
  const first = Math.min(Math.floor(at), VIRIDIS.length - 2);
  return VIRIDIS[first].map((value, i) => Math.round(value + (at - first) * (VIRIDIS[first + 1][i] - value)));
};

/// Black or white, whichever has the better contrast: at least 4.5 to 1 on every colour.
const inkOn = colour => {
  const [r, g, b] = colour.map(value => value / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
};

const rgb = colour => `rgb(${colour.join(",")})`;

class HeatMap extends Picture {
  constructor(figure, data) {
    super(figure, data);
    this.written = data.values.length <= 200;
    this.begin([], []);
    this.svg.addEventListener("pointermove", event => this.point(this.where(event)));
    this.svg.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    const notes = [];
    const grey = data.values.filter((value, i) => data.texts[i] !== "" && !this.coloured(value)).length;
    if (grey > 0) notes.push(`Grey: ${grey} cell${grey === 1 ? "" : "s"} ${data.log ? "≤ 0 (the colours are logarithmic) or " : ""}infinite.`);
    if (data.beyond > 0) notes.push(`The colours end at ${shortNumber(data.colours[1])}; ${data.beyond} larger cell${data.beyond === 1 ? " has" : "s have"} the last one.`);
    this.note.textContent = notes.join(" ");
  }

  coloured(value) {
    return value !== null && (!this.data.log || value > 0);
  }

  draw() {
    const {rows, columns, colours, log} = this.data;
    const widest = labels => Math.max(...labels.map(label => label.length)) * LETTER;
    const left = Math.min(widest(rows), 260) + 34;
    const least = this.written ? Math.max(46, widest(this.data.texts) + 8) : 8;
    const cell = Math.max(least, Math.min(170, (this.box.clientWidth - left - 10) / columns.length));
    const height = this.written ? 26 : Math.max(6, Math.min(cell, 20));
    // Labels that do not fit below their column stand aslant.
    const aslant = widest(columns) > cell - 6;
    const below = aslant ? Math.min(widest(columns), 200) * 0.6 + 12 : 18;
    const bottom = 6 + rows.length * height;
    const right = left + columns.length * cell;
    this.place = {left, cell, height};
    this.size(Math.ceil(Math.max(right + 10, left + 300)), Math.ceil(bottom + below + 84));
    this.scale = new Scale(...colours, left, left + Math.min(300, Math.max(220, right - left)), log, 10);
    const drawn = [];
    rows.forEach((row, y) => {
      const top = bottom - (y + 1) * height;
      drawn.push(node("text", {x: left - 8, y: top + height / 2, dy: "0.33em", "text-anchor": "end"}, row));
      columns.forEach((_, x) => drawn.push(...this.cell(x, y, left + x * cell, top)));
    });
    columns.forEach((column, x) => {
      const at = left + (x + 0.5) * cell;
      const place = aslant ? {transform: `translate(${at + 4},${bottom + 14}) rotate(-32)`, "text-anchor": "end"}
        : {x: at, y: bottom + 16, "text-anchor": "middle"};
      drawn.push(node("text", place, column));
    });
    drawn.push(node("text", {x: (left + right) / 2, y: bottom + below + 16, "text-anchor": "middle"}, this.data.x_label),
      node("text", {transform: `translate(13,${(6 + bottom) / 2}) rotate(-90)`, "text-anchor": "middle"}, this.data.y_label),
      ...this.bar(bottom + below + 28));
    this.svg.replaceChildren(...drawn);
  }

  cell(x, y, left, top) {
    const i = y * this.data.columns.length + x;
    const [value, text] = [this.data.values[i], this.data.texts[i]];
    if (text === "") return [];
    const {cell, height} = this.place;
    const colour = this.coloured(value) ? colourAt((this.scale.forward(value) - this.scale.start) / (this.scale.end - this.scale.start)) : UNCOLOURED;
    const box = node("rect", {class: "cell", x: left + 0.5, y: top + 0.5, width: cell - 1, height: height - 1, style: `fill: ${rgb(colour)}`});
    if (!this.written) return [box];
    return [box, node("text", {x: left + cell / 2, y: top + height / 2, dy: "0.35em", "text-anchor": "middle", style: `fill: ${inkOn(colour)}`}, text)];
  }

  /// What the colours mean.
  bar(top) {
    const [from, to] = [this.scale.from, this.scale.to];
    const step = (to - from) / 60;
    const drawn = Array.from({length: 60}, (_, i) =>
      node("rect", {x: from + i * step, y: top, width: step + 0.5, height: 10, style: `fill: ${rgb(colourAt((i + 0.5) / 60))}`}));
    for (const [value, text] of this.scale.ticks(5)) {
      const at = this.scale.pixel(value).toFixed(1);
      drawn.push(node("path", {class: "frame", d: `M${at},${top + 10}v4`}), node("text", {x: at, y: top + 27, "text-anchor": "middle"}, text));
    }
    return [...drawn, node("text", {x: from, y: top + 44}, this.data.value_label)];
  }

  point([x, y]) {
    const {left, cell, height} = this.place;
    const {rows, columns, values} = this.data;
    const [column, row] = [Math.floor((x - left) / cell), rows.length - 1 - Math.floor((y - 6) / height)];
    const value = columns[column] !== undefined && rows[row] !== undefined ? values[row * columns.length + column] : null;
    if (value === null) this.tip.hidden = true;
    else this.showTip(`${rows[row]}, ${columns[column]}: ${shortNumber(value)}`, x, y);
  }

  csv() {
    const {rows, columns, values, x_label, y_label, value_label} = this.data;
    const lines = [[y_label, x_label, value_label].map(Picture.cell).join(",")];
    rows.forEach((row, y) => columns.forEach((column, x) => {
      const value = values[y * columns.length + x];
      if (value !== null) lines.push([Picture.cell(row), Picture.cell(column), value].join(","));
    }));
    return lines.join("\n") + "\n";
  }
}

for (const figure of document.querySelectorAll("figure")) {
  const text = figure.querySelector("script[type='application/json']")?.textContent;
  if (!text) continue;
  const data = JSON.parse(text);
  if (data.series) new LinePlot(figure, data);
  else new HeatMap(figure, data);
}
)page";

const std::string_view kReportScriptHash = "sha256-my4nhBmXebaJMDMjWBvsDZzv6dQu2EYpq+swxSi9sxY=";

}  // namespace fp8lab

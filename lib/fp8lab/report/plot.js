// Line plots out of the data beside their pictures: values on pointing, zoom by dragging, curves
// switched on and off, logarithmic or linear axes, what is seen as CSV or SVG.
const SVG = "http://www.w3.org/2000/svg";
const MARGIN = {left: 74, right: 14, top: 10, bottom: 60};
const HEIGHT = 400;
const SHAPES = [
  "M-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0", "M-3.2,-3.2h6.4v6.4h-6.4z", "M0,-4.2L4,3.2H-4z",
  "M0,-4.4L4.4,0L0,4.4L-4.4,0z", "M0,4.2L4,-3.2H-4z", "M-3.4,-3.4L3.4,3.4M3.4,-3.4L-3.4,3.4", "M-4,0H4M0,-4V4",
];

const node = (name, attributes = {}, text = "") => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
};

const shortNumber = value => {
  const size = Math.abs(value);
  if (value === 0 || (size >= 1e-3 && size < 1e5)) return String(Number(value.toPrecision(4)));
  return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
};

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
  ticks(most) {
    return this.log ? this.logTicks(most) : Scale.linearTicks(this.low, this.high, most);
  }
  logTicks(most) {
    const power = value => Math.log(value) / Math.log(this.base);
    const [first, last] = [Math.ceil(power(this.low) - 1e-9), Math.floor(power(this.high) + 1e-9)];
    if (last - first < 1) return Scale.linearTicks(this.low, this.high, most);
    const step = Math.ceil((last - first + 1) / most);
    return Array.from({length: Math.floor((last - first) / step) + 1}, (_, i) => this.base ** (first + i * step));
  }
  static linearTicks(low, high, most) {
    const rough = (high - low) / most;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find(factor => factor * unit >= rough * (1 - 1e-9));
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12) + step * 1e-9; ++i) ticks.push(i * step);
    return ticks;
  }
}

const superscript = number => String(number).replace("-", "⁻").replace(/\d/g, digit => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
const tickText = (value, scale) => {
  const power = Math.log(value) / Math.log(scale.base);
  const exact = scale.log && Math.abs(power - Math.round(power)) < 1e-9;
  const long = scale.base === 2 ? value < 1e-2 || value > 1e5 : value < 1e-2 || value > 1e3;
  return exact && long ? scale.base + superscript(Math.round(power)) : shortNumber(value);
};

class LinePlot {
  constructor(figure, data) {
    Object.assign(this, {figure, data, zoom: null, log: {x: data.x.log, y: data.y.log}});
    this.shown = data.series.map(() => true);
    this.box = document.createElement("div");
    this.box.className = "plot";
    this.title = document.createElement("figcaption");
    this.title.textContent = data.title;
    this.svg = node("svg", {role: "img", "aria-label": data.title});
    this.note = document.createElement("p");
    this.note.className = "quiet";
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    this.box.append(this.title, this.svg, this.tip, this.legend(), this.tools(), this.note);
    figure.append(this.box);
    this.listen();
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

  legend() {
    const list = document.createElement("div");
    list.className = "legend";
    this.data.series.forEach((series, i) => {
      if (!series.label) return;
      const button = this.button("", () => { this.shown[i] = !this.shown[i]; }, true);
      const swatch = node("svg", {width: 26, height: 12, "aria-hidden": true});
      swatch.append(...this.strokeOf(series, i, "M1,6H25"), ...this.marksOf(series, i, [[13, 6]]));
      button.append(swatch, " " + series.label);
      list.append(button);
    });
    return list;
  }

  tools() {
    const bar = document.createElement("div");
    bar.className = "tools";
    for (const axis of ["x", "y"])
      bar.append(this.button(`log ${axis}`, () => { this.log[axis] = !this.log[axis]; this.zoom = null; },
        this.log[axis]));
    bar.append(this.button("all of it", () => { this.zoom = null; }),
      this.button("CSV", () => this.save("csv", "text/csv", this.csv())),
      this.button("SVG", () => this.save("svg", "image/svg+xml", this.picture())));
    return bar;
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

  strokeOf(series, i, d) {
    if (series.style === "points" || !d) return [];
    const dash = series.style === "dashed" ? "8 5" : i >= 7 ? "2 3" : "none";
    return [node("path", {d, class: `line s${i % 7}`, "stroke-dasharray": dash})];
  }
  marksOf(series, i, places) {
    if (series.style !== "points" && series.style !== "lines_points") return [];
    const every = Math.ceil(places.length / (series.style === "points" ? 5000 : 40));
    return places.filter((_, n) => n % every === 0).map(([x, y]) =>
      node("path", {d: SHAPES[i % SHAPES.length], class: `mark s${i % 7}`, transform: `translate(${x.toFixed(1)},${y.toFixed(1)})`}));
  }

  draw() {
    const width = Math.max(this.box.clientWidth, 260);
    this.visible = this.data.series.map((series, i) => this.shown[i] ? this.points(series) : []);
    const xs = this.zoom?.x ?? this.range(p => [p[0]], this.log.x);
    const ys = this.zoom?.y ?? this.range(p => [p[1], p[2], p[3]], this.log.y, this.runaways().map(curve => curve.i));
    this.x = new Scale(...xs, MARGIN.left, width - MARGIN.right, this.log.x, this.data.x.base);
    this.y = new Scale(...ys, HEIGHT - MARGIN.bottom, MARGIN.top, this.log.y, this.data.y.base);
    for (const [key, value] of Object.entries({width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`}))
      this.svg.setAttribute(key, value);
    const inside = {x: MARGIN.left, y: MARGIN.top, width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom};
    const id = `clip-${this.data.name}-${LinePlot.count = (LinePlot.count ?? 0) + 1}`;
    const clip = node("clipPath", {id});
    clip.append(node("rect", inside));
    const curves = node("g", {"clip-path": `url(#${id})`});
    this.data.series.forEach((series, i) => curves.append(...this.curve(series, i)));
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
    const band = points.filter(p => p && p[2] !== null && p[3] !== null);
    const side = which => band.map(p => `${this.x.pixel(p[0]).toFixed(1)},${this.y.pixel(p[which]).toFixed(1)}`);
    return [...band.length > 1 ? [node("path", {class: `band s${i % 7}`, d: `M${[...side(2), ...side(3).reverse()].join("L")}z`})] : [],
      ...this.strokeOf(series, i, path), ...this.marksOf(series, i, points.filter(p => p).map(place))];
  }

  axes(inside) {
    const [bottom, right] = [inside.y + inside.height, inside.x + inside.width];
    const drawn = [];
    for (const value of this.x.ticks(Math.max(3, Math.floor(inside.width / 55)))) {
      const at = this.x.pixel(value).toFixed(1);
      drawn.push(node("path", {class: "grid", d: `M${at},${inside.y}V${bottom}`}),
        node("text", {x: at, y: bottom + 18, "text-anchor": "middle"}, tickText(value, this.x)));
    }
    for (const value of this.y.ticks(8)) {
      const at = this.y.pixel(value).toFixed(1);
      drawn.push(node("path", {class: "grid", d: `M${inside.x},${at}H${right}`}),
        node("text", {x: inside.x - 7, y: at, dy: "0.33em", "text-anchor": "end"}, tickText(value, this.y)));
    }
    const middle = inside.y + inside.height / 2;
    drawn.push(node("path", {class: "frame", d: `M${inside.x},${inside.y}V${bottom}H${right}`}),
      this.xLabel(inside.x + inside.width / 2, inside.width),
      node("text", {transform: `translate(14,${middle}) rotate(-90)`, "text-anchor": "middle"}, this.data.y.label));
    return drawn;
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
    label.append(...lines.map((line, i) => node("tspan", {x, y: HEIGHT - 8 - 15 * (lines.length - 1 - i)}, line)));
    return label;
  }

  listen() {
    let start = null;
    const where = event => {
      const box = this.svg.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
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
    this.tip.textContent = `${this.data.series[i].label}: ${shortNumber(p[1])}${band} at ${shortNumber(p[0])}`;
    this.tip.style.left = `${Math.min(x + 12, Math.max(0, this.box.clientWidth - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${this.svg.offsetTop + y + 12}px`;
  }

  csv() {
    const cell = text => /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    const inside = (scale, value) => value >= scale.low && value <= scale.high;
    const lines = [["series", this.data.x.label, this.data.y.label].map(cell).join(",")];
    this.visible.forEach((points, i) => {
      for (const p of points)
        if (p && inside(this.x, p[0]) && inside(this.y, p[1])) lines.push([cell(this.data.series[i].label), p[0], p[1]].join(","));
    });
    return lines.join("\n") + "\n";
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

for (const figure of document.querySelectorAll("figure")) {
  const data = figure.querySelector("script[type='application/json']");
  if (data) new LinePlot(figure, JSON.parse(data.textContent));
}

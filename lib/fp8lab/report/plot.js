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
    this.small = Boolean(figure.closest(".card"));
    this.paperRoom = 335;
    this.top = MARGIN.top + (data.x.second ? 38 : 0);
    this.bands = data.series.filter(series => series.low).length;
    this.shown = data.series.map(() => true);
    this.begin([this.legend()], this.tools());
    this.listen();
  }

  get height() {
    return this.small || Picture.printed ? 280 : 400;
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
    const width = Math.max(this.room, 260);
    const yLabel = LinePlot.lines(this.data.y.label, this.height - MARGIN.bottom - this.top);
    const left = MARGIN.left + 15 * (yLabel.length - 1);
    this.visible = this.data.series.map((series, i) => this.shown[i] ? this.points(series) : []);
    const xs = this.zoom?.x ?? this.range(p => [p[0]], this.log.x);
    const ys = this.zoom?.y ?? this.range(p => [p[1], p[2], p[3]], this.log.y, this.runaways().map(curve => curve.i));
    this.x = new Scale(...xs, left, width - MARGIN.right, this.log.x, this.data.x.base);
    this.y = new Scale(...ys, this.height - MARGIN.bottom, this.top, this.log.y, this.data.y.base);
    this.size(width, this.height);
    const inside = {x: left, y: this.top, width: width - left - MARGIN.right, height: this.height - this.top - MARGIN.bottom};
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
    this.svg.replaceChildren(clip, ...this.axes(inside, yLabel), curves, this.drag, this.spot);
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

  axes(inside, yLabel) {
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
      ...yLabel.map((line, i) => node("text", {transform: `translate(${14 + 15 * i},${middle}) rotate(-90)`, "text-anchor": "middle"}, line)));
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

  /// A label in one line, or in two where it is too long for one.
  static lines(text, room) {
    const width = part => part.length * 7;
    const words = text.split(" ");
    if (width(text) <= room || words.length === 1) return [text];
    const half = Math.max(1, words.findIndex((_, i) => width(words.slice(0, i + 1).join(" ")) > width(text) / 2));
    return [words.slice(0, half).join(" "), words.slice(half).join(" ")];
  }

  xLabel(x, room) {
    const lines = LinePlot.lines(this.data.x.label, room);
    const label = node("text", {"text-anchor": "middle"});
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

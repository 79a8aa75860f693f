// Draws the Vega-Lite specifications of the page, each when it comes into sight, in the room that the page has for it,
// and adds what their own parts do not have: axes that change between logarithmic and linear, and what is seen as a file.
const PAPER = {plot: 335, heat_map: 690};

/// Colours of the page's dark form; series are told apart by the same hues.
const DARK = {
  "#0072B2": "#4097FF", "#C44E00": "#DD7326", "#009E73": "#1DAA70", "#A05195": "#B07FC4", "#E69F00": "#F6E05A",
  "#56B4E9": "#97F0FF", "#000000": "#FFFFFF", "#0B1F78": "#008FF1", "#43307F": "#8A96DB", "#6F3A6E": "#C29DC5",
  "#8F4658": "#EFA5AF", "#9F6049": "#FEB996", "#AD7B3B": "#FFCD7B", "#B79825": "#FFE25B", "#111": "#E3E8EE", "#444": "#9AA5B1", "#e0e0e0": "#353D47", "#777": "#E3E8EE",
};
const dark = matchMedia("(prefers-color-scheme: dark)");
const clone = value => JSON.parse(JSON.stringify(value));
const pen = document.createElement("canvas").getContext("2d");
/// The width of a text of a plot in pixels; labels have letters of 12 pixels.
const measured = (text, size = 12) => {
  pen.font = `${size}px DejaVu Sans, Verdana, sans-serif`;
  return Math.ceil(pen.measureText(text).width);
};
const widest = texts => Math.max(0, ...texts.map(text => measured(text)));

const wrapped = (lines, room, size = 13) => {
  const made = [""];
  for (const word of lines.join(" ").split(" ")) {
    const last = made.length - 1;
    if (made[last] && measured(`${made[last]} ${word}`, size) > room) made.push(word);
    else made[last] += (made[last] && " ") + word;
  }
  return made;
};

const element = (name, className, text = "") => {
  const made = document.createElement(name);
  made.className = className;
  made.append(text);
  return made;
};

/// Of a specification only the curves of some pairs: how a label begins, and the name that the curve has then.
const only = (spec, pairs) => {
  const {labels} = spec.usermeta;
  const found = pairs.map(([begin, name]) => ({name, place: labels.findIndex(label => label.startsWith(begin))}))
    .filter(({place}) => place >= 0);
  if (found.length === 0) return spec;
  const names = found.map(({name}) => name);
  const renamed = labels.map((label, i) => found.find(({place}) => place === i)?.name ?? label);
  const all = JSON.stringify(labels);
  const change = value => {
    if (typeof value === "string") return value.replace(all, JSON.stringify(renamed));
    if (value === null || typeof value !== "object") return value;
    if (Array.isArray(value)) return JSON.stringify(value) === all ? names : value.map(change);
    const made = Object.fromEntries(Object.entries(value).map(([key, one]) => [key, change(one)]));
    if (value.range && JSON.stringify(value.domain) === all) made.range = found.map(({place}) => value.range[place]);
    return made;
  };
  const values = spec.data.values.filter(({series}) => found.some(({place}) => place === series));
  return {...change({...spec, data: {...spec.data, values: []}}), data: {...spec.data, values}};
};

class Plot {
  static all = [];
  /// Whether the page is being printed: plots have the size that paper has for them, and all are drawn.
  static printed = false;
  static print(printed) {
    Plot.printed = printed;
    for (const plot of Plot.all) if (printed || plot.drawn) plot.draw();
  }

  constructor(figure) {
    this.spec = JSON.parse(figure.querySelector("script").textContent);
    this.map = this.spec.usermeta.kind === "heat_map";
    this.small = Boolean(figure.closest(".card"));
    if (figure.dataset.curves) this.spec = only(this.spec, JSON.parse(figure.dataset.curves));
    this.showButtons = [];
    this.resetAxes();
    this.box = element("div", "plot");
    this.picture = element("div", "picture");
    this.picture.style.minHeight = `${this.height}px`;
    const {text, subtitle} = this.spec.title;
    const caption = this.small ? this.spec.usermeta.y : text.join(" ");
    this.box.append(element("figcaption", "", caption), this.picture);
    if (!this.small) this.box.append(this.tools());
    if (subtitle && !this.small) this.box.append(element("p", "quiet", subtitle.join(" ")));
    if (this.map) figure.classList.add("wide");
    figure.append(this.box);
    Plot.all.push(this);
    new IntersectionObserver((entries, observer) => {
      if (!entries.some(entry => entry.isIntersecting)) return;
      observer.disconnect();
      new ResizeObserver(() => this.fit()).observe(this.box);
    }, {rootMargin: "300px"}).observe(this.box);
  }

  /// Axes are logarithmic where the specification says so.
  resetAxes() {
    this.log = Object.fromEntries((this.spec.params ?? []).map(({name, value}) => [name.at(-1), value]));
  }

  tools() {
    const bar = element("div", "tools");
    if (!this.map) {
      bar.append(...["x", "y"].map(axis => this.button(`log ${axis}`, () => {
        this.log[axis] = !this.log[axis];
        return this.draw();
      }, () => this.log[axis])));
      bar.append(this.button("zoom in", () => this.zoom(0.5)), this.button("zoom out", () => this.zoom(2)),
        this.button("all of it", () => {
          this.resetAxes();
          return this.draw();
        }));
      this.picture.title = "Ctrl and the wheel zoom, dragging moves. A press in the legend, or Enter, shows a series alone, more presses add others.";
    }
    bar.append(this.button("CSV", () => this.save("csv", "text/csv", this.csv())),
      this.button("SVG", async () => this.save("svg", "image/svg+xml", await this.view.toSVG())));
    return bar;
  }

  button(text, press, pressed) {
    const made = element("button", "", text);
    made.type = "button";
    const show = () => pressed && made.setAttribute("aria-pressed", pressed());
    show();
    this.showButtons.push(show);
    made.addEventListener("click", () => {
      press();
      for (const one of this.showButtons) one();
    });
    return made;
  }

  /// Makes the ranges of both axes `factor` times as wide, about their middles.
  zoom(factor) {
    for (const axis of ["x", "y"]) {
      const ends = this.view.scale(axis).domain().map(value => this.log[axis] ? Math.log(value) : value);
      const [middle, half] = [(ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2 * factor];
      const range = [middle - half, middle + half].map(value => this.log[axis] ? Math.exp(value) : value);
      this.view.signal(`zoom_${axis}`, range);
    }
    this.view.runAsync();
  }

  get height() {
    if (this.map) return this.spec.height;
    return this.small ? 140 : Plot.printed ? 250 : 360;
  }

  fit() {
    if (this.box.clientWidth > 0 && this.box.clientWidth !== this.room) this.draw();
  }

  /// The specification for the page: its own width, colours and axes.
  adapted() {
    this.room = this.box.clientWidth;
    const width = Plot.printed ? PAPER[this.spec.usermeta.kind] : Math.max(this.room, 210);
    const night = dark.matches && !Plot.printed;
    const spec = night ? JSON.parse(JSON.stringify(this.spec), (_, value) => DARK[value] ?? value) : clone(this.spec);
    Object.assign(spec, {width, padding: 2, background: null});
    delete spec.title;
    delete spec.name;  // it would be part of the names of scales
    Object.assign(spec.config, {aria: false});
    Object.assign(spec.config.legend, {labelLimit: width - 40, titleLimit: width - 20});
    if (this.map) this.adaptMap(spec, width);
    else this.adaptPlot(spec, width);
    if (this.small) this.adaptCard(spec);
    return spec;
  }

  adaptMap(spec, width) {
    const {columns, rows} = spec.usermeta;
    const written = spec.layer.length > 1;
    // Labels of rows are never cut: those that are too long for the page have more lines.
    const room = width < 500 ? 130 : 320;
    const lines = rows.map(row => widest(rows) > room ? wrapped([row], room, 12) : [row]);
    const beside = widest(lines.flat()) + 30;
    const most = Math.max(...lines.map(one => one.length));
    if (most > 1) {
      spec.height = rows.length * Math.max(26, 15 * most);
      spec.encoding.y.axis.labelExpr = `${JSON.stringify(lines)}[datum.value]`;
    }
    spec.width = Math.max(width, written ? beside + 52 * columns.length : 0);
    const aslant = widest(columns) + 6 > (spec.width - beside) / columns.length;
    Object.assign(spec.config.axisX, {labelAngle: aslant ? -32 : 0, labelAlign: aslant ? "right" : "center", labelLimit: 0});
    Object.assign(spec.config.axisY, {labelLimit: 0, minExtent: beside - 24});
    spec.layer[0].encoding.color.condition.legend.gradientLength = Math.min(300, spec.width - beside - 10);
    spec.encoding.x.axis.title = wrapped(spec.encoding.x.axis.title, width - beside);
  }

  adaptPlot(spec, width) {
    spec.height = this.height;
    spec.config.legend.columns = Math.max(1, Math.floor((width - 30) / (widest(spec.usermeta.labels) + 46)));
    const room = {x: width - 70, y: spec.height};
    for (const {encoding} of [spec, ...spec.layer]) {
      for (const axis of ["x", "y"]) {
        const channel = encoding?.[axis];
        if (!channel?.scale) continue;
        if (channel.axis) {
          channel.axis.title = wrapped([channel.axis.title].flat(), room[axis]);
          channel.axis.tickCount = Math.round(Math.min(9, room[axis] / (axis === "x" ? 65 : 36)));
        }
        if (this.log[axis] === (channel.scale.type === "log")) continue;
        Object.assign(channel.scale, {type: this.log[axis] ? "log" : "linear", zero: false});
        if (this.log[axis]) delete channel.scale.domain;
        else delete channel.scale.base;
        if (channel.axis) delete channel.axis.values;
      }
    }
    for (const param of spec.params) param.value = this.log[param.name.at(-1)];
  }

  /// A card says above the picture what y is, and of x no setup; it has no second scale.
  adaptCard(spec) {
    spec.encoding.y.axis.title = null;
    for (const {encoding = {}} of [spec, ...spec.layer]) {
      const axis = encoding.x?.axis;
      if (!axis) continue;
      if (axis.orient === "top") encoding.x.axis = null;
      else axis.title = wrapped([axis.title.join(" ").replace(/ \(.*/, "")], spec.width - 40);
    }
  }

  async draw() {
    this.drawn = true;
    const options = {
      actions: false, ast: true, defaultStyle: false, logLevel: 1, renderer: "svg",
      tooltip: {theme: dark.matches ? "dark" : "light"},
    };
    const {view} = await vegaEmbed(this.picture, this.adapted(), options);
    this.view = view;
    const svg = this.picture.querySelector("svg");
    const entries = this.map ? [] : svg.querySelectorAll(".role-legend-label text");
    svg.setAttribute("role", entries.length > 0 ? "group" : "img");
    svg.setAttribute("aria-label", this.spec.title.text.join(" "));
    for (const entry of entries) this.pressable(entry);
  }

  /// Gives an entry of the legend the keys of a button: what the pointer presses, Enter and the space bar press too.
  pressable(entry) {
    const name = entry.textContent;
    const show = () => entry.setAttribute("aria-pressed", this.shown().includes(name));
    entry.setAttribute("role", "button");
    entry.setAttribute("tabindex", "0");
    show();
    entry.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      entry.dispatchEvent(new MouseEvent("click", {bubbles: true}));
    });
    this.view.addDataListener("shown_store", show);
  }

  /// The labels of the series chosen in the legend; none where all are shown.
  shown() {
    return this.view.data("shown_store").map(({values}) => values[0]);
  }

  /// The values a row each, in the order of the series.
  rows() {
    const all = [...this.spec.data.values].sort((a, b) => a.series - b.series);
    const field = this.map ? "value" : "y";
    return all.flatMap(one => one[field].map((_, i) =>
      Object.fromEntries(Object.entries(one).map(([name, value]) => [name, Array.isArray(value) ? value[i] : value]))));
  }

  /// What is seen, as a table.
  csv() {
    const {labels, columns, rows, x, y, value} = this.spec.usermeta;
    const cell = text => {
      // What a spreadsheet would run has an apostrophe in front, as in the files of tables.
      const runs = /^'*[=+\-@\t\r]/.test(text) && !/^'*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|nan)?$/i.test(text);
      const safe = runs ? `'${text}` : text;
      return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    if (this.map) {
      const lines = this.rows().filter(row => row.value !== null).map(row => [rows[row.row], columns[row.column]].map(cell).concat(row.value));
      return [[y, x, value].map(cell), ...lines].map(line => line.join(",")).join("\n") + "\n";
    }
    const shown = labels.some(label => label) ? this.shown() : [];
    const ranges = ["x", "y"].map(axis => [axis, ...this.view.scale(axis).domain()]);
    const seen = row => (shown.length === 0 || shown.includes(labels[row.series])) && ranges.every(([axis, low, high]) =>
      row[axis] !== null && row[axis] >= low && row[axis] <= high);
    const points = this.rows().filter(seen);
    return [["series", x, y].map(cell), ...points.map(row => [cell(labels[row.series]), row.x, row.y])].map(line => line.join(",")).join("\n") + "\n";
  }

  save(ending, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], {type}));
    link.download = `${this.spec.name}.${ending}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}

for (const figure of document.querySelectorAll("figure:has(script)")) new Plot(figure);
dark.addEventListener("change", () => {
  for (const plot of Plot.all) if (plot.drawn) plot.draw();
});

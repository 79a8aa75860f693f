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
  static all = [];
  /// Whether the page is being printed: pictures have the size that paper has for them, and the text on it stays readable.
  static printed = false;
  static print(printed) {
    Picture.printed = printed;
    for (const picture of Picture.all) picture.draw();
  }

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
    Picture.all.push(this);
  }

  /// The width that there is to draw in.
  get room() {
    return Picture.printed ? this.paperRoom : this.box.clientWidth;
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

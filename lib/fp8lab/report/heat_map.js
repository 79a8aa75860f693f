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
    this.paperRoom = 690;
    figure.classList.add("wide");
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
    const cell = Math.max(least, Math.min(170, (this.room - left - 10) / columns.length));
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

// Picture 1: the formats as rulers on one logarithmic axis, and where x lands on each.
function startRange(library, known) {
  'use strict';
  const {element, number, percent, power} = Plot;
  const low = -28;
  const high = 20;
  const shown = ['e4m3fn', 'e5m2', 'e4m3fnuz', 'e5m2fnuz', 'e2m1', 'e2m3', 'e3m2', 'f16', 'bf16'];
  const curves = [['e5m2', 'amber dashed'], ['e4m3fn', 'blue'], ['bf16', 'green dotted']];
  const slider = document.getElementById('range-slider');
  const text = document.getElementById('range-value');
  const profile = document.getElementById('range-profile');
  const formats = new Map(known.formats.map((f) => [f.name, f]));
  const curveCache = new Map();
  let wanted = 2 ** Number(slider.value);  // null: what is typed is no number
  let last = null;

  Plot.options(profile, known.profiles.map((p) => [p.name, p.name]), 'nvidia_satfinite');
  Plot.legend('range-legend', [
    ['area', 'normal', 'normal numbers'], ['area', 'subnormal', 'subnormal'],
    ['dot', 'marker', 'what x becomes'], ['cross', 'marker', 'nothing of it is left'],
    ...curves.map(([name, classes]) => ['line', `thin ${classes}`, `error of ${name}`])]);

  const fates = {
    nan: ['becomes NaN', 'bad'], infinity: ['overflows to infinity', 'bad'],
    saturated: ['saturated', 'bad'], underflow: ['underflow to zero', 'bad'],
    subnormal: ['subnormal', 'warn'], normal: ['rounded', ''], zero: ['zero', ''],
  };
  function fate(row) {
    const [name, colour] = fates[row.fate];
    if (row.fate === 'normal' && !row.inexact) return ['exact', 'good'];
    if (row.fate === 'subnormal') return [row.inexact ? 'subnormal, rounded' : 'subnormal, exact', colour];
    return [row.tie ? `${name}, a tie` : name, colour];
  }

  /// The shortest text of the binary32 number next to x.
  function shortest(x) {
    const near = Math.fround(x);
    for (let digits = 1; digits < 9; ++digits)
      if (Math.fround(Number(near.toPrecision(digits))) === near) return String(Number(near.toPrecision(digits)));
    return String(near);
  }

  function curve(name) {
    const key = `${name} ${profile.value}`;
    if (!curveCache.has(key))
      curveCache.set(key, library.errorCurve(name, profile.value, 2 ** low, 2 ** high, 8 * (high - low)));
    return curveCache.get(key);
  }

  function drawRow(svg, name, x, top, bar, narrow, width) {
    const f = formats.get(name);
    const left = x(2 ** low);
    const right = x(2 ** high);
    const clip = (v) => Math.min(right, Math.max(left, x(v)));
    element(svg, 'text', narrow ? {class: 'name', x: left, y: top - 5}
      : {class: 'name', x: left - 12, y: top + bar / 2 + 4, 'text-anchor': 'end'}, name);
    element(svg, 'rect', {class: 'track', x: left, y: top, width: right - left, height: bar, rx: 3});
    element(svg, 'rect', {class: 'subnormal', x: clip(f.min_subnormal), y: top,
      width: clip(f.min_normal) - clip(f.min_subnormal), height: bar});
    element(svg, 'rect', {class: 'normal', x: clip(f.min_normal), y: top,
      width: clip(f.max_finite) - clip(f.min_normal), height: bar});
    if (f.values) {
      const d = f.values.map((v) => `M${x(v).toFixed(1)} ${top}v${bar}`).join('');
      element(svg, 'path', {class: 'tick', d, opacity: width < 600 ? 0.55 : 0.8});
    } else if (f.max_finite > 2 ** high) {
      element(svg, 'text', {x: right - 6, y: top + bar / 2 + 4, 'text-anchor': 'end'},
        `on to ${power(2, Math.floor(Math.log2(f.max_finite)) + 1)} →`);
      if (f.min_subnormal < 2 ** low)
        element(svg, 'text', {x: left + 6, y: top + bar / 2 + 4},
          `← from ${power(2, Math.log2(f.min_subnormal))}`);
    }
  }

  /// Where the number lands: a dot, or a cross where nothing of it is left.
  function drawDot(svg, row, x, y) {
    const left = x(2 ** low);
    const right = x(2 ** high);
    const value = Math.abs(row.value);
    const lost = ['underflow', 'nan', 'infinity'].includes(row.fate);
    const at = value > 0 && Number.isFinite(value) ? Math.min(right, Math.max(left, x(value)))
      : row.fate === 'underflow' || row.fate === 'zero' ? left : right;
    Plot.mark(svg, lost ? 'cross' : 'dot', 'marker', at, y, 5.5);
  }

  function drawCurves(svg, x, top, height) {
    const y = Plot.log(2 ** -10, 2, top + height, top);
    const left = x(2 ** low);
    const right = x(2 ** high);
    Plot.gridY(svg, [1, 0.1, 0.01, 0.001], y, left, right, (v) => `${number(100 * v)} %`);
    for (const [name, colour] of curves) {
      const c = curve(name);
      Plot.line(svg, c.x.map((v, i) => {
        const e = c.relative_error[i];
        return [x(v), Number.isFinite(e) && e > 0 ? Math.max(top, Math.min(top + height, y(e))) : NaN];
      }), `thin ${colour}`);
    }
    element(svg, 'text', {class: 'on', x: left, y: top - 8}, 'Relative error of the cast, the largest near each x');
  }

  function draw() {
    const table = wanted === null ? {x: NaN, rows: []} : library.castTable(wanted, profile.value);
    last = table;
    const rows = new Map(table.rows.map((r) => [r.name, r]));
    const place = document.getElementById('range-figure');
    const narrow = place.clientWidth < 600;
    const bar = 20;
    const pitch = narrow ? 41 : 29;
    const top = narrow ? 18 : 4;
    const errors = top + shown.length * pitch + 20;
    const errorHeight = 170;
    const {svg, width} = Plot.canvas('range-figure', errors + errorHeight + 40,
      'Formats as rulers on a logarithmic axis with the marker x, and the largest relative error of casts near each x');
    const left = narrow ? 44 : 82;
    const x = (v) => Plot.linear(low, high, left, width - 8)(Math.log2(v));
    shown.forEach((name, i) => drawRow(svg, name, x, top + i * pitch, bar, narrow, width));
    drawCurves(svg, x, errors + 8, errorHeight - 8);
    const bottom = errors + errorHeight;
    const labels = [];
    for (let e = low + 4; e <= high; e += narrow ? 8 : 4) labels.push(e);
    for (const e of labels) {
      element(svg, 'line', {class: 'grid', x1: x(2 ** e), x2: x(2 ** e), y1: bottom, y2: bottom + 5});
      element(svg, 'text', {x: x(2 ** e), y: bottom + 18, 'text-anchor': 'middle'}, power(2, e));
    }
    element(svg, 'text', {x: (left + width) / 2, y: bottom + 36, 'text-anchor': 'middle'},
      'magnitude |x| (no unit, logarithmic)');
    const size = Math.abs(table.x);
    if (size >= 2 ** low && size <= 2 ** high)
      element(svg, 'line', {class: 'marker', x1: x(size), x2: x(size), y1: 0, y2: bottom});
    if (wanted !== null) shown.forEach((name, i) => drawDot(svg, rows.get(name), x, top + i * pitch + bar / 2));
    svg.onpointerdown = svg.onpointermove = (event) => {
      if (event.type === 'pointermove' && (event.buttons & 1) === 0) return;
      const box = svg.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width * width;
      const exponent = Plot.linear(left, width - 8, low, high)(at);
      set(2 ** Math.min(high, Math.max(low, exponent)), text);
    };
    fillTable(table);
    if (wanted === null) Plot.refused('range-says', `x: expected a number that binary32 holds, inf or nan, got '${text.value}'`, ['range-table']);
    else say(table, rows);
  }

  function fillTable(table) {
    const body = document.querySelector('#range-table tbody');
    body.replaceChildren(...table.rows.map((row) => {
      const line = document.createElement('tr');
      line.dataset.format = row.name;
      const head = document.createElement('th');
      head.scope = 'row';
      head.textContent = row.name;
      line.append(head);
      const [happened, colour] = fate(row);
      for (const [content, classes] of [[number(row.value, 8), ''], [happened, colour],
        [Number.isNaN(row.relative_error) ? '–' : percent(row.relative_error), ''], [row.code, 'code']]) {
        const cell = document.createElement('td');
        cell.textContent = content;
        cell.className = classes;
        line.append(cell);
      }
      return line;
    }));
  }

  function say(table, rows) {
    const a = rows.get('e4m3fn');
    const b = rows.get('e5m2');
    const one = (name, r) => {
      if (r.fate === 'underflow') return `${name} loses it: it becomes zero`;
      if (r.fate === 'nan') return `${name} makes it NaN`;
      if (r.fate === 'infinity') return `${name} makes it infinite`;
      const off = Number.isFinite(table.x) ? ` (${percent(r.relative_error)} off)` : '';
      const ending = r.fate === 'saturated' ? `, its largest number${off}`
        : r.inexact ? ` (${percent(r.relative_error)} off)` : ' exactly';
      return `${name} holds ${number(r.value, 6)}${ending}`;
    };
    Plot.sentence('range-says').textContent =
      `For x = ${number(table.x, 7)} under ${profile.value}: ${one('E4M3', a)}; ${one('E5M2', b)}. ` +
      'A ruler that is longer has coarser marks: eight bits buy range or precision, not both.';
  }

  const redraw = Plot.later(draw);

  /// A new x, which every control but `source` then shows.
  function set(x, source) {
    wanted = x;
    const size = Math.abs(Math.fround(x));
    if (source !== slider && size > 0 && Number.isFinite(size)) slider.value = Math.log2(size);
    slider.setAttribute('aria-valuetext', `x = ${number(x, 6)}`);
    if (source !== text || document.activeElement !== text) text.value = shortest(x);
    text.removeAttribute('aria-invalid');
    redraw();
  }

  slider.addEventListener('input', () => set(2 ** Number(slider.value), slider));
  text.addEventListener('input', () => {
    const words = {inf: Infinity, '-inf': -Infinity, nan: NaN};
    const typed = text.value.trim().toLowerCase();
    // What is beyond binary32 would become an infinity that nobody typed.
    const held = typed !== '' && Number.isFinite(Math.fround(Number(typed)));
    const x = typed in words ? words[typed] : Number(typed);
    if (held || typed in words) {
      set(x, text);
      return;
    }
    text.setAttribute('aria-invalid', 'true');
    wanted = null;
    redraw();
  });
  profile.addEventListener('change', redraw);
  const chips = document.getElementById('range-chips');
  for (const [label, x] of [['0.3', 0.3], ['448', 448], ['464 (tie)', 464], ['465', 465],
    ['57 344', 57344], ['2⁻⁹', 2 ** -9], ['2⁻¹⁰ (tie)', 2 ** -10], ['−0.02', -0.02], ['∞', Infinity], ['NaN', NaN]]) {
    const chip = document.createElement('button');
    chip.type = 'button';
    chip.textContent = label;
    chip.addEventListener('click', () => set(x, chip));
    chips.append(chip);
  }
  Export.offer('range-figure', {legend: 'range-legend', rows: () => [
    ['x', 'profile', 'format', 'code', 'value', 'relative_error', 'fate'],
    ...last.rows.map((r) => [last.x, profile.value, r.name, r.code, r.value, r.relative_error, r.fate])]});
  set(0.3, null);
  return redraw;
}

// What the pictures share: SVG elements, scales, axes, and how numbers are written.
const Plot = (() => {
  'use strict';

  function element(parent, name, attributes = {}, text = '') {
    const node = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== '') node.textContent = text;
    parent.append(node);
    return node;
  }

  /// An empty SVG as wide as its place on the page.
  function canvas(id, height, title) {
    const place = document.getElementById(id);
    const width = Math.max(280, Math.floor(place.clientWidth));
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    svg.setAttribute('height', height);
    svg.setAttribute('role', 'img');
    svg.setAttribute('aria-label', title);
    place.replaceChildren(svg);
    return {svg, width, height};
  }

  const linear = (low, high, from, to) => (v) => from + (v - low) / (high - low) * (to - from);
  const log = (low, high, from, to) => {
    const scale = linear(Math.log10(low), Math.log10(high), from, to);
    return (v) => scale(Math.log10(v));
  };

  /// A round step that gives about `count` steps between the two.
  function roundSteps(low, high, count) {
    const raw = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((m) => m * power >= raw);
    const steps = [];
    for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-12); ++i) steps.push(i * step);
    return steps;
  }

  const superscripts = {'-': '⁻', 0: '⁰', 1: '¹', 2: '²', 3: '³', 4: '⁴', 5: '⁵', 6: '⁶', 7: '⁷', 8: '⁸', 9: '⁹'};
  const raised = (n) => [...String(n)].map((c) => superscripts[c]).join('');
  const power = (base, exponent) => `${base}${raised(exponent)}`;

  function number(x, digits = 4) {
    if (Number.isNaN(x)) return 'NaN';
    if (!Number.isFinite(x)) return x > 0 ? '∞' : '−∞';
    if (x === 0) return Object.is(x, -0) ? '−0' : '0';
    const size = Math.abs(x);
    let text;
    if (size >= 1e6 || size < 1e-3) {
      const [mantissa, exponent] = x.toExponential(digits - 1).split('e');
      text = `${mantissa.replace(/\.?0+$/, '')}·${power(10, Number(exponent))}`;
    } else {
      text = String(Number(x.toPrecision(digits)));
      if (size >= 1e4) text = text.replace(/\B(?=(\d{3})+$)/g, '\u202f');
    }
    return text.replace(/^-/, '−');
  }

  function percent(share) {
    if (!Number.isFinite(share)) return number(share);
    if (share === 0) return '0 %';
    return `${number(100 * share, 3)} %`;
  }

  /// Horizontal grid lines with labels at their left.
  function gridY(svg, values, y, left, right, label) {
    for (const v of values) {
      element(svg, 'line', {class: 'grid', x1: left, x2: right, y1: y(v), y2: y(v)});
      element(svg, 'text', {x: left - 7, y: y(v) + 4, 'text-anchor': 'end'}, label(v));
    }
  }

  function labelsX(svg, values, x, y, label) {
    for (const v of values)
      element(svg, 'text', {x: x(v), y, 'text-anchor': 'middle'}, label(v));
  }

  /// A line through the points that have a place.
  function line(svg, points, classes) {
    let path = '';
    let down = false;
    for (const [px, py] of points) {
      if (Number.isFinite(px) && Number.isFinite(py)) {
        path += `${down ? 'L' : 'M'}${px.toFixed(1)} ${py.toFixed(1)}`;
        down = true;
      } else {
        down = false;
      }
    }
    if (path !== '') element(svg, 'path', {class: `line ${classes}`, d: path});
  }

  /// A mark whose shape says what its colour does.
  function mark(svg, shape, classes, x, y, r) {
    const at = (dx, dy) => `${(x + dx * r).toFixed(1)} ${(y + dy * r).toFixed(1)}`;
    const paths = {
      triangle: `M${at(0, -1.15)}L${at(1.05, 0.8)}L${at(-1.05, 0.8)}Z`,
      square: `M${at(-0.9, -0.9)}L${at(0.9, -0.9)}L${at(0.9, 0.9)}L${at(-0.9, 0.9)}Z`,
      diamond: `M${at(0, -1.2)}L${at(1.2, 0)}L${at(0, 1.2)}L${at(-1.2, 0)}Z`,
      cross: `M${at(-1, -1)}L${at(1, 1)}M${at(-1, 1)}L${at(1, -1)}`,
    };
    const all = `mark ${shape} ${classes}`;
    if (shape === 'dot') return element(svg, 'circle', {class: all, cx: x.toFixed(1), cy: y.toFixed(1), r});
    return element(svg, 'path', {class: all, d: paths[shape]});
  }

  /// The sample of an entry of a legend, drawn at x, y in an SVG as it is in the picture.
  function sample(svg, kind, classes, x, y) {
    if (kind === 'line') line(svg, [[x, y + 7], [x + 22, y + 7]], classes);
    else if (kind === 'area') element(svg, 'rect', {class: classes, x: x + 4, y: y + 1, width: 14, height: 12, rx: 2});
    else mark(svg, kind, classes, x + 11, y + 7, 4.5);
  }

  const legends = new Map();

  /// Entries of [line, area or a shape of `mark`, classes, text].
  function legend(id, entries) {
    legends.set(id, entries);
    document.getElementById(id).replaceChildren(...entries.map(([kind, classes, text]) => {
      const entry = document.createElement('span');
      const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
      svg.setAttribute('width', 22);
      svg.setAttribute('height', 14);
      svg.setAttribute('aria-hidden', 'true');
      sample(svg, kind, classes, 0, 0);
      entry.append(svg, text);
      return entry;
    }));
  }

  function options(select, entries, chosen) {
    for (const [value, text] of entries) {
      const option = document.createElement('option');
      option.value = value;
      option.textContent = text;
      option.selected = value === chosen;
      select.append(option);
    }
  }

  /// The rows of a table's body, each of cells [text, classes]; the first of a row is its head.
  function table(id, rows) {
    document.querySelector(`#${id} tbody`).replaceChildren(...rows.map((cells) => {
      const row = document.createElement('tr');
      cells.forEach(([text, classes = ''], i) => {
        const cell = document.createElement(i === 0 ? 'th' : 'td');
        if (i === 0) cell.scope = 'row';
        cell.textContent = text;
        cell.className = classes;
        row.append(cell);
      });
      return row;
    }));
  }

  /// Calls `draw` in the next frame, once, however often it is asked for. What it cannot draw it
  /// throws (or rejects): then `refuse` gets the message.
  function later(draw, refuse) {
    let waiting = false;
    return () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(async () => {
        waiting = false;
        try {
          await draw();
        } catch (error) {
          if (refuse === undefined) throw error;
          refuse(error.message);
        }
      });
    };
  }

  /// Shows in the sentence with this id what is wrong with the question, and empties the pictures and tables
  /// that would show the answer to an older one.
  function refused(says, message, emptied) {
    const place = document.getElementById(says);
    place.textContent = message;
    place.classList.add('bad');
    for (const id of emptied) document.querySelector(`#${id} tbody, #${id}.figure`).replaceChildren();
  }

  /// The sentence with this id, to be written anew.
  function sentence(id) {
    const place = document.getElementById(id);
    place.classList.remove('bad');
    return place;
  }

  return {element, canvas, linear, log, roundSteps, power, number, percent, gridY, labelsX, line, mark,
    sample, legend, legends, options, table, later, refused, sentence};
})();

// Picture 4: one short dot product of the user's own numbers, digit by digit.
function startStep(library, known) {
  'use strict';
  const {element, number, percent, power} = Plot;
  const byId = (name) => document.getElementById(`step-${name}`);
  const model = byId('model');
  const own = byId('own');
  const fields = [byId('a'), byId('b'), byId('c')];
  const mostColumns = 64;
  const pitch = 14;
  const rowHeight = 22;
  let last = {stages: []};

  Plot.options(model, known.units.map((m) => [m.name, `${m.name} (${m.standing})`]), 'sm90.wgmma.e4m3');

  const highest = (row) => (row.digits === '0' ? -Infinity : row.low + row.digits.length - 1);
  const lowest = (row) => (row.digits === '0' ? Infinity : row.low);
  const finite = (row) => row.digits !== undefined;

  /// The rows of one stage: label, number, and the exponent below which its digits are dropped.
  function rowsOf(stage) {
    const cut = stage.cut ?? -Infinity;
    const rows = stage.terms.map((t) => [t.label, t, cut]);
    if (stage.sum !== undefined) rows.push(['sum of what is kept', stage.sum, -Infinity]);
    if (finite(stage.result)) rows.push(['result', stage.result, -Infinity]);
    return rows;
  }

  function drawDigits(svg, row, cut, x, y, low) {
    const top = highest(row);
    for (let e = top; e >= Math.max(lowest(row), low); --e) {
      const dropped = e < cut;
      element(svg, 'rect', {class: dropped ? 'digit dropped' : 'digit', x: x(e), y: y - 15, width: pitch - 1, height: 19});
      element(svg, 'text', {class: 'on', x: x(e) + pitch / 2, y, 'text-anchor': 'middle'}, row.digits[top - e]);
      if (dropped) element(svg, 'path', {class: 'strike', d: `M${x(e)} ${y + 4}l${pitch - 1} -19`});
    }
    if (lowest(row) < low && row.digits !== '0')
      element(svg, 'text', {x: x(low) + pitch + 3, y}, top < low ? `all below ${power(2, low)}` : '…');
    if (row.digits === '0') element(svg, 'text', {class: 'on', x: x(low) + pitch + 3, y}, '0');
  }

  /// One stage as an SVG that may be wider than the page.
  function drawStage(stage, place) {
    const rows = rowsOf(stage);
    const numbers = rows.map(([, row]) => row);
    const high = Math.max(...numbers.map(highest), stage.cut ?? -Infinity);
    let low = Math.min(...numbers.map(lowest), stage.cut ?? Infinity);
    if (!Number.isFinite(high) || !Number.isFinite(low)) low = high;
    if (high - low >= mostColumns) low = Math.max(high - mostColumns + 1, Math.min(low, (stage.cut ?? low) - 8));
    const left = 150;
    const columns = Number.isFinite(high) ? high - low + 1 : 0;
    const width = Math.max(280, left + columns * pitch + 90);
    const height = rows.length * rowHeight + 62;
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    for (const [key, value] of Object.entries({viewBox: `0 0 ${width} ${height}`, width, height, role: 'img',
      'aria-label': `${stage.title}: terms in binary digits`})) svg.setAttribute(key, value);
    place.append(svg);
    element(svg, 'text', {class: 'name', x: 0, y: 14}, stage.title);
    const x = (e) => left + (high - e) * pitch;
    const first = 56;
    if (columns > 0) {
      for (let e = high; e >= low; --e)
        if (e % 4 === 0) element(svg, 'text', {x: x(e) + pitch / 2, y: 34, 'text-anchor': 'middle'}, power(2, e));
      rows.forEach(([label, row, cut], i) => {
        const y = first + i * rowHeight;
        element(svg, 'text', {x: left - 26, y, 'text-anchor': 'end'}, label);
        element(svg, 'text', {class: 'on', x: left - 14, y, 'text-anchor': 'middle'}, row.negative ? '−' : '+');
        drawDigits(svg, row, cut, x, y, low);
      });
      if (stage.cut !== undefined) {
        const at = x(stage.cut) + pitch - 0.5;
        element(svg, 'line', {class: 'cut', x1: at, x2: at, y1: 40, y2: first + (stage.terms.length - 1) * rowHeight + 8});
      }
    } else {
      element(svg, 'text', {x: 0, y: first}, stage.special ? 'an infinity or NaN decides: there is nothing to add' : 'all terms are zero');
    }
    return svg;
  }

  function drawFigure(answer) {
    const place = byId('figure');
    place.replaceChildren();
    const whole = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    place.append(whole);
    let height = 0;
    let width = 280;
    for (const stage of answer.stages) {
      const svg = drawStage(stage, whole);
      svg.setAttribute('y', height);
      height += Number(svg.getAttribute('height'));
      width = Math.max(width, Number(svg.getAttribute('width')));
    }
    for (const [key, value] of Object.entries({viewBox: `0 0 ${width} ${height}`, width, height, role: 'img',
      'aria-label': 'The terms of each step in binary digits; those that are dropped are struck out'})) whole.setAttribute(key, value);
    whole.style.width = `${width}px`;
  }

  function fillTable(answer) {
    Plot.table('step-table', answer.stages.flatMap((stage) => [
      ...stage.terms.map((t) => [[`${stage.title}: ${t.label}`], [number(t.value, 8)], [t.digits === '0' ? '' : String(t.exponent)],
        [t.kept === undefined ? '' : number(t.value - t.lost, 8)], [t.lost === undefined ? '' : number(t.lost, 6), t.lost ? 'bad' : '']]),
      [[`${stage.title}: result`], [number(stage.result.value, 9)], [''], [''], [stage.result.bits, 'code']],
    ]));
  }

  function changed(name, list) {
    const other = list.filter((x) => x.typed !== x.value);
    return other.length === 0 ? ''
      : ` ${name} has no code for ${other.map((x) => `${number(x.typed, 6)} (it takes ${number(x.value, 6)})`).slice(0, 4).join(', ')}.`;
  }

  function say(answer) {
    const first = answer.stages.find((s) => s.cut !== undefined);
    const how = !answer.aligns
      ? `${answer.model} (${answer.standing}) does not cut its terms at one place: each step shows what it adds exactly and what it returns. `
      : first === undefined ? `${answer.model} (${answer.standing}): all terms are zero. `
      : `${answer.model} (${answer.standing}) ${answer.halves ? 'makes its operands FP16 and adds them in two halves; each ' : ''}` +
        `aligns its terms to the largest exponent (${answer.halves ? 'of the first ' : ''}${power(2, first.largest)}) and keeps ` +
        `${answer.fraction_bits} bits below it: what is below ${power(2, first.cut)} is dropped, toward zero. `;
    const share = answer.exact !== 0 ? ` (${percent(Math.abs(answer.lost / answer.exact))})` : '';
    const end = answer.lost === 0 ? 'Nothing is lost: ' : Number.isNaN(answer.lost) ? 'The result is no finite number: '
      : `${number(answer.lost, 6)} is lost${share}: `;
    Plot.sentence('step-says').textContent =
      `${how}${end}the exact sum is ${number(answer.exact, 9)}, the unit returns ${number(answer.result, 9)} (${answer.bits}).` +
      changed('a', answer.a) + changed('b', answer.b);
    byId('says').dataset.bits = answer.bits;
  }

  function draw() {
    const typed = fields[2].value.trim();
    const c = Number(typed);
    if (typed === '' || !Number.isFinite(c)) throw new Error(`c: expected a finite number, got '${fields[2].value}'`);
    const name = own.value.trim() === '' ? model.value : own.value.trim();
    const answer = library.step(name, fields[0].value, fields[1].value, c);
    last = answer;
    [own, ...fields].forEach((field) => field.removeAttribute('aria-invalid'));
    drawFigure(answer);
    fillTable(answer);
    say(answer);
  }

  const redraw = Plot.later(draw, (message) => {
    const field = {a: fields[0], b: fields[1], c: fields[2]}[message.split(/[,:]/)[0]] ?? own;
    field.setAttribute('aria-invalid', 'true');
    last = {stages: []};
    Plot.refused('step-says', message, ['step-figure', 'step-table']);
  });
  Plot.legend('step-legend', [['area', 'digit', 'digits that the unit keeps'], ['area', 'digit dropped', 'digits that it drops (struck out)'],
    ['line', 'red', 'the cut']]);
  Export.offer('step-figure', {legend: 'step-legend', rows: () => [['stage', 'term', 'value', 'exponent', 'digits', 'lowest_digit', 'kept', 'cut', 'lost'],
    ...last.stages.flatMap((s) => [...s.terms.map((t) => [s.title, t.label, t.value, t.exponent, t.digits, t.low, t.kept ?? '', s.cut ?? '', t.lost ?? '']),
      [s.title, 'result', s.result.value, '', s.result.digits ?? '', s.result.low ?? '', '', '', '']])]});
  model.addEventListener('change', () => { own.value = ''; });
  for (const control of [model, own, ...fields]) control.addEventListener('input', redraw);
  redraw();
  return redraw;
}

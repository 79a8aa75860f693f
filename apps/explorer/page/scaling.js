// Picture 5: FP8-LM's automatic scaling, mu against the size of a gradient.
function startScaling(library, known, background) {
  'use strict';
  const {element, number, percent} = Plot;
  const byId = (name) => document.getElementById(`scaling-${name}`);
  const names = ['format', 'threshold', 'doubling', 'clean', 'growth', 'trace'];
  const controls = Object.fromEntries(names.map((name) => [name, byId(name)]));
  const own = byId('own');
  const seed = byId('seed-number');
  const steps = 3000;
  let last = null;

  /// The first, last and each extreme of `values` in stretches, so that no spike is lost.
  function thinned(values) {
    const stretch = Math.max(1, Math.ceil(values.length / 500));
    const kept = [];
    for (let at = 0; at < values.length; at += stretch) {
      const part = values.slice(at, at + stretch);
      const least = part.indexOf(Math.min(...part));
      const most = part.indexOf(Math.max(...part));
      for (const i of [...new Set([0, least, most])].sort((a, b) => a - b)) kept.push([at + i, part[i]]);
    }
    if (values.length > 1) kept.push([values.length - 1, values[values.length - 1]]);
    return kept;
  }

  function frame(id, title, low, high, label, count) {
    const {svg, width, height} = Plot.canvas(id, 290, title);
    const place = {left: 62, right: width - 12, top: 10, bottom: height - 40};
    const y = Plot.log(low, high, place.bottom, place.top);
    const x = Plot.linear(0, Math.max(1, count - 1), place.left, place.right);
    const decades = [];
    const every = Math.max(1, Math.ceil(Math.log10(high / low) / 6));
    for (let d = Math.ceil(Math.log10(low) - 1e-9); 10 ** d <= high * 1.0001; d += every) decades.push(10 ** d);
    Plot.gridY(svg, decades, y, place.left, place.right, label);
    Plot.labelsX(svg, [0, Math.floor((count - 1) / 2), count - 1], x, place.bottom + 18, String);
    element(svg, 'text', {x: (place.left + place.right) / 2, y: place.bottom + 36, 'text-anchor': 'middle'}, 'step');
    return {svg, x, y, place};
  }

  function drawMu(answer) {
    const ideal = answer.size.map((v) => 1 / v);
    const all = [...answer.mu, ...ideal];
    const low = 10 ** Math.floor(Math.log10(Math.min(...all)));
    const high = Math.max(10 * low, Math.max(...all) * 1.2);
    const {svg, x, y} = frame('mu-figure', 'mu against the step, logarithmic', low, high, (v) => number(v), answer.steps);
    Plot.line(svg, thinned(ideal).map(([i, v]) => [x(i), y(v)]), 'green thin dashed');
    Plot.line(svg, thinned(answer.mu).map(([i, v]) => [x(i), y(v)]), 'blue');
  }

  function drawShares(answer) {
    const low = 1e-6;
    const {svg, x, y, place} = frame('share-figure', 'Shares of elements at the largest number and at zero, logarithmic', low, 1,
      (v) => `${number(100 * v)} %`, answer.steps);
    const at = (v) => y(Math.max(low, v));
    const threshold = at(Number(controls.threshold.value));
    element(svg, 'line', {class: 'ink dashed', x1: place.left, x2: place.right, y1: threshold, y2: threshold});
    Plot.line(svg, thinned(answer.zero).map(([i, v]) => [x(i), at(v)]), 'amber thin dotted');
    Plot.line(svg, thinned(answer.saturated).map(([i, v]) => [x(i), at(v)]), 'red thin');
  }

  function say(answer) {
    const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;
    const says = Plot.sentence('scaling-says');
    says.dataset.halvings = answer.halvings;
    says.textContent =
      `Over ${answer.steps} steps mu goes from ${number(answer.mu[0])} to ${number(answer.last_mu)} with ${answer.halvings} ` +
      `halving${answer.halvings === 1 ? '' : 's'}. On average ${percent(mean(answer.saturated))} of ${number(answer.elements, 6)} elements sit at ` +
      `${answer.format}'s largest number and ${percent(mean(answer.zero))} become zero. mu falls in one step and comes back over ` +
      `${controls.doubling.value}: a gradient that shrinks faster than that underflows meanwhile. Shares of 0 are drawn at the lower edge.`;
  }

  async function draw() {
    byId('own-label').hidden = controls.trace.value !== 'own';
    const trace = controls.trace.value === 'own' ? own.value : controls.trace.value;
    const busy = document.getElementById('scaling');
    busy.setAttribute('aria-busy', 'true');
    const answer = await background.ask('autoScaling', controls.format.value, Number(controls.threshold.value),
      Number(controls.doubling.value), Number(controls.clean.value), controls.growth.value, trace, steps, Number(seed.value));
    if (answer === null) return;  // a newer question is under way
    busy.setAttribute('aria-busy', 'false');
    last = answer;
    own.removeAttribute('aria-invalid');
    drawMu(answer);
    drawShares(answer);
    say(answer);
  }

  const redraw = Plot.later(draw, (message) => {
    document.getElementById('scaling').setAttribute('aria-busy', 'false');
    if (message.startsWith('trace')) own.setAttribute('aria-invalid', 'true');
    last = {mu: []};
    Plot.refused('scaling-says', message, ['mu-figure', 'share-figure']);
  });
  Plot.legend('mu-legend', [['line', 'blue', 'mu'], ['line', 'green thin dashed', '1 / size of the gradient']]);
  Plot.legend('share-legend', [['line', 'red thin', 'at the largest number'], ['line', 'amber thin dotted', 'became zero'],
    ['line', 'ink dashed', 'threshold that halves mu']]);
  const rows = () => [['step', 'size', 'mu', 'share_at_max', 'share_zero'],
    ...last.mu.map((mu, i) => [i, last.size[i], mu, last.saturated[i], last.zero[i]])];
  Export.offer('mu-figure', {legend: 'mu-legend', rows});
  Export.offer('share-figure', {legend: 'share-legend', rows});
  for (const control of [...Object.values(controls), own]) control.addEventListener('input', redraw);
  byId('seed').addEventListener('click', () => {
    seed.value = Number(seed.value) + 1;
    redraw();
  });
  redraw();
  return redraw;
}

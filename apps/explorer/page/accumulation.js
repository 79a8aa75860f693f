// Picture 3: a long dot product in the accumulator of a tensor core, against the exact sum.
function startAccumulation(library, known) {
  'use strict';
  const {element, number, percent} = Plot;
  const byId = (name) => document.getElementById(`accumulation-${name}`);
  const slider = byId('k');
  const distribution = byId('distribution');
  const promotion = byId('promotion');
  const model = byId('model');
  let seed = 1;

  Plot.options(model, known.models.map((m) => [m.name, `${m.name} (${m.standing})`]), 'sm90.wgmma.e4m3');

  function drawSum(answer, promoted) {
    const {svg, width, height} = Plot.canvas('sum-figure', 290, 'Running sums against the number of terms');
    const left = 52;
    const right = width - 10;
    const top = 10;
    const bottom = height - 40;
    const all = [0, ...answer.exact, ...answer.plain, ...answer.promoted].filter(Number.isFinite);
    const high = Math.max(...all);
    const low = Math.min(...all);
    const margin = (high - low || 1) * 0.06;
    const y = Plot.linear(low < 0 ? low - margin : 0, high + margin, bottom, top);
    const k = answer.k[answer.k.length - 1];
    const x = Plot.linear(0, k, left, right);
    Plot.gridY(svg, Plot.roundSteps(low, high, 5), y, left, right, (v) => number(v, 3));
    Plot.labelsX(svg, [0, k / 2, k], x, bottom + 18, String);
    element(svg, 'text', {x: (left + right) / 2, y: bottom + 36, 'text-anchor': 'middle'}, 'terms added');
    const curve = (values) => [[x(0), y(0)], ...values.map((v, i) => [x(answer.k[i]), y(v)])];
    Plot.line(svg, curve(answer.exact), 'green wide');
    Plot.line(svg, curve(answer.plain), 'red');
    if (promoted) Plot.line(svg, curve(answer.promoted), 'blue dashed');
  }

  function drawError(answer, promoted) {
    const {svg, width, height} = Plot.canvas('error-figure', 290, 'Relative error against K, both logarithmic');
    const left = 58;
    const right = width - 14;
    const top = 10;
    const bottom = height - 40;
    const errors = answer.errors;
    const positive = errors.flatMap((e) => [e.plain, e.promoted]).filter((e) => e > 0 && Number.isFinite(e));
    const low = 10 ** Math.floor(Math.log10(Math.min(1e-4, ...positive)));
    const high = Math.max(1, ...positive);
    const y = Plot.log(low, high, bottom, top);
    const x = Plot.log(32, Math.max(64, errors[errors.length - 1].k), left, right);
    const decades = [];
    for (let d = Math.log10(low); 10 ** d <= high; d += Math.log10(high / low) > 6 ? 2 : 1) decades.push(10 ** d);
    Plot.gridY(svg, decades, y, left, right, (v) => `${number(100 * v)} %`);
    const every = width < 420 ? 2 : 1;
    Plot.labelsX(svg, errors.filter((e, i) => i % every === 0).map((e) => e.k), x, bottom + 18,
      (v) => (v >= 1024 ? `${v / 1024}K` : String(v)));
    element(svg, 'text', {x: (left + right) / 2, y: bottom + 36, 'text-anchor': 'middle'}, 'K, terms of the dot product');
    const series = [['plain', 'red'], ...(promoted ? [['promoted', 'blue']] : [])];
    for (const [key, colour] of series) {
      const points = errors.map((e) => [x(e.k), e[key] > 0 ? y(e[key]) : NaN]);
      Plot.line(svg, points, `${colour}${key === 'promoted' ? ' dashed' : ''}`);
      for (const [cx, cy] of points)
        if (Number.isFinite(cy)) element(svg, 'circle', {class: colour, cx, cy, r: 3.6});
    }
    if (positive.length === 0)
      element(svg, 'text', {class: 'on', x: (left + right) / 2, y: (top + bottom) / 2, 'text-anchor': 'middle'},
        'no error at all');
  }

  function say(answer, promoted) {
    const entry = known.models.find((m) => m.name === model.value);
    const last = answer.errors[answer.errors.length - 1];
    const bias = last.plain_bias < -last.plain / 2 ? ', toward zero' : '';
    const says = byId('says');
    says.dataset.plain = last.plain;
    says.dataset.promoted = last.promoted;
    says.textContent =
      `${entry.name} (${entry.standing}: ${entry.source}), ${entry.terms} product${entry.terms === 1 ? '' : 's'} a step: ` +
      `after K = ${last.k} the sums are ${percent(last.plain)} off${bias}` +
      (promoted ? `; with promotion to FP32 every ${promotion.value} terms ${percent(last.promoted)}. `
        : '. ') +
      'Exact means the exact sum of the same FP8 codes: the error is that of the accumulator alone.';
  }

  function draw() {
    const k = 2 ** Number(slider.value);
    slider.setAttribute('aria-valuetext', `K = ${k}`);
    byId('shown').textContent = String(k);
    const interval = Number(promotion.value);
    const answer = library.accumulation(model.value, distribution.value, k, interval, seed);
    Plot.legend('accumulation-legend', [['bg-green dash', 'exact'], ['bg-red dash', `${model.value}, no promotion`],
      ...(interval > 0 ? [['bg-blue dash', `promoted every ${interval} terms`]] : [])]);
    drawSum(answer, interval > 0);
    drawError(answer, interval > 0);
    say(answer, interval > 0);
  }

  const redraw = Plot.later(draw);
  for (const control of [slider, distribution, promotion, model]) control.addEventListener('input', redraw);
  byId('seed').addEventListener('click', () => {
    seed += 1;
    redraw();
  });
  redraw();
  return redraw;
}

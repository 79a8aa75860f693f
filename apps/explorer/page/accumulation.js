// Picture 3: a long dot product in the accumulator of a tensor core, against the exact sum.
function startAccumulation(library, known, background) {
  'use strict';
  const {element, number, percent} = Plot;
  const byId = (name) => document.getElementById(`accumulation-${name}`);
  const slider = byId('k');
  const distribution = byId('distribution');
  const promotion = byId('promotion');
  const model = byId('model');
  const scaling = byId('scaling');
  const seed = byId('seed-number');
  let last = null;

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
      for (const [px, py] of points)
        if (Number.isFinite(py)) Plot.mark(svg, key === 'promoted' ? 'square' : 'dot', colour, px, py, 3.8);
    }
    if (positive.length === 0)
      element(svg, 'text', {class: 'on', x: (left + right) / 2, y: (top + bottom) / 2, 'text-anchor': 'middle'},
        errors.every((e) => e.plain === 0) ? 'no error at all' : 'no finite error to draw');
  }

  /// Why a sum is no number, or where it sticks.
  function odd(answer, entry) {
    const scaled = answer.scale_a !== 1 || answer.scale_b !== 1;
    const scales = scaled ? `The inputs are scaled by ${number(answer.scale_a)} (a) and ${number(answer.scale_b)} (b), ` +
      'so that the largest is the format\'s largest number. ' : '';
    if (answer.not_finite_from > 0)
      return ` ${scales}The unit returns ${entry.output} sums, of at most ${number(entry.output_max, 6)}: after at most ` +
        `${answer.not_finite_from} terms the sum is beyond that and becomes infinite, so that there is no error to give. ` +
        (scaled ? 'Without a scale the same inputs may fit.' : 'A smaller scale would have to be used.');
    const end = answer.k[answer.k.length - 1];
    if (answer.last_change < end && distribution.value !== 'normal') {
      const stuck = answer.plain[answer.plain.length - 1];
      const code = scaled ? `${scales}In these units` : 'Inputs are codes as they are, with a scale of 1:';
      return ` ${code} the first sum sticks at ${number(stuck, 5)} after ${answer.last_change} terms: ` +
        'one more step adds less than the unit keeps.';
    }
    return '';
  }

  function say(answer, promoted) {
    const entry = known.models.find((m) => m.name === model.value);
    const errors = answer.errors[answer.errors.length - 1];
    const bias = errors.plain_bias < -errors.plain / 2 ? ', toward zero' : '';
    const says = Plot.sentence('accumulation-says');
    says.dataset.plain = errors.plain;
    says.dataset.promoted = errors.promoted;
    const off = (e) => (Number.isFinite(e) ? `${percent(e)} off` : 'no numbers any more');
    says.textContent =
      `${entry.name} (${entry.standing}: ${entry.source}), ${entry.terms} product${entry.terms === 1 ? '' : 's'} a step: ` +
      `after K = ${errors.k} the sums are ${off(errors.plain)}${bias}` +
      (promoted ? `; with promotion to FP32 every ${promotion.value} terms ${off(errors.promoted)}.` : '.') +
      `${odd(answer, entry)} Exact means the exact sum of the same FP8 codes: the error is that of the accumulator alone.`;
  }

  async function draw() {
    const k = 2 ** Number(slider.value);
    slider.setAttribute('aria-valuetext', `K = ${k}`);
    byId('shown').textContent = String(k);
    const interval = Number(promotion.value);
    const busy = document.getElementById('accumulation');
    busy.setAttribute('aria-busy', 'true');
    const answer = await background.ask('accumulation', model.value, distribution.value, k, interval,
      scaling.value === 'amax' ? 1 : 0, Number(seed.value));
    if (answer === null) return;  // a newer question is under way
    busy.setAttribute('aria-busy', 'false');
    last = answer;
    Plot.legend('accumulation-legend', [['line', 'green wide', 'exact'], ['line', 'red', `${answer.model}, no promotion`],
      ...(interval > 0 ? [['line', 'blue dashed', `promoted every ${interval} terms`]] : [])]);
    drawSum(answer, interval > 0);
    drawError(answer, interval > 0);
    say(answer, interval > 0);
  }

  const redraw = Plot.later(draw, (message) => {
    document.getElementById('accumulation').setAttribute('aria-busy', 'false');
    last = {k: [], errors: []};
    Plot.refused('accumulation-says', message, ['sum-figure', 'error-figure']);
  });
  Export.offer('sum-figure', {legend: 'accumulation-legend', rows: () => [['terms', 'exact', 'plain', 'promoted'],
    ...last.k.map((k, i) => [k, last.exact[i], last.plain[i], last.promoted[i]])]});
  Export.offer('error-figure', {legend: 'accumulation-legend', rows: () => [
    ['k', 'plain_relative_l2', 'promoted_relative_l2', 'plain_mean_signed', 'promoted_mean_signed'],
    ...last.errors.map((e) => [e.k, e.plain, e.promoted, e.plain_bias, e.promoted_bias])]});
  for (const control of [slider, distribution, promotion, model, scaling]) control.addEventListener('input', redraw);
  byId('seed').addEventListener('click', () => {
    seed.value = Number(seed.value) + 1;
    redraw();
  });
  redraw();
  return redraw;
}

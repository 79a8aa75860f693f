// Picture 2: a row of numbers with one outlier, and which of them a scale kills.
function startOutlier(library, known) {
  'use strict';
  const {element, number} = Plot;
  const count = 512;
  const sigma = 0.4;
  const byId = (name) => document.getElementById(`outlier-${name}`);
  const slider = byId('slider');
  const tile = byId('tile');
  const format = byId('format');
  const recipe = byId('recipe');
  const position = byId('position');
  const flush = byId('flush');
  const tiles = [8, 16, 32, 64, 128, 256];
  const seed = byId('seed-number');
  let last = null;

  Plot.options(tile, tiles.map((t) => [String(t), `1 × ${t}`]), '128');
  Plot.options(format, [['e4m3fn', 'E4M3'], ['e5m2', 'E5M2']], 'e4m3fn');
  Plot.options(recipe, known.recipes.map((r) => [r.name, r.name]), 'te-current');
  Plot.legend('outlier-legend', [['dot', 'blue', 'kept'], ['triangle', 'amber', 'kept as a subnormal'],
    ['cross', 'red', 'killed: became zero'], ['diamond', 'ink', 'the outlier'],
    ['area', 'dead', 'below this everything becomes zero']]);

  const scope = () => document.querySelector('input[name="outlier-scope"]:checked').value;

  function ask(size) {
    const at = Number(position.value);
    if (position.value.trim() === '' || !Number.isInteger(at) || at < 0 || at >= count)
      throw new Error(`Place: expected a whole number from 0 to ${count - 1}, got '${position.value}'`);
    return library.outlier(recipe.value, format.value, count, sigma, 10 ** Number(slider.value), at,
      size, flush.checked ? 1 : 0, Number(seed.value));
  }

  const marks = {killed: ['cross', 'red'], subnormal: ['triangle', 'amber'], nan: ['cross', 'red'],
    infinity: ['cross', 'red']};

  function drawRow(answer) {
    const {svg, width, height} = Plot.canvas('outlier-figure', 360,
      'Magnitudes of 512 elements; those with a cross became zero');
    const left = 46;
    const right = width - 6;
    const top = 10;
    const bottom = height - 40;
    const x = Plot.linear(0, count, left, right);
    const y = Plot.log(1e-4, 1e6, bottom, top);
    const inside = (v) => Math.min(bottom, Math.max(top, y(v)));
    const decades = [-4, -2, 0, 2, 4, 6];
    answer.tiles.forEach((t, i) => {
      const x0 = x(i * answer.tile);
      const x1 = x(Math.min(count, (i + 1) * answer.tile));
      const edge = inside(t.smallest_survivor);
      element(svg, 'rect', {class: 'dead', x: x0, y: edge, width: x1 - x0, height: bottom - edge});
    });
    Plot.gridY(svg, decades.map((d) => 10 ** d), y, left, right, (v) => Plot.power(10, Math.round(Math.log10(v))));
    answer.tiles.forEach((t, i) => {
      const x0 = x(i * answer.tile);
      const x1 = x(Math.min(count, (i + 1) * answer.tile));
      const edge = inside(t.smallest_survivor);
      if (i > 0) element(svg, 'line', {class: 'grid', x1: x0, x2: x0, y1: top, y2: bottom});
      if (edge < bottom) element(svg, 'line', {class: 'dead-edge', x1: x0, x2: x1, y1: edge, y2: edge});
    });
    const special = Number(position.value);
    const radius = width < 600 ? 1.9 : 2.6;
    answer.x.forEach((v, i) => {
      if (v === 0) return;
      const outlier = i === special;
      const [shape, colour] = outlier ? ['diamond', 'ink outlier'] : marks[answer.fates[i]] ?? ['dot', 'blue'];
      Plot.mark(svg, shape, colour, x(i + 0.5), inside(Math.abs(v)), outlier ? 6 : radius);
    });
    Plot.labelsX(svg, [0, 128, 256, 384, 512], x, bottom + 18, String);
    element(svg, 'text', {x: (left + right) / 2, y: bottom + 36, 'text-anchor': 'middle'}, 'element');
    element(svg, 'text', {class: 'on', x: left + 6, y: top + 14}, 'Magnitude of each element');
  }

  const figures = [
    ['killed (became zero)', 'killed', (v) => String(v)],
    ['underflow', 'underflow_percent', (v) => `${number(v, 3)} %`],
    ['relative L2 error of the others', 'bulk_relative_l2', Plot.percent],
    ['relative L2 error of all', 'relative_l2', Plot.percent],
    ['SQNR of the others', 'bulk_sqnr_db', (v) => `${number(v, 3)} dB`],
    ['SQNR of all', 'sqnr_db', (v) => `${number(v, 3)} dB`],
    ['at the largest number', 'saturated_percent', (v) => `${number(v, 3)} %`],
    ['NaN', 'nan_percent', (v) => `${number(v, 3)} %`],
    ['scales', null, (f) => (f.scale_min === f.scale_max ? number(f.scale_min)
      : `${number(f.scale_min)} … ${number(f.scale_max)}`)],
    ['bytes of scales per code', 'scale_overhead_percent', (v) => `${number(v, 3)} %`],
  ];

  function fillTable(one, many) {
    const perTile = scope() === 'tile';
    const head = document.getElementById('outlier-tile-head');
    head.textContent = `tile of ${tile.value}`;
    head.className = perTile ? 'shown' : '';
    head.previousElementSibling.className = perTile ? '' : 'shown';
    document.querySelector('#outlier-table tbody').replaceChildren(...figures.map(([label, key, write]) => {
      const line = document.createElement('tr');
      const name = document.createElement('th');
      name.scope = 'row';
      name.textContent = label;
      line.append(name);
      [one, many].forEach((f, i) => {
        const cell = document.createElement('td');
        cell.textContent = write(key === null ? f : f[key]);
        cell.className = perTile === (i === 1) ? 'shown' : '';
        cell.dataset.figure = `${i === 0 ? 'tensor' : 'tile'}-${key ?? 'scales'}`;
        line.append(cell);
      });
      return line;
    }));
  }

  function say(one, many) {
    const name = known.recipes.find((r) => r.name === recipe.value);
    const now = scope() === 'tile' ? many : one;
    const how = scope() === 'tile' ? `one scale for every ${tile.value} elements` : 'one scale for the tensor';
    Plot.sentence('outlier-says').textContent =
      `${recipe.value} (${name.used_by}) with ${how}: an outlier of ${number(10 ** Number(slider.value))} ` +
      `kills ${now.killed} of the 511 others; their relative error is ` +
      `${Plot.percent(now.bulk_relative_l2)}. ` +
      (scope() === 'tile' ? 'The damage stays inside the tile of the outlier.'
        : `In tiles of ${tile.value} it would be ${many.killed}.`);
  }

  function draw() {
    slider.setAttribute('aria-valuetext', number(10 ** Number(slider.value)));
    byId('shown').textContent = number(10 ** Number(slider.value));
    const tiled = ask(Number(tile.value));
    last = scope() === 'tile' ? tiled : ask(0);
    position.removeAttribute('aria-invalid');
    drawRow(last);
    fillTable(tiled.per_tensor, tiled.figures);
    say(tiled.per_tensor, tiled.figures);
  }

  const redraw = Plot.later(draw, (message) => {
    if (message.startsWith('Place')) position.setAttribute('aria-invalid', 'true');
    last = {x: []};
    Plot.refused('outlier-says', message, ['outlier-figure', 'outlier-table']);
  });
  Export.offer('outlier-figure', {legend: 'outlier-legend', rows: () => [
    ['element', 'x', 'value', 'fate', 'tile_scale', 'smallest_survivor'],
    ...last.x.map((x, i) => {
      const t = last.tiles[Math.floor(i / last.tile)];
      return [i, x, last.values[i], last.fates[i], t.scale, t.smallest_survivor];
    })]});
  for (const control of [slider, tile, format, position, flush]) control.addEventListener('input', redraw);
  for (const choice of document.querySelectorAll('input[name="outlier-scope"]'))
    choice.addEventListener('change', redraw);
  recipe.addEventListener('change', () => {
    const own = known.recipes.find((r) => r.name === recipe.value).tile;
    if (tiles.includes(own)) tile.value = String(own);
    redraw();
  });
  byId('seed').addEventListener('click', () => {
    seed.value = Number(seed.value) + 1;
    redraw();
  });
  redraw();
  return redraw;
}

// Saving a picture as SVG, PNG or CSV: what is seen, with its legend.
const Export = (() => {
  'use strict';
  const kept = ['fill', 'fill-opacity', 'stroke', 'stroke-width', 'stroke-dasharray', 'stroke-linejoin', 'opacity',
    'font-size', 'font-weight', 'font-style', 'text-anchor', 'text-decoration-line'];

  function inlineStyles(from, to) {
    const style = getComputedStyle(from);
    for (const name of kept) {
      const value = style.getPropertyValue(name);
      if (value !== '') to.setAttribute(name, value);
    }
    to.removeAttribute('aria-hidden');
    [...from.children].forEach((child, i) => inlineStyles(child, to.children[i]));
  }

  /// The SVG of a figure with the colours that it has now, its legend below.
  function standalone(figure, legend) {
    const drawn = figure.querySelector('svg');
    if (drawn === null) return null;
    const [, , width, height] = drawn.getAttribute('viewBox').split(' ').map(Number);
    const entries = Plot.legends.get(legend) ?? [];
    const whole = height + 20 * entries.length + 12;
    const svg = drawn.cloneNode(true);
    inlineStyles(drawn, svg);
    const colours = getComputedStyle(document.documentElement);
    const card = colours.getPropertyValue('--card').trim();
    const background = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    for (const [key, value] of Object.entries({x: 0, y: 0, width, height: whole, fill: card})) background.setAttribute(key, value);
    svg.prepend(background);
    entries.forEach(([kind, classes, text], i) => {
      const place = document.createElementNS('http://www.w3.org/2000/svg', 'g');
      drawn.append(place);  // in the page, where styles reach it
      Plot.sample(place, kind, classes, 6, height + 4 + 20 * i);
      Plot.element(place, 'text', {x: 36, y: height + 15 + 20 * i}, text);
      const copy = place.cloneNode(true);
      inlineStyles(place, copy);
      place.remove();
      svg.append(copy);
    });
    svg.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
    svg.setAttribute('viewBox', `0 0 ${width} ${whole}`);
    svg.setAttribute('width', width);
    svg.setAttribute('height', whole);
    svg.setAttribute('font-family', 'DejaVu Sans, Helvetica, Arial, sans-serif');
    return {text: new XMLSerializer().serializeToString(svg), width, height: whole};
  }

  function save(blob, name) {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  /// A line of a CSV file; numbers in the shortest form that reads back to the same.
  function csvLine(values) {
    return values.map((v) => (/[",\n]/.test(String(v)) ? `"${String(v).replaceAll('"', '""')}"` : String(v))).join(',');
  }

  async function savePicture(picture, name) {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture.text)}`;
    await image.decode();
    const canvas = document.createElement('canvas');
    canvas.width = 2 * picture.width;
    canvas.height = 2 * picture.height;
    canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(blob, name), 'image/png');
  }

  /// Buttons below a figure. `rows`: the table behind the picture, its head first.
  function offer(id, {legend, rows}) {
    const figure = document.getElementById(id);
    const name = `fp8lab-${id.replace(/-?figure$/, '')}`;
    const bar = document.createElement('p');
    bar.className = 'save';
    bar.append('Save: ');
    const actions = {
      SVG: () => {
        const picture = standalone(figure, legend);
        if (picture !== null) save(new Blob([picture.text], {type: 'image/svg+xml'}), `${name}.svg`);
      },
      PNG: () => {
        const picture = standalone(figure, legend);
        if (picture !== null) savePicture(picture, `${name}.png`);
      },
      CSV: () => save(new Blob([`${rows().map(csvLine).join('\n')}\n`], {type: 'text/csv'}), `${name}.csv`),
    };
    for (const [what, action] of Object.entries(actions)) {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = what;
      button.setAttribute('aria-label', `Save the picture as ${what}`);
      button.addEventListener('click', action);
      bar.append(button);
    }
    figure.after(bar);
  }

  return {offer};
})();

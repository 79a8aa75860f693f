(async () => {
  'use strict';
  try {
    const library = await Library.load();
    const known = library.describe();
    const background = Library.background(library);
    const redraws = [startRange, startOutlier, startAccumulation, startStep, startScaling].map(
      (start) => start(library, known, background));
    State.start(redraws);
    let width = window.innerWidth;
    window.addEventListener('resize', () => {
      if (window.innerWidth === width) return;  // the address bar of a phone
      width = window.innerWidth;
      redraws.forEach((redraw) => redraw());
    });
    requestAnimationFrame(() => requestAnimationFrame(() => { document.documentElement.dataset.ready = 'yes'; }));
  } catch (error) {
    const failure = document.getElementById('failure');
    failure.textContent = `The library did not start: ${error.message ?? error}`;
    failure.hidden = false;
    throw error;
  }
})();

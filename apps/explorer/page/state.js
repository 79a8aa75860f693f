// What the controls are set to, in the address: a link brings the same pictures back.
const State = (() => {
  'use strict';
  const prefix = '#set:';
  const defaults = new Map();
  let redraws = [];

  // The slider of picture 1 follows the number beside it.
  const controls = () => [...document.querySelectorAll('main input, main select, main textarea')]
    .filter((control) => control.id !== 'range-slider');
  const key = (control) => (control.type === 'radio' ? control.name : control.id);
  const valueOf = (control) => (control.type === 'checkbox' ? String(control.checked) : control.value);

  function all() {
    const values = new Map();
    for (const control of controls())
      if (control.type !== 'radio' || control.checked) values.set(key(control), valueOf(control));
    return values;
  }

  /// The fragment of the address: every control that is not as it was at first.
  function fragment() {
    const changed = [...all()].filter(([name, value]) => defaults.get(name) !== value);
    return changed.length === 0 ? '' : prefix + new URLSearchParams(changed).toString();
  }

  /// Sets one control; says what is wrong with a value that it cannot have.
  function set(name, value) {
    const found = controls().filter((control) => key(control) === name);
    if (found.length === 0) return `the page has no control '${name}'`;
    for (const control of found) {
      if (control.type === 'radio') control.checked = control.value === value;
      else if (control.type === 'checkbox') control.checked = value === 'true';
      else control.value = value;
    }
    if (all().get(name) === value) return '';
    found.forEach((control) => { if (control.type !== 'radio') control.value = defaults.get(name); });
    found.forEach((control) => { if (control.type === 'radio') control.checked = control.value === defaults.get(name); });
    return `'${value}' is not a value of '${name}'`;
  }

  function restore() {
    if (!location.hash.startsWith(prefix)) return;
    const values = new Map(defaults);
    for (const [name, value] of new URLSearchParams(location.hash.slice(prefix.length))) values.set(name, value);
    const wrong = [...values].map(([name, value]) => set(name, value)).filter((text) => text !== '');
    const failure = document.getElementById('failure');
    failure.hidden = wrong.length === 0;
    failure.textContent = wrong.length === 0 ? '' : `The link was followed in part: ${wrong.join('; ')}.`;
    document.getElementById('range-value').dispatchEvent(new Event('input'));
    redraws.forEach((redraw) => redraw());
  }

  function write() {
    const now = fragment();
    if (now !== (location.hash.startsWith(prefix) ? location.hash : ''))
      history.replaceState(null, '', now === '' ? location.pathname + location.search : now);
  }

  /// Browsers refuse addresses that change too often.
  let timer = 0;
  function soon() {
    clearTimeout(timer);
    timer = setTimeout(write, 400);
  }

  function start(all_redraws) {
    redraws = all_redraws;
    for (const [name, value] of all()) defaults.set(name, value);
    restore();
    window.addEventListener('hashchange', restore);
    for (const event of ['input', 'change', 'click', 'pointerup']) document.querySelector('main').addEventListener(event, soon);
    document.getElementById('link').addEventListener('click', async () => {
      clearTimeout(timer);
      write();
      const shown = document.getElementById('link-shown');
      shown.textContent = location.href;
      try {
        await navigator.clipboard.writeText(location.href);
        shown.textContent = 'Copied.';
      } catch (error) {
        shown.textContent = location.href;
      }
    });
  }

  return {start, fragment};
})();

// The library's functions (pictures/c_api.cpp): each answers JSON, in which what JSON has no number
// for is a string.
const Library = (() => {
  'use strict';
  const notNumbers = new Set(['NaN', 'Infinity', '-Infinity']);
  const n = 'number';
  const s = 'string';
  const signatures = {
    describe: ['fp8lab_describe', []],
    castTable: ['fp8lab_cast_table', [n, s]],
    errorCurve: ['fp8lab_error_curve', [s, s, n, n, n]],
    outlier: ['fp8lab_outlier', [s, s, n, n, n, n, n, n, n]],
    accumulation: ['fp8lab_accumulation', [s, s, n, n, n, n]],
    step: ['fp8lab_step', [s, s, s, n]],
    autoScaling: ['fp8lab_auto_scaling', [s, n, n, n, s, s, n, n]],
  };

  function parse(text) {
    const answer = JSON.parse(text, (key, value) => (notNumbers.has(value) ? Number(value) : value));
    if (answer.error !== undefined) throw new Error(answer.error);
    return answer;
  }

  async function load() {
    const module = await loadFp8lab();
    const functions = {};
    for (const [name, [symbol, types]] of Object.entries(signatures)) {
      const call = module.cwrap(symbol, 'string', types);
      functions[name] = (...values) => parse(call(...values));
      functions[name].text = call;
    }
    return functions;
  }

  /// The other thread's side of `background`: questions in, the library's texts out.
  async function serve() {
    const functions = await load();
    onmessage = ({data}) => postMessage(functions[data.name].text(...data.values));
    postMessage(null);
  }

  /// Functions that take long, in a thread of their own so that the page goes on: `ask(name, ...)`
  /// promises the answer, or null where a newer question of the same name has come. Where pages may
  /// not have threads the page's own library answers.
  function background(library) {
    const waiting = new Map();  // name -> the newest question
    let asked = null;
    let ready = false;
    let worker = null;

    function next() {
      if (!ready || asked !== null || waiting.size === 0) return;
      const [name] = waiting.keys();
      asked = waiting.get(name);
      waiting.delete(name);
      if (worker !== null) worker.postMessage({name, values: asked.values});
      else setTimeout(() => answer(library[name].text(...asked.values)));
    }
    function answer(text) {
      const {name, resolve, reject} = asked;
      asked = null;
      try {
        if (waiting.has(name)) resolve(null);
        else resolve(parse(text));
      } catch (error) {
        reject(error);
      }
      next();
    }
    function begin() {
      ready = true;
      next();
    }
    try {
      const source = ['source-module', 'source-library'].map((id) => document.getElementById(id).textContent);
      const blob = new Blob([source.join('\n'), '\nLibrary.serve();'], {type: 'text/javascript'});
      worker = new Worker(URL.createObjectURL(blob));
      worker.onmessage = ({data}) => (data === null ? begin() : answer(data));
      worker.onerror = () => {
        worker = null;
        if (asked !== null) waiting.set(asked.name, asked);
        asked = null;
        begin();
      };
    } catch (error) {
      worker = null;
      begin();
    }
    return {
      ask: (name, ...values) => new Promise((resolve, reject) => {
        waiting.get(name)?.resolve(null);
        waiting.set(name, {name, values, resolve, reject});
        next();
      }),
      threaded: () => worker !== null,
    };
  }

  return {load, serve, background};
})();

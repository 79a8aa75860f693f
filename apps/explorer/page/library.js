// The library's functions (pictures/c_api.cpp): each answers JSON, in which what JSON has no number
// for is a string.
const Library = (() => {
  'use strict';
  const notNumbers = new Set(['NaN', 'Infinity', '-Infinity']);
  let functions = {};

  function bind(module, name, types) {
    const call = module.cwrap(name, 'string', types);
    return (...values) => {
      const answer = JSON.parse(call(...values), (key, value) =>
        (notNumbers.has(value) ? Number(value) : value));
      if (answer.error !== undefined) throw new Error(answer.error);
      return answer;
    };
  }

  async function load() {
    const module = await loadFp8lab();
    const n = 'number';
    const s = 'string';
    functions = {
      describe: bind(module, 'fp8lab_describe', []),
      castTable: bind(module, 'fp8lab_cast_table', [n, s]),
      errorCurve: bind(module, 'fp8lab_error_curve', [s, s, n, n, n]),
      outlier: bind(module, 'fp8lab_outlier', [s, s, n, n, n, n, n, n, n]),
      accumulation: bind(module, 'fp8lab_accumulation', [s, s, n, n, n]),
    };
    return functions;
  }

  return {load};
})();

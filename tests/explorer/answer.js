// Answers the questions on standard input, one a line, with the page's own WebAssembly module.
//
// usage: node answer.js MODULE_JS
'use strict';
const fs = require('fs');

const functions = {
  describe: ['fp8lab_describe', ''],
  cast: ['fp8lab_cast_table', 'ns'],
  curve: ['fp8lab_error_curve', 'ssnnn'],
  outlier: ['fp8lab_outlier', 'ssnnnnnnn'],
  accumulation: ['fp8lab_accumulation', 'ssnnnn'],
  step: ['fp8lab_step', 'sssn'],
  auto_scaling: ['fp8lab_auto_scaling', 'snnnssnn'],
};
const types = {n: 'number', s: 'string'};
// As C reads it: "inf" and "nan" are numbers too.
const number = (word) => ({inf: Infinity, '-inf': -Infinity, nan: NaN}[word] ?? Number(word));

require(require('path').resolve(process.argv[2]))().then((module) => {
  for (const line of fs.readFileSync(0, 'utf8').trimEnd().split('\n')) {
    const [what, ...words] = line.split(' ');
    const [name, signature] = functions[what];
    const call = module.cwrap(name, 'string', [...signature].map((t) => types[t]));
    console.log(call(...words.map((word, i) => (signature[i] === 'n' ? number(word) : word))));
  }
});

#!/usr/bin/env bash
# usage: jax.sh WHEELS PYTHON
# Installs the wheel in WHEELS into PYTHON's environment, which has JAX (`./dev jax` makes it), and
# runs the tests of fp8lab.jax and the examples of its docstrings.
set -euo pipefail
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$2" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --force-reinstall "$1"/fp8lab-*.whl
# On a busy machine a thread that waits must give its core away.
export OMP_WAIT_POLICY=passive
"$2" -m pytest -q -rs -p no:cacheprovider --doctest-modules --rootdir "$tests" \
  "$tests/test_jax.py" "$tests/test_arrays.py" "$tests/test_signatures.py" --pyargs fp8lab.jax

#!/usr/bin/env bash
# usage: try_wheel.sh WHEEL PYTHON VENV
# Installs WHEEL without the network into VENV, a new environment of PYTHON with NumPy, ml_dtypes and pytest
# from PyPI, and runs the package's tests there with nothing else on the path: no compiler, no tool.
set -euo pipefail
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
wheel=$(realpath "$1")
"$2" -m venv --clear "$3"
clean=$(realpath -s "$3")/bin
pins=$tests/../../../tests/python/requirements.txt
"$clean/python" -m pip install --quiet --disable-pip-version-check --constraint "$pins" numpy ml_dtypes pytest
"$clean/python" -m pip install --quiet --disable-pip-version-check --no-index "$wheel"
cd "$3"
env -i PATH="$clean" OMP_WAIT_POLICY=passive python -m pytest -q -rs -p no:cacheprovider --ignore "$tests/pytorch" \
  --ignore "$tests/test_same_as_tool.py" --ignore "$tests/test_torch.py" --rootdir "$tests" "$tests"

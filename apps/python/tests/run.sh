#!/usr/bin/env bash
# usage: run.sh BUILD WORK PYTHON
# Builds the wheel, installs it into a clean virtual environment without the network, checks
# its types and runs its tests, some of them against BUILD/fp8lab, and the examples of its
# docstrings. Exits 77 (skipped) where `./dev setup` has not run.
set -euo pipefail
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
package=$(dirname "$tests")
python=$(realpath -s "$3")
FP8LAB_TOOL=$(realpath -s "$1")/fp8lab
wheelhouse=$(dirname "$python")/../../wheelhouse
if ! "$python" -c "import auditwheel, mypy, nanobind, pytest, scikit_build_core" || [ ! -d "$wheelhouse" ]; then
  echo "SKIPPED: ./dev setup installs tests/python/requirements.txt"
  exit 77
fi

"$package/build_wheel.sh" "$1" "$2" "$python"
cd "$2"
"$python" -m venv --clear --without-pip venv
clean=$PWD/venv/bin/python
"$python" -m pip --python "$clean" install --quiet --disable-pip-version-check \
  --no-index --find-links "$wheelhouse" --constraint "$package/../../tests/python/requirements.txt" \
  pytest pyarrow pandas fp8lab-*.whl

export FP8LAB_TOOL=$PWD/prefix/bin/fp8lab
# On a busy machine a thread that waits must give its core away.
export OMP_WAIT_POLICY=passive
export FP8LAB_TOOL
"$python" -m mypy --config-file "$package/pyproject.toml" --python-executable "$clean" -p fp8lab -p fp8lab_command
# fp8lab.torch and fp8lab.jax need torch and JAX: `./dev torch` and `./dev jax` run their tests and examples.
"$clean" -m pytest -q -rs --ignore "$tests/pytorch" --ignore-glob='*/fp8lab/torch/*' --ignore-glob='*/fp8lab/jax/*' \
  --doctest-modules --doctest-glob=README.md -p no:cacheprovider --rootdir "$package" "$tests" "$package/README.md" --pyargs fp8lab

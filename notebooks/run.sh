#!/usr/bin/env bash
# usage: run.sh TOOL WHEELS WORK PYTHON
# Checks that the notebooks are stripped, then runs them in an environment of their own: the
# wheel of WHEELS, and the packages of PYTHON's environment. Exits 77 (skipped) without them.
set -euo pipefail
notebooks=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tool=$(realpath "$1") wheels=("$(realpath "$2")"/fp8lab-*.whl) python=$(realpath -s "$4")
"$python" "$notebooks/check.py"

if [ ! -f "${wheels[0]}" ] || ! "$python" -c "import ipykernel, matplotlib, nbclient, pandas" 2>/dev/null; then
  echo "SKIPPED: ./dev setup installs tests/python/requirements.txt, and the test python_package makes the wheel"
  exit 77
fi
mkdir -p "$3"
cd "$3"
"$python" -m venv --clear --without-pip venv
site() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
site "$python" >"$(site "$PWD/venv/bin/python")/packages.pth"
"$python" -m pip --python "$PWD/venv/bin/python" install --quiet --disable-pip-version-check \
  --no-index --no-deps --force-reinstall "${wheels[0]}"

# Kernels and settings of whoever runs this are none of the test's business.
export JUPYTER_CONFIG_DIR=$PWD/jupyter JUPYTER_DATA_DIR=$PWD/jupyter IPYTHONDIR=$PWD/ipython
export MPLCONFIGDIR=$PWD/matplotlib PYTHONDONTWRITEBYTECODE=1 OMP_WAIT_POLICY=passive
FP8LAB_TOOL=$tool "$PWD/venv/bin/python" "$notebooks/check.py" --execute "$PWD/executed"

#!/usr/bin/env bash
# usage: run.sh WHEELS PYTHON
# Installs the wheel in WHEELS into PYTHON's environment, which has torch (`./dev torch` makes it),
# and runs the tests and examples of fp8lab.torch and those of its docstrings.
set -euo pipefail
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$(realpath -s "$2")
"$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps \
  --force-reinstall "$1"/fp8lab-*.whl

# The tool of the build that the wheel was made of makes reports of what the tests and examples write.
FP8LAB_TOOL=$(realpath "$1")/prefix/bin/fp8lab
export FP8LAB_TOOL
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# On a busy machine a thread that waits must give its core away.
export OMP_WAIT_POLICY=passive
"$python" -m pytest -q -rs --durations=5 --doctest-modules -p no:cacheprovider \
  --rootdir "$tests" "$tests" "$tests/../test_torch.py" "$tests/../test_signatures.py" --pyargs fp8lab.torch

echo "== inference_hardware.py"
"$python" "$tests/../../examples/inference_hardware.py"
echo "== llama_finetune.py"
"$python" "$tests/../../examples/llama_finetune.py" --out "$out"
"$FP8LAB_TOOL" report "$out" -o "$out/report.html"
grep -q 'Which recipes fine-tune' "$out/report.html"

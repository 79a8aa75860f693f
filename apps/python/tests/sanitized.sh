#!/usr/bin/env bash
# usage: sanitized.sh BUILD PYTHON [ARGS OF PYTEST]
# The package's tests on an extension made by Clang under the address, leak and undefined-behaviour sanitizers. BUILD is
# a finished build of the preset asan, whose library it links; PYTHON has nanobind, NumPy, ml_dtypes and pytest.
# Not run: tests of a wheel (test_wheel.py), of an installed package (test_package.py) and of fp8lab.torch. What is
# compared with the tool is skipped: its runtime is linked into it, and two in one process do not work.
set -euo pipefail
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(realpath "$1") python=$(realpath -s "$2") work=$(realpath "$1")/python
flags="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"

cmake --install "$build" --prefix "$work/prefix" >/dev/null
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
# Not the stub: making it loads the extension into a Python without the runtime.
cmake -S "$tests/.." -B "$work/core" -G Ninja "${launcher[@]}" -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_CXX_FLAGS="$flags" \
  -DCMAKE_PREFIX_PATH="$work/prefix" -DFP8LAB_INSTALLED=ON -DPython_EXECUTABLE="$python" >/dev/null
cmake --build "$work/core" --target _core >&2
rm -rf "$work/package"
mkdir -p "$work/package"
cp -r "$tests/../src/fp8lab" "$tests/../src/fp8lab_command" "$work/package"
cp "$work/core"/_core*.so "$work/package/fp8lab/"

# The runtime must be in the process before Python is, and the C++ library before the runtime looks for what it replaces
# there. PYTHONMALLOC=malloc shows it what an interpreter allocates.
runtime=$(clang++ -print-file-name="libclang_rt.asan-$(uname -m).so")
standard=$(clang++ -print-file-name=libstdc++.so.6)
[ -f "$runtime" ] || { echo "no $runtime: libclang-rt-14-dev has it" >&2; exit 1; }
# A memory error aborts; leaks, which end no process, are judged at the end (sanitized_leaks.py).
rm -rf "$work/reports"
mkdir "$work/reports"
cd "$work"
status=0
env -u FP8LAB_TOOL LD_PRELOAD="$runtime:$standard" PYTHONMALLOC=malloc PYTHONPATH="$work/package" OMP_WAIT_POLICY=passive \
  ASAN_OPTIONS="detect_leaks=1:exitcode=0:abort_on_error=1:log_exe_name=1:log_path=$work/reports/asan" \
  LSAN_OPTIONS=use_tls=0 UBSAN_OPTIONS="print_stacktrace=1:abort_on_error=1:log_path=$work/reports/asan" \
  "$python" -m pytest -q -rs -p no:cacheprovider --rootdir "$tests" --ignore "$tests/pytorch" \
  --ignore "$tests/test_torch.py" --ignore "$tests/test_wheel.py" --ignore "$tests/test_package.py" "${@:3}" "$tests" || status=$?
{ grep -l -E 'ERROR: AddressSanitizer|runtime error' "$work"/reports/asan.* || true; } | while read -r report; do
  cat "$report" >&2
done
"$python" "$tests/sanitized_leaks.py" "$work/reports" || status=1
exit "$status"

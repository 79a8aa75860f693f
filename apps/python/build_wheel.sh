#!/usr/bin/env bash
# usage: build_wheel.sh BUILD OUT PYTHON
# Makes OUT/fp8lab-*.whl with the library of a finished build, so that nothing is compiled
# twice. PYTHON has nanobind and scikit-build-core. `pip install ./apps/python` needs none of
# this and compiles everything.
set -euo pipefail
package=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$2"
build=$(realpath "$1") out=$(realpath "$2") python=$(realpath -s "$3")

rm -rf "$out/prefix" "$out"/fp8lab-*.whl
cmake --install "$build" --prefix "$out/prefix" >/dev/null

if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
CMAKE_PREFIX_PATH=$out/prefix "$python" -m pip wheel "$package" --quiet \
  --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$out" \
  --config-settings=build-dir="$out/cmake" \
  --config-settings=cmake.define.FP8LAB_INSTALLED=ON \
  --config-settings=cmake.define.FP8LAB_WARNINGS_AS_ERRORS=ON \
  --config-settings=cmake.define.CMAKE_EXPORT_COMPILE_COMMANDS=ON

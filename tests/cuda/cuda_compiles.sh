#!/bin/sh
# Configures and builds the CUDA back end in a folder of its own and asks the
# tool for its device: nothing is run on a GPU. Exit code 77: skipped.
# Usage: cuda_compiles.sh SOURCE_DIR BUILD_DIR CXX_COMPILER
set -u
source=$1
build=$2
cxx=$3

nvcc=$(command -v nvcc || ls "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" 2>/dev/null)
if [ -z "$nvcc" ]; then
  echo "SKIPPED: no nvcc, the CUDA back end was not compiled"
  exit 77
fi

cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_CUDA_COMPILER="$nvcc" -DFP8LAB_ENABLE_CUDA=ON -DFP8LAB_BUILD_TESTS=OFF \
  -DFP8LAB_BUILD_CLI=OFF -DFP8LAB_WARNINGS_AS_ERRORS=ON || exit 1
cmake --build "$build" --target fp8lab-cuda --parallel 2 || exit 1

said=$("$build/fp8lab-cuda" info 2>&1)
code=$?
echo "fp8lab-cuda info: exit code $code: $said"
case "$code:$said" in
  "2:fp8lab-cuda: no CUDA device: "*) exit 0 ;;
  "0:gpu "*) exit 0 ;;
esac
echo "expected exit code 2 and 'no CUDA device', or exit code 0 and the device"
exit 1

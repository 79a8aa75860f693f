#!/bin/sh
# Asks the CUDA back end's tool for its device, which runs nothing on a GPU.
# Exit code 77: skipped. Usage: says_device.sh [FP8LAB_CUDA]
set -u
if [ $# = 0 ]; then
  echo "SKIPPED: built without FP8LAB_ENABLE_CUDA"
  exit 77
fi

said=$("$1" info 2>&1)
code=$?
echo "fp8lab-cuda info: exit code $code: $said"
case "$code:$said" in
  "2:fp8lab-cuda: no CUDA device: "*) exit 0 ;;
  "0:gpu "*) exit 0 ;;
esac
echo "expected exit code 2 and 'no CUDA device', or exit code 0 and the device"
exit 1

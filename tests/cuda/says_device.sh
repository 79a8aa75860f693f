#!/bin/sh
# Asks the CUDA back end's tool for its device, which runs nothing on a GPU; where
# there is none, the long run must say so too, before it does anything.
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
  "2:"*"fp8lab-cuda: no CUDA device: "*) ;;
  "0:gpu "*) exit 0 ;;
  *)
    echo "expected exit code 2 and 'no CUDA device', or exit code 0 and the device"
    exit 1
    ;;
esac

out=says_device_recording.$$
said=$("$1" all --out "$out" 2>&1)
code=$?
echo "fp8lab-cuda all: exit code $code: $said"
case "$code:$said" in
  "2:fp8lab-cuda: no CUDA device: "*) [ ! -e "$out" ] && exit 0 ;;
esac
echo "expected exit code 2, 'no CUDA device' and no folder $out"
exit 1

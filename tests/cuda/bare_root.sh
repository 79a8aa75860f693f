#!/bin/sh
# fp8lab-cuda as one file: what it needs, and what it says in a root that has the C library and
# nothing else, without a driver and with stubs of one. Exit code 77: skipped.
# Usage: bare_root.sh FP8LAB_CUDA C_COMPILER
set -u
tool=$1
compiler=$2
fail() {
  echo "FAILED: $*"
  exit 1
}

if [ "$(readelf -d "$tool" | grep -c 'libfmt\|libhwy')" != 0 ]; then
  echo "SKIPPED: linked with shared libraries (a compiler or versions that one_file.cmake does not know)"
  exit 77
fi
for library in $(readelf -d "$tool" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
  case $library in
    libc.so.6 | libm.so.6 | libpthread.so.0 | libdl.so.2 | librt.so.1) ;;
    ld-linux-*) ;;
    *) fail "it needs $library" ;;
  esac
done
readelf -d "$tool" | grep -q 'RUNPATH\|RPATH' && fail "it has a runpath"

root=$(mktemp -d) || exit 1
trap 'rm -rf "$root"' EXIT
for file in $(ldd "$tool" | grep -o '/[^ ]*'); do
  mkdir -p "$root/$(dirname "$file")"
  cp -L "$file" "$root/$file"
done
mkdir -p "$root/tmp" "$root/stub" "$root/old" "$root/run"
cp "$tool" "$root/fp8lab-cuda"
echo "a file" >"$root/run/table.csv"

enter="chroot"
[ "$(id -u)" = 0 ] || enter="unshare -r chroot"
if ! $enter "$root" /fp8lab-cuda --version >/dev/null 2>&1; then
  if $enter / true 2>/dev/null; then fail "it does not start in a root with the C library alone"; fi
  echo "SKIPPED: this user may not change the root"
  exit 77
fi

# expect TEXT... : `info` exits 2 and says every text. $path: where libraries are looked for.
expect() {
  said=$(LD_LIBRARY_PATH=$path $enter "$root" /fp8lab-cuda info 2>&1)
  code=$?
  echo "--- $path: exit code $code"
  echo "$said"
  [ $code = 2 ] || fail "expected exit code 2, got $code"
  for text in "$@"; do
    case $said in *"$text"*) ;; *) fail "expected '$text'" ;; esac
  done
}

path=/none
expect "driver   missing" "fp8lab-cuda: no CUDA device: the NVIDIA driver is missing: libcuda.so.1" \
  "cuBLASLt missing: needed by \`search\` and two benchmarks"

stub() { # FOLDER VERSION RESULT_OF_INIT
  cat >"$root/stub.c" <<END
int cuInit(unsigned flags) { (void)flags; return $3; }
int cuDriverGetVersion(int* version) { *version = $2; return 0; }
int cuDeviceGetCount(int* count) { *count = 0; return 0; }
END
  "$compiler" -x c -shared -fPIC -nostdlib -o "$root/$1/libcuda.so.1" "$root/stub.c" || exit 1
}
stub stub 99000 100
path=/stub
expect "driver   libcuda.so.1, for CUDA 99.0" "no CUDA device: the driver finds no usable device" \
  "no NVIDIA GPU"
stub old 11040 0
path=/old
expect "no CUDA device: the driver supports CUDA 11.4, but this program needs"

# A machine without a driver can still pack what another one recorded.
(cd "$root" && $enter . /fp8lab-cuda pack run -o run.tar) || fail "pack"
tar -tf "$root/run.tar" | grep -q '^run/table.csv$' || fail "what was packed"
echo "starts with the C library alone, and says what is missing"

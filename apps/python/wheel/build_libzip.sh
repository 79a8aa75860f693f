#!/usr/bin/env bash
# usage: build_libzip.sh SOURCES WORK
# Builds WORK/libzip.a from libzip_*.orig.tar.* in SOURCES, where `./dev setup` puts it, and prints its path. Debian has
# libzip as a shared library only, which needs 5 MB of cryptography that no .npz file uses.
set -euo pipefail
sources=$(realpath -m "$1")
mkdir -p "$2"
work=$(realpath "$2")
archive=$(find "$sources" -name 'libzip_*.orig.tar.*' ! -name '*.asc' 2>/dev/null | head -1)
[ -n "$archive" ] || { echo "expected the source of libzip in $sources: ./dev setup puts it there" >&2; exit 1; }
if [ "$archive" -nt "$work/libzip.a" ]; then
  rm -rf "$work/source" "$work/build"
  mkdir "$work/source"
  tar -xf "$archive" -C "$work/source" --strip-components=1
  options=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF)
  for part in ENABLE_{COMMONCRYPTO,GNUTLS,MBEDTLS,OPENSSL,BZIP2,LZMA,ZSTD} BUILD_{TOOLS,REGRESS,EXAMPLES,DOC}; do
    options+=("-D$part=OFF")
  done
  cmake -S "$work/source" -B "$work/build" -G Ninja "${options[@]}" >"$work/log" 2>&1 &&
    cmake --build "$work/build" --target zip >>"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  cp "$work/build/lib/libzip.a" "$work/"
fi
echo "$work/libzip.a"

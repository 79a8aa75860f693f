#!/usr/bin/env bash
# usage: debian_python.sh FOLDER PATCHELF
# Puts Python 3.13 of Debian 13 with its headers below FOLDER, for an older Debian, and prints the path of the program.
# It runs with its own C library, and what it starts with the system's.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(realpath -m "$1")
program=$root/usr/bin/python3.13
if [ ! -f "$root/.complete" ]; then
  rm -rf "$root"
  "$here/from_debian.sh" trixie "$root" python3.13-minimal python3.13-venv python3-pip-whl libpython3.13-minimal \
    libpython3.13-stdlib libpython3.13-dev libc6 libgcc-s1 libstdc++6 libbz2-1.0 libexpat1 libffi8 liblzma5 \
    libsqlite3-0 libssl3t64 libuuid1 zlib1g >&2
  libraries=$(echo "$root"/usr/lib/*-linux-gnu*)
  # Such a path goes for the libraries of its modules too.
  "$2" --set-interpreter "$(echo "$libraries"/ld-linux-*.so.*)" --force-rpath --set-rpath "$libraries" "$program"
  # Debian's pip and its header of the machine lie in folders of the system.
  sed -i "s#/usr/share/python-wheels#$root&#" "$root"/usr/lib/python3.13/_sysconfigdata_*.py
  cp "$root"/usr/include/*-linux-gnu*/python3.13/pyconfig.h "$root/usr/include/python3.13/"
  touch "$root/.complete"
fi
echo "$program"

"""The wheel brings what it needs: it runs where no package of a distribution is, and with C libraries from 2.28 on."""

import struct
import subprocess
import sys
from pathlib import Path

import pytest

import fp8lab

PACKAGE = Path(fp8lab.__file__).parent
BUNDLED = PACKAGE.parent / "fp8lab.libs"
#: What manylinux wheels may take from the system, and the loader.
OF_THE_SYSTEM = ("ld-linux", "libc.", "libm.", "libdl.", "librt.", "libpthread.", "libgcc_s.", "libstdc++.", "libz.")

pytestmark = pytest.mark.skipif(not BUNDLED.is_dir(), reason="the package is no manylinux wheel")
#: Built without the source of libzip, a wheel brings the shared libraries of the system that it was built on.
ONE_FILE = not list(BUNDLED.glob("libzip*"))
of_one_file = pytest.mark.skipif(not ONE_FILE, reason="the wheel was built without the source of libzip")


def test_no_library_but_the_system_s_own_is_loaded():
    """A product and a file of vectors, in a process of its own; its libraries without Python's are these."""
    maps = "print(*{l.split(maxsplit=5)[5].strip() for l in open('/proc/self/maps') if '.so' in l}, sep='\\n')"
    script = "import numpy as np, json, zipfile, ctypes\n" + maps + "\nprint('--')\n"
    script += "import fp8lab, tempfile, pathlib\nones = fp8lab.encode(np.ones((2, 64), np.float32))\n"
    script += "assert fp8lab.gemm(ones, ones, model='sm90.wgmma.e4m3')[0, 0] == 64\n"
    done = subprocess.run([sys.executable, "-c", script + maps], capture_output=True, text=True, check=True)
    before, after = (set(part.split("\n")) for part in done.stdout.strip().split("\n--\n"))
    ours = {Path(name) for name in after - before}
    foreign = [p for p in ours if not p.is_relative_to(PACKAGE.parent) and not p.name.startswith(OF_THE_SYSTEM)]
    # Python's own modules in C are no libraries of a distribution's packages.
    foreign = [p for p in foreign if "lib-dynload" not in p.parts]
    assert not foreign, f"expected libraries of the wheel, got {foreign}"
    names = {p.name.split("-")[0] for p in ours if p.parent == BUNDLED}
    assert names == {"libgomp"} if ONE_FILE else {"libgomp", "libzip"} <= names


def versions_needed(path):
    """The versions of libraries that a shared library names, by its section of them (SHT_GNU_verneed)."""
    data = path.read_bytes()
    (sections,), (size, count) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, sections + size * i) for i in range(count)]
    found = set()
    for _, kind, _, _, at, _, strings, _, _, _ in headers:
        while kind == 0x6FFFFFFE:
            _, entries, _, aux, following = struct.unpack_from("<HHIII", data, at)
            aux += at
            for _ in range(entries):
                _, _, _, name, next_aux = struct.unpack_from("<IHHII", data, aux)
                start = headers[strings][4] + name
                found.add(data[start : data.index(b"\0", start)].decode())
                aux += next_aux
            at += following
            if following == 0:
                break
    return found


@of_one_file
def test_no_newer_c_library_is_needed_and_no_other_c_plus_plus_library():
    files = [*PACKAGE.glob("_core*.so"), *BUNDLED.iterdir()]
    assert len(files) == 2
    needed = {file.name: versions_needed(file) for file in files}
    assert all("GLIBC_2.2.5" in versions or "GLIBC_2.17" in versions for versions in needed.values()), needed
    of_c = {tuple(map(int, v[6:].split("."))) for versions in needed.values() for v in versions if v.startswith("GLIBC_")}
    assert max(of_c) <= (2, 28), needed
    assert not [v for versions in needed.values() for v in versions if v.startswith(("GLIBCXX_", "CXXABI_"))], needed


@of_one_file
def test_the_wheel_is_small():
    """Installed; packed it has less than half of that."""
    size = sum(file.stat().st_size for folder in (PACKAGE, BUNDLED) for file in folder.rglob("*") if file.suffix != ".pyc")
    assert size < 18_000_000

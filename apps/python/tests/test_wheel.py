"""The wheel brings the shared libraries that it needs: it runs where no package of a distribution is."""

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
    assert {"libfmt", "libhwy", "libzip", "libgomp"} <= names

"""Lets a PyTorch that was built for CUDA be imported where no CUDA library is installed.

usage: without_gpu.py PYTHON

PyPI has one wheel of PyTorch for Linux on x86-64, and it links 4 GB of NVIDIA's libraries, of which a
CPU's work calls the CUDA runtime alone (2 MB): whether there is a GPU, whether a stream is captured. For
each of the others that PYTHON's environment lacks this compiles a library of the same name (some kB in
torch/lib), whose functions all fail. Needs gcc and readelf. Libraries that are there are left alone.
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

NVIDIA = re.compile(r"lib(cu(?!da\.)|nv|nccl)\w*\.so\.\d+")  # libcuda.so.1 is the driver's
NVIDIA_NAMES = re.compile(r"_*(cu|nccl|nvtx|nvshmem)")
FAILED = 100


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def needed(library):
    """The NVIDIA libraries that this one is linked with."""
    found = re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-dW", library))
    return {name for name in found if NVIDIA.fullmatch(name)}


def version_owners(library):
    """The library that each version of a name is asked of."""
    owner, file = {}, ""
    for line in run("readelf", "-VW", library).splitlines():
        if found := re.search(r"Version: .* File: (\S+)", line):
            file = found[1]
        elif found := re.search(r"Name: (\S+)\s+Flags", line):
            owner[found[1]] = file
    return owner


def undefined(library):
    """Names that others define, with the version they are asked for ("" for none)."""
    for line in run("readelf", "--dyn-syms", "-W", library).splitlines():
        cells = line.split()
        if len(cells) > 7 and cells[6] == "UND":
            name, _, version = cells[7].partition("@")
            yield name, version


def make_stub(path, names):
    """A library of functions that fail; names: by version."""
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder, "stub.c"), Path(folder, "stub.map")
        every = sorted(set().union(*names.values()))
        source.write_text("".join(f"int {name}(void) {{ return {FAILED}; }}\n" for name in every) or "int none;\n")
        nodes = [f"{version} {{ {' '.join(f'{n};' for n in sorted(of))} }};\n" for version, of in names.items() if version]
        script.write_text("".join(nodes))
        versions = [f"-Wl,--version-script={script}"] if nodes else []
        run("gcc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{path.name}", *versions, "-o", path, source)


def main(python):
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    folder = site / "torch" / "lib"
    users = sorted(path for path in folder.glob("*.so*") if not NVIDIA.fullmatch(path.name))
    wanted = set().union(*map(needed, users))
    if not wanted:
        sys.exit(f"{folder}: expected PyTorch built for CUDA")
    missing = sorted(name for name in wanted if not any(site.glob(f"nvidia/**/{name}")))
    if any(name.startswith("libcudart.") for name in missing):
        sys.exit(f"{site}: expected nvidia-cuda-runtime, which must be NVIDIA's own")
    if not missing:
        return
    names = {library: defaultdict(set) for library in wanted}
    for user in users:
        owners = version_owners(user)
        for name, version in undefined(user):
            if owners.get(version) in wanted:
                names[owners[version]][version].add(name)
            elif not version and NVIDIA_NAMES.match(name):
                names[missing[0]][""].add(name)  # it may be in any of them
    for library in missing:
        make_stub(folder / library, names[library])
    print(f"{len(missing)} of {len(wanted)} NVIDIA libraries are stubs")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])

"""`fp8lab verify` names codes that Triton's interpreter cast wrongly: dumps, outputs, operands.

usage: triton_casts.py FP8LAB

Runs in the Python of $FP8LAB_TORCH_PYTHON or of build/torch-venv (`./dev torch` makes it), and skips
with exit code 77 where there is none. A Triton whose interpreter casts right is said so, and passes.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
PYTHON = os.environ.get("FP8LAB_TORCH_PYTHON") or Path(__file__).parents[2] / "build/torch-venv/bin/python"
try:
    import numpy as np
    import torch
    import triton
    import triton.language as tl
except ImportError as error:
    if not Path(PYTHON).is_file() or Path(sys.executable) == Path(PYTHON):
        print(f"SKIPPED: {error} (./dev torch installs tests/systems/requirements.txt)")
        sys.exit(77)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

TOOL = sys.argv[1]
M, N, K, BLOCK = 48, 128, 512, 128


@triton.jit
def cast_kernel(x, s, y, SIZE: tl.constexpr, E5M2: tl.constexpr):
    """y = x / s in FP8, a block of SIZE elements each with a divisor of its own."""
    block = tl.program_id(0)
    i = block * SIZE + tl.arange(0, SIZE)
    value = tl.load(x + i) / tl.load(s + block)
    if E5M2:
        tl.store(y + i, value.to(tl.float8e5))
    else:
        tl.store(y + i, value.to(tl.float8e4nv))


def cast(x, divisors, e5m2=False):
    """Codes of x [blocks, SIZE] over divisors [blocks]."""
    x = np.ascontiguousarray(x, np.float32)
    codes = torch.empty(x.shape, dtype=torch.float8_e5m2 if e5m2 else torch.float8_e4m3fn)
    given = (torch.from_numpy(x), torch.from_numpy(np.ascontiguousarray(divisors, np.float32)))
    cast_kernel[(len(x),)](*given, codes, SIZE=x.shape[1], E5M2=e5m2)
    return codes.view(torch.uint8).numpy()


def run(code, *arguments):
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, f"{arguments}: exit {done.returncode}, expected {code}\n{done.stdout}{done.stderr}"
    return done.stdout


def first_cause(*arguments):
    found = json.loads(run(1, "verify", *arguments, "--json"))
    causes = found["diagnosis"]["causes"]
    return causes[0] if causes else {"name": "none"}


def named(what, name, *arguments):
    cause = first_cause(*arguments)
    assert cause["name"] == name, (what, name, cause)
    print(f"{what}: {cause['name']}, {cause['explained']} of the sampled mismatches")


class Folder:
    def __init__(self, path):
        self.path = Path(path)

    def save(self, name, array):
        np.save(self.path / f"{name}.npy", array)
        return self.path / f"{name}.npy"


def dumps(folder, rng):
    """A number with every upper half that finite binary32 numbers have."""
    bits = np.arange(2**16, dtype=np.uint32) << 16 | rng.integers(0, 2**16, 2**16, np.uint32)
    x = bits.view(np.float32)
    x = x[np.isfinite(x)]
    x = np.concatenate([x, np.zeros(-len(x) % 1024, np.float32)]).reshape(-1, 1024)
    for name in ("e4m3fn", "e5m2"):
        codes = folder.save("codes", cast(x, np.ones(len(x)), name == "e5m2").reshape(-1))
        named(f"a dump in {name}", "triton_interpreter_cast", codes, "--inputs", folder.save("x", x.reshape(-1)),
              "--cast", name)


def scaled(x, rows, columns):
    """DeepSeek-V3's kernel: amax / 448 of each tile, codes of the quotients."""
    r, k = x.shape
    tiles = x.reshape(r // rows, rows, k // columns, columns).swapaxes(1, 2)
    scales = (np.abs(tiles).max((2, 3)) / np.float32(448)).astype(np.float32)
    codes = cast(tiles.reshape(-1, rows * columns), scales.reshape(-1))
    return codes.reshape(tiles.shape).swapaxes(1, 2).reshape(r, k), scales


def operands(folder, rng):
    a, b = (rng.standard_normal((rows, K)).astype(np.float32) for rows in (M, N))
    files = [folder.save("a", a), folder.save("b", b)]
    kernel = ["--model", "sm90.wgmma.e4m3", "--promotion", 128, "--out-dtype", "bf16"]
    wrong = {"a": scaled(a, 1, BLOCK), "b": scaled(b, BLOCK, BLOCK)}
    parts = []
    for side, (codes, scales) in wrong.items():
        parts += [folder.save(f"{side}_codes", codes)]
        parts += [f"--scale-{side}", folder.save(f"{side}_scales", scales)]
    out = folder.path / "d.npy"
    run(0, "gemm", parts[0], parts[3], *parts[1:3], *parts[4:6], "--dtype", "e4m3fn", *kernel, "-o", out)
    named("both operands", "triton_interpreter_cast_a_and_b", out, "--inputs", *files, "--recipe", "deepseek-v3", *kernel)


def outputs(folder, rng):
    a, b = (np.arange(256, dtype=np.uint8)[rng.integers(0x20, 0x48, (rows, K))] for rows in (M, N))
    a[rng.random(a.shape) < 0.5] |= 0x80
    files = [folder.save("a8", a), folder.save("b8", b)]
    kernel = ["--dtype", "e4m3fn", "--model", "sm90.wgmma.e4m3"]
    out = folder.path / "d.npy"
    run(0, "gemm", *files, *kernel, "-o", out)
    codes = folder.save("d8", cast(np.load(out), np.ones(M)))
    named("an FP8 output", "triton_interpreter_cast", codes, "--inputs", *files, *kernel, "--out-dtype", "e4m3fn")


if cast(np.full((1, 16), 127), [1.0])[0, 0] == 0x70:
    print(f"Triton {triton.__version__} casts 127 to 128: nothing to name")
    sys.exit(0)
with tempfile.TemporaryDirectory() as path:
    generator = np.random.default_rng(1)
    dumps(Folder(path), generator)
    operands(Folder(path), generator)
    outputs(Folder(path), generator)
print(f"Triton {triton.__version__}: its casts are named")

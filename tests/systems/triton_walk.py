"""A walk through apps/python/README.md with a Triton kernel, in Triton's interpreter.

usage: triton_walk.py PACKAGE

PACKAGE: a folder with the package `fp8lab`. Runs in the Python of $FP8LAB_TORCH_PYTHON or of
build/torch-venv (`./dev torch` makes it), and skips with exit code 77 where there is none or where the
package does not import there.
"""

import os
import sys
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
PYTHON = os.environ.get("FP8LAB_TORCH_PYTHON") or Path(__file__).parents[2] / "build/torch-venv/bin/python"
if len(sys.argv) > 1:
    sys.path.insert(0, sys.argv[1])
try:
    import fp8lab
    import numpy as np
    import torch
    import triton
    import triton.language as tl
except ImportError as error:
    if not Path(PYTHON).is_file() or Path(sys.executable) == Path(PYTHON):
        print(f"SKIPPED: {error} (./dev torch installs tests/systems/requirements.txt)")
        sys.exit(77)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

from fp8lab.testing import assert_matches  # noqa: E402


@triton.jit
def blocks(a, b, d, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr, FROM_ZERO: tl.constexpr):
    """D = A . B^T, BLOCK terms of K at a time."""
    row = tl.arange(0, M)[:, None]
    column = tl.arange(0, N)[None, :]
    k = tl.arange(0, BLOCK)
    total = tl.zeros((M, N), tl.float32)
    for begin in range(0, K, BLOCK):
        x = tl.load(a + row * K + begin + k[None, :])
        y = tl.load(b + column * K + begin + k[:, None])
        if FROM_ZERO:
            total += tl.dot(x, y)
        else:
            total = tl.dot(x, y, total)
    tl.store(d + row * N + column, total)


@triton.jit
def to_fp8(x, y, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(y + i, tl.load(x + i).to(tl.float8e4nv))


def as_tensor(codes):
    return torch.from_numpy(np.ascontiguousarray(codes).view(np.uint8).copy()).view(torch.float8_e4m3fn)


def kernel(a, b):
    """The README's `my_kernel`, in Triton."""
    d = torch.empty((len(a), len(b)), dtype=torch.float32)
    blocks[(1,)](as_tensor(a), as_tensor(b), d, M=len(a), N=len(b), K=a.shape[1], BLOCK=32, FROM_ZERO=True)
    return d.numpy()


def the_readme():
    """assert_matches of a kernel with other sums than the chip's fails and says how far it is off."""
    rng = np.random.default_rng(0)
    a = fp8lab.encode(rng.standard_normal((16, 128), np.float32))
    b = fp8lab.encode(rng.standard_normal((16, 128), np.float32))
    d = kernel(a, b)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(d, exact, rtol=1e-4, atol=1e-4)
    assert_matches(fp8lab.gemm(a, b, model="sm90.wgmma.e4m3"), (a, b), model="sm90.wgmma.e4m3")
    try:
        assert_matches(d, (a, b), model="sm90.wgmma.e4m3")
    except AssertionError as failure:
        assert "outputs differ in bits" in str(failure), failure
    else:
        raise AssertionError("the interpreter's sums passed as Hopper's")
    assert fp8lab.verify(d, (a, b), model="sm90.wgmma.e4m3", check="budget").verdict != "mismatch"


def casts():
    """127 becomes 64: the carry into the exponent is lost. All other values are right."""
    values = torch.tensor([127.0, 120.0, 1.0, 0.3, 448.0, 63.0, 31.5, 3.97])
    codes = torch.empty(8, dtype=torch.float8_e4m3fn)
    to_fp8[(1,)](values, codes, SIZE=8)
    got = codes.view(torch.uint8).numpy()
    right = fp8lab.encode(values.numpy()).view(np.uint8)
    wrong = got != right
    rounded_up = np.log2(fp8lab.decode(right, "e4m3fn")) % 1 == 0
    if not wrong.any():
        print("this Triton casts right: the README may say so")
    assert not (wrong & ~(rounded_up & (values.numpy() != fp8lab.decode(right, "e4m3fn")))).any(), (got, right)
    return int(wrong.sum())


the_readme()
print(f"Triton {triton.__version__}: the README's test, and {casts()} of 8 casts wrong as documented")

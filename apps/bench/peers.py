"""Products of a chip's bits beside other packages that compute them, one thread, in alternation.

Usage: peers.py [--m M] [--n N] [--k K] [--rounds R] [--json]

Each row is a product of random codes (N(0, 1) cast to the format) that a peer computes too:

  mmasim    the instruction of its authors' simulator, on tiles of the instruction's largest shape, which
            PyTorch's CPU kernels work on as a whole
  mmaemu    `torch._scaled_mm` of cuBLASLt on an H100, its CPU backend
  torch     `torch._scaled_mm` itself on the CPU: the speed of a product in PyTorch that has no chip's bits

After one run of both, which compares all outputs bit by bit, rounds take ours and the peer's in turn.
Printed are GMAC/s of the medians and the quotient of our speed and the peer's: its median over the
rounds, with the least and the largest. Exits 77 (skipped) where no peer is installed, and 1 if a peer
that has the chip's bits gives others.
"""

import argparse
import importlib.metadata
import json
import os
import sys
import time
from pathlib import Path

# Before OpenMP starts: one thread of each package.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# mmasim compiles a file when it is imported: where that goes, and the ninja that compiles it.
os.environ.setdefault("TORCH_EXTENSIONS_DIR", str(Path(sys.prefix) / "torch-extensions"))
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
try:
    import fp8lab
    import numpy as np
    import torch
except ImportError as error:
    print(f"SKIPPED: {error} (./dev torch installs tests/systems/requirements.txt and fp8lab)")
    sys.exit(77)

FLOATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "f16": torch.float16, "bf16": torch.bfloat16}


def operands(kind, m, n, k):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(rows, k, generator=generator).to(FLOATS[kind]) for rows in (m, n)]


def array(tensor):
    """The same codes as an array that fp8lab takes without a copy."""
    if tensor.dtype == torch.float16:
        return tensor.numpy()
    return tensor.view(torch.uint8 if tensor.itemsize == 1 else torch.uint16).numpy()


def format_of(kind):
    return {"e4m3": "e4m3fn"}.get(kind, kind)


def ours(kind, a, b, **arithmetic):
    formats = {} if kind == "f16" else {"a_format": format_of(kind), "b_format": format_of(kind)}
    return lambda: fp8lab.gemm(array(a), array(b), **formats, **arithmetic, threads=1)


def tiled(instruction, m_tile, n_tile, *sides):
    """A product on tiles of an instruction's shape, k in its steps. `sides` are A and B, with two FP4 codes in a byte of
    uint8, and the scales of both where the instruction takes them; all have k along their rows."""
    tiles = (m_tile, n_tile)
    steps = sides[0].shape[1] * (2 if sides[0].dtype == torch.uint8 else 1) // instruction.k

    def part(which, begin, step):
        width = sides[which].shape[1] // steps
        return sides[which][begin:begin + tiles[which % 2], step * width:(step + 1) * width]

    def tile(i, j):
        d = torch.zeros(tiles)
        for step in range(steps):
            scales = (part(2, i, step), part(3, j, step).T) if len(sides) > 2 else ()
            d = instruction(part(0, i, step), part(1, j, step).T, d, *scales)
        return d

    def run():
        rows, columns = (range(0, side.shape[0], size) for side, size in zip(sides, tiles))
        return torch.cat([torch.cat([tile(i, j) for j in columns], 1) for i in rows]).numpy()
    return run


def scaled(m, n, k, block, codes, scales):
    """Random codes and scales, of each side."""
    rng = np.random.default_rng(1)
    return [rng.integers(*codes, (rows, k), np.uint8) for rows in (m, n)] + \
        [rng.integers(*scales, (rows, k // block), np.uint8) for rows in (m, n)]


def block_scaled_rows(m, n, k):
    from mmasim import nv_ptx

    # Numbers from 2^-6 to 30 of both signs; scales from 1/8 to 8.
    a, b, of_a, of_b = scaled(m, n, k, 32, (0x08, 0x60), (124, 131))
    a[:, ::3] |= 0x80
    instruction = nv_ptx.TCGen05MMABlockScale("Blackwell", "m128n256k32.kind::mxf8f6f4.block32.f32.e4m3.e4m3.ue8m0")
    tensors = [torch.from_numpy(x).view(FLOATS["e4m3"]) for x in (a, b)] + \
        [torch.from_numpy(x).view(torch.float8_e8m0fnu) for x in (of_a, of_b)]
    yield ("mmasim", "sm100.tcgen05.mxf8f6f4.e4m3",
           lambda: fp8lab.gemm(a, b, a_format="e4m3fn", b_format="e4m3fn", model="sm100.tcgen05.mxf8f6f4.e4m3",
                               scale_a=of_a, scale_b=of_b, scale_format="e8m0fnu", threads=1),
           tiled(instruction, 128, 256, *tensors), True)
    x, y, of_x, of_y = scaled(m, n, k, 16, (0, 16), (0x28, 0x50))
    nvfp4 = nv_ptx.TCGen05MMABlockScale("Blackwell", "m128n256k64.kind::mxf4nvf4.block16.f32.e2m1.e2m1.ue4m3")
    packed = [torch.from_numpy(codes[:, ::2] << 4 | codes[:, 1::2]) for codes in (x, y)] + \
        [torch.from_numpy(codes).view(FLOATS["e4m3"]) for codes in (of_x, of_y)]
    yield ("mmasim", "sm100.tcgen05.mxf4nvf4",
           lambda: fp8lab.gemm(x, y, a_format="e2m1", b_format="e2m1", model="sm100.tcgen05.mxf4nvf4",
                               scale_a=of_x, scale_b=of_y, scale_format="e4m3fn", threads=1),
           tiled(nvfp4, 128, 256, *packed), True)


def mmasim_rows(m, n, k):
    from mmasim import amd, nv_ptx

    units = [("sm90.wgmma.e4m3", "e4m3", lambda: nv_ptx.WGMMA("Hopper", "m64n256k32.f32.e4m3.e4m3"), 64, 256),
             ("sm90.wgmma.bf16", "bf16", lambda: nv_ptx.WGMMA("Hopper", "m64n256k16.f32.bf16.bf16"), 64, 256),
             ("sm89.mma.e4m3", "e4m3", lambda: nv_ptx.MMA("Ada Lovelace", "m16n8k32.f32.e4m3.e4m3.f32"), 16, 8),
             ("sm100.tcgen05.e4m3", "e4m3",
              lambda: nv_ptx.TCGen05MMA("Blackwell", "m128n256k32.kind::f8f6f4.f32.e4m3.e4m3"), 128, 256),
             ("gfx942.mfma.f16", "f16", lambda: amd.MFMA("CDNA3", "f32_16x16x16_f16"), 16, 16)]
    for model, kind, unit, m_tile, n_tile in units:
        a, b = operands(kind, m, n, k)
        yield "mmasim", model, ours(kind, a, b, model=model), tiled(unit(), m_tile, n_tile, a, b), True


def mmaemu_rows(m, n, k):
    import mmaemu

    one = torch.ones(())
    for name, fast in (("fast", True), ("slow", False)):
        a, b = operands("e4m3", m, n, k)

        def peer(a=a, b=b, fast=fast):
            return mmaemu.scaled_mm(a, b.T, one, one, out_dtype=torch.float32, use_fast_accum=fast, splitk=1).numpy()

        yield "mmaemu", f"cublaslt.h100.{name}", ours("e4m3", a, b, call=f"cublaslt.h100.{name}"), peer, True


def torch_rows(m, n, k):
    a, b = operands("e4m3", m, n, k)
    one = torch.ones(())
    yield ("torch", "sm90.wgmma.e4m3", ours("e4m3", a, b, model="sm90.wgmma.e4m3"),
           lambda: torch._scaled_mm(a, b.T, one, one, out_dtype=torch.float32).numpy(), False)


def seconds_of(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(row, products, rounds):
    peer, product, own, other, same_bits = row
    wrong = int((own().view(np.uint32) != other().view(np.uint32)).sum())
    pairs = [(seconds_of(own), seconds_of(other)) for _ in range(rounds)]
    quotients = [theirs / mine for mine, theirs in pairs]
    mine, theirs = np.median(np.array(pairs), axis=0)
    return {"peer": peer, "version": importlib.metadata.version(peer), "product": product, "differing_outputs": wrong,
            "claims_bits": same_bits, "gmacs": products / mine * 1e-9, "peer_gmacs": products / theirs * 1e-9,
            "quotient": float(np.median(quotients)), "least": min(quotients), "largest": max(quotients)}


def rows_of(m, n, k):
    for rows in (mmasim_rows, block_scaled_rows, mmaemu_rows, torch_rows):
        try:
            yield from rows(m, n, k)
        except ImportError as error:
            print(f"SKIPPED: {error}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--m", type=int, default=128)
    parser.add_argument("--n", type=int, default=256)
    parser.add_argument("--k", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="products whose name has this text")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    options = parser.parse_args()
    if options.m % 128 or options.n % 256 or options.k % 64:
        parser.error(f"expected m in steps of 128, n of 256, k of 64, got {options.m}x{options.n}x{options.k}")
    torch.set_num_threads(1)
    rows = []
    for row in rows_of(options.m, options.n, options.k):
        if options.only not in row[1]:
            continue
        rows.append(measure(row, options.m * options.n * options.k, options.rounds))
        if not options.json:
            r = rows[-1]
            bits = ("every bit" if not r["differing_outputs"] else f"{r['differing_outputs']} outputs differ")
            print(f"{r['peer']:<7} {r['version']:<8} {r['product']:<28} {bits:<22} {r['gmacs']:8.2f} {r['peer_gmacs']:10.5f} GMAC/s "
                  f"{r['quotient']:9.1f} [{r['least']:.1f}, {r['largest']:.1f}]", flush=True)
    if options.json:
        print(json.dumps(rows, indent=1))
    return 1 if any(r["claims_bits"] and r["differing_outputs"] for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

"""TransformerEngine's NVFP4 for training: the random Hadamard transform and stochastic rounding, against NumPy.

usage: nvfp4_training_oracle.py PATH_TO_FP8LAB

Philox4x32-10, the transform, the scales and the rounding are written here from their definitions; codes and scales of
`fp8lab quantize --recipe te-nvfp4` must be equal, bit for bit. Skips with exit code 77 where NumPy or ml_dtypes is missing.
"""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    import ml_dtypes
    import numpy as np
except ImportError as error:
    print(f"SKIPPED: {error} (./dev setup installs tests/python/requirements.txt)")
    sys.exit(77)

F32 = np.float32
SIGNS = np.array([1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1], F32)
GRID = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float64)
MOST = np.finfo(F32).max
np.seterr(all="ignore")
failures = 0


def check(what, condition, seen=""):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {what}\n  saw: {str(seen)[:400]}")


def philox(seed, stream, count):
    """`count` draws: Philox4x32-10 (Salmon et al. 2011), counter (index / 4, stream), key (seed)."""
    block = np.arange((count + 3) // 4, dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    c = [block & low, block >> np.uint64(32), np.full_like(block, stream & 0xFFFFFFFF), np.full_like(block, stream >> 32)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(key[0]), b & low, (a >> np.uint64(32)) ^ c[3] ^ np.uint64(key[1]), a & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, 1).reshape(-1)[:count]


def stream_of(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def to_bf16(x):
    return x.astype(ml_dtypes.bfloat16).astype(F32)


def transform(x):
    """x D H / 4, sums in binary32 in the order of the index, then BF16."""
    popcount = np.array([[bin(i & j).count("1") % 2 for j in range(16)] for i in range(16)])
    matrix = SIGNS[:, None] * np.where(popcount, F32(-1), F32(1))
    runs, total = x.reshape(-1, 16), np.zeros((x.size // 16, 16), F32)
    for i in range(16):
        total = total + runs[:, i : i + 1] * matrix[i]
    return to_bf16(F32(0.25) * total).reshape(x.shape)


def te_nvfp4(x, seed=None, name="x", rows=1):
    """Codes, one a byte, UE4M3 codes of tiles of rows x 16, and the tensor's inverse scale."""
    m, k = x.shape
    amax = np.abs(x).max()
    scale = min(F32(2688) / amax, MOST) if amax != 0 else F32(1)
    tiles = x.reshape(m // rows, rows, k // 16, 16).swapaxes(1, 2)
    want = np.minimum(np.abs(tiles).max((-2, -1)) * (scale * (F32(1) / F32(6))), MOST)
    tile_codes = np.clip(want, 0, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    inverse = F32(1) / scale
    factor = np.minimum(F32(1) / (tile_codes.view(ml_dtypes.float8_e4m3fn).astype(F32) * inverse), MOST)
    y = x * np.repeat(np.repeat(factor, rows, 0), 16, 1)
    magnitude = np.minimum(np.abs(y.astype(np.float64)), 6)
    if seed is None:
        codes = np.abs(magnitude).astype(F32).astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    else:
        below = np.clip(np.searchsorted(GRID, magnitude, "right") - 1, 0, 6)
        fraction = (magnitude - GRID[below]) / (GRID[below + 1] - GRID[below])
        draws = philox(seed, stream_of(name), x.size).reshape(x.shape).astype(np.float64)
        codes = (below + (np.floor(fraction * 2.0**32) + draws >= 2.0**32)).astype(np.uint8)
    return (codes | (np.signbit(y) * np.uint8(8))).astype(np.uint8), tile_codes, inverse


def read(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    return {n: np.frombuffer(data[8 + length :][slice(*h["data_offsets"])], np.uint8) for n, h in header.items()}, metadata


def run(*arguments):
    return subprocess.run([sys.argv[1], *map(str, arguments)], capture_output=True, text=True, timeout=120)


def quantize(folder, x, *options, name="x", role="gradient"):
    np.save(folder / f"{name}.npy", x)
    done = run("quantize", folder / f"{name}.npy", "--recipe", "te-nvfp4", "--role", role, "-o", folder / "q.safetensors",
               *options)
    check(f"{options}: exit 0", done.returncode == 0, done.stderr)
    tensors, metadata = read(folder / "q.safetensors")
    packed = tensors[name]
    codes = np.stack([packed & 15, packed >> 4], 1).reshape(x.shape)
    return codes, tensors[f"{name}.scale_inv_ue4m3"], tensors[f"{name}.tensor_scale_inv"].view(F32)[0], metadata


def cases(rng):
    yield "normal", to_bf16(rng.standard_normal((64, 128)).astype(F32))
    yield "wide", to_bf16((rng.standard_normal((32, 64)) * 2.0 ** rng.integers(-20, 20, (32, 64))).astype(F32))
    yield "one outlier", to_bf16(np.where(np.arange(16 * 256) == 77, 1e4, rng.standard_normal(16 * 256)).reshape(16, 256).astype(F32))
    yield "zeros", np.zeros((16, 32), F32)
    yield "on the grid", np.tile(np.array([6, -6, 3, 1.5, 0.5, -0.5, 0, -0.0], F32), (16, 4))


def compare(label, got, want):
    for part, a, b in zip(("codes", "scales", "tensor scale"), got, want):
        check(f"{label}: {part}", np.array_equal(a.reshape(-1), np.asarray(b).reshape(-1)),
              (np.argwhere(a.reshape(-1) != np.asarray(b).reshape(-1))[:4].tolist(), a.reshape(-1)[:8], np.asarray(b).reshape(-1)[:8]))


def main():
    check("Philox's known answer", philox(0, 0, 4).tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], philox(0, 0, 4))
    h = transform(np.eye(16, dtype=F32) * 4)
    check("the transform is orthogonal", np.array_equal(h @ h.T, np.eye(16, dtype=F32) * 16), h)
    compared = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for label, x in cases(np.random.default_rng(5)):
            for seed in (0, 7, 2**40 + 3):
                got = quantize(folder, x, "--stochastic", seed)
                compare(f"{label}, stochastic {seed}", got, te_nvfp4(x, seed))
                check(f"{label}: metadata", got[3].get("fp8lab.stochastic") == str(seed), got[3])
            got = quantize(folder, x, "--hadamard")
            compare(f"{label}, transformed", got, te_nvfp4(transform(x)))
            got = quantize(folder, x, "--hadamard", "--stochastic", 3, name="dy")
            compare(f"{label}, both", got, te_nvfp4(transform(x), 3, "dy"))
            compare(f"{label}, neither", quantize(folder, x), te_nvfp4(x))
            compare(f"{label}, a weight", quantize(folder, x, role="weight"), te_nvfp4(x, rows=16))
            compared += 7 * x.size
        x = np.full((16, 16), 2.25, F32)
        x[:, 0] = 6
        ups = np.mean([np.mean(quantize(folder, x, "--stochastic", s)[0][:, 1:] == 5) for s in range(20)])
        check("2.25 becomes 3 in a quarter of 4800 casts", 0.225 < ups < 0.275, ups)  # 4 sigma
        for what, arguments, part in (("another recipe", ["--recipe", "te-mxfp8", "--hadamard"], "te-nvfp4"),
                                      ("another recipe's rounding", ["--recipe", "te-current", "--stochastic", "1"], "te-nvfp4"),
                                      ("a transpose", ["--recipe", "te-nvfp4", "--stochastic", "1", "--transpose"], "--stochastic")):
            done = run("quantize", folder / "x.npy", *arguments)
            check(f"{what}: exit 2", done.returncode == 2 and part in done.stderr, done.stderr)
        np.save(folder / "f.npy", np.full((16, 16), 1.0 + 2**-10, F32))
        done = run("quantize", folder / "f.npy", "--recipe", "te-nvfp4", "--hadamard")
        check("FP32 numbers are no BF16", done.returncode == 2 and "BF16" in done.stderr, done.stderr)
    print(f"{compared} elements, {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

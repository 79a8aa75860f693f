"""FP4 and FP6: recipes against their formulas in NumPy and ml_dtypes, files against ml_dtypes' codes, and products
of what `quantize` writes against exact integers (tests/oracle) with the second-level scale as alpha.

usage: fp4_oracle.py PATH_TO_FP8LAB
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import ml_dtypes
    import numpy as np
except ImportError as error:
    print(f"SKIPPED: {error} (./dev setup installs tests/python/requirements.txt)")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "oracle"))
from exact import decode, word  # noqa: E402
from table import UNITS  # noqa: E402

F32 = np.float32
ELEMENTS = {"e2m1": (ml_dtypes.float4_e2m1fn, 6, 1, 2), "e2m3": (ml_dtypes.float6_e2m3fn, 7.5, 3, 2),
            "e3m2": (ml_dtypes.float6_e3m2fn, 28, 2, 4)}
MOST = np.finfo(F32).max
np.seterr(all="ignore")


def cast(y, fmt):
    """Codes, one a byte: saturating, and +max for NaN, which these formats do not have."""
    dtype, largest = ELEMENTS[fmt][:2]
    y = np.where(np.isnan(y), F32(largest), y)
    return np.clip(y, -F32(largest), F32(largest)).astype(dtype).view(np.uint8)


def e4m3(x):
    """UE4M3 codes and values, saturating."""
    codes = np.clip(F32(x), -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8) & 0x7F
    return codes, codes.view(ml_dtypes.float8_e4m3fn).astype(F32)


def tiles_of(x, rows, k):
    m, n = x.shape
    return x.reshape(m // rows, rows, n // k, k).swapaxes(1, 2)


def untiled(tiles):
    a, b, rows, k = tiles.shape
    return tiles.swapaxes(1, 2).reshape(a * rows, b * k)


def amax_of(tiles, drop_nan):
    reduce = np.fmax if drop_nan else np.maximum
    return reduce.reduce(np.abs(tiles), axis=(-2, -1), initial=F32(0), dtype=F32)


def mx(fmt):
    """OCP: 2^(floor(log2 amax) - emax)."""
    _, _, _, emax = ELEMENTS[fmt]

    def recipe(x):
        tiles = tiles_of(x, 1, 32)
        amax = amax_of(tiles, drop_nan=False)
        exponent = (amax.view(np.uint32) >> 23).astype(int) - 127
        code = np.where(np.isfinite(amax), np.maximum(exponent - emax, -127) + 127, 255).astype(np.uint8)
        inverse = np.where(code == 255, F32(np.nan), np.ldexp(F32(1), code.astype(int) - 127).astype(F32))
        scale = np.where(code == 255, F32(np.nan), np.ldexp(F32(1), 127 - code.astype(int)).astype(F32))
        codes = cast(untiled(tiles * scale[..., None, None]), fmt)
        return {"x": codes, "x.scale": scale, "x.scale_inv": inverse, "x.scale_inv_e8m0": code}

    return recipe


def two_levels(rows, block_scale, element, tensor, drop_nan=False):
    """NVFP4. tensor: amax -> (S, T); block_scale: (amax, S, T) -> value to round; element: (x, s, S, T) -> y."""

    def recipe(x):
        tiles = tiles_of(x, rows, 16)
        whole = amax_of(x, drop_nan)
        s, t = tensor(whole)
        code, value = e4m3(block_scale(amax_of(tiles, drop_nan), s, t))
        y, factor = element(tiles, value[..., None, None], s, t)
        return {"x": cast(untiled(y.astype(F32)), "e2m1"), "x.scale": factor[..., 0, 0], "x.scale_inv": value * t,
                "x.scale_inv_ue4m3": code, "x.tensor_scale_inv": np.array(t, F32)}

    return recipe


def nvidia_tensor(amax):
    scale = min(F32(2688) / amax, MOST)
    scale = F32(1) if amax == 0 or scale == 0 else scale
    return scale, F32(1) / scale


def nvidia_element(x, value, s, t):
    factor = np.fmin(F32(1) / (value * t), MOST)
    return x * factor, factor


def quotient_tensor(amax):
    return F32(1) / (amax / F32(2688)), amax / F32(2688)


def compressed_tensor(amax):
    scale = F32(2688) * (F32(1) / (amax if np.isnan(amax) else max(amax, F32(2.0**-126))))
    scale = scale if np.isfinite(scale) else F32(1)
    return scale, F32(1) / scale


def compressed_block(amax, s, t):
    return np.where(e4m3(amax / F32(6) * s)[1] == 0, F32(0.125), amax / F32(6) * s)


def modelopt_block(amax, s, t):
    scale = amax / (F32(6) * t)
    return np.clip(np.where(scale == 0, F32(1), scale), F32(2.0**-9), F32(448))


def divided(factor, signed_zero=True):
    def element(x, value, s, t):
        by = factor(value, s, t)
        return x / by + (F32(-0.0) if signed_zero else F32(0)), F32(1) / by

    return element


def torchao_element(x, value, s, t):
    factor = (F32(1) / t) / value
    return x * factor, factor


def nvidia(rows, block):
    return two_levels(rows, block, nvidia_element, nvidia_tensor, drop_nan=True)


def te_block(amax, s, t):
    return np.fmin(amax * (s * (F32(1) / F32(6))), MOST)


RECIPES = [
    ("mxfp4", "activation", mx("e2m1")),
    ("mxfp6-e2m3", "weight", mx("e2m3")),
    ("mxfp6-e3m2", "gradient", mx("e3m2")),
    ("nvfp4", "activation", nvidia(1, lambda amax, s, t: amax / F32(6) * s)),
    ("te-nvfp4", "activation", nvidia(1, te_block)),
    ("te-nvfp4", "weight", nvidia(16, te_block)),
    ("torchao-nvfp4", "weight", two_levels(1, lambda amax, s, t: np.clip(amax / F32(6) / t, F32(2.0**-6), F32(448)),
                                           torchao_element, quotient_tensor)),
    ("compressed-tensors-nvfp4", "weight", two_levels(1, compressed_block, divided(lambda v, s, t: v / s, signed_zero=False),
                                                      compressed_tensor)),
    ("modelopt-nvfp4", "weight", two_levels(1, modelopt_block, divided(lambda v, s, t: v * t, signed_zero=False),
                                            quotient_tensor)),
]


def tensors():
    rng = np.random.default_rng(20261123)
    shape = (64, 160)
    yield "normal", rng.standard_normal(shape, dtype=F32)
    yield "log_normal", (rng.standard_normal(shape) * np.exp(4 * rng.standard_normal(shape))).astype(F32)
    raw = rng.integers(0, 2**32, shape, dtype=np.uint32).view(F32)
    yield "finite_bits", np.where(np.isfinite(raw), raw, F32(1))
    yield "any_bits", raw
    yield "zeros", np.where(rng.random(shape) < 0.5, F32(-0.0), F32(0))
    yield "tiny", rng.standard_normal(shape, dtype=F32) * F32(1e-38)
    yield "subnormal", rng.integers(0, 2**23, shape, dtype=np.uint32).view(F32)
    yield "halves", (rng.integers(-48, 49, shape) / 8).astype(F32)
    some = rng.standard_normal(shape, dtype=F32)
    some[::3, :32] = 0
    some[1, 7], some[2, 40], some[5, 70] = 1e30, -1e-30, 2688
    yield "zero_tiles", some
    for value in (np.nan, np.inf):
        special = rng.standard_normal(shape, dtype=F32)
        special[3, 5] = value
        yield str(value), special
    for value in (0.0, 1.0, 6.0, 448.0, 2.0**-149, float(MOST)):
        yield f"one_value_{value}", np.full((16, 32), value, F32)


def unpacked(data, bits, shape):
    """Code i in bits [i * bits, (i + 1) * bits), the lowest bit of a byte first."""
    stream = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").reshape(-1, bits)
    return (stream << np.arange(bits, dtype=np.uint8)).sum(1).astype(np.uint8).reshape(shape)


def read_safetensors(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    narrow = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
    result = {}
    for name, entry in header.items():
        part = data[slice(*(8 + length + o for o in entry["data_offsets"]))]
        if entry["dtype"] in narrow:
            result[name] = unpacked(part, narrow[entry["dtype"]], entry["shape"])
        else:
            dtype = F32 if entry["dtype"] == "F32" else np.uint8
            result[name] = np.frombuffer(part, dtype).reshape(entry["shape"])
    return result


def run(tool, *arguments):
    done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"fp8lab {' '.join(map(str, arguments))} failed ({done.returncode}): {done.stderr}")
    return done.stdout


def check(label, want, got):
    """Bit for bit; a NaN equals any NaN."""
    if set(want) != set(got):
        print(f"{label}: expected tensors {sorted(want)}, got {sorted(got)}")
        return 1
    failures = 0
    for name, expected in want.items():
        found = got[name]
        if expected.shape != found.shape:
            print(f"{label}: {name}: expected {expected.shape}, got {found.shape}")
            return 1
        same = expected == found
        if expected.dtype == F32:
            same = (expected.view(np.uint32) == found.view(np.uint32)) | (np.isnan(expected) & np.isnan(found))
        where = np.argwhere(~np.asarray(same))
        failures += len(where)
        for at in map(tuple, where[:3]):
            print(f"{label}: {name}{list(map(int, at))}: expected {expected[at]!r}, got {found[at]!r}; "
                  f"{len(where)} differ")
    return failures


def check_recipes(tool, folder):
    failures = 0
    cases = 0
    for name, x in tensors():
        np.save(folder / "x.npy", x)
        for preset, role, recipe in RECIPES:
            run(tool, "quantize", folder / "x.npy", "--recipe", preset, "--role", role, "-o", folder / "q.safetensors")
            failures += check(f"{preset} {role} {name}", recipe(x), read_safetensors(folder / "q.safetensors"))
            cases += 1
    print(f"{cases} tensors quantized")
    return failures


def scale_of_sum(value, alpha):
    """alpha * sum + 0 in binary32, nearest even; a NaN is canonical."""
    y = F32(np.float64(alpha) * np.float64(np.uint32(value).view(F32)) + 0.0)
    return 0x7FFFFFFF if np.isnan(y) else int(y.view(np.uint32))


def check_products(tool, folder):
    """What `quantize` wrote, multiplied by `gemm`, against exact integers."""
    rng = np.random.default_rng(3)
    failures = 0
    kinds = [("nvfp4", "mxf4nvf4", " ue4m3 16", "e2m1", ("ue4m3", 16)), ("mxfp4", "mxf4nvf4", " ue8m0 32", "e2m1", ("ue8m0", 32)),
             ("te-nvfp4", "mxf4nvf4", " ue4m3 16", "e2m1", ("ue4m3", 16))]
    for chip in ("sm100.tcgen05", "sm120.mma"):
        for preset, instruction, row, fmt, (scale_format, block) in kinds:
            m, n, k = (16, 16, 192) if preset == "te-nvfp4" else (5, 7, 192)
            for side, rows, role in (("a", m, "activation"), ("b", n, "weight")):
                x = (rng.standard_normal((rows, k)) * np.exp(2 * rng.standard_normal((rows, k)))).astype(F32)
                np.save(folder / f"{side}.npy", x)
                run(tool, "quantize", folder / f"{side}.npy", "--recipe", preset, "--role", role, "-o",
                    folder / f"{side}.safetensors")
            codes = {side: read_safetensors(folder / f"{side}.safetensors") for side in "ab"}
            end = "scale_inv_" + ("ue4m3" if scale_format == "ue4m3" else "e8m0")
            options = []
            alpha = F32(1)
            for side in "ab":
                options += [f"--scale-{side}", f"{folder}/{side}.safetensors:{side}.{end}"]
                if scale_format == "ue4m3":
                    options += [f"--tensor-scale-{side}", f"{folder}/{side}.safetensors:{side}.tensor_scale_inv"]
                    alpha *= codes[side][f"{side}.tensor_scale_inv"][()]
            model = f"{chip}.{instruction}"
            inputs = [f"{folder}/{side}.safetensors:{side}" for side in "ab"]
            run(tool, "gemm", *inputs, "--model", model, *options, "-o", folder / "d.npy")
            run(tool, "gemm", folder / "a.npy", folder / "b.npy", "--recipe", preset, "--model", model, "-o",
                folder / "r.npy")
            d = np.load(folder / "d.npy").view(np.uint32)
            if not np.array_equal(d, np.load(folder / "r.npy").view(np.uint32)):
                print(f"{model} {preset}: --recipe gives other bits than what quantize wrote")
                failures += 1
            unit = UNITS[f"{model}{row}"].unit
            scales = {side: np.repeat(codes[side][f"{side}.{end}"], rows // len(codes[side][f"{side}.{end}"]), 0)
                      for side, rows in (("a", m), ("b", n))}
            wrong = 0
            for i in range(m):
                for j in range(n):
                    total = unit.dot([decode(fmt, int(c)) for c in codes["a"]["a"][i]],
                                     [decode(fmt, int(c)) for c in codes["b"]["b"][j]], decode("f32", 0),
                                     [int(s) for s in scales["a"][i]], [int(s) for s in scales["b"][j]], block,
                                     scale_format)
                    expected = scale_of_sum(word(total), alpha) if scale_format == "ue4m3" else word(total)
                    if expected != int(d[i, j]):
                        wrong += 1
                        if wrong == 1:
                            print(f"{model} {preset} [{i}, {j}]: expected {expected:08x}, got {d[i, j]:08x}")
            print(f"{model} {preset}: {m * n} outputs, {wrong} differ")
            failures += wrong
            verdict = run(tool, "verify", folder / "d.npy", "--inputs", *inputs, "--model", model, *options)
            if "all" not in verdict.split("\n")[0]:
                print(f"verify of {model} {preset} says: {verdict.splitlines()[0]}")
                failures += 1
            said = run(tool, "identify", *inputs, folder / "d.npy", *options)
            if instruction not in said:
                print(f"identify does not name {model}: {said}")
                failures += 1
    return failures


def main():
    tool = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        failures = check_recipes(tool, pathlib.Path(name)) + check_products(tool, pathlib.Path(name))
    print(f"{failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
